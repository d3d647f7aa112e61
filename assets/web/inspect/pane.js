/* A token pane: rows of token spans in chunks (off-screen chunks are not laid out), layers of marks, and a minimap.
   The text is one scroll: the prompt, then the output below it, their lines numbered as one. */

import { closest, h, later, must } from "specviz/base/dom.js";
import { dragged, set, sheet } from "specviz/base/drawing.js";
import { clamp, upTo } from "specviz/base/numbers.js";
import { glyphs, safe } from "specviz/base/text.js";
import { Panel } from "specviz/inspect/panel.js";

const LONGEST_ROW = 500; // tokens; a longer line goes on in an unnumbered row
const CHUNK = 24; // rows
const CHUNK_TOKENS = 1000;
export const ROW_HEIGHT = 21; // pixels, as in the style sheet

/** @type {Record<string, string>} */
const SEGMENTS = { instruction: "Instruction", context: "Context", question: "Question", chat: "Chat" };
const OUTPUT = "Output";
const BESIDE = 130; // pixels beside a line: the gutter, and the margin in which arcs are drawn
const MOST_HANG = 12; // characters: a deep line keeps room for what it says
const CHARACTER = 7.83; // pixels, of the text's letters

export class TokenPane extends Panel {
  /** @param {Inspector} owner @param {PaneSide} side @param {string} title @param {Child[]} tools */
  constructor(owner, side, title, ...tools) {
    super(owner, side, title, ...tools);
    this.side = side;
    this.offset = 0; // what is added to an index of the table to make it a position
    this.body.classList.add("sv-tokens");
    this.code = h("div.sv-code", { dir: "ltr" });
    this.canvas = h("canvas.sv-map-canvas");
    this.viewport = h("div.sv-map-view");
    this.map = h("div.sv-map", { "aria-hidden": "true" }, this.canvas, this.viewport);
    this.body.append(this.code);
    this.element.append(h("div.sv-window", this.body, this.map));
    /** @type {Map<string, MarkLayer>} */
    this.layers = new Map();
    /** @type {MapMark[]} */
    this.marks = [];
    this.base = this.stop = 0;
    /** @type {TokenLine[]} */
    this.rows = [];
    /** The first position of every row. @type {Position[]} */
    this.starts = [];
    /** The span of every position. @type {HTMLElement[]} */
    this.spans = [];
    /** Further spans of a position that is cut by line ends. @type {Map<Position, HTMLElement[]>} */
    this.more = new Map();
    this.lines = 0;
    /** @type {string | null} */
    this.segment = null;
    /** @type {TokenLine} */
    this.row = later();
    this.open = false; // the row takes more tokens
    /** Estimated tops of the rows, in lines. @type {Float64Array | null} */
    this.tops = null;
    /** @type {HTMLElement | null} */
    this.chunk = null;
    this.chunkStart = 0;
    /** The prompt, or the output, whose rows are being added. */
    this.part = this.code;
    /** Spans of the row in which the text ends that are not yet written. @type {HTMLElement[]} */
    this.partly = [];
    this.width = this.height = 0; // pixels, as measured last
    this.fresh = false; // what is to be seen is aimed at anew, in sight or not
    this.listen();
    this.clear(0);
  }

  listen() {
    /** @type {(event: Event) => Position} */
    const position = (event) => Number(closest(event, ".sv-t")?.dataset.p ?? -1);
    this.body.addEventListener("pointerover", (event) =>
      this.owner.hoverToken(position(event), closest(event, ".sv-t") || undefined),
    );
    this.body.addEventListener("pointerleave", () => this.owner.hoverToken(-1));
    this.body.addEventListener("click", (event) => {
      if (position(event) >= 0) this.owner.pickToken(position(event), event.shiftKey || event.ctrlKey || event.metaKey);
    });
    this.body.addEventListener("scroll", () => this.owner.scrolled(this), { passive: true });
    dragged(this.map, (event) => {
      const box = this.map.getBoundingClientRect();
      const top = ((event.clientY - box.top) / box.height) * this.body.scrollHeight;
      this.body.scrollTop = top - this.body.clientHeight / 2;
    });
  }

