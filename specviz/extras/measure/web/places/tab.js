/* The tab "Places": drafters put at every place of the run shown, by the server, on demand. */

import { on } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { getJson, goesOn, poll, postJson, sentence } from "specviz/base/json.js";
import { plural } from "specviz/base/numbers.js";
import { Frontier } from "specviz/places/frontier.js";
import { MOST, StripView } from "specviz/places/strip.js";
import { app } from "specviz/shell/state.js";
import { Held } from "specviz/ui/element.js";
import { html, render, signal, useLayoutEffect } from "specviz/ui/html.js";

const LOOK_MS = 500;
const SHADES = [0, 1, 2, 4, 8, MOST];
const NOTE = "Each drafter is put at every place of this run's text, the run cut there, and its draft is compared " +
  "with what was written. Steps of one drafter alone are exact; rows verified are replayed over the same text.";

export class PlacesTab {
  /** @param {Inspector} inspector */
  constructor(inspector) {
    this.inspector = inspector;
    this.strip = new StripView(inspector);
    this.answer = signal(/** @type {PlacesAnswer | null} */ (null));
    this.replay = signal(/** @type {ReplayCard | null} */ (null));
    this.chosen = signal(/** @type {string[]} */ ([]));
    this.wrong = signal("");
    this.open = false;
    this.id = ""; // the run that is shown here, or asked for
    this.ticket = 0;
    const element = h("section.svps", { "aria-label": "Places" });
    render(html`<${Places} tab=${this} />`, element);
    const open = () => ((this.open = true), this.look());
    inspector.tabs.add({ name: "places", label: "Places", element, open, close: () => (this.open = false) });
    on("current", () => this.look());
    on("runs", () => this.look());
    inspector.on("step", () => this.strip.draw());
    inspector.on("resized", () => this.strip.draw());
  }

  /** Asks for the run shown, once, while the tab is open. */
  async look() {
    const id = app.shown;
    const { model } = this.inspector;
    if (!this.open || !id || id === this.id) return;
    this.replay.value = this.answer.value = null;
    if (!model?.run.complete) {
      this.wrong.value = "This run still goes on: its places can be replayed when it is over.";
      return;
    }
    this.id = id;
    this.wrong.value = "";
    try {
      const answer = /** @type {PlacesAnswer} */ (await getJson(`api/places/run/${encodeURIComponent(id)}`));
      if (this.id !== id) return;
      this.answer.value = answer;
      this.chosen.value = answer.replay?.methods ?? answer.chosen;
      if (answer.replay) await this.follow(answer.replay);
    } catch (problem) {
      if (this.id === id) this.fail(problem);
    }
  }

  /** @param {unknown} problem */
  fail(problem) {
    this.id = ""; // asked for again when the tab is opened
    this.wrong.value = sentence(problem);
  }

  /** Shows a replay until it is over. @param {ReplayCard} card */
  async follow(card) {
    const ticket = ++this.ticket;
    this.replay.value = card;
    const wanted = () => ticket === this.ticket && card.run === this.id;
    /** @returns {Promise<ReplayCard>} */
    const ask = () => getJson(`api/places/of/${encodeURIComponent(card.id)}`);
    if (goesOn(card.state)) await poll(ask, LOOK_MS, wanted, (one) => goesOn((this.replay.value = one).state));
    if (wanted()) this.wrong.value = this.replay.value?.error ?? "";
  }

  async start() {
    this.wrong.value = "";
    try {
      const methods = this.chosen.value;
      await this.follow(await postJson(`api/places/run/${encodeURIComponent(this.id)}`, { methods }));
    } catch (problem) {
      this.wrong.value = sentence(problem);
    }
  }

  async stop() {
    const { value } = this.replay;
    if (value) await postJson("api/places/stop", { id: value.id }).catch((problem) => this.fail(problem));
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
  const replay = tab.replay.value;
  const wrong = tab.wrong.value || answer?.reason;
  const busy = !!replay && goesOn(replay.state);
  return html`<div class="svps-inside ui-stack">
    ${answer && !answer.reason && html`<${Form} tab=${tab} answer=${answer} busy=${busy} />`}
    ${wrong && html`<p class="ui-soft" role="status">${wrong}</p>`}
    ${busy && html`<p class="ui-row" role="status">
      <progress aria-label="Drafts made" max=${replay.total || 1} value=${replay.done} />
      ${replay.state === "queued" ? "Waiting …" : `${replay.words}: ${replay.done} of ${replay.total || "…"}`}</p>`}
    ${replay?.report && html`<${Result} tab=${tab} report=${replay.report} />`}
    ${!replay && answer && !answer.reason && html`<p class="ui-soft">How far would each drafter have come from every
      place of this text, and how few steps do they allow together? A copier is replayed in seconds; a draft head
      drafts anew at every place.</p>`}
  </div>`;
}

/** @param {{ tab: PlacesTab, answer: PlacesAnswer, busy: boolean }} props */
function Form({ tab, answer, busy }) {
  const chosen = tab.chosen.value;
  return html`<div class="svps-form ui-row">
    <details class="ui-fold"><summary>Drafters: ${chosen.join(", ") || "none"}</summary>
      <div class="svps-methods">${answer.methods.map(({ name, title }) => html`<label class="ui-check" title=${title}>
        <input type="checkbox" checked=${chosen.includes(name)} onChange=${() => tab.toggle(name)} /> ${name}</label>`)}
      </div></details>
    ${busy
      ? html`<button type="button" class="ui-button" onClick=${() => tab.stop()}>Stop</button>`
      : html`<button type="button" class="ui-button" disabled=${!chosen.length} onClick=${() => tab.start()}>Replay
        </button>`}
  </div>`;
}

/** @param {{ tab: PlacesTab, report: PlacesReport }} props */
function Result({ tab, report }) {
  useLayoutEffect(() => tab.strip.show(report));
  const alone = Object.entries(report.alone).map(([name, steps]) => `${name} ${steps}`).join(", ");
  return html`
    <p class="svps-said"><b class="svps-regret">${plural(report.regret, "step")} of regret</b>
      This run took ${report.steps.length}, the best draft at every place needs ${report.oracle.length}.
      One drafter alone: ${alone}.</p>
    <${Held} class="svps-canvas" of=${tab.strip.canvas} />
    <ul class="svps-legend ui-legend">
      ${SHADES.map((tokens) => html`<li key=${tokens}><i class=${tokens ? "svps-key" : "svps-none"}
        style="--share:${0.2 + (0.8 * tokens) / MOST}" />${tokens === MOST ? `${MOST} or more` : tokens}</li>`)}
      <li>tokens accepted</li><li><i class="svps-taken" />taken by the best path</li>
      <li><i class="svps-lost" />a draft would have reached further</li>
    </ul>
    ${Object.entries(report.missing).map(([name, why]) => html`<p class="ui-soft" key=${name}>${name}: ${why}.</p>`)}
    <${Frontier} rows=${report.frontier.rows} lines=${report.frontier.lines} />
    <p class="ui-soft">${NOTE}</p>`;
}
