/* A run's places as a strip: a row per drafter, a column per token, the run's steps above, the best ones outlined. */

import { h, must } from "specviz/base/dom.js";
import { sheet } from "specviz/base/drawing.js";
import { clamp, plural } from "specviz/base/numbers.js";
import { showToken } from "specviz/staged/token.js";

export const MOST = 12; // tokens that have the darkest shade
const [LEAST, MOST_LEFT, APART] = [60, 140, 10]; // pixels: the rows' names, and between them and the cells
const [CELL, WIDEST] = [12, 16]; // a column, at least and at most
const [ROW, BRACKET, LOST, BETWEEN] = [19, 16, 5, 8]; // heights: a drafter, brackets, a short-fall, between lines

/** How a strip is broken into lines, all about as long. @type {(count: number, width: number) => StripLayout} */
export function layoutOf(count, width) {
  const room = Math.max(CELL, width);
  const lines = Math.max(1, Math.ceil(count / Math.floor(room / CELL)));
  const columns = Math.max(1, Math.ceil(count / lines));
  return { cell: clamp(Math.floor(room / columns), CELL, WIDEST), columns, lines };
}

/** The places behind each of the run's steps that a draft there would have reached. */
/** @type {(report: Pick<PlacesReport, "steps" | "reach">, count?: number) => [from: number, to: number][]} */
export function shortfalls({ steps, reach }, count = Object.values(reach)[0]?.length ?? 0) {
  return steps.flatMap((start, k) => {
    const end = steps[k + 1] ?? count;
    const best = Math.max(0, ...Object.values(reach).map((tokens) => tokens[start] ?? 0));
    const to = Math.min(count, start + best + 1);
    return to > end ? [/** @type {[number, number]} */ ([end, to])] : [];
  });
}

export class StripView {
  /** @param {Inspector} owner */
  constructor(owner) {
    this.owner = owner;
    this.canvas = h("canvas.svps-strip", { role: "img", tabindex: "0" });
    this.cursor = -1; // the place of the keyboard
    /** @type {PlacesReport | null} */
    this.report = null;
    /** A drafter's title. @type {(name: string) => string} */
    this.title = (name) => name;
    this.left = LEAST; // where the cells begin
    this.layout = layoutOf(1, 0);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => owner.tip.hide());
    this.canvas.addEventListener("click", (event) => {
      const place = this.placeAt(event);
      if (place >= 0) showToken(owner, owner.model.promptLength + place);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => owner.tip.hide());
  }

  get count() {
    return Object.values(this.report?.reach ?? {})[0]?.length ?? 0;
  }

  /** The height of a line of the strip. */
  get lineHeight() {
    const drafters = Object.keys(this.report?.reach ?? {}).length;
    return BRACKET + LOST + drafters * ROW + BETWEEN;
  }

  /** @type {(report: PlacesReport, title: (name: string) => string) => void} */
  show(report, title) {
    this.report = report;
    this.title = title;
    const { steps, oracle, regret } = report;
    const places = plural(this.count, "place");
    this.canvas.ariaLabel = `How far each drafter would have come from each of ${places}: the run took ` +
      `${plural(steps.length, "step")}, the best drafter at every place ${oracle.length}, regret ${regret}.`;
    this.draw();
  }

  draw() {
    const { canvas, report } = this;
    const width = canvas.parentElement?.clientWidth ?? 0;
    if (!report || !width) return;
    const font = `12px ${this.owner.colors.sans}`;
    const names = Object.keys(report.reach).map(this.title);
    const ruler = must(canvas.getContext("2d"));
    ruler.font = font;
    const widest = Math.max(...names.map((name) => ruler.measureText(name).width));
    this.left = Math.ceil(clamp(widest, LEAST, Math.min(MOST_LEFT, width / 3))) + APART;
    this.layout = layoutOf(this.count, width - this.left);
    const high = this.layout.lines * this.lineHeight;
    canvas.style.height = `${high}px`;
    const pen = sheet(canvas, width, high);
    pen.font = font;
    pen.textBaseline = "middle";
    for (let line = 0; line < this.layout.lines; line++) this.drawLine(pen, line);
  }

