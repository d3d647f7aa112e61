/* The tab "Places": drafters put at every place of the run shown, by the server, on demand. */

import { h } from "specviz/base/dom.js";
import { plural, short } from "specviz/base/numbers.js";
import { oracleOf } from "specviz/inspect/oracle.js";
import { Frontier } from "specviz/places/frontier.js";
import { MOST, StripView, shortfalls } from "specviz/places/strip.js";
import { Standing, StagedTab, StartStop } from "specviz/staged/tab.js";
import { Held } from "specviz/ui/element.js";
import { html, render, signal, useLayoutEffect } from "specviz/ui/html.js";

const SHADES = [0, 1, 2, 4, 8, MOST];
const NOTE = "Each drafter is put at every place of this run's text, the run cut there, and its draft is compared " +
  "with what was written. Steps of one drafter alone are exact; those by rows are replayed over the same text.";

/** @extends {StagedTab<ReplayCard, PlacesAnswer>} */
export class PlacesTab extends StagedTab {
  /** @param {Inspector} inspector */
  constructor(inspector) {
    const element = h("section.svst.svps");
    super(inspector, "places", "Places", element);
    this.strip = new StripView(inspector);
    this.chosen = signal(/** @type {string[]} */ ([]));
    render(html`<${Places} tab=${this} />`, element);
    inspector.on("step", () => this.strip.draw());
    inspector.on("resized", () => this.strip.draw());
  }

  /** @param {PlacesAnswer} answer */
  take({ replay, chosen }) {
    this.chosen.value = replay?.methods ?? chosen;
    return replay;
  }

  request() {
    return { methods: this.chosen.value };
  }

  /** @param {string} name */
  toggle(name) {
    const now = this.chosen.value;
    this.chosen.value = now.includes(name) ? now.filter((one) => one !== name) : [...now, name];
  }
}

/** @param {{ tab: PlacesTab }} props */
function Places({ tab }) {
  const answer = tab.answer.value;
  const replay = tab.task.value;
  const able = answer && !answer.reason;
  return html`<div class="ui-stack">
    ${!replay?.report && able && html`<h3>Could another draft have saved steps here?</h3>
      <p>Each drafter is put at every place of this text: how far would its draft have stood, and how few steps do they
        allow together? A copier takes seconds; a draft head drafts anew at every place.</p>`}
    ${able && html`<${Form} tab=${tab} answer=${answer} />`}
    <${Standing} tab=${tab} label="Drafts made" />
    ${replay?.report && html`<${Result} tab=${tab} report=${replay.report} />`}
  </div>`;
}

/** Methods by their titles. @type {(answer: PlacesAnswer | null, names: string[]) => string} */
const named = (answer, names) => names.map((name) => titleIn(answer, name)).join(", ");

/** @param {PlacesAnswer | null} answer @param {string} name */
const titleIn = (answer, name) => short(answer?.methods.find((one) => one.name === name)?.title ?? name);

/** @param {{ tab: PlacesTab, answer: PlacesAnswer }} props */
function Form({ tab, answer }) {
  const chosen = tab.chosen.value;
  return html`<div class="svps-form ui-row">
    <details class="ui-fold"><summary>Drafters: ${named(answer, chosen) || "none"}</summary>
      <div class="svps-methods">${answer.methods.map(({ name, title }) => html`<label class="ui-check" title=${title}>
        <input type="checkbox" checked=${chosen.includes(name)} onChange=${() => tab.toggle(name)} />
        ${short(title)}</label>`)}
      </div></details>
    <${StartStop} tab=${tab} label="Replay" disabled=${!chosen.length} />
  </div>`;
}

/** Steps that this text takes: as recorded, with each drafter, and with what nobody has. */
/** @type {(props: { report: PlacesReport, title: (name: string) => string, oracle: number | undefined }) => unknown} */
function Steps({ report, title, oracle }) {
  const { steps, regret, alone } = report;
  /** @type {[string, number, string][]} */
  const rows = [
    ["this run", steps.length, "svps-own"],
    ...Object.entries(alone).map(([name, count]) =>
      /** @type {[string, number, string]} */ ([`${title(name)} alone`, count, ""])),
    ["the best drafter at every place", report.oracle.length, ""],
  ];
  if (oracle) rows.push(["this run's candidates, ranked best", oracle, ""]);
  const same = rows.slice(1).filter(([, count]) => count === steps.length).map(([name]) => name); // said, not drawn
  const shown = rows.filter(([name]) => !same.includes(name));
  const most = Math.max(...rows.map(([, count]) => count));
  const saved = regret > 0 ? plural(regret, "step") : "No step"; // merged drafts may do with fewer
  const ranked = steps.length - (oracle ?? steps.length);
  return html`<h3 class="svps-regret">${saved} could be saved by other drafters</h3>
    ${(same.length > 0 || ranked > 0) && html`<p>${[
      same.length > 0 && `This run takes ${plural(steps.length, "step")}, as ${same.length > 1 ? "do" : "does"} ` +
        `${same.join(" and ")}.`,
      ranked > 0 && `A perfect ranking of this run's own candidates would save ${plural(ranked, "step")}.`,
    ].filter(Boolean).join(" ")}</p>`}
    <dl class="svps-steps" aria-label="Steps">${shown.map(([name, count, look]) => html`<dt>${name}</dt>
      <dd class=${look}><i style="width:${(100 * count) / most}%" /></dd>
      <dd>${plural(count, "step")}</dd>`)}</dl>`;
}

/** @param {{ tab: PlacesTab, report: PlacesReport }} props */
function Result({ tab, report }) {
  /** @param {string} name */
  const title = (name) => titleIn(tab.answer.value, name);
  useLayoutEffect(() => tab.strip.show(report, title));
  return html`
    <${Steps} report=${report} title=${title} oracle=${oracleOf(tab.inspector.model)?.needs} />
    <h3>How far a draft would have reached, from every token</h3>
    <p class="ui-soft">Point at a square for its token, or walk with ← →; a click or Enter shows its step.</p>
    <${Held} of=${tab.strip.canvas} />
    <ul class="svps-legend ui-legend">
      <li>tokens accepted</li>
      ${SHADES.map((tokens) => html`<li key=${tokens}><i class=${tokens ? "svps-key" : "svps-none"}
        style="--share:${0.2 + (0.8 * tokens) / MOST}" />${tokens === MOST ? `${MOST} or more` : tokens}</li>`)}
      <li><i class="svps-taken" />a step of the best path</li>
      <li><i class="svps-now" />the step shown</li>
      ${shortfalls(report).length > 0 && html`<li><i class="svps-lost" />a draft would have reached further</li>`}
    </ul>
    ${Object.entries(report.missing).map(([name, why]) => html`<p class="ui-soft" key=${name}>
      ${why.startsWith(title(name)) ? "" : `${title(name)}: `}${why}.</p>`)}
    <${Frontier} rows=${report.frontier.rows} lines=${report.frontier.lines} title=${title} />
    <p class="ui-soft">${NOTE}</p>`;
}
