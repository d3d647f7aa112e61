/* The ruler by output position: what every forward of every lane brought. */

import { h, must } from "specviz/base/dom.js";
import { dragged, set, sheet } from "specviz/base/drawing.js";
import { clamp, upTo } from "specviz/base/numbers.js";

const ROW = 30; // a lane's height in the ruler
const TEXT = 24; // the output's text above the lanes
const TICKS = 16;
const STRIP = 9; // a lane's height in the overview
const GLYPH = 7.25; // width of a character at 12px
const LABEL = 24; // characters of a token at most
const FORWARD = 2.5; // a forward of the oracle

/** The ruler: all of the output above, a window of it below in which every forward of every lane is a block. */
export class Ruler {
  /** @type {RulerLane[]} */
  lanes = [];
  /** The longest output's tokens. */
  length = 0;
  /** Their texts. @type {string[]} */
  labels = [];
  /** Where each begins in the window's strip, and the end of the last. */
  places = new Float64Array(1);
  /** The place at the window's left edge. */
  left = 0;
  /** Whether the window stays where it is: a pointer is down in it. */
  held = false;
  /** Widths, read once: asked for while scrubbing, they would cost a layout. */
  overall = 0;
  wide = 0;
  /** @type {LaneColors | null} */
  theme = null;

  /** @param {(position: number) => void} scrub called when somebody points at a position */
  constructor(scrub) {
    this.scrub = scrub;
    this.whole = h("canvas", { "aria-hidden": "true" });
    this.window = h("canvas.sv-ruler-window", { "aria-hidden": "true" });
    this.frame = h("div.sv-ruler-frame", { "aria-hidden": "true" });
    this.names = h("div.sv-ruler-names", { "aria-hidden": "true" });
    this.over = h("div.sv-ruler-over", this.whole, this.frame);
    this.element = h(
      "div.sv-ruler",
      { role: "slider", tabindex: "0", "aria-label": "Output position", "aria-valuemin": "0" },
      this.over,
      this.names,
      this.window,
    );
    this.drag(this.over, (x) => (x / this.over.clientWidth) * this.length);
    this.drag(this.window, (x) => upTo(this.places, this.left + x) - 1, true);
  }

  /** Pointing scrubs; in the window the text stays where it is while the pointer is down. */
  /** @type {(element: HTMLElement, place: (x: number) => number, hold?: boolean) => void} */
  drag(element, place, hold = false) {
    /** @param {PointerEvent} event */
    const at = (event) => {
      if (!this.length) return;
      this.held = hold;
      const box = element.getBoundingClientRect();
      this.scrub(clamp(Math.floor(place(clamp(event.clientX - box.left, 0, box.width))) + 1, 0, this.length));
    };
    dragged(element, at, () => (this.held = false));
  }

  /** What is compared, and the lane whose text is shown. */
  /** @type {(lanes: RulerLane[], text: import("specviz/compare/lane.js").Lane, colors: LaneColors) => void} */
  set(lanes, text, colors) {
    this.lanes = lanes;
    this.theme = colors;
    this.length = Math.max(0, ...lanes.map(({ lane }) => lane.length));
    this.labels = [];
    this.places = new Float64Array(this.length + 1);
    const longest = lanes.reduce((a, { lane }) => (lane.length > a.length ? lane : a), text);
    for (let p = 0; p < this.length; p++) {
      const from = p < text.length ? text : longest;
      this.labels.push(from.pieces.label(from.output[p], LABEL));
      this.places[p + 1] = this.places[p] + Math.max(1, this.labels[p].length) * GLYPH + 4;
    }
    this.names.replaceChildren(
      ...lanes.map(({ name, mark, color }) => {
        const swatch = h("b.sv-lane-mark", mark);
        swatch.style.setProperty("--sv-lane", color);
        return h("span", { title: name }, swatch, h("span.ui-clip", name));
      }),
    );
    this.element.setAttribute("aria-valuemax", String(this.length));
    this.element.style.setProperty("--sv-ruler-rows", String(lanes.length));
    this.left = 0;
    this.overall = this.over.clientWidth;
    this.wide = this.window.clientWidth;
    this.drawWhole();
  }

  get colors() {
    return must(this.theme);
  }

  /** A pen on an empty canvas of this size. @type {(canvas: HTMLCanvasElement, high: number, wide: number) => Pen} */
  size(canvas, high, wide) {
    const pen = sheet(canvas, wide, high);
    set(canvas, { style: `height:${high}px` });
    pen.textRendering = "optimizeSpeed";
    return pen;
  }

