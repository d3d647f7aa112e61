/* Copied spans, linked both ways: the marks in both panes and the drawn line between them. */

import { button, icon, s } from "specviz/base/dom.js";
import { endMark } from "specviz/base/drawing.js";
import { clamp, plural } from "specviz/base/numbers.js";

const MOST_LINES = 12;

/** Copied runs as marks at both ends, token by token. @type {(runs: CopiedRun[], name: string) => Mark[]} */
export function marked(runs, name) {
  /** @type {Mark[]} */
  const items = [];
  for (const run of runs) {
    for (let k = 0; k < run.stop - run.start; k++) items.push([run.start + k, name], [run.source + k, name]);
  }
  return items;
}

/** Along the left edge: in one pane, or from one to the other below it. @type {(from: End, to: End) => string} */
export function beside(from, to) {
  const turn = to.y > from.y ? 6 : -6;
  const x = from.left + 3;
  const out = `M${from.x} ${from.y} H${x + 5} Q${x} ${from.y} ${x} ${from.y + turn}`;
  return `${out} V${to.y - turn} Q${x} ${to.y} ${x + 5} ${to.y} H${to.x}`;
}

export class Links {
  /** @param {Inspector} owner */
  constructor(owner) {
    this.owner = owner;
    this.layer = s("svg.sv-links", { "aria-hidden": "true" });
    /** @type {CopiedRun[]} */
    this.hovered = [];
    /** @type {CopiedRun[]} */
    this.pinned = [];
  }

  /** Shows the runs of a hovered position (-1: none). @param {Position} position */
  hover(position) {
    const runs = position < 0 ? [] : this.owner.model.links(position);
    if (!runs.length && !this.hovered.length) return;
    this.hovered = runs;
    this.paint("link", runs, "sv-lit");
    this.draw();
  }

  /** @param {Position[]} positions */
  pin(positions) {
    this.pinned = positions.flatMap((position) => this.owner.model.links(position));
    this.paint("pin", this.pinned, "sv-pinned");
    /** @type {Mark[]} */
    const picked = positions.map((position) => [position, "sv-picked"]);
    for (const pane of this.owner.panes) pane.paint("pick", picked);
    this.draw();
  }

  /** @type {(layer: string, runs: CopiedRun[], name: string) => void} */
  paint(layer, runs, name) {
    const items = marked(runs, name);
    for (const pane of this.owner.panes) pane.paint(layer, items);
  }

  /** How much is pinned, and the button that unpins it. @param {HTMLElement} note */
  drawNote(note) {
    const { pins } = this.owner;
    note.hidden = !pins.length;
    if (!pins.length) return;
    const size = this.pinned.reduce((sum, run) => sum + run.stop - run.start, 0);
    const copies = plural(this.pinned.length, "pinned copy", "pinned copies");
    const text = this.pinned.length ? `${copies}, ${plural(size, "token")}` : "pinned, not copied";
    const clear = { class: "sv-square sv-quiet", onclick: () => this.owner.setPins([]) };
    note.replaceChildren(text, button("Unpin", clear, icon("close")));
  }

  draw() {
    const runs = this.hovered.length ? this.hovered : this.pinned;
    if (!runs.length) {
      if (this.layer.firstChild) this.layer.replaceChildren();
      return;
    }
    const frame = this.owner.root.getBoundingClientRect();
    this.layer.replaceChildren(...runs.slice(0, MOST_LINES).flatMap((run) => this.line(run, frame)));
  }

  /** Where a span begins or ends on the page, clamped to its pane. */
  /** @type {(position: Position, frame: DOMRect) => End | null} */
  end(position, frame) {
    const pane = this.owner.paneOf(position);
    const [element] = pane.elements(position);
    if (!element) return null;
    const view = pane.body.getBoundingClientRect();
    const box = element.getBoundingClientRect();
    const y = clamp(box.bottom, view.top + 6, view.bottom - 6);
    const hidden = box.bottom > view.bottom ? 1 : box.bottom < view.top + 6 ? -1 : 0;
    const x = hidden ? view.left + 30 : box.left;
    return { x: x - frame.left, y: y - frame.top, hidden, left: view.left - frame.left };
  }

  /** @type {(run: CopiedRun, frame: DOMRect) => Element[]} */
  line(run, frame) {
    const from = this.end(run.source, frame);
    const to = this.end(run.start, frame);
    if (!from || !to) return [];
    const d = beside(from, to);
    const marks = [from, to].map((end) => endMark(end, "path.sv-link", "circle.sv-link-dot"));
    return [s("path.sv-link-back", { d }), s("path.sv-link", { d }), ...marks];
  }
}
