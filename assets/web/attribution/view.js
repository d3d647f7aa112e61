/* An answer beside its sources, every copied run linked. Reads documents of specattribution/1. */

import { Board, COUNTED } from "specviz/attribution/board.js";
import { at } from "specviz/attribution/links.js";
import { Sides } from "specviz/attribution/sides.js";
import { Tooltip, clamp, framed, h, s } from "specviz/base/dom.js";

export class Attribution {
  /** ``options.tools``: elements beside the title. */
  constructor(host, options) {
    this.host = host;
    this.options = options || {};
    this.listeners = {};
    this.signals = [];
    this.active = 0;
    this.minRun = 2;
    this.counted = "whole";
    this.rest = true;
    this.hovered = 0;
    this.pinned = 0;
    this.build();
  }

  build() {
    this.root = h("div", { class: "sv sv-attr", tabindex: "-1", role: "group", "aria-label": "Attribution" });
    this.tip = new Tooltip(this.root);
    this.heading = h("div", { class: "sv-a-title" });
    this.board = new Board(this);
    this.sides = new Sides(this);
    this.layer = s("svg", { class: "sv-a-links", "aria-hidden": "true" });
    const tools = h("div", { class: "sv-a-tools" }, this.options.tools);
    this.root.append(
      h("header", { class: "sv-a-head" }, this.heading, tools),
      this.board.element,
      h("div", { class: "sv-a-grid" }, this.sides.answer.element, this.sides.sources.element),
      h("p", { class: "sv-a-keys" }, ...keys()),
      this.layer,
    );
    this.host.replaceChildren(this.root);
    this.watch();
  }

  watch() {
    const { root } = this;
    const runOf = (event) => Number(event.target.closest?.("[data-run]")?.dataset.run.split(" ")[0] || 0);
    root.addEventListener("pointerover", (event) => {
      const number = runOf(event);
      this.hover(number);
      const element = event.target.closest?.("[data-side]");
      if (element) this.tip.later(element, () => this.sides.facts(this.found.links[number - 1]));
    });
    root.addEventListener("pointerleave", () => this.hover(0));
    root.addEventListener("click", (event) => {
      const element = event.target.closest?.("[data-run]");
      if (element) this.pick(runOf(event), element);
    });
    root.addEventListener("focusin", (event) => {
      if (event.target.dataset?.run && event.target.matches(":focus-visible")) this.hover(runOf(event));
    });
    root.addEventListener("keydown", (event) => this.key(event));
    const redraw = framed(() => this.drawLinks());
    root.addEventListener("scroll", redraw, true);
    new ResizeObserver(redraw).observe(this.host);
  }

  on(name, fn) {
    this.listeners[name] = fn;
    return this;
  }

  /** Shows signals of one answer: [{title, method, views: {whole, drafted}, gold}], the first or ``active`` chosen. */
  load(signals, { minRun, counted, active } = {}) {
    this.signals = signals;
    this.active = clamp(active || 0, 0, Math.max(0, signals.length - 1));
    if (minRun) this.minRun = Math.max(1, Math.round(minRun));
    if (counted in COUNTED) this.counted = counted;
    this.pinned = this.hovered = 0;
    this.draw();
    return this;
  }

  get signal() {
    return this.signals[this.active];
  }

  get doc() {
    return this.signal.views[this.counted];
  }

  set(changes) {
    const run = this.pinned ? this.found.links[this.pinned - 1] : null;
    Object.assign(this, changes);
    this.hovered = this.pinned = 0;
    this.draw();
    const same = run && this.found.links.find((link) => link.output_tokens.join() === run.output_tokens.join());
    if (same) this.pin(same.number);
    this.listeners.change?.({ minRun: this.minRun, counted: this.counted, active: this.active });
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
    this.root.dataset.drawn = `${this.signal.method} ${this.counted} ${this.minRun}`;
  }

  drawHead() {
    const { run } = this.doc;
    const by = h("div", { class: "sv-by" }, h("b", {}, run.method_title), h("span", {}, run.model));
    if (run.forced) {
      const chip = h("span", { class: "sv-chip", tabindex: "0" }, "answer given");
      by.append(
        this.tip.add(chip, () => [
          "The model did not write this answer: it was given, and each draft was kept where it agreed.",
        ]),
      );
    }
    if (run.signal === "attention") by.append(h("span", { class: "sv-chip" }, "by where the draft model looked"));
    this.heading.replaceChildren(h("h2", { class: "sv-title" }, this.signal.title || "Untitled answer"), by);
  }

  // ---- one run ---------------------------------------------------------------------------------------------------

  hover(number) {
    if (number === this.hovered) return;
    this.hovered = number;
    this.light();
  }

  light() {
    for (const one of this.root.querySelectorAll(".sv-a-lit")) one.classList.remove("sv-a-lit");
    const number = this.hovered || this.pinned;
    if (number)
      for (const side of ["answer", "source"])
        for (const one of this.sides.elements(number, side)) one.classList.add("sv-a-lit");
    for (const one of this.board.lanes.querySelectorAll(`rect[data-run="${number}"]`)) one.classList.add("sv-a-lit");
    this.drawLinks();
  }

  pin(number) {
    this.pinned = number;
    this.light();
  }

  /** A click: pins the run and brings its other end into sight; a second click lets go. */
  pick(number, element) {
    if (this.pinned === number && this.lastSide === element.dataset.side) return this.pin(0);
    this.lastSide = element.dataset.side;
    this.reveal(
      number,
      element.dataset.side === "source" ? ["answer"] : element.dataset.side ? ["source"] : ["answer", "source"],
    );
  }

