/* Small parts that several views draw: tooltips, bars, ordinals. */

import { h } from "specviz/base/dom.js";

/** 1st, 2nd, 3rd, 11th. @param {number} n */
export const nth = (n) => `${n}${n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] || "th"}`;

/** A tooltip: its title, then a line each; a text that is empty is left out. @type {(...lines: Child[]) => Child[]} */
export const told = (title, ...lines) => [
  h("b", title),
  ...lines.map((line) => (typeof line === "string" && line ? h("div", line) : line)),
];

/** A formula with its numbers. @param {string} text */
export const formula = (text) => h("div.sv-formula", text);

/** How far a bar is filled. @type {(share: number, name?: string) => HTMLElement} */
export const level = (share, name) => h("i", { class: name, style: `width:${(100 * share).toFixed(1)}%` });
