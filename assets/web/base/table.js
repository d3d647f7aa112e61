/* Tables of texts and numbers. */

import { h } from "specviz/base/dom.js";

/** Heads of columns: texts first, then numbers. @type {(texts: Child[], numbers?: Child[]) => Child[]} */
export const heads = (texts, numbers = []) => [
  texts.map((text) => h("th", { scope: "col" }, text)),
  numbers.map((text) => h("th.svp-num", { scope: "col" }, text)),
];

/** What a table holds: its row of heads, and its rows. @type {(head: Child[], rows: Child) => Child[]} */
export const tabled = (head, rows) => [h("thead", h("tr", head)), h("tbody", rows)];

/** A grid: its row of heads, its rows, and what else it holds. */
/** @type {(attributes: Attributes, head: Child[], rows: Child, ...more: Child[]) => HTMLTableElement} */
export const table = (attributes, head, rows, ...more) => h("table.svp-grid", attributes, tabled(head, rows), more);
