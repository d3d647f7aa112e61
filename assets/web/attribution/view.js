/* An answer beside its sources, every copied span linked. Reads documents of specattribution/1. */

import { Board, COUNTED } from "specviz/attribution/board.js";
import { CauseCard } from "specviz/attribution/cause.js";
import { at, sourceKey } from "specviz/attribution/links.js";
import { Sides } from "specviz/attribution/sides.js";
import { Tooltip, closest, framed, h, later, must, s } from "specviz/base/dom.js";
import { endMark } from "specviz/base/drawing.js";
import { clamp } from "specviz/base/numbers.js";

/** The number of the first span that an element is a part of, 0 for none. @param {Element | null} element */
const runOf = (element) => Number(element?.getAttribute("data-run")?.split(" ")[0] || 0);

export class Attribution {
  /** Told when something else is chosen. @type {((choice: AttributionChoice) => void) | null} */
  changed = null;
  /** Reads the answer without a part of its prompt; none where no server is. */
  /** @type {((part: object) => Promise<Cause>) | null} */
  ask = null;
  /** @type {SignalDocument[]} */
  signals = [];
  /** Which of them is chosen. */
  active = 0;
  minRun = 2;
  /** Links whose words are less rare are drawn without colour. */
  minBits = 0;
  /** @type {Counted} */
  counted = "words";
  /** Whether what stands in the sources by its text alone is shown, in place of a signal's links. */
  text = false;
  /** Whether what nobody copied is marked. */
  rest = true;
  /** A source that is pointed at. */
  source = "";
  /** Numbers of spans, 0 for none. */
  hovered = 0;
  pinned = 0;
  /** Whether the pointer has not moved since all was let go of: what comes to lie under it is not pointed at. */
  still = false;
  /** @type {string | undefined} */
  lastSide;
  /** @type {KnownQuotes | null} */
  gold = null;
  /** What the chosen signal's links come to. @type {Attributed} */
  found = later();

  /** @param {HTMLElement} host */
  constructor(host) {
    this.host = host;
    this.root = h("div.sv.sv-attr", { tabindex: "-1", role: "group", "aria-label": "Attribution" });
    this.tip = new Tooltip(this.root);
    this.title = h("div.sv-a-title.ui-row");
    this.heading = h("header.ui-row", this.title);
    this.board = new Board(this);
    this.cause = new CauseCard(this);
    this.sides = new Sides(this);
    this.layer = s("svg.sv-a-links", { "aria-hidden": "true" });
    this.root.append(
      this.heading,
      this.board.element,
      h(
        "div.sv-a-grid.ui-halves",
        h("div.sv-a-column", this.sides.answer.element, this.cause.element),
        this.sides.sources.element,
      ),
      h("p.sv-a-keys.ui-soft", ...keys()),
      this.board.fold,
      this.layer,
    );
    this.host.replaceChildren(this.root);
    this.watch();
  }

  watch() {
    const { root } = this;
    /** @param {PointerEvent} event */
    const over = (event) => {
      const number = runOf(closest(event, "[data-run]"));
      this.hover(number, number ? "" : (closest(event, "[data-source]")?.getAttribute("data-source") ?? ""));
      const element = closest(event, "[data-side]");
      if (element) this.tip.later(element, () => this.sides.facts(this.found.links[number - 1]));
    };
    root.addEventListener("pointerover", (event) => this.still || over(event));
    root.addEventListener("pointermove", (event) => {
      if (this.still) over(event);
      this.still = false;
    });
    root.addEventListener("pointerleave", () => this.hover(0));
    root.addEventListener("click", (event) => {
      const element = closest(event, "[data-run]");
      if (element) return this.pick(runOf(element), element);
      const own = closest(event, "[data-sentence]");
      if (own) this.cause.chooseSentence(Number(own.getAttribute("data-sentence")));
    });
    root.addEventListener("focusin", ({ target }) => {
      if (!(target instanceof Element) || !target.matches(":focus-visible")) return;
      if (target.matches("[data-run]")) this.hover(runOf(target));
      else this.hover(0, target.closest("[data-source]")?.getAttribute("data-source") ?? "");
    });
    root.addEventListener("keydown", (event) => this.key(event));
    const redraw = framed(() => this.drawLinks());
    root.addEventListener("scroll", redraw, true);
    new ResizeObserver(redraw).observe(this.host);
  }

