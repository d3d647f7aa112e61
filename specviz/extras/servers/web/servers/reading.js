/* An imported run, read by the model in use: its probabilities, and (by a method) what the server left out. */

import { card, h } from "specviz/base/dom.js";
import { postJson, sentence } from "specviz/base/json.js";
import { methodOption } from "specviz/shell/methods.js";
import { open } from "specviz/shell/open.js";
import { known } from "specviz/shell/request.js";
import { refreshRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";

const WHAT =
  "The model in use reads the text once more: probabilities, ranks and first choices are then its own, and marked as " +
  "recomputed; the server's probabilities stay beside them. The run that was opened stays as it is.";
const DRAFTS =
  "With a method every step is drafted again, too. Where as many tokens are accepted as by the server, the " +
  "rejected tokens are filled in; where not, the step is flagged.";

/** The tab; only imported runs have it. */
export class Reading {
  /** @param {Inspector} inspector */
  constructor(inspector) {
    this.inspector = inspector;
    const { element, body } = card("reading", "Read again");
    this.element = element;
    this.select = h("select.svp-select", { "aria-label": "Method that drafts every step again" });
    this.go = h("button.sv-button", { onclick: () => this.read() }, "Read again");
    this.words = h("p", { role: "status" });
    const choose = h("div.svo-reading.ui-row", h("label.ui-row", "Draft again with ", this.select), this.go);
    body.append(choose, this.words, h("p.svo-limits.ui-soft", WHAT), h("p.svo-limits.ui-soft", DRAFTS));
    inspector.on("able", () => this.described());
    this.described();
  }

  described() {
    const { inspector, element } = this;
    this.words.replaceChildren();
    if (!inspector.model.run.imported) return inspector.tabs.remove("reading");
    inspector.tabs.add({ name: "reading", label: "Read again", look: "svo-open", element, open: () => this.fill() });
  }

  /** The methods to choose from. */
  async fill() {
    try {
      /** @type {Catalog} */
      const { methods } = await known();
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
