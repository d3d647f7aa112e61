/* A step's draft in the text: refused tokens struck at the caret, branches below them, an arc from what was copied. */

import { framed, h, later, must, s, write } from "specviz/base/dom.js";
import { NOT_RECORDED, OPEN, POOL } from "specviz/base/model.js";
import { clamp } from "specviz/base/numbers.js";
import { Ruler } from "specviz/base/ruler.js";
import { copyOf } from "specviz/inspect/sentence.js";
import { settle } from "specviz/inspect/sight.js";

const FEW = 4; // branches below a token; the others are counted
const SIDE = 28; // pixels left free at the right: what a letter of another font may need more
const GAP = 14; // pixels between branches
const GUTTER = 53; // pixels left of a line's text
const PEEKED = 3; // rows of a source that is out of sight
const [NARROW, LOW] = [560, 240]; // pixels: a pane on which one line is peeked at
const ROOM = 6; // pixels below them
const EDGE = 8; // pixels between a line's end and its bracket

/** A token below the text: what is written, its node, its look; of an unread rest, all of its tokens. */
/** @typedef {{ text: string, node: number, look: string, rest?: number[] }} Cell */
/** Rows of tokens below an element of the text, and the lane in which nothing overlaps. */
/** @typedef {{ at: Element, rows: Cell[][], x: number, top: number, wide: number, lane: number }} Hung */
/** @typedef {{ top: number, bottom: number }} Span */

/** Shows an element, or hides it. @type {(element: HTMLElement, on: boolean) => void} */
const shown = (element, on) => {
  if (element.hidden === on) element.hidden = !on;
};

/** Whether a text has a letter or a digit: a stroke through a sign alone would erase it. @param {string} text */
const wordy = (text) => /[\p{L}\p{N}]/u.test(text);

export class DraftInText {
  /** @param {Inspector} owner */
  constructor(owner) {
    this.owner = owner;
    const { text } = owner;
    this.body = text.body;
    this.svg = s("svg.sv-arc", { "aria-hidden": "true" });
    this.under = h("div.sv-under", { "aria-hidden": "true" });
    this.paper = h("div.sv-paper");
    text.code.replaceWith(this.paper);
    this.paper.append(text.code, this.svg, this.under);
    this.peek = h("button.sv-peek", { type: "button", hidden: true, onclick: () => owner.reveal(this.source, true) });
    this.back = h("button.sv-button.sv-back", { hidden: true, onclick: () => this.owner.scroll(this.view, true) });
    must(text.body.parentElement).append(this.peek, this.back);
    /** What was put between the tokens. @type {HTMLElement[]} */
    this.ghosts = [];
    /** @type {StepView} */
    this.view = later();
    /** A place that is hovered in the ranking. @type {Position} */
    this.other = -1;
    this.source = -1;
    this.key = ""; // of what is peeked at
    /** What was copied from, and whether it is out of sight above. @type {Position[]} */
    this.from = [];
    this.far = false;
    this.high = 0; // pixels of a line
    this.covered = 0; // pixels at the top, by what is peeked at
    this.top = 0; // to where the text was scrolled when the arc was drawn
    this.ruler = new Ruler();
    this.font = ""; // of an arc's pill
    const moved = framed(() => this.view && this.body.scrollTop !== this.top && this.arc());
    this.body.addEventListener("scroll", moved, { passive: true });
    const resized = framed(() => this.view && this.body.clientHeight && this.resized());
    new ResizeObserver(resized).observe(this.body);
    for (const name of ["pointerover", "click"]) this.under.addEventListener(name, (event) => this.point(event));
    this.code = text.code;
    this.code.addEventListener("click", (event) => this.point(event), { capture: true });
  }

  /** A branch that is hovered lights in the tree; a click selects it. @param {Event} event */
  point(event) {
    const node = event.target instanceof HTMLElement ? event.target.closest("[data-node]") : null;
    if (!(node instanceof HTMLElement) || event.type !== "click") return;
    event.stopPropagation();
    this.owner.selectNode(Number(node.dataset.node));
  }

  /** In a pane of another height the step stays in sight, if it was, and the first line that is seen is whole again. */
  resized() {
    this.owner.text.measure();
    if (this.back.hidden) this.owner.scroll(this.view);
    settle(this.owner.text, this.view.context - 1, this.peek.hidden ? 0 : this.covered);
  }

  /** Takes the step's draft out of the text. */
  clear() {
    for (const ghost of this.ghosts) ghost.remove();
    this.ghosts = [];
    if (this.under.firstChild) this.under.replaceChildren();
  }