  /** @type {(pen: Pen, line: number) => void} */
  drawLine(pen, line) {
    const report = /** @type {PlacesReport} */ (this.report);
    const { colors, model, number } = this.owner;
    const { cell, columns } = this.layout;
    const first = line * columns;
    const last = Math.min(this.count, first + columns);
    const top = line * this.lineHeight;
    /** @param {number} place */
    const x = (place) => this.left + (place - first) * cell;
    const names = Object.keys(report.reach);
    const rows = top + BRACKET;
    const lost = rows + names.length * ROW;
    /** @type {(from: number, to: number) => [number, number] | null} */
    const within = (from, to) => (to > first && from < last ? [Math.max(from, first), Math.min(to, last)] : null);
    const { context, emitted } = model.steps;
    const start = context[number] - model.promptLength;
    const now = within(start, start + emitted[number]);
    if (now) {
      pen.fillStyle = colors.ghost;
      pen.fillRect(x(now[0]), top, (now[1] - now[0]) * cell, lost - top);
    }
    pen.fillStyle = colors.faint;
    pen.fillText("this run", 0, top + BRACKET / 2);
    names.forEach((name, k) => {
      const y = rows + k * ROW;
      pen.fillStyle = colors.ink;
      pen.fillText(this.title(name), 0, y + ROW / 2, this.left - APART);
      report.reach[name].slice(first, last).forEach((tokens, at) => {
        pen.globalAlpha = tokens ? 0.2 + (0.8 * Math.min(tokens, MOST)) / MOST : 1;
        pen.fillStyle = tokens ? colors.accepted : colors.unreached;
        if (tokens) pen.fillRect(x(first + at), y, cell - 1, ROW - 1);
        else pen.fillRect(x(first + at) + 1, y + ROW / 2 - 1, cell - 3, 1);
        pen.globalAlpha = 1;
      });
    });
    this.brackets(pen, report.steps, within, x, rows - 8);
    report.oracle.forEach((place, k) => {
      const row = names.indexOf(report.choices[k]);
      if (!within(place, place + 1) || row < 0) return;
      pen.strokeStyle = colors.ink;
      pen.lineWidth = 1.5;
      pen.strokeRect(x(place) - 0.5, rows + row * ROW - 0.5, cell, ROW);
    });
    if (within(this.cursor, this.cursor + 1)) {
      pen.strokeStyle = colors.pin;
      pen.lineWidth = 2;
      pen.strokeRect(x(this.cursor) - 1, rows - 1, cell + 1, names.length * ROW + 1);
    }
    pen.fillStyle = colors.rejected;
    for (const [from, to] of shortfalls(report)) {
      const part = within(from, to);
      if (part) pen.fillRect(x(part[0]), lost + 1, (part[1] - part[0]) * cell - 1, 2);
    }
  }

  /** Steps as brackets, their ends towards the rows. */
  /** @type {(pen: Pen, starts: number[], within: (from: number, to: number) => [number, number] | null,
   *   x: (place: number) => number, y: number) => void} */
  brackets(pen, starts, within, x, y) {
    pen.strokeStyle = this.owner.colors.own;
    pen.lineWidth = 1.5;
    pen.beginPath();
    starts.forEach((start, k) => {
      const end = starts[k + 1] ?? this.count;
      const part = within(start, end);
      if (!part) return;
      const [from, to] = [x(part[0]) + 0.5, x(part[1]) - 1.5];
      if (part[0] === start) pen.moveTo(from, y + 5), pen.lineTo(from, y);
      else pen.moveTo(from, y);
      pen.lineTo(to, y);
      if (part[1] === end) pen.lineTo(to, y + 5);
    });
    pen.stroke();
  }

  /** The place below a pointer; -1 where there is none. @param {MouseEvent} event */
  placeAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const { cell, columns, lines } = this.layout;
    const line = Math.floor((event.clientY - box.top) / this.lineHeight);
    const column = Math.floor((event.clientX - box.left - this.left) / cell);
    const place = line * columns + column;
    return line < 0 || line >= lines || column < 0 || column >= columns || place >= this.count ? -1 : place;
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const { clientX: left, clientY: y } = event;
    this.card(this.placeAt(event), left, y - 8, y + 8);
  }

  /** Left and right walk from place to place, up and down by lines; Enter shows the step. */
  /** @param {KeyboardEvent} event */
  key(event) {
    const { canvas, cursor, layout, owner } = this;
    if (event.key === "Enter" && cursor >= 0) return showToken(owner, owner.model.promptLength + cursor);
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -layout.columns, ArrowDown: layout.columns }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation(); // else the step changes
    const { context } = owner.model.steps;
    const first = context[owner.number] - owner.model.promptLength; // of the step shown: where walking begins
    this.cursor = clamp(cursor < 0 ? first : cursor + by, 0, this.count - 1);
    this.draw();
    const box = canvas.getBoundingClientRect();
    const line = Math.floor(this.cursor / layout.columns);
    const left = box.left + this.left + ((this.cursor % layout.columns) + 0.5) * layout.cell;
    const top = box.top + line * this.lineHeight;
    this.card(this.cursor, left, top, top + this.lineHeight - BETWEEN);
  }

  /** The card of a place, below or above a part of the window; none of -1. */
  /** @type {(place: number, left: number, top: number, bottom: number) => void} */
  card(place, left, top, bottom) {
    const { owner, report } = this;
    if (place < 0 || !report) return owner.tip.hide();
    const box = { left, right: left, top, bottom, width: 0 };
    owner.tip.show({ getBoundingClientRect: () => box }, this.describe(place));
  }

  /** @type {(place: number) => Child[]} */
  describe(place) {
    const { model } = this.owner;
    const report = /** @type {PlacesReport} */ (this.report);
    const id = model.id(model.promptLength + place);
    const taken = report.oracle.indexOf(place);
    return [
      h("div", `Before token ${place + 1}, `, h("code.sv-token", model.pieces.label(id ?? -1, 14)), ":"),
      ...Object.entries(report.reach).map(([name, tokens]) =>
        h("div", `${this.title(name)}: ${plural(tokens[place], "token")} would have been accepted`)),
      taken >= 0 ? h("div", `The best path takes ${this.title(report.choices[taken])} here.`) : null,
    ];
  }
}