  reveal(number, sides) {
    const link = this.found.links[number - 1];
    this.sides.unfold(this.doc.sources[link.source_index]);
    this.pin(number);
    for (const side of sides) {
      const [element] = this.sides.elements(number, side);
      for (const box of [element?.closest(".sv-a-passage-text"), element?.closest(".sv-body")])
        if (box) into(element, box);
    }
    this.drawLinks();
  }

  /** Left and right walk the runs, Enter goes to the other end, Escape lets go. */
  key(event) {
    const element = event.target.closest?.("[data-side]");
    if (event.key === "Escape" && this.pinned) return this.pin(0);
    if (!element || event.ctrlKey || event.metaKey || event.altKey) return;
    const number = Number(element.dataset.run.split(" ")[0]);
    const { side } = element.dataset;
    const last = this.found.links.length;
    const next = { ArrowRight: number + 1, ArrowLeft: number - 1, Home: 1, End: last }[event.key];
    const turned = side === "answer" ? "source" : "answer";
    if (event.key === "Enter" || event.key === " ") this.focusRun(number, turned);
    else if (next >= 1 && next <= last) this.focusRun(next, side);
    else if (next === undefined) return;
    event.preventDefault();
  }

  focusRun(number, side) {
    this.hovered = 0;
    this.reveal(number, ["answer", "source"]);
    const [element] = this.sides.elements(number, side);
    for (const one of this.sides.elements(number, "answer").slice(0, 1)) {
      for (const other of this.sides.answer.body.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
      one.tabIndex = 0;
    }
    element?.focus({ preventScroll: true });
  }

  // ---- lines -----------------------------------------------------------------------------------------------------

  get stacked() {
    const [a, b] = [this.sides.answer.element, this.sides.sources.element].map((one) => one.getBoundingClientRect());
    return b.left < a.right - 4;
  }

  /** The line of the run that is hovered or pinned; none where the two sides stand one above the other. */
  drawLinks() {
    const number = this.hovered || this.pinned;
    if (!number || this.stacked) return this.layer.firstChild && this.layer.replaceChildren();
    const [from] = this.sides.elements(number, "answer");
    const tos = this.sides.elements(number, "source");
    if (!from || !tos.length) return this.layer.replaceChildren();
    const frame = this.root.getBoundingClientRect();
    const a = end(from, [this.sides.answer.body], "right", frame);
    const b = end(tos[0], [tos[0].closest(".sv-a-passage-text"), this.sides.sources.body], "left", frame);
    const middle = (a.edge + b.edge) / 2;
    const d = `M${a.edge} ${a.y} C${middle} ${a.y} ${middle} ${b.y} ${b.edge} ${b.y}`;
    const ends = `M${a.x} ${a.y} H${a.edge} M${b.edge} ${b.y} H${b.x}`; // thin: they pass over text
    this.layer.setAttribute(
      "class",
      `sv-a-links ${tos[0].closest(".sv-a-passage").className.replace(/sv-a-(passage|folded)\b/g, "")}`,
    );
    const dots = [a, b].map(({ x, y, hidden }) =>
      hidden
        ? s("path", {
            d: `M${x - 5} ${y - 4 * hidden} L${x} ${y + 3 * hidden} L${x + 5} ${y - 4 * hidden}`,
            class: "sv-a-line",
          })
        : s("circle", { cx: x, cy: y, r: 2.5 }),
    );
    this.layer.replaceChildren(
      s("path", { d: ends, class: "sv-a-line sv-a-thin" }),
      s("path", { d, class: "sv-a-line-back" }),
      s("path", { d, class: "sv-a-line" }),
      ...dots,
    );
  }
}

/** Where a run begins or ends on the page, kept inside the boxes that scroll. */
function end(element, boxes, side, frame) {
  const rects = [...element.getClientRects()];
  const box = rects.find((one) => one.width > 1) || element.getBoundingClientRect();
  let top = -Infinity,
    bottom = Infinity;
  for (const one of boxes) {
    const view = one.getBoundingClientRect();
    top = Math.max(top, view.top + 6);
    bottom = Math.min(bottom, view.bottom - 6);
  }
  const outer = boxes[boxes.length - 1].getBoundingClientRect();
  const y = clamp(box.bottom - 1, top, Math.max(top, bottom));
  const hidden = box.bottom - 1 > bottom ? 1 : box.bottom - 1 < top ? -1 : 0;
  const x = hidden ? (side === "right" ? outer.right - 14 : outer.left + 16) : side === "right" ? box.right : box.left;
  const edge = side === "right" ? outer.right : outer.left;
  return { x: x - frame.left, y: y - frame.top, edge: edge - frame.left, hidden };
}

/** Scrolls a box, and nothing around it, so that an element is in its middle third. */
function into(element, box) {
  const [one] = element.getClientRects();
  const view = box.getBoundingClientRect();
  if (!one || box.scrollHeight <= box.clientHeight) return;
  if (one.top >= view.top + 24 && one.bottom <= view.bottom - 24) return;
  box.scrollTop += one.top - view.top - view.height / 3;
}

function keys() {
  const key = (name) => h("kbd", {}, name);
  return [
    key("Tab"),
    " to the runs, ",
    key("←"),
    " ",
    key("→"),
    " walk them, ",
    key("Enter"),
    " to the other end and back, ",
    key("Esc"),
    " lets go. Click a run to hold its line.",
  ];
}
