/* The form in the editor: the method's parameters and the run's settings, made from the server's catalog. */

import { on } from "specviz/base/bus.js";
import { closest, h, place, replace, rested } from "specviz/base/dom.js";
import { field, fields, valuesOf } from "specviz/base/field.js";
import { KeptState } from "specviz/shell/kept.js";
import { offerModel } from "specviz/shell/made_with.js";
import { badge, missingMethods } from "specviz/shell/methods.js";
import * as request from "specviz/shell/request.js";
import { stop } from "specviz/shell/stage.js";
import { app } from "specviz/shell/state.js";
import { fill } from "specviz/shell/typed.js";
import { parted, ruleField } from "specviz/shell/verifiers.js";
import { effect } from "specviz/ui/html.js";

/**
 * ``value`` is {"method", "params", "settings", "pooled"}; triggers "offered" with every catalog, "run", and "again",
 * where ``value`` also names the run whose prompt is asked for.
 */
/** @param {Part} part */
export function mount({ element, props, trigger }) {
  const box = place(element, "form");
  /** @type {import("specviz/base/field.js").Field[]} of the method, and of the run */
  let own = [];
  /** @type {import("specviz/base/field.js").Field[]} */
  let common = [];
  /** @type {ReturnType<typeof ruleField>} */
  let rule = null;
  const greedy = () => !Number(request.settings.temperature);
  const keptState = new KeptState();
  const madeWith = h("p.svm-offer.ui-row.ui-soft", { hidden: true }); // of the run shown, where another model made it

  /** The editor holds the run that is shown: its prompt comes from the server. @param {string} id */
  function hold(id) {
    const run = app.inspector?.model?.run;
    if (!run || run.id !== id) return;
    offerModel(madeWith, id);
    if (app.held === id) return; // it was started from what stands in the editor
    app.held = id;
    request.takeOver(run);
    fill(id);
    props.value = JSON.stringify({ ...JSON.parse(props.value || "{}"), again: id, n: Date.now() });
    trigger("again");
  }
  on("current", hold);

  /** Runs with what the form has, in place of the run of this page that goes on. */
  const again = rested(async () => {
    if (request.catalog.value.reason) return;
    if (app.mine.size) await stop();
    trigger("run");
  }, 350);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || !closest(event, "#sv-panel, #sv-bar")) return;
    if (!request.catalog.value.reason) trigger("run");
  });

  function changed() {
    const card = request.method.value;
    if (!card) return;
    const params = (request.params[card.name] = valuesOf(own));
    const { compare, ...rest } = valuesOf(common);
    Object.assign(request.settings, rest);
    const other = card.controls.filter((c) => String(params[c.name]) !== String(c.default)).length;
    request.changed.value = other + (parted(card.name).rule ? 1 : 0);
    rule?.update();
    const { settings } = request;
    props.value = JSON.stringify({ method: card.name, params, settings, pooled: Boolean(card.pooled) });
  }

  /** @param {string} name */
  function chooseRule(name) {
    request.chooseRule(name);
    document.getElementById("svf-verifier")?.focus(); // the field was drawn anew
  }

  function draw() {
    const { methods, settings, reason, note } = request.catalog.value;
    request.renewed.value;
    const card = request.method.value;
    request.caution(reason, note);
    if (!card) return box.replaceChildren();
    document.body.classList.toggle("sv-pooled-method", Boolean(card.pooled));
    // a lossy threshold is there to be tried: letting go of its slider runs again
    const values = request.params[card.name] || {};
    own = card.controls.map((c) => {
      const value = c.name in values ? values[c.name] : c.default;
      if (card.lossless || c.name !== "delta") return field(c, value, changed);
      return field({ ...c, help: `${c.help} Letting go of the slider runs.` }, value, changed, again);
    });
    rule = ruleField(request.catalog.value, card.name, greedy, chooseRule);
    common = fields(settings.filter((c) => c.name !== "compare"), request.settings, changed);
    const upFront = common.filter(({ name }) => name === "max_new_tokens");
    const sampling = common.filter((row) => !upFront.includes(row));
    /** @type {(name: string, text: string, rows: { row: HTMLElement }[], open: boolean) => Child} */
    const folded = (name, text, rows, open) =>
      rows.length > 0 && h("details.ui-fold", { class: name, open }, h("summary", text), rows.map(({ row }) => row));
    const samplingOpen = Boolean(box.querySelector(".svf-sampling[open]"));
    const inside = [
      madeWith,
      h(
        "p.svf-summary",
        { id: "svf-summary" },
        badge(card), " ", h("b", card.title), " ", card.summary,
        card.paper && h("span.svf-paper", ` ${card.paper}`),
      ),
      missingMethods(methods),
      folded("svf-params", "Verifier and parameters of the method", [...(rule ? [rule] : []), ...own], true),
      keptState.element,
      upFront.map(({ row }) => row),
      folded("svf-sampling", "Sampling", sampling, samplingOpen),
    ];
    replace(box, inside);
    keptState.show(card);
    changed();
  }

  effect(draw);
  on("compare", () => changed());
  request.follow(() => trigger("offered"));
  if (app.current && app.early) hold(app.current); // the run that the address names was drawn before
  on("runs", (runs) => { // a file's run that the app opens on; a gallery run's example stands in the form already
    if (!app.held && runs.some(({ id, kind }) => id === app.current && kind !== "gallery")) hold(app.current);
  });
}