  /** Nothing of a step is in the text, or over it. */
  hide() {
    this.clear();
    this.svg.replaceChildren();
    shown(this.peek, false);
    shown(this.back, false);
  }

  /** The first refused token at the caret, what else was drafted below it. @param {StepView} view */
  draw(view) {
    this.clear();
    this.view = view;
    this.other = -1;
    if (view.bonus === OPEN || !view.drafted) return;
    const { text } = this.owner;
    const end = view.context + view.accepted;
    const [first] = view.refused;
    const before = view.bonus >= 0 ? text.elements(end)[0] : null;
    const after = text.elements(end - 1).at(-1);
    if (first && (before || after)) {
      const label = this.label(first.token);
      const ghost = h("span.sv-ghost-text", { "data-node": first.index, "aria-hidden": "true" }, label);
      ghost.classList.toggle("sv-sign", !wordy(label));
      const breaks = [h("wbr"), h("wbr")]; // the line may break on either side of it
      if (before) before.before(breaks[0], ghost, breaks[1]);
      else after?.after(breaks[0], ghost);
      this.ghosts.push(ghost, ...breaks);
    }
    this.hang(view);
  }

  /** @param {number} token */
  label(token) {
    return token === NOT_RECORDED ? "?" : this.owner.model.pieces.word(token, 20);
  }

  /** What stands below the line: the unread rest of the draft, other branches, guesses that a fork left. */
  /** @param {StepView} view */
  hang(view) {
    const { nodes, path, refused } = view;
    /** @type {(list: TreeNode[]) => Cell[]} */
    const cells = (list) => [
      ...list.slice(0, FEW).map(({ token, index }) => ({ text: this.label(token), node: index, look: "" })),
      ...(list.length > FEW ? [{ text: `+${list.length - FEW}`, node: list[FEW].index, look: "sv-more" }] : []),
    ];
    /** @type {Hung[]} */
    const hung = [];
    /** @type {(at: Element | undefined, ...rows: Cell[][]) => void} */
    const add = (at, ...rows) => {
      const full = rows.filter((row) => row.length);
      if (at && full.length) hung.push({ at, rows: full, x: 0, top: 0, wide: 0, lane: 0 });
    };
    path.forEach((node, k) => {
      const beside = nodes.filter((one) => one.parent === node.parent && one !== node && one.index);
      // those that the drafter liked better than the token that was kept
      const better = (/** @type {TreeNode} */ one) => one.draftProb === null || one.draftProb > (node.draftProb ?? 1);
      if (beside.some((one) => (node.draftProb === null ? one.index < node.index : better(one))))
        add(this.owner.text.elements(view.context + k)[0], cells(beside));
    });
    const [ghost] = this.ghosts;
    if (ghost) {
      const rest = [];
      for (let at = refused[0].index; ;) {
        const next = nodes.find(({ parent, index }) => parent === at && index > at);
        if (!next) break;
        rest.push(next);
        at = next.index;
      }
      const tokens = rest.map(({ token }) => token);
      const unread = rest.length ? [{ text: "", node: rest[0].index, look: "sv-rest", rest: tokens }] : [];
      add(ghost, unread, cells(refused.slice(1)));
    }
    this.place(hung);
  }

  /** An unread rest in at most so many characters: whole, or cut behind a token. */
  /** @type {(tokens: number[], most: number) => string} */
  unread(tokens, most) {
    const { pieces } = this.owner.model;
    const said = `${tokens.length} not reached`;
    const words = (/** @type {number} */ count) => pieces.phrase(tokens.slice(0, count)).replace(/^␣(?=[^␣])/, "") +
      `${count < tokens.length ? "…" : ""} · ${said}`;
    let [fit, over] = [0, tokens.length + 1]; // how many have room, and how many have none
    while (over - fit > 1) {
      const middle = (fit + over) >> 1;
      if (words(middle).length <= most) fit = middle;
      else over = middle;
    }
    return fit ? words(fit) : said;
  }

