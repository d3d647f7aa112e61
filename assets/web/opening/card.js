/* A race above a run: two lanes that write beside each other for five seconds, then a strip: who needed what. */

import { h } from "specviz/base/dom.js";
import { plural, short } from "specviz/base/numbers.js";
import { playing, written } from "specviz/compare/writing.js";
import { LASTS_MS, done } from "specviz/opening/race.js";

const MOST_TEXT = 4000; // characters of a lane's text
const AHEAD = 48; // px of what is still to come, below what is written

/** @typedef {ReturnType<typeof import("specviz/opening/race.js").lanes>} Race */
/** @typedef {import("specviz/compare/lane.js").Lane} Lane */

export class RaceCard {
  /** @param {Race} race @param {HTMLElement} host what it stands above, and covers while it goes on */
  constructor(race, host) {
    this.race = race;
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
      h("p.svo-legend.ui-row", h("span.svc-acc", "drafted, and kept"), h("span.svc-own", "by the model itself"),
        h("span.svo-ahead", "still to be written")),
      h("p.svo-source", this.source),
      this.words,
      this.buttons,
      h("button.svp-x.svo-close", { "aria-label": "Close", onclick: () => this.close() }, "×"),
    );
    host.before(this.element);
    this.leave = new AbortController();
    const { signal } = this.leave;
    for (const name of ["keydown", "pointerdown"])
      document.addEventListener(name, (event) => this.touched(event), { signal, capture: true });
  }

  /** From the start, or at once its end for who asks for less motion. */
  start() {
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
    const mean = `${by}: plain decoding's lane is this text at the mean speed measured beside it, ${pace}.`;
    if (timed && !recorded) return mean;
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
    const ahead = lane.stretches(lane.start(steps), lane.length).map(({ text }) => text).join("");
    const rest = h("span.svo-ahead", ahead.slice(0, MOST_TEXT));
    one.text.replaceChildren(...written(lane, steps, MOST_TEXT), rest);
    one.text.scrollTop = rest.offsetTop + AHEAD - one.text.clientHeight;
    one.count.textContent = lane.start(steps).toLocaleString("en");
    const time = this.race.timed && steps ? ` · ${seconds(lane.times[steps - 1])}` : "";
    one.facts.textContent = `${plural(steps, "forward")}${time}`;
  }

  /** A key or a click ends the race; it does what it does anyway, but the space bar, which would play the steps. */
  /** @param {Event} event */
  touched(event) {
    const key = event instanceof KeyboardEvent ? event.key : "";
    if (["Shift", "Control", "Alt", "Meta"].includes(key)) return;
    if (this.element.classList.contains("svo-racing")) {
      if (key === " ") event.preventDefault(), event.stopPropagation();
      this.ask(key === " ");
    } else if (key === "Escape") this.close();
  }

  /** The race is over: who needed what. @param {boolean} _goes whether by itself */
  ask(_goes) {
    this.stop();
    this.element.classList.remove("svo-racing");
    this.words.replaceChildren(this.result);
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

  stop() {
    this.halt();
    clearTimeout(this.rest);
  }

  close() {
    this.stop();
    this.leave.abort();
    this.element.remove();
  }
}

/** @param {number} ms */
const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
