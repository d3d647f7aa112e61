/* The opening: plain decoding against a run for five seconds, its best step, a miss and why, then your turn. */

import { on } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { getJson, traceUrl } from "specviz/base/json.js";
import { BASELINE } from "specviz/base/methods.js";
import { plural, short } from "specviz/base/numbers.js";
import { stored } from "specviz/base/storage.js";
import { offerModel } from "specviz/shell/made_with.js";
import { LASTS_MS, bestStep, cold, done, firstMiss, lanes } from "specviz/opening/race.js";
import { why } from "specviz/opening/why.js";
import { playing, written } from "specviz/compare/writing.js";
import { early, FIRST } from "specviz/shell/early.js";
import { editing } from "specviz/shell/request.js";
import { app, params } from "specviz/shell/state.js";

const SEEN = "opening";
const LESSON = "1-drafting";
const MOST_TEXT = 4000; // characters of a lane's text

/** @typedef {ReturnType<typeof lanes>} Race */
/** @typedef {import("specviz/compare/lane.js").Lane} Lane */

/** What is shown now, so that another one takes its place. @type {Opening | null} */
let shown = null;

/** Starts by itself where somebody comes for the first time and asked for nothing, once the runs are listed. */
export function begin() {
  if (early.id !== FIRST || !cold(params.toString(), location.hash, stored.get(SEEN))) return;
  let waits = true;
  const busy = () => (waits = false); // who begins by himself needs no opening
  for (const name of ["keydown", "pointerdown"]) document.addEventListener(name, busy, { once: true, capture: true });
  const start = () => {
    const record = app.runs.find((run) => run.id === app.shown);
    const fit = record?.kind === "gallery" && record.method_name !== BASELINE && app.tab === "inspect";
    if (waits && fit && !app.inspector?.presenter?.on) {
      simplify(true);
      play();
    }
    waits = false;
  };
  const soon = () => waits && (window.requestIdleCallback ?? setTimeout)(start, { timeout: 1500 });
  if (app.runs.length) soon(); // they were listed before this module was there
  on("runs", soon);
}

/** What a newcomer sees: the steps, the text and why; a button brings all else. @param {boolean} on */
function simplify(on) {
  const { inspector } = app;
  document.querySelector(".svo-everything")?.remove();
  if (document.body.classList.toggle("sv-simple", on)) {
    const all = h("button.ui-button.svo-everything", { onclick: () => simplify(false) }, "Show everything");
    inspector?.root.querySelector(".sv-step-row")?.append(all);
  }
  if (inspector && !on) inspector.unseen = true; // the texts were hidden while steps were walked
  requestAnimationFrame(() => inspector?.resized());
}

/** The race of the run that is shown, from its start. */
export async function play() {
  const { inspector } = app;
  const run = inspector?.model?.run;
  if (!inspector || !run?.complete || !inspector.model.stepCount) {
    return inspector?.say("A race is shown of a run that is over.");
  }
  if (run.method.name === BASELINE) return inspector.say("This is plain decoding itself: open another method's run.");
  shown?.close();
  const id = app.shown;
  const { trace } = inspector.model;
  const plain = await recorded(id);
  if (app.shown !== id) return;
  stored.set(SEEN, "1");
  shown = new Opening(lanes(trace, plain));
}

/** Plain decoding of the same prompt by the same model, where it was recorded. @param {string} id */
async function recorded(id) {
  const own = app.runs.find((run) => run.id === id);
  const same = app.runs.find(
    (run) => own?.prompt && run.prompt === own.prompt && run.method_name === BASELINE && run.kind !== "live",
  );
  if (!same || same.id === id) return null;
  /** @type {Trace | null} */
  const trace = await getJson(traceUrl(same.id)).catch(() => null);
  return trace?.tokens ? trace : null;
}