  /** Gives all below the text a lane in which nothing overlaps, and the lines room for it. @param {Hung[]} hung */
  place(hung) {
    if (!hung.length) return;
    const style = getComputedStyle(this.under);
    const row = parseFloat(style.lineHeight);
    const letter = this.ruler.width("0", style.font);
    const frame = this.paper.getBoundingClientRect();
    if (!frame.width) return;
    const room = Math.floor((frame.width - GUTTER - SIDE - GAP) / letter);
    for (const cell of hung.flatMap(({ rows }) => rows.flat()))
      if (cell.rest) cell.text = this.unread(cell.rest, room);
    /** @type {{ middle: number, taken: Hung[] }[]} */
    const lines = [];
    for (const one of hung) {
      const box = [...one.at.getClientRects()].at(-1) ?? one.at.getBoundingClientRect();
      one.top = box.bottom - frame.top;
      /** @param {Cell[]} cells */
      const wide = (cells) => cells.reduce((sum, { text }) => sum + text.length * letter + GAP, 0);
      one.wide = Math.max(...one.rows.map(wide));
      one.x = Math.max(0, Math.min(box.left - frame.left, frame.width - SIDE - one.wide));
      const middle = (box.top + box.bottom) / 2;
      let line = lines.find((known) => Math.abs(known.middle - middle) < row / 2);
      if (!line) lines.push((line = { middle, taken: [] }));
      const { taken } = line;
      const meets = (/** @type {Hung} */ other) =>
        other.x < one.x + one.wide && one.x < other.x + other.wide &&
        other.lane < one.lane + one.rows.length && one.lane < other.lane + other.rows.length;
      while (taken.some(meets)) one.lane++;
      taken.push(one);
    }
    let moved = 0; // by the room that lines above were given: worked out, as to ask costs a layout
    for (const { taken } of lines.sort((a, b) => a.middle - b.middle)) {
      const deep = row * Math.max(...taken.map(({ lane, rows }) => lane + rows.length)) + ROOM;
      // inside the element and behind its letters: no line may break there that did not while places were measured
      const strut = h("span.sv-strut", { style: `line-height:calc(1lh + ${deep}px)` });
      taken[0].at.append(strut);
      this.ghosts.push(strut);
      for (const one of taken) this.write(one, one.top + moved + one.lane * row, row, letter);
      moved += deep;
    }
  }

  /** Writes what hangs below an element, from ``top`` on. */
  /** @type {(hung: Hung, top: number, row: number, letter: number) => void} */
  write({ rows, x }, top, row, letter) {
    rows.forEach((cells, k) => {
      let left = x;
      for (const { text, node, look } of cells) {
        const style = `left:${left.toFixed(1)}px;top:${(top + k * row).toFixed(1)}px`;
        const sign = look || wordy(text) ? "" : "sv-sign";
        this.under.append(h("span", { class: `${look}${sign}`, style, "data-node": node }, text));
        left += text.length * letter + GAP;
      }
    });
  }

  /** Where elements stand on the paper. @type {(elements: Element[], frame: DOMRect) => Span | null} */
  span(elements, frame) {
    const boxes = elements.flatMap((element) => [...element.getClientRects()]).filter(({ height }) => height);
    if (!boxes.length) return null;
    const top = Math.min(...boxes.map((box) => box.top)) - frame.top;
    return { top, bottom: Math.max(...boxes.map((box) => box.bottom)) - frame.top };
  }

  /** Whether a row takes several lines. @param {Element} row */
  wraps(row) {
    return row.getBoundingClientRect().height > 1.5 * this.high;
  }

  /** The right end of elements' rows, at most ``limit``; of rows that wrap, of their lines between two heights. */
  /** @type {(elements: Element[], frame: DOMRect, limit: number, span: Span) => number} */
  edge(elements, frame, limit, { top, bottom }) {
    let right = 0;
    for (const row of new Set(elements.map((element) => element.closest(".sv-line")))) {
      if (!row) continue;
      for (const one of this.wraps(row) ? row.children : [...row.children].slice(-1))
        for (const box of one.getClientRects()) {
          const middle = (box.top + box.bottom) / 2 - frame.top;
          if (middle > top && middle < bottom) right = Math.max(right, box.right - frame.left);
        }
    }
    return Math.min(right, limit) + EDGE;
  }

  /** The positions that a step's copy is from, and what is said of it; null where nothing was copied. */
  /** @param {StepView} view @returns {{ from: Position[], said: string, kept: boolean } | null} */
  copied(view) {
    const copy = copyOf(view);
    const stood = view.path.filter(({ source }) => source >= 0 && source < POOL);
    const said = copy.length ? `${stood.length} of ${copy.length}` : "";
    if (stood.length) return { from: stood.map(({ source }) => source), said, kept: true };
    if (copy.length && copy[0].source < POOL)
      return { from: copy.map(({ source }) => source), said, kept: false };
    const { chosen } = view;
    const other = chosen && !copy.length && this.owner.model.id(chosen.position) !== view.root;
    if (!other || chosen.position >= POOL) return null;
    return { from: [chosen.position], said: "alike in meaning", kept: view.accepted > 0 };
  }