  /** @param {Position} base */
  clear(base) {
    this.base = base;
    this.stop = base;
    this.rows = [];
    this.starts = [];
    this.spans = [];
    this.more = new Map();
    this.lines = 0;
    this.segment = null;
    this.open = false;
    this.partly = [];
    this.tops = null;
    this.layers.clear();
    this.code.replaceChildren();
    this.chunk = null;
    this.part = this.code;
    this.body.scrollTop = 0;
  }

  /** Draws positions base … stop − 1 of the trace. @type {(base: Position, stop: Position) => void} */
  fill(base, stop) {
    this.clear(base);
    this.extend(stop);
  }

  /** Adds the tokens up to ``stop``; the last row anew, as its characters may be incomplete. @param {Position} stop */
  extend(stop) {
    const { pieces, promptLength, trace } = this.owner.model;
    const ids = trace.tokens.id;
    const from = this.stop > promptLength ? this.dropLastRow() : this.stop;
    const parts = [[from, Math.min(stop, promptLength)], [Math.max(from, promptLength), stop]];
    for (const [first, end] of parts) for (const cell of pieces.cells(ids, first, end)) this.addCell(cell, ids);
    this.stop = stop;
    this.tops = null;
    this.code.classList.toggle("sv-big", this.rows.length > 200);
  }

  /** Takes the last row out, with all that its first token wrote above it; returns that token's position. */
  dropLastRow() {
    const from = this.starts[this.starts.length - 1];
    let numbered = true; // the first row that goes: it began a line
    while (this.starts[this.starts.length - 1] === from) {
      const row = must(this.rows.pop());
      this.starts.pop();
      row.element.remove();
      numbered = row.number > 0;
      if (numbered) this.lines--;
    }
    this.row = this.rows[this.rows.length - 1];
    // a line end followed by spaces is one token: its line end stands in the row before
    const above = this.spans[from - this.base];
    const cut = above.isConnected && this.row?.line.contains(above);
    if (cut) {
      above.remove();
      this.row.count -= 1;
      this.row.size -= (above.textContent || "").replace("⏎", "").length;
    }
    this.open = cut || !numbered;
    this.spans.length = from - this.base;
    for (const position of this.more.keys()) if (position >= from) this.more.delete(position);
    for (const layer of this.layers.values())
      for (const elements of layer.values())
        for (const element of elements.keys()) if (!element.isConnected) elements.delete(element);
    return from;
  }

  /** Begins a row. @type {(position: Position, numbered: boolean) => void} */
  newRow(position, numbered) {
    if (!this.chunk || this.chunk.childElementCount >= CHUNK || position - this.chunkStart > CHUNK_TOKENS) {
      this.chunk = h("div.sv-chunk");
      this.chunkStart = position;
      this.part.append(this.chunk);
    }
    const number = numbered ? ++this.lines : 0;
    const gutter = h("span.sv-no", { "aria-hidden": "true" }, number ? String(number) : "");
    const line = h("span.sv-line");
    const element = h("div.sv-row", gutter, line);
    if (this.segment) element.dataset.segment = this.segment.split(":")[0];
    this.chunk.append(element);
    this.row = { element, line, number, count: 0, size: 0, label: null };
    this.rows.push(this.row);
    this.starts.push(position);
    this.open = true;
  }

  /** @type {(cell: Cell, ids: (number | undefined)[]) => void} */
  addCell(cell, ids) {
    const position = cell.start + this.offset;
    if (this.side === "text") this.enter(position);
    const special = this.owner.model.pieces.special(ids[cell.start]);
    const parts = special ? [cell.text] : cell.text.split("\n");
    parts.forEach((part, k) => {
      const last = k === parts.length - 1;
      if (last && k > 0 && !part) return;
      const full = this.row && this.row.count >= LONGEST_ROW && /^[\s]/.test(part);
      if (!this.open) this.newRow(position, true);
      else if (full) this.newRow(position, false);
      this.addSpan(cell, part, !last, special);
      if (!last) this.open = false;
    });
  }

