/* The method form: method, its parameters and the run's settings, made from the server's catalog. */

import { emit, on } from "specviz/base/bus.js";
import { closest, h } from "specviz/base/dom.js";
import { field } from "specviz/base/field.js";
import { getJson } from "specviz/base/json.js";
import { sentence } from "specviz/base/problem.js";
import { stored } from "specviz/base/storage.js";
import { methodOption, missingMethods } from "specviz/shell/methods.js";
import { place } from "specviz/shell/place.js";
import { stop } from "specviz/shell/stage.js";
import { app } from "specviz/shell/state.js";

/** @typedef {Record<string, Setting>} Values */
/**
 * What stands beside the run button: why it is off, what to know of the model, and that a lossy method may answer
 * otherwise.
 *
 * @param {string} reason
 * @param {string} [note]
 * @param {MethodCard} [method]
 */
function caution(reason, note = "", method = undefined) {
  const lossy =
    method && !method.lossless
      ? `≈ lossy: ${method.title.split(":")[0]} may answer otherwise than the model by itself; ` +
        "plain decoding runs too, to compare."
      : "";
  emit("caution", (app.caution = { reason, note, lossy }));
}

/**
 * ``value`` is {"method", "params", "settings", "pooled"}; triggers "offered" with every catalog and "run".
 *
 * @param {Part} part
 */
export function mount({ element, props, trigger }) {
  const box = place(element, "form");
  /** @type {Record<string, Values>} by method, so that changing the method back and forth loses nothing */
  const kept = {};
  /** @type {Catalog} */
  let catalog = { methods: [], settings: [], state: "loading", reason: "Looking for methods …" };
  let chosen = stored.get("method") || "";
  /** @type {ReturnType<typeof field>[]} */
  let fields = [];
  /** @type {ReturnType<typeof field>[]} */
  let common = [];
  /** @type {Values} */
  let commonValues = {};

  let againTimer = 0;
  /** Runs with what the form has, in place of the run of this page that goes on. */
  function again() {
    clearTimeout(againTimer);
    againTimer = setTimeout(async () => {
      if (catalog.reason) return;
      if (app.mine.size) await stop();
      trigger("run");
    }, 350);
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || !closest(event, "#sv-panel")) return;
    if (!catalog.reason) trigger("run");
  });

  function changed() {
    const collect = (/** @type {typeof fields} */ list) => Object.fromEntries(list.map((f) => [f.name, f.read()]));
    kept[chosen] = collect(fields);
    commonValues = { ...commonValues, ...collect(common) };
    const method = catalog.methods.find((m) => m.name === chosen);
    props.value = JSON.stringify({
      method: chosen,
      params: kept[chosen],
      settings: commonValues,
      pooled: Boolean(method?.pooled),
    });
  }

  function draw() {
    const method =
      catalog.methods.find((m) => m.name === chosen) ||
      catalog.methods.find((m) => m.name === "pld+h" && !m.missing) ||
      catalog.methods.find((m) => !m.missing) ||
      catalog.methods[0];
    caution(catalog.reason, catalog.note, method);
    if (!method) return box.replaceChildren();
    chosen = method.name;
    const lossless = catalog.methods.filter((m) => m.lossless && !m.missing),
      lenient = catalog.methods.filter((m) => !m.lossless && !m.missing),
      missing = catalog.methods.filter((m) => m.missing);
    const group = (/** @type {string} */ label, /** @type {MethodCard[]} */ methods) =>
      h(
        "optgroup",
        { label },
        methods.map((m) => methodOption(m)),
      );
    const select = h(
      "select",
      { id: "svf-method", class: "svp-select", "aria-describedby": "svf-summary" },
      [
        group("Lossless: the output is plain decoding's", lossless),
        lenient.length ? group("Lossy: the output may differ", lenient) : null,
        missing.length ? group("Not available here", missing) : null,
      ],
    );
    select.value = chosen;
    select.addEventListener("change", () => {
      chosen = select.value;
      stored.set("method", chosen);
      draw();
      document.getElementById("svf-method")?.focus();
    });
    const values = kept[chosen] || {};
    document.body.classList.toggle("sv-pooled-method", Boolean(method.pooled));
    // a lossy threshold is there to be tried: letting go of its slider runs again
    const tried = (/** @type {Control} */ c) => !method.lossless && c.name === "delta";
    fields = method.controls.map((c) =>
      field(
        tried(c) ? { ...c, help: `${c.help} Letting go of the slider runs.` } : c,
        c.name in values ? values[c.name] : c.default,
        changed,
        tried(c) ? again : undefined,
      ),
    );
    const plain = method.name === "plain",
      upFront = (/** @type {Control} */ c) =>
        c.name === "max_new_tokens" || (c.name === "compare" && method.lossless && !plain);
    const first = catalog.settings.filter(upFront),
      rest = catalog.settings.filter((c) => !upFront(c) && c.name !== "compare");
    const make = (/** @type {Control} */ c) =>
      field(c, c.name in commonValues ? commonValues[c.name] : c.default, changed);
    const length = first.map(make),
      sampling = rest.map(make);
    common = [...length, ...sampling];
    const wasOpen = Boolean(box.querySelector(".svf-sampling[open]")),
      paramsOpen = !box.querySelector(".svf-params:not([open])");
    box.replaceChildren(
      h("label", { for: "svf-method", class: "svf-title" }, "Method"),
      select,
      h(
        "p",
        { id: "svf-summary", class: "svf-summary" },
        h(
          "span",
          {
            class: `svf-badge ${method.lossless ? "svf-lossless" : "svf-lossy"}`,
            title: method.lossless
              ? "Its output is exactly what plain decoding gives."
              : "Its output may differ from plain decoding's.",
          },
          method.lossless ? "= lossless" : "≈ lossy",
        ),
        " ",
        method.summary,
        method.paper ? h("span", { class: "svf-paper" }, ` ${method.paper}`) : null,
      ),
      missingMethods(missing),
      fields.length
        ? h(
            "details",
            { class: "svf-params", open: paramsOpen },
            h("summary", {}, "Parameters of the method"),
            fields.map((f) => f.row),
          )
        : "",
      ...length.map((f) => f.row),
      rest.length
        ? h(
            "details",
            { class: "svf-sampling", open: wasOpen },
            h("summary", {}, "Sampling"),
            sampling.map((f) => f.row),
          )
        : "",
    );
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
