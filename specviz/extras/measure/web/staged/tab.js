/* A tab of Inspect for work on the run shown, which the server does in stages, on demand. */

import { on } from "specviz/base/bus.js";
import { getJson, goesOn, poll, postJson, sentence } from "specviz/base/json.js";
import { app } from "specviz/shell/state.js";
import { html, signal } from "specviz/ui/html.js";

const LOOK_MS = 500;

/** @template {StagedCard} Card @template {{ reason: string }} Answer */
export class StagedTab {
  /** @param {Inspector} inspector @param {string} name @param {string} label @param {HTMLElement} element */
  constructor(inspector, name, label, element) {
    this.inspector = inspector;
    this.name = name;
    this.answer = signal(/** @type {Answer | null} */ (null));
    this.task = signal(/** @type {Card | null} */ (null));
    this.wrong = signal("");
    this.open = false;
    this.id = ""; // the run that is shown here, or asked for
    this.ticket = 0;
    element.ariaLabel = label;
    const open = () => ((this.open = true), this.look());
    inspector.tabs.add({ name, label, element, open, close: () => (this.open = false) });
    on("current", () => this.look());
    on("runs", () => this.look());
  }

  /** Takes what is answered of a run; its newest work. @param {Answer} answer @returns {Card | null} */
  take(answer) {
    throw new Error(`no work in ${Object.keys(answer)}`);
  }

  /** What is asked of the work. @returns {object} */
  request() {
    return {};
  }

  /** Empties the tab for another run. */
  clear() {
    [this.id, this.answer.value, this.task.value, this.wrong.value] = ["", null, null, ""];
  }

  /** Asks for the run shown, once, while the tab is open. */
  async look() {
    const id = app.shown;
    if (!this.open || !id || id === this.id) return;
    this.clear();
    if (!this.inspector.model?.run.complete) {
      this.wrong.value = "This run still goes on: come back when it is over.";
      return;
    }
    this.id = id;
    try {
      const answer = /** @type {Answer} */ (await getJson(`api/${this.name}/run/${encodeURIComponent(id)}`));
      if (this.id !== id) return;
      this.answer.value = answer;
      const task = this.take(answer);
      if (task) await this.follow(task);
    } catch (problem) {
      if (this.id === id) this.fail(problem);
    }
  }

  /** @param {unknown} problem */
  fail(problem) {
    this.id = ""; // asked for again when the tab is opened
    this.wrong.value = sentence(problem);
  }

  /** Shows work until it is over. @param {Card} card */
  async follow(card) {
    const ticket = ++this.ticket;
    this.task.value = card;
    const wanted = () => ticket === this.ticket && card.run === this.id;
    /** @returns {Promise<Card>} */
    const ask = () => getJson(`api/${this.name}/of/${encodeURIComponent(card.id)}`);
    if (goesOn(card.state)) await poll(ask, LOOK_MS, wanted, (now) => goesOn((this.task.value = now).state));
    if (wanted()) this.wrong.value = this.task.value?.error ?? "";
  }

  async start() {
    this.wrong.value = "";
    try {
      await this.follow(await postJson(`api/${this.name}/run/${encodeURIComponent(this.id)}`, this.request()));
    } catch (problem) {
      this.wrong.value = sentence(problem);
    }
  }

  async stop() {
    const { value } = this.task;
    if (value) await postJson(`api/${this.name}/stop`, { id: value.id }).catch((problem) => this.fail(problem));
  }
}

/** Why there is no work, or how far it is; ``left``: seconds, where known. */
/** @type {(props: { tab: StagedTab<any, any>, label: string, left?: number }) => unknown} */
export function Standing({ tab, label, left = 0 }) {
  const task = tab.task.value;
  const wrong = tab.wrong.value || tab.answer.value?.reason;
  return html`${wrong && html`<p class="ui-soft" role="status">${wrong}</p>`}
    ${task && goesOn(task.state) && html`<p class="ui-row" role="status">
      <progress aria-label=${label} max=${task.total || 1} value=${task.done} />
      ${stands(task)} ${left > 0 && `· about ${duration(left)} left`}</p>`}`;
}

/** How far work is. @param {StagedCard} task */
function stands({ state, waits, words, done, total }) {
  if (waits) return `Waiting for ${waits}: it goes on first`;
  return state === "queued" || !total ? "Waiting …" : `${words}: ${done} of ${total}`;
}

/** About so long. @param {number} seconds */
const duration = (seconds) =>
  seconds < 90 ? `${Math.max(1, Math.round(seconds))} s` : `${Math.round(seconds / 60)} min`;

/** The button that starts the work, or stops it. */
/** @type {(props: { tab: StagedTab<any, any>, label: string, disabled?: boolean }) => unknown} */
export function StartStop({ tab, label, disabled = false }) {
  const task = tab.task.value;
  return task && goesOn(task.state)
    ? html`<button type="button" class="ui-button" onClick=${() => tab.stop()}>Stop</button>`
    : html`<button type="button" class="ui-button ${task ? "" : "ui-call"}" disabled=${disabled}
      onClick=${() => tab.start()}>${label}</button>`;
}