  /** Draws the arc; again wherever the text was scrolled. All is read before anything is written. */
  arc() {
    const { text, model } = this.owner;
    const { view } = this;
    /** @type {SVGElement[]} */
    let shapes = [];
    this.far = false;
    this.top = this.body.scrollTop;
    const frame = this.paper.getBoundingClientRect();
    if (!frame.width || !view || !model.stepCount) return;
    /** @param {Position} at */
    const solid = (at) => text.elements(at).filter((one) => !one.classList.contains("sv-blank"));
    const written = [];
    for (let at = view.context; at < view.context + view.accepted; at++) written.push(...solid(at));
    const ghost = this.ghosts.filter((one) => one.classList.contains("sv-ghost-text"));
    const copy = this.copied(view);
    if (this.other >= 0) {
      const to = written.length ? written : text.elements(view.context);
      shapes = this.line(solid(this.other), to, frame, "sv-other", "");
    } else if (copy) {
      const to = copy.kept && written.length ? written : ghost;
      this.from = copy.from;
      this.source = copy.from[0];
      shapes = this.line(copy.from.flatMap(solid), to, frame, copy.kept ? "" : "sv-refused", copy.said);
    }
    const away = this.away(frame);
    this.svg.replaceChildren(...shapes);
    shown(this.peek, this.far);
    if (away) write(this.back, `${away > 0 ? "↓" : "↑"} back to step ${view.number + 1}`);
    shown(this.back, away !== 0);
  }

  /** @type {(from: Element[], to: Element[], frame: DOMRect, look: string, said: string) => SVGElement[]} */
  line(from, to, frame, look, said) {
    const a = this.span(from, frame);
    const b = this.span(to, frame);
    if (!a || !b) return [];
    const limit = frame.width - parseFloat(getComputedStyle(from[0].closest(".sv-line") ?? this.paper).paddingRight);
    const gone = look !== "sv-other" && a.bottom < this.top + 20;
    this.high = parseFloat(getComputedStyle(this.code).lineHeight);
    let x1 = this.edge(from, frame, limit, a);
    let [y0, y1] = [a.top, a.bottom];
    if (gone) {
      x1 = limit;
      y0 = y1 = this.top + 34;
      this.far = true;
    }
    const x2 = this.edge(to, frame, limit, b);
    // straight out to where it clears the lines between, and a curve from there that ends on the paper
    const lead = Math.max(x1, x2, this.between(from, to, frame, limit, [a, b]));
    const x = Math.min((frame.width - 12 - lead / 4) / 0.75, lead + 46 + 0.22 * Math.abs(b.top - y1));
    const m2 = gone ? b.top + this.high / 2 : (b.top + b.bottom) / 2; // without a post: to the end of its first line
    const m1 = (y0 + y1) / 2;
    const shapes = [];
    if (!look && !gone) {
      const there = `M${x1} ${y0}H${lead}C${x + 14} ${y0} ${x + 14} ${b.bottom} ${lead} ${b.bottom}H${x2}`;
      const back = `V${b.top}H${lead}C${x - 10} ${b.top} ${x - 10} ${y1} ${lead} ${y1}H${x1}Z`;
      shapes.push(s("path.sv-arc-band", { d: there + back }));
    }
    if (!gone && look !== "sv-other")
      for (const [at, y, z] of [[x1, y0, y1], [x2, b.top, b.bottom]])
        shapes.push(s("path", { class: `sv-arc-post ${look}`, d: `M${at} ${y + 2}V${z - 2}` }));
    const d = `M${x1} ${m1}H${lead}C${x} ${m1} ${x} ${m2} ${Math.max(lead, x2 + 7)} ${m2}H${x2 + 7}`;
    shapes.push(s("path", { class: `sv-arc-line ${look}`, d }));
    shapes.push(s("path", { class: `sv-arc-tip ${look}`, d: `M${x2} ${m2}l9 -5v10Z` }));
    if (gone) this.look(); // the last: it is known then what it covers, and what it draws is not measured twice
    if (!said) return shapes;
    this.font ||= `600 12px ${getComputedStyle(this.paper).getPropertyValue("--sv-sans")}`; // asked for once
    const wide = this.ruler.width(said, this.font) + 12; // at most that of "20 of 20" has its room in the margin
    const at = clamp(0.25 * lead + 0.75 * x, wide / 2 + 4, frame.width - wide / 2 - 4);
    const middle = Math.max((m1 + m2) / 2, gone ? this.top + this.covered + 15 : 0);
    const pill = { class: `sv-arc-pill ${look}`, x: at - wide / 2, y: middle - 11, width: wide, height: 22, rx: 11 };
    return [...shapes, s("rect", pill), s("text", { class: look, x: at, y: middle + 4 }, said)];
  }