  /** Begins what a position is the first of: the prompt, one of its segments, the output. @param {Position} position */
  enter(position) {
    const { passages, promptLength, trace } = this.owner.model;
    const { segment, passage } = trace.tokens;
    const written = position >= promptLength;
    const key = written ? "output" : `${segment[position]}:${passage[position]}`;
    if (key === this.segment) return;
    const side = written ? "output" : "prompt";
    if (!this.part.classList.contains(`sv-${side}`)) {
      this.part = h(`div.sv-${side}`, { role: "group", "aria-label": written ? OUTPUT : "Prompt" });
      this.code.append(this.part);
      this.chunk = null;
    }
    this.segment = key;
    const name = written ? OUTPUT : SEGMENTS[segment[position]];
    if (!name) return;
    this.newRow(position, true);
    const many = !written && passage[position] >= 0 && passages > 1;
    // it is no part of the text
    const said = many ? `${name} · passage ${passage[position] + 1}` : name;
    const label = h("span.sv-segment", { "aria-hidden": "true" }, said);
    this.row.element.before(label);
    this.row.label = label;
  }

  /** @type {(cell: Cell, text: string, lineEnd: boolean, special: boolean) => void} */
  addSpan(cell, text, lineEnd, special) {
    const { tokens } = this.owner.model.trace;
    const span = document.createElement("span");
    span.className = "sv-t";
    span.dataset.p = String(cell.start + this.offset);
    const visible = (this.owner.whitespace ? glyphs(text) : safe(text)).replace(/\r/g, "␍");
    if (visible) span.append(visible);
    if (lineEnd) span.append(h("i.sv-eol", { "aria-hidden": "true" }, "⏎"));
    if (!visible && !lineEnd) span.append("\u200b");
    if (special) span.classList.add("sv-special");
    else if (!visible.trim() && !(visible && this.row.begun)) span.classList.add("sv-blank"); // indents, line ends
    if (cell.stop - cell.start > 1) {
      span.classList.add("sv-group");
      span.dataset.n = String(cell.stop - cell.start);
    }
    if (this.side === "text") {
      if (cell.start >= this.owner.model.promptLength) this.dress(span, cell, tokens);
      else if (tokens.segment[cell.start] === "template") span.classList.add("sv-template");
    }
    this.row.line.append(span);
    if (!this.row.begun && /\S/.test(visible)) this.begun(this.row.size + visible.search(/\S/));
    this.row.count += 1;
    this.row.size += visible.length;
    for (let position = cell.start + this.offset; position < cell.stop + this.offset; position++) {
      if (!this.spans[position - this.base]) this.spans[position - this.base] = span;
      else {
        this.more.set(position, [...(this.more.get(position) || []), span]);
        span.classList.add("sv-continued");
      }
    }
  }

  /** A row that wraps goes on below its first letter. @param {number} blanks before it */
  begun(blanks) {
    this.row.begun = true;
    if (blanks > 1) this.row.line.style.setProperty("--sv-hang", `${Math.min(blanks, MOST_HANG)}ch`);
  }

  /** What became of an output token. @type {(span: HTMLElement, cell: Cell, tokens: Columns<TokenRow>) => void} */
  dress(span, cell, tokens) {
    const position = cell.start;
    const accepted = tokens.kind[position] === "accepted";
    span.classList.add(accepted ? "sv-accepted" : "sv-own");
    for (let at = position; at < cell.stop; at++) if (tokens.rank[at] > 0) span.classList.add("sv-differs");
  }

  /** The spans of a position. @type {(position: Position) => HTMLElement[]} */
  elements(position) {
    const span = this.spans[position - this.base];
    if (!span) return [];
    const more = this.more.get(position);
    return more ? [span, ...more] : [span];
  }

  /** @param {Position} position */
  rowIndex(position) {
    return Math.max(0, upTo(this.starts, position) - 1);
  }

  /** Line number of a position, as shown in the gutter. @param {Position} position */
  line(position) {
    for (let row = this.rowIndex(position); row >= 0; row--) {
      if (this.rows[row]?.number) return this.rows[row].number;
    }
    return 1;
  }

  /** The same in words. @param {Position} position */
  where(position) {
    return `line ${this.line(position)}`;
  }

  /** From ``position`` on all is not yet written. Whole rows change by one class each. @param {Position} position */
  showUntil(position) {
    const edge = this.rowIndex(position);
    for (const element of this.partly) element.classList.remove("sv-future");
    this.partly = [];
    for (let row = 0; row < this.rows.length; row++) {
      const future = row > edge || (row === edge && this.starts[row] >= position);
      if (this.rows[row].future !== future) {
        this.rows[row].future = future;
        this.rows[row].element.classList.toggle("sv-later", future);
      }
    }
    const stop = edge + 1 < this.starts.length ? this.starts[edge + 1] : this.stop;
    for (let at = position; at < stop; at++) {
      for (const element of this.elements(at)) {
        element.classList.add("sv-future");
        this.partly.push(element);
      }
    }
  }

