/* The row of step controls, the switches of the panes, playback. */

import { button, h, icon } from "specviz/base/dom.js";
import * as marks from "specviz/inspect/marks.js";
import { toggle } from "specviz/inspect/panel.js";

const SPEEDS = [1, 2, 4, 8, 16, 32];
/** @type {Record<StepFilter, string>} */
const SIFTS = { all: "All steps", misses: "Misses", worst: "Worst rankings" };

/** A button that turns ``inspector[name]`` on and off. */
/** @type {(inspector: Inspector, label: string, name: Switch, help: string) => HTMLButtonElement} */
const setting = (inspector, label, name, help) =>
  toggle(inspector.tip, label, help, inspector[name], (on) => {
    inspector[name] = on;
    if (!inspector.model) return;
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

/** Stepping, playing, misses, settings, help. @param {Inspector} inspector */
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
  return h(
    "div.sv-controls.ui-row",
    { role: "toolbar", "aria-label": "Step controls" },
    keyed("Previous step", "←", () => inspector.go(-1), icon("previous")),
    inspector.playButton,
    keyed("Next step", "→", () => inspector.go(1), icon("next")),
    inspector.counter,
    speed,
    h(
      "span.sv-pair.ui-check",
      keyed("Previous miss", "[", () => inspector.timeline.miss(-1), h("kbd", "[")),
      sift,
      keyed("Next miss", "]", () => inspector.timeline.miss(1), h("kbd", "]")),
    ),
    ask,
    inspector.timeline.note,
  );
}

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