  /** Shows signals of one answer, the first or ``active`` chosen. */
  /** @type {(signals: SignalDocument[], choice?: Partial<AttributionChoice>) => this} */
  load(signals, { minRun, minBits, counted, active } = {}) {
    if (signals[0] !== this.signals[0]) this.sides.tops.clear();
    this.signals = signals;
    this.active = clamp(active || 0, 0, Math.max(0, signals.length - 1));
    if (minRun) this.minRun = Math.max(1, Math.round(minRun));
    if (minBits !== undefined) this.minBits = Math.max(0, minBits);
    if (counted && counted in COUNTED) this.counted = counted;
    this.pinned = this.hovered = 0;
    this.text = signals.length > 0 && !this.signal.views[this.counted].links.length; // nothing else can be shown
    if (signals.length) this.cause.load();
    this.draw();
    return this;
  }

  get signal() {
    return this.signals[this.active];
  }

  get doc() {
    return this.text ? this.signal.verbatim : this.signal.views[this.counted];
  }

  /** @param {Partial<AttributionChoice & { rest: boolean, text: boolean }>} changes */
  set(changes) {
    const run = this.pinned ? this.found.links[this.pinned - 1] : null;
    Object.assign(this, changes);
    this.hovered = this.pinned = 0;
    this.draw();
    const same = run && this.found.links.find((link) => link.output_tokens.join() === run.output_tokens.join());
    if (same) this.pin(same.number);
    const { minRun, minBits, counted, active } = this;
    this.changed?.({ minRun, minBits, counted, active });
  }

  draw() {
    if (!this.signals.length) return;
    const { doc } = this;
    this.gold = this.signals.map((one) => one.gold).find(Boolean) || null;
    this.found = at(doc, this.minRun);
    this.drawHead();
    this.board.draw();
    this.sides.draw();
    this.drawLinks();
    this.root.dataset.drawn = `${this.text ? "text" : this.signal.method} ${this.counted} ${this.minRun}`;
  }

  drawHead() {
    const { run } = this.doc;
    const by = h("div.sv-by.ui-row.ui-words", h("b", run.method_title), h("span", run.model));
    const given = "The model did not write this answer: it was given, and each draft was kept where it agreed.";
    if (run.forced) by.append(this.tip.explained("span.sv-chip", given, "answer given"));
    if (run.signal === "attention") by.append(h("span.sv-chip", "by where the draft model looked"));
    this.title.replaceChildren(h("h2.sv-title.ui-clip", this.signal.title || "Untitled answer"), by);
  }

  // ---- one span --------------------------------------------------------------------------------------------------

  /** A span that is pointed at, or all of a source. @param {number} number @param {string} source */
  hover(number, source = "") {
    if (number === this.hovered && source === this.source) return;
    this.hovered = number;
    this.source = source;
    this.light();
  }

  light() {
    for (const one of this.root.querySelectorAll(".sv-a-lit")) one.classList.remove("sv-a-lit");
    const number = this.hovered || this.pinned;
    if (number)
      for (const side of ["answer", "source"])
        for (const one of this.sides.elements(number, side)) one.classList.add("sv-a-lit");
    for (const one of this.board.lanes.querySelectorAll(`rect[data-run="${number}"]`)) one.classList.add("sv-a-lit");
    const of = this.source ? this.found.links.filter((link) => sourceKey(link) === this.source) : [];
    for (const link of of)
      for (const one of this.sides.elements(link.number, "answer")) one.classList.add("sv-a-lit");
    this.drawLinks();
  }

  /** @param {number} number */
  pin(number) {
    this.pinned = number;
    this.light();
  }

  /** Lets go of the span, and of the number whose heat is shown. */
  release() {
    this.still = true;
    if (this.cause.chosen) this.cause.choose(null);
    this.hovered = 0;
    this.source = "";
    this.pin(0);
  }

  /** A click: pins the span and brings its other end into sight; a second click lets go. */
  /** @type {(number: number, element: HTMLElement) => void} */
  pick(number, element) {
    if (this.pinned === number && this.lastSide === element.dataset.side) return this.release();
    this.lastSide = element.dataset.side;
    this.reveal(
      number,
      element.dataset.side === "source" ? ["answer"] : element.dataset.side ? ["source"] : ["answer", "source"],
    );
    this.cause.readLink(this.found.links[number - 1]);
  }

  /** @type {(number: number, sides: string[]) => void} */
  reveal(number, sides) {
    const link = this.found.links[number - 1];
    this.sides.unfold(this.doc.sources[link.source_index]);
    this.pin(number);
    for (const side of sides) {
      const [element] = this.sides.elements(number, side);
      for (const box of [element?.closest(".sv-a-passage-text"), element?.closest(".sv-body")])
        if (box && element) into(element, box);
    }
    this.drawLinks();
  }

