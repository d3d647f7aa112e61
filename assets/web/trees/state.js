/* Trees of prompt tokens: what it knows, and the small things its modules share. */

import { h, must } from "specviz/base/dom.js";
import { setAddress } from "specviz/shell/address.js";
import { app } from "specviz/shell/state.js";

export const page = {
  /** @type {HTMLElement} */
  box: h("div"),
  /** @type {TreesAnswer | null} */
  data: null,
  m: 0,
  size: 0,
  timer: 0,
};

/** The parts that are filled as the page's numbers change. */
export const parts = {
  notes: h("div.svt-notes.ui-stack"),
  numbers: h("dl.svp-numbers"),
  best: h("button.svp-button.svt-best"),
  use: h("span.svt-use.ui-soft"),
  size: slider("size", 0, "Size", "Rows of a verify forward at most: root, candidates and prompt tokens."),
  m: slider("m", 1, "Prompt tokens m", "On a node at most: how far ahead its guesses reach."),
  states: h("div.svt-states.ui-tiles"),
  told: h("p.svt-told"),
  sum: h("p.svt-sum"),
  charts: h("div.svt-charts.ui-tiles"),
  acceptance: h("section.svt-card"),
  machine: h("section.svt-card"),
  sizes: h("div.svl-scroll.svt-sizes"),
};

/** @param {string} name @param {number} min @param {string} label @param {string} help */
function slider(name, min, label, help) {
  const id = `svt-${name}`;
  const input = h("input", { type: "range", class: id, id, min, step: 1, "aria-describedby": `${id}-help` });
  const output = h("output", { class: `${id}-now`, for: id });
  const element = h(
    "div.svp-slider",
    h("label", { for: id }, label),
    output,
    input,
    h("small", { id: `${id}-help` }, help),
  );
  return { element, input, output };
}

/** A number with three digits; "–" for what was not measured. @param {number | null} value */
export const number = (value) => (value === null ? "–" : String(Number(value.toPrecision(3))));

/** @param {number | null} value @param {number} digits */
export const fixed = (value, digits) => (value === null ? "–" : value.toFixed(digits));

/** @param {number | null} value */
export const times = (value) => (value === null ? "–" : `${value.toFixed(2)}×`);

/** The server's answer, once it is there. */
export const data = () => must(page.data, "answer yet");

/** The sizes for the prompt budget shown. */
export const budget = () => data().budgets[page.m];

/** The size shown. */
export const point = () => must(budget().points.find(({ size }) => size === page.size));

/** Puts what is shown into the address. */
export function address() {
  if (page.size && app.tab === "lab") setAddress({ trees: `${page.m}x${page.size}` });
}
