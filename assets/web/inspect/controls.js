/* The row of step controls, the switches of the panes, playback. */

import { button, h, icon } from "specviz/base/dom.js";
import { stored } from "specviz/base/storage.js";
import * as marks from "specviz/inspect/marks.js";
import { toggle } from "specviz/inspect/panel.js";

const MORE = "more-rows"; // the name under which the browser remembers them
const SPEEDS = [1, 2, 4, 8, 16, 32];
/** @type {Record<StepFilter, string>} */
const SIFTS = { all: "All steps", misses: "Misses", worst: "Worst rankings" };

/** A button that turns ``inspector[name]`` on and off. */
/** @type {(inspector: Inspector, label: string, name: Switch, help: string) => HTMLButtonElement} */
const setting = (inspector, label, name, help) =>
  toggle(inspector.tip, label, help, inspector[name], (on) => {
    inspector[name] = on;
    if (!inspector.model) return;
    inspector.root.classList.toggle("sv-spaced", inspector.whitespace);
    if (name === "whitespace") inspector.redrawTokens();
    marks.paint(inspector, inspector.model.step(inspector.number));
  });

/** The switches of the panes. @param {Inspector} inspector */
export const toggles = (inspector) => ({
  heat: setting(inspector, "Match scores", "heat", "Shade the places compared this step by their score"),
  offers: setting(inspector, "Alternatives", "offers", "Show what the candidates that lost would have offered (O)"),
  follow: setting(inspector, "Follow", "follow", "Scroll the panes to each step"),
  whitespace: setting(inspector, "Whitespace", "whitespace", "Show spaces, tabs and line ends as glyphs (W)"),
});

/** A button whose tooltip names its key. @type {(inspector: Inspector) => KeyedButton} */
const keyedButton =
  (inspector) =>
  (label, key, act, ...inside) => {
    const one = button(label, { class: inside.length > 1 ? null : "sv-square", onclick: act }, ...inside);
    return inspector.tip.add(one, () => [label, " ", h("kbd", key)]);
  };

/** @param {Inspector} inspector */
export function playButton(inspector) {
  const play = keyedButton(inspector)("Play", "Space", () => inspector.player.toggle(), icon("play"));
  play.classList.add("ui-call");
  return play;
}

/** Stepping and playing before the timeline, misses behind it, and what few need in a row of its own. */
/** @param {Inspector} inspector */
export function toolbar(inspector) {
  const keyed = keyedButton(inspector);
  const speed = h(
    "select.sv-select",
    {
      "aria-label": "Playback speed",
      onchange: (event) => inspector.player.setRate(Number(event.currentTarget.value)),
    },
    SPEEDS.map((n) =>
      h("option", { value: n, selected: n === inspector.player.rate }, `${n} ${n === 1 ? "step" : "steps"}/s`),
    ),
  );
  const sift = h(
    "select.sv-select",
    {
      "aria-label": "Steps to bring out",
      onchange: (event) => inspector.timeline.sift(/** @type {StepFilter} */ (event.currentTarget.value)),
    },
    Object.entries(SIFTS).map(([value, label]) => h("option", { value }, label)),
  );
  const ask = keyed("Keyboard help", "?", () => inspector.showHelp(inspector.help.hidden), h("span", "?"));
  const drawn = inspector.options.drawer !== false;
  const more = h(
    "div.sv-more-rows",
    { hidden: drawn && stored.get(MORE) !== "yes" },
    h("div.ui-row", speed, sift, inspector.switches, inspector.timeline.note),
  );
  const name = () => (more.hidden ? "More rows" : "Fewer rows");
  const mark = () => inspector.root.classList.toggle("sv-whole-rows", !more.hidden); // :has() costs 30 ms a step
  mark();
  const unfold = h("button.sv-button", {
    "aria-expanded": String(!more.hidden),
    onclick: () => {
      more.hidden = !more.hidden;
      unfold.setAttribute("aria-expanded", String(!more.hidden));
      unfold.textContent = name();
      mark();
      stored.set(MORE, more.hidden ? "no" : "yes");
      inspector.resized();
      if (inspector.model?.stepCount) inspector.scroll(inspector.model.step(inspector.number));
    },
  }, name());
  inspector.timeline.whole = () => !more.hidden;
  const group = { role: "group", "aria-label": "Step controls" };
  return {
    first: h(
      "div.sv-controls.ui-line",
      group,
      keyed("Previous step", "←", () => inspector.go(-1), icon("previous")),
      inspector.playButton,
      keyed("Next step", "→", () => inspector.go(1), icon("next")),
      inspector.counter,
      drawn && barKey(),
    ),
    last: h(
      "div.sv-controls.ui-line",
      { role: "group", "aria-label": "Misses and more" },
      keyed("Previous miss", "[", () => inspector.timeline.miss(-1), "‹", " miss"),
      keyed("Next miss", "]", () => inspector.timeline.miss(1), "miss ", "›"),
      drawn && inspector.tip.add(unfold, "Time, how drafts were found, the best possible split, marks and switches"),
      ask,
    ),
    more,
  };
}

/** What the colours of the timeline's bars are; the rows below them have the whole legend. */
const barKey = () =>
  h("span.sv-bar-key", { "aria-hidden": "true" },
    ["accepted", "drafted", "miss"].map((name) => h("span", h(`i.sv-bar-${name}`), name)));

/** Playback: one step per tick until the last. */
export class Player {
  /** @param {Inspector} inspector */
  constructor(inspector) {
    this.inspector = inspector;
    this.rate = 4;
    this.timer = 0;
  }

  toggle() {
    if (this.timer) this.pause();
    else this.play();
  }

  play() {
    const { inspector } = this;
    if (!inspector.model || this.timer) return;
    const last = () => inspector.number >= inspector.model.stepCount - 1;
    if (last()) inspector.setStep(0);
    this.timer = setInterval(() => (last() ? this.pause() : inspector.setStep(inspector.number + 1)), 1000 / this.rate);
    this.show();
  }

  pause() {
    if (!this.timer) return;
    clearInterval(this.timer);
    this.timer = 0;
    this.show();
  }

  /** @param {number} rate */
  setRate(rate) {
    this.rate = rate;
    if (!this.timer) return;
    this.pause();
    this.play();
  }

  show() {
    const { playButton, sentence } = this.inspector;
    playButton.replaceChildren(icon(this.timer ? "pause" : "play"));
    playButton.setAttribute("aria-label", this.timer ? "Pause" : "Play");
    // while playing, a screen reader would never come to rest
    sentence.setAttribute("aria-live", this.timer ? "off" : "polite");
  }
}
