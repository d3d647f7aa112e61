/* The tab "Rules" of Inspect: the run shown, judged by the server in the background, fetched once per run. */

import { emit, on } from "specviz/base/bus.js";
import { getJson, sentence } from "specviz/base/json.js";
import { verdicts } from "specviz/acceptance/judges.js";
import { JudgesPanel } from "specviz/judges/panel.js";
import { catalog, chooseRule, takeOver } from "specviz/shell/request.js";
import { app } from "specviz/shell/state.js";
import { joined, parted } from "specviz/shell/verifiers.js";

export class JudgesTab {
  /** @param {Inspector} inspector */
  constructor(inspector) {
    this.inspector = inspector;
    this.panel = new JudgesPanel(inspector);
    this.panel.replay = (rule) => this.replay(rule);
    this.open = false;
    /** The run that is shown here, or asked for. */
    this.id = "";
    inspector.tabs.add({
      name: "judges",
      label: "Rules",
      element: this.panel.element,
      open: () => ((this.open = true), this.look()),
      close: () => (this.open = false),
    });
    on("current", () => this.look());
    on("runs", () => this.look()); // a run is over, perhaps
  }

  /** Runs the prompt of the run shown from its first token on, its drafts judged by a rule. @param {string} rule */
  replay(rule) {
    const { run } = this.inspector.model ?? {};
    const { reason } = catalog.value;
    if (!run || reason) return this.panel.say(reason || "There is no run to decode again.");
    takeOver(run);
    chooseRule(joined(parted(run.method.name).base, rule));
    emit("run");
  }

  /** Asks for the run shown, once, while the tab is open. */
  async look() {
    const id = app.shown;
    if (!this.open || !id) return;
    if (!this.inspector.model?.run.complete) {
      this.id = "";
      return this.panel.say("This run still goes on: its drafts can be judged when it is over.");
    }
    if (id === this.id) return;
    this.id = id;
    this.panel.say("Judging …");
    const wanted = () => this.open && this.id === id && app.shown === id;
    try {
      /** @returns {Promise<JudgedRun | StillJudging>} */
      const ask = () => getJson(`api/acceptance/judged/${encodeURIComponent(id)}`);
      const answer = await verdicts(ask, (text) => this.panel.say(text), wanted);
      if (this.id !== id) return;
      if (!answer) this.id = ""; // the tab was left: asked for again when it is opened
      else if (answer.reason) this.panel.say(answer.reason);
      else this.panel.show(answer.rules ?? [], answer.steps ?? []);
    } catch (problem) {
      if (this.id === id) this.panel.say(sentence(problem));
    }
  }
}