  /** The right end of the lines between two places. */
  /** @type {(from: Element[], to: Element[], frame: DOMRect, limit: number, spans: Span[]) => number} */
  between(from, to, frame, limit, spans) {
    const { text } = this.owner;
    const at = (/** @type {Element[]} */ [one]) => text.rows.findIndex(({ line }) => line === one.closest(".sv-line"));
    const [first, last] = [at(from), at(to)].sort((a, b) => a - b);
    const pane = this.body.getBoundingClientRect();
    /** @type {Element | null} */
    let chunk = null;
    // rows that wrap have further lines between the two
    const [top, bottom] = [Math.min(...spans.map((one) => one.bottom)), Math.max(...spans.map((one) => one.top))];
    const ends = [from[from.length - 1], to[0]];
    let [seen, right] = [false, this.edge(ends, frame, limit, { top: Math.max(top, this.top), bottom })];
    for (const { line, element } of text.rows.slice(Math.max(first + 1, last - 60), last)) {
      if (element.parentElement !== chunk) {
        chunk = element.parentElement;
        const { top = 0, bottom = 0 } = chunk?.getBoundingClientRect() ?? {};
        seen = bottom > pane.top && top < pane.bottom; // to ask what is out of sight would lay it out
      }
      if (!seen) continue;
      const end = line.lastElementChild?.getBoundingClientRect().right ?? 0;
      right = Math.max(right, Math.min(limit, this.wraps(line) ? limit : end - frame.left) + EDGE);
    }
    return right;
  }

  /** Shows the first lines of a source that is out of sight above the text; returns what it covers of it. */
  look() {
    const { text, model, zoom } = this.owner;
    const wide = text.width; // to ask the page costs a layout
    const key = `${model.run.id} ${this.view.number} ${wide} ${text.height} ${zoom}`;
    if (this.key === key) return this.covered;
    const place = model.placeOf({ position: this.source - 1, length: this.from.length });
    const copied = this.from.filter((at) => at >= place); // the line that is named stands first
    const all = [...new Set(copied.flatMap((at) => text.elements(at).map((one) => one.closest(".sv-row"))))];
    const left = all.length > PEEKED ? ` · the first ${PEEKED} of ${all.length} lines` : "";
    const narrow = wide < NARROW * zoom || text.height < LOW * zoom;
    const rows = all.slice(0, narrow ? 1 : PEEKED);
    const said = h("span.sv-peek-where", `${this.owner.where(place)}, further up ↑${narrow ? "" : left}`);
    const lines = h("span.sv-peek-lines", ...rows.map((row) => must(row).cloneNode(true)));
    this.peek.replaceChildren(said, lines);
    this.peek.classList.toggle("sv-brief", narrow);
    shown(this.peek, true); // measured in its place
    const first = lines.querySelector(`[data-p="${place}"]`);
    const line = parseFloat(getComputedStyle(lines).lineHeight);
    const share = narrow ? 0.6 : 0.33; // of its height may stand before what is copied
    const above = first instanceof HTMLElement ? first.offsetTop - lines.offsetTop - lines.clientHeight * share : 0;
    this.covered = this.peek.offsetHeight; // in one go with what was read above
    const [top] = lines.children; // whole lines; a scroll position would be lost whenever it is hidden
    if (above > 0 && top instanceof HTMLElement) {
      top.style.marginTop = `${-Math.ceil(above / line) * line}px`;
      this.covered = this.peek.offsetHeight;
    }
    this.key = key;
    return this.covered;
  }

  /** What a step's source would cover at the top, out of sight. @param {StepView} view */
  reserve(view) {
    const copy = this.copied(view);
    if (!copy || this.other >= 0 || view.bonus === OPEN) return 0; // no arc is drawn
    this.from = copy.from;
    this.source = copy.from[0];
    return this.look();
  }

  /** Whether the step's caret lies above (-1) or below (1) what is in sight. @param {DOMRect} frame */
  away(frame) {
    const { text } = this.owner;
    const caret = text.elements(this.view.context)[0] ?? text.elements(this.view.context - 1)[0];
    if (!caret) return 0;
    const at = caret.getBoundingClientRect();
    if (at.top - frame.top > this.top + text.high) return 1;
    return at.bottom - frame.top < this.top ? -1 : 0;
  }

  /** Shows where a place of the ranking stands; -1: none. @param {Position} position */
  compare(position) {
    if (this.other === position) return;
    this.other = position >= POOL ? -1 : position;
    this.arc();
  }
}