  /** The whole output, a strip per lane: what a draft brought is solid, the target's own tokens are gaps. */
  drawWhole() {
    const wide = this.overall;
    const pen = this.size(this.whole, this.lanes.length * (STRIP + 3) + 3, wide);
    if (!this.length) return;
    const unit = wide / this.length;
    this.lanes.forEach(({ lane, color, aligned }, row) => {
      const y = 3 + row * (STRIP + 3);
      pen.fillStyle = this.colors.raised;
      pen.fillRect(0, y, lane.length * unit, STRIP);
      pen.fillStyle = color;
      const { accepted } = lane;
      for (let k = 0; k < lane.steps; k++) {
        if (!accepted[k]) continue;
        const x = lane.start(k) * unit;
        pen.fillRect(x, y, Math.max(0.6, accepted[k] * unit - (unit > 2 ? 1 : 0)), STRIP);
      }
      if (aligned < lane.length)
        this.hatch(pen, aligned * unit, y, (lane.length - aligned) * unit, STRIP, this.colors.card);
    });
  }

  /** Oblique lines: from here on a lane writes something else. */
  /** @type {(pen: Pen, x: number, y: number, wide: number, high: number, color: string) => void} */
  hatch(pen, x, y, wide, high, color) {
    pen.save();
    pen.beginPath();
    pen.rect(x, y, wide, high);
    pen.clip();
    pen.strokeStyle = color;
    pen.lineWidth = 1.2;
    pen.beginPath();
    for (let at = x - high; at < x + wide; at += 5) {
      pen.moveTo(at, y + high);
      pen.lineTo(at + high, y);
    }
    pen.stroke();
    pen.restore();
  }

  /** ``position``: tokens written; ``done``: steps done by each lane; ``mark``: what is to be emphasised; ``begin``:
      whether the window stands at the output's beginning. */
  /** @type {(position: number, done: number[], mark: TokenRange | null, said: string, begin?: boolean) => void} */
  draw(position, done, mark, said, begin = false) {
    const high = TEXT + this.lanes.length * ROW + TICKS;
    const wide = this.wide;
    const pen = this.size(this.window, high, wide);
    if (!this.length) return;
    const end = this.places[this.length];
    const at = this.places[clamp(position, 0, this.length)];
    if (!this.held) this.left = begin ? 0 : this.edge(clamp(at - 0.45 * wide, 0, Math.max(0, end - wide)));
    const first = Math.max(0, upTo(this.places, this.left) - 1);
    const last = Math.min(this.length, upTo(this.places, this.left + wide));
    if (mark) this.emphasise(pen, mark, high);
    this.text(pen, first, last, position);
    pen.font = `600 11px ${this.colors.sans}`;
    pen.textAlign = "center";
    this.lanes.forEach((one, row) => this.row(pen, one, TEXT + row * ROW, first, last, done[row]));
    this.lanes.forEach((one, row) => this.parting(pen, one, TEXT + row * ROW, first, last));
    const x = Math.round(at - this.left);
    pen.fillStyle = this.colors.pin;
    if (x <= wide) pen.fillRect(Math.min(x, wide - 2), 0, 2, high - TICKS);
    const unit = this.overall / this.length;
    this.frame.style.width = `${Math.max(3, (last - first) * unit)}px`;
    this.frame.style.transform = `translateX(${first * unit}px)`;
    this.frame.style.setProperty("--sv-ruler-at", `${(position - first) * unit}px`);
    this.element.setAttribute("aria-valuenow", String(position));
    this.element.setAttribute("aria-valuetext", said);
  }

  /** The first place at or after ``x`` where a token begins: the window starts with a whole one. @param {number} x */
  edge(x) {
    const at = upTo(this.places, x);
    return this.places[at - 1] === x ? x : this.places[Math.min(at, this.length)];
  }

  /** @type {(pen: Pen, mark: TokenRange, high: number) => void} */
  emphasise(pen, { from, to }, high) {
    pen.fillStyle = this.colors.source;
    pen.globalAlpha = 0.22;
    const x = this.places[clamp(from, 0, this.length)] - this.left;
    pen.fillRect(x, 0, this.places[clamp(to, 0, this.length)] - this.left - x, high - TICKS);
    pen.globalAlpha = 1;
  }

