/* Lookahead decoding's window in a step: the guesses scored beside the text, as rows of probes below the tree. */

import { h } from "specviz/base/dom.js";
import { plural, probability } from "specviz/base/numbers.js";

const KIND = "window";
const LABEL = 12; // characters
const [ROW, HEAD, MOST] = [22, 26, 132]; // pixels: a row, the line above them, all of it at most

/** One place of the window: how far behind the root it stands, and what the target would write after it. */
/** @typedef {{ offset: number, token: number, prob: number | null }} Place */

/** The rows of a step's window: places follow each other in a row, and the next row begins again further left. */
/** @type {(model: Model, step: number) => Place[][]} */
export function windowRows(model, step) {
  const { offset, kind, token, prob } = model.trace.probes;
  const { n, w } = model.run.method.params || {};
  const column = w === 1 && step >= Number(n) - 2; // one place per row, once all rows are there
  /** @type {Place[][]} */
  const rows = [];
  for (const row of model.rows("probes", step)) {
    if (kind[row] !== KIND) continue;
    const place = { offset: offset[row], token: token[row], prob: prob[row] };
    const last = rows.at(-1)?.at(-1);
    if (!last || column || place.offset <= last.offset) rows.push([place]);
    else rows.at(-1)?.push(place);
  }
  return rows;
}

export class GuessWindow {
  /** @param {TreeView} tree */
  constructor(tree) {
    this.tree = tree;
    this.title = h("div.sv-lookahead-title.ui-clip");
    this.rows = h("div");
    const told = { hidden: true, role: "group", "aria-label": "Window" };
    this.element = h("div.sv-lookahead", told, this.title, this.rows);
    tree.element.append(this.element);
  }

  /** Makes room for so many rows; 0: there is no window. @param {number} count */
  show(count) {
    this.element.hidden = count === 0;
    const high = count ? Math.min(MOST, HEAD + ROW * count) : 0;
    this.tree.element.style.setProperty("--sv-lookahead", `${high}px`);
  }

  /** @param {number} step */
  draw(step) {
    const { model } = this.tree.owner;
    const rows = windowRows(model, step);
    this.show(rows.length);
    if (!rows.length) return;
    const places = rows.reduce((sum, row) => sum + row.length, 0);
    const counted = `${plural(places, "probe")} in ${plural(rows.length, "row")}`;
    this.title.replaceChildren(h("b", "Window"), ` ${counted}: what the target would write after each guess`);
    this.rows.replaceChildren(...rows.map((row, k) => this.row(row, k, k === rows.length - 1)));
  }

  /** @type {(row: Place[], number: number, newest: boolean) => HTMLElement} */
  row(row, number, newest) {
    const { model, tip } = this.tree.owner;
    const cells = row.map(({ offset, token, prob }) => {
      const what = newest ? " It enters the window, and ends an n-gram once all rows are there." : "";
      const text = `The target's first choice after the guess ${offset} behind the root: ${probability(prob)}.${what}`;
      return tip.explained("code.sv-lookahead-cell", text, model.pieces.label(token, LABEL));
    });
    const name = h("span.sv-lookahead-name", `row ${number + 1}`);
    return h("div", { class: `sv-lookahead-row${newest ? " sv-lookahead-newest" : ""}` }, name, cells);
  }
}
