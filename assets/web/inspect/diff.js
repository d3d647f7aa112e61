/* The output against plain decoding's: a token-level difference, line by line, side by side. */

import Diff from "diff";
import { button, h } from "specviz/base/dom.js";
import { plural } from "specviz/base/numbers.js";
import { joined, safe } from "specviz/base/text.js";
import { Panel } from "specviz/inspect/panel.js";

const MOST = 1500; // edits searched for; beyond, what is between the common ends counts as replaced
const ROW_TOKENS = 48; // a line longer than that is broken at a common token

/** Differences of lists, as they are. */
class Lists extends Diff {
  tokenize = (/** @type {number[]} */ list) => list;
  removeEmpty = this.tokenize;
  join = this.tokenize;
}

/** The shortest edit script of two id lists. @type {(a: number[], b: number[]) => Edit[]} */
export function difference(a, b) {
  const most = Math.min(a.length, b.length);
  let head = 0;
  while (head < most && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < most - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const [x, y] = [a, b].map((ids) => ids.slice(head, ids.length - tail));
  const parts = new Lists().diff(y, x, { maxEditLength: MOST }) ?? [
    { added: true, removed: false, count: x.length },
    { added: false, removed: true, count: y.length },
  ];
  const common = (/** @type {number} */ count) => ({ added: false, removed: false, count });
  let [i, j] = [0, 0];
  return [common(head), ...parts, common(tail)].flatMap(({ added, removed, count }) =>
    Array.from({ length: count }, () => {
      if (added) return /** @type {Edit} */ (["+", i++, -1]);
      return /** @type {Edit} */ (removed ? ["−", -1, j++] : ["=", i++, j++]);
    }),
  );
}

export class DiffView extends Panel {
  /** @param {Inspector} owner */
  constructor(owner) {
    super(owner, "diff", "Against plain decoding");
    this.fold = button("Show or hide the comparison", {
      class: "sv-quiet",
      "aria-expanded": "true",
      onclick: () => this.toggle(),
    });
    this.bar.append(this.fold);
    this.open = true;
    this.same = false;
    /** The run that is drawn. @type {Model | null} */
    this.drawn = null;
    this.key = "";
  }

  toggle() {
    this.open = !this.open;
    this.show();
  }

  show() {
    const folded = this.same || !this.open;
    this.fold.hidden = this.same;
    this.fold.textContent = this.open ? "Hide" : "Show";
    this.fold.setAttribute("aria-expanded", String(this.open));
    this.body.hidden = folded;
    this.element.classList.toggle("sv-folded-card", folded);
  }

  /** Draws the table ``plain`` against the output; nothing where plain decoding was not run. */
  draw() {
    const { model, root } = this.owner;
    const plain = model.trace.plain?.id || [];
    const there = plain.length > 0;
    root.classList.toggle("sv-compared", there);
    if (!there) return;
    const mine = model.trace.tokens.id.slice(model.promptLength);
    const key = `${mine.length} ${plain.length}`;
    if (model === this.drawn && key === this.key) return;
    this.drawn = model;
    this.key = key;
    const edits = difference(mine, plain);
    const added = edits.filter(([sign]) => sign === "+").length;
    const missing = edits.filter(([sign]) => sign === "−").length;
    this.same = !added && !missing;
    root.classList.toggle("sv-same", this.same); // the numbers above the text say so
    this.note.textContent = this.same
      ? `✓ identical to plain decoding, ${plural(mine.length, "token")}`
      : `only here ${added.toLocaleString("en")} of ${plural(mine.length, "token")}, ` +
        `only there ${missing.toLocaleString("en")} of ${plain.length.toLocaleString("en")}`;
    this.note.classList.add("sv-note-strong");
    const rows = this.same ? [] : this.rows(edits, mine, plain);
    const head = h(
      "div.sv-diff-row.sv-diff-head",
      { role: "row" },
      h("span", { role: "columnheader" }, "This output"),
      h("span", { role: "columnheader" }, "Plain decoding"),
    );
    this.body.replaceChildren(h("div", { role: "table", "aria-label": "Output and plain decoding" }, head, rows));
    this.show();
  }

  /** Both texts in lines: they end at a line end both have, or after many tokens. @type {OfEdits<HTMLElement[]>} */
  rows(edits, mine, plain) {
    /** @type {HTMLElement[]} */
    const rows = [];
    /** @type {Edit[]} */
    let line = [];
    let [size, indent] = [0, ""];
    const flush = (next = "") => {
      if (line.length) rows.push(this.row(line, mine, plain, indent));
      [line, size, indent] = [[], 0, next];
    };
    for (const edit of edits) {
      line.push(edit);
      size++;
      if (edit[0] !== "=") continue;
      const { text } = this.owner.model.pieces.get(mine[edit[1]]);
      // spaces behind a line end are often of its token, and belong to the next line
      if (text.includes("\n")) flush(text.slice(text.lastIndexOf("\n") + 1));
      else if (size >= ROW_TOKENS && text.startsWith(" ")) flush();
    }
    flush();
    return rows;
  }

  /** @param {Edit[]} line @param {number[]} mine @param {number[]} plain @param {string} indent before its tokens */
  row(line, mine, plain, indent) {
    const differs = line.some(([sign]) => sign !== "=");
    const left = this.side(
      line.filter(([sign]) => sign !== "−"),
      (edit) => mine[edit[1]],
      "+",
      indent,
    );
    const right = this.side(
      line.filter(([sign]) => sign !== "+"),
      (edit) => plain[edit[2]],
      "−",
      indent,
    );
    return h("div", { class: `sv-diff-row${differs ? " sv-diff-changed" : ""}`, role: "row" }, left, right);
  }

  /** One side of a line: stretches of equal sign, the differing ones marked by their sign. */
  /** @type {(edits: Edit[], idOf: (edit: Edit) => number, sign: "+" | "−", indent: string) => HTMLElement} */
  side(edits, idOf, sign, indent) {
    const { pieces } = this.owner.model;
    let line = h("span", indent);
    const lines = [line];
    for (let k = 0; k < edits.length;) {
      let stop = k + 1;
      while (stop < edits.length && edits[stop][0] === edits[k][0]) stop++;
      const ids = edits.slice(k, stop).map(idOf);
      const same = edits[k][0] === "=";
      const text = safe(joined(pieces.cells(ids)));
      if (same) line.append(text.replace(/\n[ \t]*/g, ""));
      else for (const part of text.split(/(?<=\n)/)) {
        const begin = part.search(/[^ ]|$/); // spaces stay outside, so that the sign stands at the word
        const word = part.slice(begin).replace("\n", "⏎");
        const [name, said] = sign === "+" ? ["sv-ins", "only in this output"] : ["sv-del", "only in plain decoding"];
        const look = { class: name, "aria-label": `${said}: ${word}` };
        line.append(part.slice(0, begin));
        if (word || part === text) line.append(h("span", look, h("i", { "aria-hidden": "true" }, sign), word || "␣"));
        if (word.endsWith("⏎")) lines.push((line = h("span")));
      }
      k = stop;
    }
    for (const { style, textContent } of lines) // what wraps stays below its own line
      style.setProperty("--sv-indent", `${(textContent ?? "").search(/[^ ]|$/) + 2}ch`);
    return h("code", { role: "cell" }, lines);
  }
}
