/* The tab "Layers": which layers the text of the run shown did not need, read by the server on demand. */

import { h } from "specviz/base/dom.js";
import { goesOn } from "specviz/base/json.js";
import { percentage, plural } from "specviz/base/numbers.js";
import { Bars, extremes, needed } from "specviz/layers/chart.js";
import { Standing, StagedTab, StartStop } from "specviz/staged/tab.js";
import { showToken } from "specviz/staged/token.js";
import { html, render, signal } from "specviz/ui/html.js";

const NAMED = 3; // layers in the sentence
const SHOWN = 600; // tokens of the text
const DARKEST = 0.7; // share of the colour, of the token that most layers change
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
  /** @type {(numbers: number[]) => string} */
  const named = (numbers) => numbers.every((one) => kept[one - 1] === kept[numbers[0] - 1])
    ? `${numbers.join(", ")} (${percentage(kept[numbers[0] - 1])})`
    : numbers.map((one) => `${one} (${percentage(kept[one - 1])})`).join(", ");
  return html`
    <p>How many of ${plural(places, "first choice")} stay without one layer${
      of > kept.length && `: the first ${plural(kept.length, "layer")} so far`}.</p>
    ${least.length > 0 && html`<ul class="ui-legend">
      <li><i class="svly-key" />needed least: <b>${named(least)}</b></li>
      <li><i class="svly-key svly-key-most" />needed most: <b>${named(most)}</b></li></ul>`}
    <${Bars} kept=${kept} of=${of} least=${least} most=${most} chosen=${layer}
      choose=${(/** @type {number} */ one) => {
        tab.layer.value = one === layer ? -1 : one;
      }} />
    <${Text} tab=${tab} counts=${needed(changed, tab.inspector.model.promptLength, places)} of=${kept.length}
      chosen=${layer} changes=${new Set(changed[layer])} />
    <p class="ui-soft">${NOTE}</p>`;
}

/** The output: the more layers a token needs, the stronger its colour; those the chosen layer changes are framed. */
/** @param {{ tab: LayersTab, counts: number[], of: number, chosen: number, changes: Set<number> }} props */
function Text({ tab, counts, of, chosen, changes }) {
  const { model } = tab.inspector;
  const most = Math.max(1, ...counts);
  return html`<div class="ui-stack">
    <h3>${chosen < 0
      ? "Which tokens needed many layers?"
      : `Without layer ${chosen + 1} the choice changes at ${plural(changes.size, "token")}`}</h3>
    <p class="ui-soft">The stronger its colour, the more layers change a token. Choose a bar: its tokens are framed.</p>
    <p class="svly-text">${counts.slice(0, SHOWN).map((count, place) => {
      const position = model.promptLength + place;
      return html`<button type="button" class="svly-token ${changes.has(position) ? "svly-changes" : ""}"
        style="--share:${(DARKEST * count) / most}" title="${plural(count, "layer")} of ${of} change it"
        onClick=${() => showToken(tab.inspector, position)}><code>
        ${model.pieces.label(model.id(position) ?? -1, 14)}</code></button>`;
    })}${counts.length > SHOWN && ` and ${plural(counts.length - SHOWN, "token")} more`}</p>
  </div>`;
}
