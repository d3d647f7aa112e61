/* The method form: method, its parameters and the run's settings, made from the server's catalog. */

import { emit, on } from "specviz/base/bus.js";
import { closest, find, h, place, replace, rested } from "specviz/base/dom.js";
import { field, fields, valuesOf } from "specviz/base/field.js";
import { getJson, sentence } from "specviz/base/json.js";
import { stored } from "specviz/base/storage.js";
import { offerModel } from "specviz/shell/made_with.js";
import { KeptState } from "specviz/shell/kept.js";
import { badge, methodGroups, missingMethods } from "specviz/shell/methods.js";
import { stop } from "specviz/shell/stage.js";
import { app } from "specviz/shell/state.js";

/** @typedef {Record<string, Setting>} Values */
/**
 * What stands beside the run button: why it is off, what to know of the model, and that a lossy method may answer
 * otherwise.
 */
/** @param {string} reason @param {string} [note] @param {MethodCard} [method] */
function caution(reason, note = "", method = undefined) {
  const lossy =
    method && !method.lossless
      ? `≈ lossy: ${method.title.split(":")[0]} may answer otherwise than the model by itself; ` +
        "plain decoding runs too, to compare."
      : "";
  emit("caution", (app.caution = { reason, note, lossy }));
}

/**
 * ``value`` is {"method", "params", "settings", "pooled"}; triggers "offered" with every catalog, "run", and "again",
 * where ``value`` also names the run whose prompt is asked for.
 */
/** @param {Part} part */
export function mount({ element, props, trigger }) {
  const box = place(element, "form");
  /** @type {Record<string, Values>} by method, so that changing the method back and forth loses nothing */
  const kept = {};
  /** @type {Catalog} */
  let catalog = { methods: [], settings: [], state: "loading", reason: "Looking for methods …" };
  let chosen = stored.get("method") || "";
  /** @type {import("specviz/base/field.js").Field[]} of the method, and of the run */
  let own = [];
  /** @type {import("specviz/base/field.js").Field[]} */
  let common = [];
  /** @type {Values} */
  const settings = {};

  const keptState = new KeptState();
  const madeWith = h("p.svm-offer", { hidden: true }); // of a run that is edited, where another model made it
  /** The editor takes over a run: its method and settings here, its prompt by the server. @param {string} id */
  function edit(id) {
    const run = app.inspector?.model?.run;
    if (!run || run.id !== id) return;
    const { name, params } = run.method;
    if (!catalog.methods.find((card) => card.name === name)?.missing) {
      chosen = name; // those who are not listed yet are waited for
      kept[chosen] = { ...kept[chosen], .../** @type {Values} */ (params) };
    }
    Object.assign(settings, { max_new_tokens: run.max_new_tokens }, run.sampling);
    draw();
    offerModel(madeWith, id);
    props.value = JSON.stringify({ ...JSON.parse(props.value || "{}"), again: id, n: Date.now() });
    trigger("again");
  }
  on("again", edit);
  on("current", () => (madeWith.hidden = true));

  /** Runs with what the form has, in place of the run of this page that goes on. */
  const again = rested(async () => {
    if (catalog.reason) return;
    if (app.mine.size) await stop();
    trigger("run");
  }, 350);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || !closest(event, "#sv-panel")) return;
    if (!catalog.reason) trigger("run");
  });

  function changed() {
    const method = catalog.methods.find((m) => m.name === chosen);
    const params = (kept[chosen] = valuesOf(own));
    Object.assign(settings, valuesOf(common));
    props.value = JSON.stringify({ method: chosen, params, settings, pooled: Boolean(method?.pooled) });
  }

  /** What is chosen, else what usually is. */
  function method() {
    const there = catalog.methods.filter((m) => !m.missing);
    return (
      catalog.methods.find((m) => m.name === chosen) ??
      there.find((m) => m.name === catalog.opening) ??
      there.find((m) => m.usual) ??
      there[0] ??
      catalog.methods[0]
    );
  }

  function draw() {
    const card = method();
    caution(catalog.reason, catalog.note, card);
    if (!card) return box.replaceChildren();
    chosen = card.name;
    const choose = () => {
      chosen = find(box, "#svf-method", HTMLSelectElement).value;
      stored.set("method", chosen);
      draw();
      document.getElementById("svf-method")?.focus();
    };
    document.body.classList.toggle("sv-pooled-method", Boolean(card.pooled));
    // a lossy threshold is there to be tried: letting go of its slider runs again
    const values = kept[chosen] || {};
    own = card.controls.map((c) => {
      const value = c.name in values ? values[c.name] : c.default;
      if (card.lossless || c.name !== "delta") return field(c, value, changed);
      return field({ ...c, help: `${c.help} Letting go of the slider runs.` }, value, changed, again);
    });
    const compared = card.lossless && !card.baseline;
    common = fields(catalog.settings.filter((c) => c.name !== "compare" || compared), settings, changed);
    const upFront = common.filter(({ name }) => ["max_new_tokens", "compare"].includes(name));
    const sampling = common.filter((row) => !upFront.includes(row));
    /** @type {(name: string, text: string, rows: typeof own, open: boolean) => Child} */
    const folded = (name, text, rows, open) =>
      rows.length > 0 && h("details", { class: name, open }, h("summary", text), rows.map(({ row }) => row));
    const paramsOpen = !box.querySelector(".svf-params:not([open])");
    const samplingOpen = Boolean(box.querySelector(".svf-sampling[open]"));
    const describes = { "aria-describedby": "svf-summary", onchange: choose };
    const inside = [
      madeWith,
      h("label.svf-title", { for: "svf-method" }, "Method"),
      h("select.svp-select", { id: "svf-method", value: chosen, ...describes }, methodGroups(catalog.methods)),
      h(
        "p.svf-summary",
        { id: "svf-summary" },
        badge(card), " ", card.summary,
        card.paper && h("span.svf-paper", ` ${card.paper}`),
      ),
      missingMethods(catalog.methods),
      folded("svf-params", "Parameters of the method", own, paramsOpen),
      keptState.element,
      upFront.map(({ row }) => row),
      folded("svf-sampling", "Sampling", sampling, samplingOpen),
    ];
    replace(box, inside);
    keptState.show(card);
    changed();
  }

  async function load() {
    try {
      catalog = await getJson("api/methods");
      draw();
      trigger("offered");
    } catch (problem) {
      caution(sentence(problem));
    }
  }
  on("model", load);
  draw();
  load();
}