class Opening {
  /** @param {Race} race */
  constructor(race) {
    this.race = race;
    this.inspector = /** @type {Inspector} */ (app.inspector);
    this.trace = app.shown;
    this.halt = () => {};
    this.rest = 0;
    this.lanes = [this.lane(race.plain, "Plain decoding"), this.lane(race.run, short(this.title))];
    this.words = h("p.svo-words", { role: "status" });
    this.buttons = h("div.svo-buttons.ui-row");
    this.element = h(
      "section.svp.svo",
      { "aria-label": `Race: plain decoding against ${short(this.title)}` },
      h("p.svo-lead", this.lead),
      h("div.svo-lanes", this.lanes.map((lane) => lane.element)),
      h("p.svo-source", this.source),
      this.words,
      this.buttons,
      h("button.svp-x.svo-close", { "aria-label": "Close", onclick: () => this.close() }, "×"),
    );
    document.body.prepend(this.element); // the first to reach by Tab
    this.leave = new AbortController();
    const { signal } = this.leave;
    for (const name of ["keydown", "pointerdown"])
      document.addEventListener(name, (event) => this.touched(event), { signal, capture: true });
    for (const name of ["specviz:tab", "specviz:current"])
      document.addEventListener(name, () => this.left() && this.close(), { signal });
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) this.ask(true);
    else this.run();
  }

  get title() {
    const { title, name } = this.race.run.run.method;
    return title || name;
  }

  /** What is raced, for somebody who sees it for the first time. */
  get lead() {
    const { lossless } = this.race.run.run.method;
    const same = lossless === false ? "The same model, the same prompt" : "The same model, the same answer";
    return `${same}: one token at a time, and with drafts that it checks in one go. ` +
      "A forward is one pass through the model.";
  }

  /** What is shown: recorded or replayed, and how fast. */
  get source() {
    const { recorded, timed, run } = this.race;
    const by = run.run.model?.name ? `Recorded with ${run.run.model.name}` : "As it was recorded";
    const rate = run.ms / LASTS_MS;
    const times = Math.round(Math.max(rate, 1 / rate));
    const pace = times < 2 ? "in real time" : `${rate > 1 ? "sped up" : "slowed"} ${times}×`;
    if (timed) return `${by}: one prompt, each lane at its own times, ${pace}.`;
    if (recorded) return `${by}: one prompt; the clock counts forwards of the model.`;
    return `${by}. Plain decoding was not: its lane is this text at one token per forward; the clock counts forwards.`;
  }

  /** @type {(lane: Lane, name: string) => OpeningLane} */
  lane(lane, name) {
    const text = h("code.svo-text", { "aria-hidden": "true" });
    const count = h("b", "0");
    const facts = h("span.svo-facts");
    const head = h("header.ui-row", h("h3", name), h("span.svo-count", count, " tokens"), facts);
    return { element: h("div.svo-lane", head, text), text, count, facts, lane, steps: -1 };
  }

  /** Five seconds, then the question. */
  run() {
    this.element.classList.add("svo-racing");
    this.words.textContent = "Any key or click skips this.";
    this.halt = playing((ms) => {
      const share = Math.min(1, ms / LASTS_MS);
      for (const one of this.lanes) this.draw(one, done(this.race, one.lane, share));
      if (share === 1) this.rest = window.setTimeout(() => this.ask(true), 700);
      return share === 1;
    });
  }

  /** A lane after so many of its steps. @type {(one: OpeningLane, steps: number) => void} */
  draw(one, steps) {
    if (steps === one.steps) return;
    one.steps = steps;
    const { lane } = one;
    one.text.replaceChildren(...written(lane, steps, MOST_TEXT));
    one.text.scrollTop = one.text.scrollHeight;
    one.count.textContent = lane.start(steps).toLocaleString("en");
    const time = this.race.timed && steps ? ` · ${seconds(lane.times[steps - 1])}` : "";
    one.facts.textContent = `${plural(steps, "forward")}${time}`;
  }

  /** A key or a click ends the race; it does what it does anyway. @param {Event} event */
  touched(event) {
    const key = event instanceof KeyboardEvent ? event.key : "";
    if (["Shift", "Control", "Alt", "Meta"].includes(key)) return;
    if (this.element.classList.contains("svo-racing")) this.ask(false);
    else if (key === "Escape") this.close();
  }

  left() {
    return app.tab !== "inspect" || app.current !== this.trace;
  }

  /** The race is over: who needed what, and (``goes``: at it) the best step. @param {boolean} goes */
  ask(goes) {
    this.stop();
    this.element.classList.remove("svo-racing");
    const best = bestStep(this.inspector.model.steps);
    if (goes && best >= 0) this.inspector.setStep(best);
    const kept = plural(this.inspector.model.steps.accepted[best] ?? 0, "drafted token");
    this.words.replaceChildren(
      this.result,
      h("b.svo-question", best < 0 ? "No draft of it was accepted." : `Step ${best + 1}, its best: ${kept} accepted.`),
    );
    const simple = document.body.classList.contains("sv-simple"); // few things to press: ▶ Race comes with all else
    const again = simple ? [] : [h("button.svp-button", { onclick: play }, "↻ Race again")];
    this.buttons.replaceChildren(this.next, ...again);
  }

  /** To the first miss, else to the reader's own prompt. */
  get next() {
    const miss = firstMiss(this.inspector.model.steps);
    if (miss < 0) return this.turn;
    return h("button.svp-button.svp-call", { onclick: () => this.answer(miss) }, "Next: a miss");
  }

  /** To a prompt of one's own. */
  get turn() {
    const go = () => {
      simplify(false);
      this.close();
      editing.value = true;
    };
    return h("button.svp-button.svp-call", { onclick: go }, "Your turn");
  }

  /** Who needed what. */
  get result() {
    const { run, plain, recorded, timed } = this.race;
    const by = plain.start(done(this.race, plain, 1));
    /** @param {Lane} lane */
    const took = (lane) => plural(lane.steps, "forward") + (timed ? ` (${seconds(lane.ms)})` : "");
    const had = by < plain.length ? `had ${by.toLocaleString("en")} by then` : "had them, too";
    const needs = recorded ? `needed ${took(plain)}` : `needs ${took(plain)}, one per token`;
    return (
      `${short(this.title)} wrote ${plural(run.length, "token")} in ${took(run)}. ` +
      `Plain decoding ${had}, and ${needs}.`
    );
  }

  /** A step of which nothing was accepted: what came of it, and why. @param {number} step */
  answer(step) {
    const { inspector } = this;
    inspector.setStep(step);
    const view = inspector.model.step(step);
    const missed = `Step ${step + 1} drafted ${plural(view.drafted, "token")}, and none was accepted. `;
    this.words.replaceChildren(h("b", missed), why(inspector, view));
    const whatIf = h("button.svp-button", { onclick: () => this.whatIf() }, "What if …");
    whatIf.title = "Draft this step again with another method";
    const { turn } = this;
    this.buttons.replaceChildren(turn, whatIf, this.lesson());
    turn.focus({ preventScroll: true });
  }

  /** Opens What if; where this run cannot be drafted again, says why, and offers the model that made it. */
  whatIf() {
    simplify(false);
    if (app.whatif && !app.whatif.reason) return app.whatif.toggle(true);
    const made = h("p", { hidden: true });
    this.words.replaceChildren(app.whatif?.reason || "What if is still being opened: try again.", made);
    offerModel(made, this.trace);
  }

  lesson() {
    const go = async () => {
      const { learn } = await import("specviz/lesson/page.js");
      this.close();
      learn(LESSON);
    };
    return h("button.svp-button", { onclick: go }, "Lesson 1: what drafting is");
  }

  stop() {
    this.halt();
    clearTimeout(this.rest);
  }

  close() {
    this.stop();
    this.leave.abort();
    this.element.remove();
    if (shown === this) shown = null;
  }
}

/** @param {number} ms */
const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
