/* The oracle: the steps of a run under a perfect ranking, as the timeline's lane and in words (Python replays them). */

import { h, must } from "specviz/base/dom.js";
import { term } from "specviz/base/terms.js";

export const LANE = 8; // px
const BLOCK = 5;

/** The oracle's replay of a run; null where there is none. @param {Model} model */
export function oracleOf({ report }) {
  return report?.oracle && !("why" in report.oracle) ? report.oracle : null;
}

/** Where each of the oracle's steps begins and ends in the run's: steps and their shares, as numbers from 0. */
/** @type {(ends: number[], emitted: number[]) => { from: number, to: number }[]} */
export function spans(ends, emitted) {
  /** @type {{ from: number, to: number }[]} */
  const made = [];
  let step = 0;
  let before = 0; // tokens written before that step
  let from = 0;
  for (const end of ends) {
    while (step < emitted.length && before + emitted[step] <= end) before += emitted[step++];
    const to = step + (step < emitted.length ? (end - before) / emitted[step] : 0);
    made.push({ from, to });
    from = to;
  }
  return made;
}

/** The lane below a timeline's strips: a block per step of the oracle, solid where it does more than a recorded one. */
/** @type {(pen: Pen, place: (step: number) => number, y: number, model: Model, colors: Colors) => void} */
export function drawLane(pen, place, y, model, colors) {
  const oracle = oracleOf(model);
  if (!oracle) return;
  for (const { from, to } of spans(oracle.ends, model.steps.emitted)) {
    const saves = to - from > 1;
    const x = place(from) + 0.5;
    const wide = Math.max(0.7, place(to) - place(from) - 1.5);
    pen.fillStyle = saves ? colors.pin : colors.own;
    pen.globalAlpha = saves ? 1 : 0.4;
    pen.fillRect(x, y + (saves ? 0 : 1.5), wide, saves ? BLOCK : BLOCK - 3);
    pen.globalAlpha = 1;
  }
}

/** The lane's words below a timeline; they explain themselves. @param {Inspector} owner */
export function note(owner) {
  return h("p.sv-oracle", h("i", { "aria-hidden": "true" }), term(owner, "ranking_cost"));
}

/** Says it of the run that is shown. @type {(element: HTMLElement, model: Model) => void} */
export function describe(element, model) {
  element.hidden = !oracleOf(model);
  must(element.lastElementChild).textContent = `Oracle, ${oracleWords(model)}`;
}

/** What the oracle is, its steps and what the ranking cost; "" where there is none. @param {Model} model */
export function oracleWords(model) {
  const oracle = oracleOf(model);
  return oracle ? `the same candidates ranked best: ${oracle.needs} steps · ${oracle.words}` : "";
}