  /** Replaces a layer of marks; unknown positions are left out. @type {(layer: string, items: Mark[]) => void} */
  paint(layer, items) {
    const had = this.layers.get(layer);
    if (!items.length && !(had && had.size)) return;
    /** What stays as it was is not touched. @type {MarkLayer} */
    const now = new Map();
    for (const [position, name, data] of items) {
      const span = this.spans[position - this.base];
      if (!span) continue;
      const of = now.get(name) || new Map();
      now.set(name, of);
      of.set(span, data || of.get(span));
      const more = this.more.get(position);
      if (more) for (const other of more) if (!of.has(other)) of.set(other, undefined);
    }
    if (had) {
      for (const [name, elements] of had) {
        const kept = now.get(name);
        for (const [element, data] of elements) {
          if (!kept || !kept.has(element)) element.classList.remove(name);
          const next = kept && kept.get(element);
          if (data) for (const key of Object.keys(data)) if (!next || !(key in next)) delete element.dataset[key];
        }
      }
    }
    for (const [name, elements] of now) {
      const old = had && had.get(name);
      for (const [element, data] of elements) {
        if (!old || !old.has(element)) element.classList.add(name);
        const before = old && old.get(element);
        for (const [key, text] of Object.entries(data || {}))
          if (before?.[key] !== text) element.dataset[key] = String(text);
      }
    }
    this.layers.set(layer, now);
  }

  /** Estimated top of every row, in lines: the minimap's scale. */
  measure() {
    this.width = this.body.clientWidth;
    const columns = Math.max(20, (this.width - BESIDE) / CHARACTER);
    const tops = new Float64Array(this.rows.length + 1);
    this.rows.forEach((row, k) => {
      tops[k + 1] = tops[k] + Math.max(1, Math.ceil(row.size / columns)) + (row.label ? 1.3 : 0);
    });
    this.height = this.map.clientHeight;
    return (this.tops = tops);
  }

  /** Tells chunks that were never laid out how high they are likely to be. */
  resized() {
    const tops = this.measure();
    /** @type {Map<HTMLElement, number>} */
    const heights = new Map();
    this.rows.forEach((row, k) => {
      const chunk = must(row.element.parentElement);
      heights.set(chunk, (heights.get(chunk) || 0) + tops[k + 1] - tops[k]);
    });
    for (const [chunk, lines] of heights) chunk.style.setProperty("--sv-rows", `${Math.round(lines * ROW_HEIGHT)}px`);
  }

  /** Draws the strip. @param {MapMark[]} marks */
  drawMap(marks) {
    this.marks = marks;
    const tops = this.tops || this.measure();
    const width = 12;
    const height = Math.max(40, this.height);
    const pen = sheet(this.canvas, width, height);
    const total = tops[this.rows.length] || 1;
    // a text shorter than its pane is not stretched over the strip
    const fit = Math.min(1, (total * ROW_HEIGHT + 24) / height);
    for (const mark of this.marks) {
      const row = this.rowIndex(mark.from);
      const top = (tops[row] / total) * height * fit;
      const bottom = (tops[this.rowIndex(Math.max(mark.from, mark.to - 1)) + 1] / total) * height * fit;
      pen.fillStyle = mark.color;
      pen.globalAlpha = mark.alpha || 1;
      const inset = mark.wide ? 0 : 3;
      pen.fillRect(inset, top, width - 2 * inset, Math.max(mark.wide ? 2.5 : 1.5, bottom - top));
    }
    pen.globalAlpha = 1;
  }

  /** The height of what is in sight. */
  get high() {
    return this.body.clientHeight;
  }

  /** The frame around what is in sight; reads the layout, so it is called on scrolling and resizing only. */
  drawView() {
    const { scrollTop, scrollHeight, clientHeight } = this.body;
    const whole = scrollHeight <= clientHeight + 1;
    this.viewport.hidden = whole;
    if (whole) return;
    const height = Math.max(14, (clientHeight / scrollHeight) * this.height);
    const top = clamp((scrollTop / scrollHeight) * this.height, 0, this.height - height);
    set(this.viewport, { style: `transform:translateY(${top.toFixed(1)}px);height:${height.toFixed(1)}px` });
  }
}
