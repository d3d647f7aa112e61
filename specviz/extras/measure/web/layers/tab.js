/* The tab "Layers": which layers the text of the run shown did not need, read by the server on demand. */

import { h } from "specviz/base/dom.js";
import { goesOn } from "specviz/base/json.js";
import { percentage, plural } from "specviz/base/numbers.js";
import { Bars, extremes } from "specviz/layers/chart.js";
import { Standing, StagedTab, StartStop } from "specviz/staged/tab.js";
import { showToken } from "specviz/staged/token.js";
import { html, render, signal } from "specviz/ui/html.js";

const NAMED = 3; // layers in the sentence
const SHOWN = 40; // tokens in the list
const NOTE =
  "The model reads this run's text with one layer left out, each in turn, and its first choices are compared " +
  "with those of the whole model. It does not say what leaving out two layers would do, nor what it would save.";

/** @extends {StagedTab<LayersCard, LayersAnswer>} */
export class LayersTab extends StagedTab {
  /** @param {Inspector} inspector */
  constructor(inspector) {
    const element = h("section.svst.svly");
    super(inspector, "layers", "Layers", element);
    this.layer = signal(-1); // whose changed places are listed
    render(html`<${Layers} tab=${this} />`, element);
  }

  /** @param {LayersAnswer} answer */
  take({ task }) {
    this.layer.value = -1;
    return task;
  }
}

/** @param {{ tab: LayersTab }} props */
function Layers({ tab }) {
  const task = tab.task.value;
  const report = task?.report;
  const going = !!task && goesOn(task.state);
  const cost = tab.answer.value?.cost;
  const measured = going && report?.kept.length; // nothing is said before the first layer was left out
  const left = measured ? (report.ms / measured) * (task.total - measured) / 1000 : 0;
  return html`<div class="ui-stack">
    ${!tab.answer.value?.reason && html`<h3>Which layers did this text not need?</h3>`}
    ${task?.state !== "done" && !tab.answer.value?.reason && html`<div class="svly-form ui-stack">
      <p>The model reads the text again with one layer left out, then the next: a bar per layer says how often its
        choice stays. ${cost && `That is ${cost}.`}</p>
      <div><${StartStop} tab=${tab} label="Leave out each layer" /></div>
    </div>`}
    <${Standing} tab=${tab} label="Layers left out" left=${left} />
    ${report && report.kept.length > 0 && html`<${Result} tab=${tab} report=${report}
      of=${task.total} />`}
  </div>`;
}

/** ``of``: all layers, where some are still to come. */
/** @param {{ tab: LayersTab, report: LayersReport, of: number }} props */
function Result({ tab, report, of }) {
  const { kept, changed, places } = report;
  const { least, most } = extremes(kept, NAMED);
  const layer = tab.layer.value;
  /** @param {number[]} numbers */
  const named = (numbers) => numbers.map((one) => `${one} (${percentage(kept[one - 1])})`).join(", ");
  const { model } = tab.inspector;
  return html`
    <p>Of ${plural(places, "place")}${of > kept.length && `, by the first ${plural(kept.length, "layer")}`}, the first
      choice stays most often without layer ${" "}
      <b><i class="svly-key" />${named(least)}</b>, least often without ${" "}
      <b><i class="svly-key svly-key-most" />${named(most)}</b>.</p>
    <${Bars} kept=${kept} of=${of} least=${least} most=${most} chosen=${layer}
      choose=${(/** @type {number} */ one) => {
        tab.layer.value = one === layer ? -1 : one;
      }} />
    ${layer >= 0 && html`<p class="svly-changed">
      ${`Without layer ${layer + 1} the choice changes at ${plural(changed[layer].length, "token")}.`}
      ${changed[layer].slice(0, SHOWN).map((position) => html`<button type="button" class="svly-token"
        onClick=${() => showToken(tab.inspector, position)}><code class="sv-token">
        ${model.pieces.label(model.id(position) ?? -1, 14)}</code></button>`)}
      ${changed[layer].length > SHOWN && `and ${changed[layer].length - SHOWN} more`}</p>`}
    <p class="ui-soft">${NOTE}</p>`;
}