  /** Left and right walk the spans, Enter goes to the other end, Escape lets go. @param {KeyboardEvent} event */
  key(event) {
    const element = closest(event, "[data-side]");
    if (event.key === "Escape") return this.release();
    if (!element || event.ctrlKey || event.metaKey || event.altKey) return;
    const number = runOf(element);
    const { side = "" } = element.dataset;
    const last = this.found.links.length;
    /** @type {Record<string, number | undefined>} */
    const runs = { ArrowRight: number + 1, ArrowLeft: number - 1, Home: 1, End: last };
    const next = runs[event.key];
    const turned = side === "answer" ? "source" : "answer";
    if (event.key === "Enter" || event.key === " ") this.focusRun(number, turned);
    else if (next === undefined) return;
    else if (next >= 1 && next <= last) this.focusRun(next, side);
    event.preventDefault();
  }

  /** @type {(number: number, side: string) => void} */
  focusRun(number, side) {
    this.hovered = 0;
    this.reveal(number, ["answer", "source"]);
    const [element] = this.sides.elements(number, side);
    for (const one of this.sides.elements(number, "answer").slice(0, 1)) {
      const reachable = this.sides.answer.body.querySelectorAll('[tabindex="0"]');
      for (const other of reachable) other.setAttribute("tabindex", "-1");
      one.tabIndex = 0;
    }
    element?.focus({ preventScroll: true });
  }

  // ---- lines -----------------------------------------------------------------------------------------------------

  get stacked() {
    const [a, b] = [this.sides.answer.element, this.sides.sources.element].map((one) => one.getBoundingClientRect());
    return b.left < a.right - 4;
  }

  /** The line of the span that is hovered or pinned; none where the two sides stand one above the other. */
  drawLinks() {
    const number = this.hovered || this.pinned;
    if (!number || this.stacked) return this.layer.replaceChildren();
    const [from] = this.sides.elements(number, "answer");
    const tos = this.sides.elements(number, "source");
    if (!from || !tos.length) return this.layer.replaceChildren();
    const frame = this.root.getBoundingClientRect();
    const to = tos[0];
    const source = must(to.closest(".sv-a-passage"), "source");
    const a = end(from, [this.sides.answer.body], "right", frame);
    const b = end(to, [must(to.parentElement), this.sides.sources.body], "left", frame);
    const middle = (a.edge + b.edge) / 2;
    const d = `M${a.edge} ${a.y} C${middle} ${a.y} ${middle} ${b.y} ${b.edge} ${b.y}`;
    const ends = `M${a.x} ${a.y} H${a.edge} M${b.edge} ${b.y} H${b.x}`; // thin: they pass over text
    const looks = [...source.classList].filter((name) => /^sv-a-(c\d*|l\d|other)$/.test(name)); // its colour and line
    this.layer.setAttribute("class", ["sv-a-links", ...looks].join(" "));
    this.layer.replaceChildren(
      s("path.sv-a-line.sv-a-thin", { d: ends }),
      s("path.sv-a-line-back", { d }),
      s("path.sv-a-line", { d }),
      ...[a, b].map((end) => endMark(end, "path.sv-a-line", "circle")),
    );
  }
}

/**
 * Where a span begins or ends on the page, kept inside the boxes that scroll.
 *
 * @type {(element: Element, boxes: Element[], side: "left" | "right", frame: DOMRect) =>
 *   { x: number, y: number, edge: number, hidden: number }}
 */
function end(element, boxes, side, frame) {
  const rects = [...element.getClientRects()];
  const box = rects.find((one) => one.width > 1) || element.getBoundingClientRect();
  const views = boxes.map((one) => one.getBoundingClientRect());
  const top = Math.max(...views.map((view) => view.top + 6));
  const bottom = Math.min(...views.map((view) => view.bottom - 6));
  const outer = views[views.length - 1];
  const y = clamp(box.bottom - 1, top, Math.max(top, bottom));
  const hidden = box.bottom - 1 > bottom ? 1 : box.bottom - 1 < top ? -1 : 0;
  const x = hidden ? (side === "right" ? outer.right - 14 : outer.left + 16) : side === "right" ? box.right : box.left;
  const edge = side === "right" ? outer.right : outer.left;
  return { x: x - frame.left, y: y - frame.top, edge: edge - frame.left, hidden };
}

/** Scrolls a box, and nothing around it, so that an element is in its middle third. */
/** @type {(element: Element, box: Element) => void} */
function into(element, box) {
  const [one] = element.getClientRects();
  const view = box.getBoundingClientRect();
  if (!one || box.scrollHeight <= box.clientHeight) return;
  if (one.top >= view.top + 24 && one.bottom <= view.bottom - 24) return;
  box.scrollTop += one.top - view.top - view.height / 3;
}

const KEYS = "[Tab] to the spans, [←] [→] walk them, [Enter] to the other end and back, [Esc] lets go. " +
  "Click a span to hold its line.";
const keys = () => KEYS.split(/[[\]]/).map((text, k) => (k % 2 ? h("kbd", text) : text));
