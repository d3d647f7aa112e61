/* An imported run, read by the model in use: its probabilities, and (by a method) what the server left out. */

import { button, card, h, icon } from "specviz/base/dom.js";
import { getJson, postJson, sentence } from "specviz/base/json.js";
import { methodOption } from "specviz/shell/methods.js";
import { open } from "specviz/shell/open.js";
import { refreshRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";

const WHAT =
  "The model in use reads the text once more: probabilities, ranks and first choices are then its own, and marked as " +
  "recomputed; the server's probabilities stay beside them. The run that was opened stays as it is.";
const DRAFTS =
  "With a method every step is drafted again, too. Where as many tokens stand as the server accepted, the rejected " +
  "ones are filled in; where not, the step is flagged.";

/** The panel, in the candidates' place while it is open; only imported runs have its button. */
export class Reading {
  /** @param {Inspector} inspector */
  constructor(inspector) {
    this.inspector = inspector;
    const opens = { "aria-expanded": "false", hidden: true, onclick: () => this.toggle() };
    this.button = h("button.sv-button.sv-quiet.svo-open", opens, "Read again …");
    inspector.tip.add(this.button, () => [WHAT]);
    const { element, body, note, bar } = card("reading", "Read again");
    this.element = element;
    this.note = note;
    element.hidden = true;
    bar.append(button("Close", { class: "sv-square sv-quiet", onclick: () => this.toggle(false) }, icon("close")));
    this.select = h("select.svp-select", { "aria-label": "Method that drafts every step again" });
    this.go = h("button.sv-button", { onclick: () => this.read() }, "Read again");
    this.words = h("p", { role: "status" });
    const choose = h("div.svo-reading", h("label", "Draft again with ", this.select), this.go);
    body.append(choose, this.words, h("p.svo-limits", WHAT), h("p.svo-limits", DRAFTS));
    inspector.addPanel(element);
    inspector.tree.bar.insertBefore(this.button, inspector.tree.choices);
    inspector.on("panel", (panel) => panel !== element && !element.hidden && this.expand(false));
    inspector.on("able", () => this.described());
    this.described();
  }

  described() {
    const { imported } = this.inspector.model.run;
    this.button.hidden = !imported;
    this.words.replaceChildren();
    if (!imported && !this.element.hidden) this.expand(false);
  }

  /** @param {boolean} on */
  expand(on) {
    this.element.hidden = !on;
    this.button.setAttribute("aria-expanded", String(on));
    if (on) this.inspector.emit("panel", this.element);
    this.inspector.resized();
  }

  /** Opens or closes the panel. @returns {Promise<void>} */
  async toggle(on = this.element.hidden) {
    this.expand(on);
    if (!on) return this.button.focus({ preventScroll: true });
    this.element.scrollIntoView({ block: "nearest", behavior: "smooth" });
    this.select.focus({ preventScroll: true });
    try {
      /** @type {Catalog} */
      const { methods } = await getJson("api/methods");
      const none = h("option", { value: "" }, "no method: read only");
      this.select.replaceChildren(none, ...methods.filter((m) => !m.baseline).map((m) => methodOption(m)));
    } catch (problem) {
      this.said(problem);
    }
  }

  /** @param {unknown} problem */
  said(problem) {
    this.words.replaceChildren(h("span.svp-error", sentence(problem)));
  }

  async read() {
    const run = app.shown;
    this.go.disabled = true;
    this.words.replaceChildren("The model reads the text …");
    try {
      const method = this.select.value || null;
      const { id } = await postJson(`api/whatif/${encodeURIComponent(run)}/read`, { method });
      if (app.shown === run) await open(id);
      refreshRuns();
      this.words.replaceChildren();
    } catch (problem) {
      this.said(problem);
    } finally {
      this.go.disabled = false;
    }
  }
}