  /** @type {(pen: Pen, first: number, last: number, position: number) => void} */
  text(pen, first, last, position) {
    pen.font = `12px ${this.colors.mono}`;
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    const right = this.left + this.wide;
    for (let p = first; p < last && this.places[p + 1] - 4 <= right; p++) {
      pen.fillStyle = p < position ? this.colors.ink : this.colors.faint;
      pen.fillText(this.labels[p], this.places[p] - this.left + 2, TEXT / 2);
    }
    pen.font = `10.5px ${this.colors.sans}`;
    pen.fillStyle = this.colors.faint;
    const y = TEXT + this.lanes.length * ROW + TICKS / 2 + 1;
    for (let p = Math.ceil(first / 10) * 10; p < last; p += 10) {
      const tick = p ? p.toLocaleString("en") : "token 0";
      const x = this.places[p] - this.left;
      if (x >= 0 && x + pen.measureText(tick).width <= this.wide) pen.fillText(tick, x, y);
    }
  }

  /** A lane: one block per forward; what it accepted is solid, the target's own token hollow. */
  /** @type {(pen: Pen, one: RulerLane, y: number, first: number, last: number, done: number) => void} */
  row(pen, { lane, color, oracle }, y, first, last, done) {
    const { accepted } = lane;
    const top = y + 4;
    const high = ROW - 8;
    if (first >= lane.length) return;
    const stop = Math.min(last, lane.length);
    for (let k = lane.stepOf[first]; k < lane.steps && lane.start(k) < stop; k++) {
      const start = lane.start(k);
      const x = this.places[start] - this.left + 1;
      const middle = this.places[start + accepted[k]] - this.left - 1;
      const right = this.places[lane.ends[k]] - this.left - 1;
      pen.globalAlpha = k < done ? 1 : 0.28;
      if (accepted[k]) {
        pen.fillStyle = color;
        pen.beginPath();
        pen.roundRect(x, top, middle - x, high, 3);
        pen.fill();
      }
      if (lane.ends[k] > start + accepted[k]) {
        pen.strokeStyle = color;
        pen.lineWidth = 1.4;
        pen.beginPath();
        const from = accepted[k] ? middle + 1 : x;
        pen.roundRect(from + 0.7, top + 0.7, right - from - 1.4, high - 1.4, 3);
        pen.stroke();
      }
      const label = (k + 1).toLocaleString("en");
      const from = Math.max(x, 0); // in the part that is in sight
      const room = Math.min(accepted[k] ? middle : right, this.wide) - from;
      if (room > 7 * label.length + 4) {
        pen.globalAlpha = 1;
        pen.fillStyle = k >= done ? this.colors.faint : accepted[k] ? this.colors.on : this.colors.ink;
        pen.fillText(label, from + room / 2, top + high / 2 + 0.5);
      }
      pen.globalAlpha = 1;
    }
    pen.fillStyle = this.colors.pin;
    drawForwards(pen, oracle, (at) => this.places[at] - this.left, y + ROW - 3);
  }

  /** Where a lane stops agreeing with the others: oblique lines, and the words at their start. */
  /** @type {(pen: Pen, one: RulerLane, y: number, first: number, last: number) => void} */
  parting(pen, { lane, aligned }, y, first, last) {
    const stop = Math.min(last, lane.length);
    if (aligned >= stop) return;
    const top = y + 4;
    const high = ROW - 8;
    const x = this.places[Math.max(aligned, first)] - this.left;
    this.hatch(pen, x, top - 1, this.places[stop] - this.left - x, high + 2, this.colors.card);
    if (aligned < first) return;
    pen.fillStyle = this.colors.rejected;
    pen.fillRect(x - 1, y, 2.5, ROW);
    pen.font = `11px ${this.colors.sans}`;
    pen.textAlign = "left";
    const words = "≠ differs from here";
    const wide = pen.measureText(words).width;
    pen.fillStyle = this.colors.card;
    pen.fillRect(x + 3, top + 3, wide + 8, high - 6);
    pen.fillStyle = this.colors.rejected;
    pen.fillText(words, x + 7, top + high / 2 + 0.5);
  }
}

/** The oracle's forwards as blocks at the foot of a lane; ``place``: output position → x. */
/** @type {(pen: Pen, oracle: OracleReport | undefined, place: (at: number) => number, y: number) => void} */
function drawForwards(pen, oracle, place, y) {
  if (!oracle || "why" in oracle) return;
  let from = 0;
  for (const end of oracle.ends) {
    pen.fillRect(place(from) + 1, y, Math.max(1, place(end) - place(from) - 2), FORWARD);
    from = end;
  }
}
