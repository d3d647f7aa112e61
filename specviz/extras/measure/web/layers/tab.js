/* The tab "Layers": which layers the text of the run shown did not need, read by the server on demand. */

import { on } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { getJson, goesOn, poll, postJson, sentence } from "specviz/base/json.js";
import { percentage, plural } from "specviz/base/numbers.js";
import { ofPosition } from "specviz/inspect/selection.js";
import { Bars, extremes } from "specviz/layers/chart.js";
import { app } from "specviz/shell/state.js";
import { html, render, signal } from "specviz/ui/html.js";

const LOOK_MS = 500;
const NAMED = 3; // layers in the sentence
const SHOWN = 40; // tokens in the list
const NOTE =
  "The model reads this run's text with one layer left out, each in turn, and its first choices are compared " +
  "with those of the whole model. It does not say what leaving out two layers would do, nor what it would save.";

export class LayersTab {
  /** @param {Inspector} inspector */
  constructor(inspector) {
    this.inspector = inspector;
    this.reason = signal("");
    this.task = signal(/** @type {LayersCard | null} */ (null));
    this.layer = signal(-1); // whose changed places are listed
    this.wrong = signal("");
    this.open = false;
    this.id = ""; // the run that is shown here, or asked for
    this.ticket = 0;
    const element = h("section.svly", { "aria-label": "Layers" });
    render(html`<${Layers} tab=${this} />`, element);
    const open = () => ((this.open = true), this.look());
    inspector.tabs.add({ name: "layers", label: "Layers", element, open, close: () => (this.open = false) });
    on("current", () => this.look());
    on("runs", () => this.look());
  }

  /** Asks for the run shown, once, while the tab is open. */
  async look() {
    const id = app.shown;
    if (!this.open || !id || id === this.id) return;
    [this.task.value, this.layer.value, this.reason.value, this.wrong.value] = [null, -1, "", ""];
    if (!this.inspector.model?.run.complete) {
      this.wrong.value = "This run still goes on: its text can be read when it is over.";
      return;
    }
    this.id = id;
    try {
      const answer = /** @type {LayersAnswer} */ (await getJson(`api/layers/run/${encodeURIComponent(id)}`));
      if (this.id !== id) return;
      this.reason.value = answer.reason;
      if (answer.task) await this.follow(answer.task);
    } catch (problem) {
      if (this.id === id) this.fail(problem);
    }
  }

  /** @param {unknown} problem */
  fail(problem) {
    this.id = ""; // asked for again when the tab is opened
    this.wrong.value = sentence(problem);
  }

  /** Shows work until it is over. @param {LayersCard} card */
  async follow(card) {
    const ticket = ++this.ticket;
    this.task.value = card;
    const wanted = () => ticket === this.ticket && card.run === this.id;
    /** @returns {Promise<LayersCard>} */
    const ask = () => getJson(`api/layers/of/${encodeURIComponent(card.id)}`);
    if (goesOn(card.state)) await poll(ask, LOOK_MS, wanted, (one) => goesOn((this.task.value = one).state));
    if (wanted()) this.wrong.value = this.task.value?.error ?? "";
  }

  async start() {
    this.wrong.value = "";
    try {
      await this.follow(await postJson(`api/layers/run/${encodeURIComponent(this.id)}`, {}));
    } catch (problem) {
      this.wrong.value = sentence(problem);
    }
  }

  async stop() {
    const { value } = this.task;
    if (value) await postJson("api/layers/stop", { id: value.id }).catch((problem) => this.fail(problem));
  }

  /** Shows the step that wrote a token, and selects it. @param {number} position */
  select(position) {
    const { inspector } = this;
    inspector.pause();
    inspector.setStep(inspector.model.stepOf(position));
    inspector.reveal(position);
    inspector.select(ofPosition(inspector.model, position));
  }
}

/** @param {{ tab: LayersTab }} props */
function Layers({ tab }) {
  const task = tab.task.value;
  const wrong = tab.wrong.value || tab.reason.value;
  const busy = !!task && goesOn(task.state);
  return html`<div class="svly-inside ui-stack">
    ${!tab.reason.value && html`<div class="ui-row svly-form">
      <p class="ui-soft">Which layers did this text not need? Each is left out once.</p>
      ${busy && html`<button type="button" class="ui-button" onClick=${() => tab.stop()}>Stop</button>`}
      ${!busy && !task?.report && html`<button type="button" class="ui-button" onClick=${() => tab.start()}>
        Leave out each layer</button>`}
    </div>`}
    ${wrong && html`<p class="ui-soft" role="status">${wrong}</p>`}
    ${busy && html`<p class="ui-row" role="status">
      <progress aria-label="Layers left out" max=${task.total || 1} value=${task.done} />
      ${task.state === "queued" ? "Waiting …" : `${task.words}: ${task.done} of ${task.total || "…"}`}</p>`}
    ${task?.report && html`<${Result} tab=${tab} report=${task.report} />`}
  </div>`;
}

/** @param {{ tab: LayersTab, report: LayersReport }} props */
function Result({ tab, report }) {
  const { kept, changed, places } = report;
  const { least, most } = extremes(kept, NAMED);
  const layer = tab.layer.value;
  /** @param {number[]} numbers */
  const named = (numbers) => numbers.map((one) => `${one} (${percentage(kept[one - 1])})`).join(", ");
  const { model } = tab.inspector;
  return html`
    <p>Of ${plural(places, "place")}, the first choice stays most often without layer ${" "}
      <b>${named(least)}</b>, least often without <b>${named(most)}</b>.</p>
    <div class="svly-chart"><${Bars} kept=${kept} chosen=${layer} choose=${(/** @type {number} */ one) => {
      tab.layer.value = one === layer ? -1 : one;
    }} /></div>
    ${layer >= 0 && html`<p class="svly-changed">
      ${`Without layer ${layer + 1} the choice changes at ${plural(changed[layer].length, "token")}.`}
      ${changed[layer].slice(0, SHOWN).map((position) => html`<button type="button" class="svly-token"
        onClick=${() => tab.select(position)}><code class="sv-token">${model.pieces.label(model.id(position) ?? -1, 14)}
        </code></button>`)}
      ${changed[layer].length > SHOWN && `and ${changed[layer].length - SHOWN} more`}</p>`}
    <p class="ui-soft">${NOTE}</p>`;
}
