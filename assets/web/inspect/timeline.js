/* The step timeline: bars of a draft's depth and what was accepted of it, further rows on demand, a playhead. */

import { h } from "specviz/base/dom.js";
import { dragged, sheet } from "specviz/base/drawing.js";
import { OPEN } from "specviz/base/model.js";
import { clamp, format, plural } from "specviz/base/numbers.js";
import * as imported from "specviz/inspect/imported.js";
import * as oracleLane from "specviz/inspect/oracle.js";
import { depthsBefore } from "specviz/inspect/pruned.js";
import * as shares from "specviz/inspect/shares.js";

const NAMES = 66; // pixels: the rows' names, and the numbers of the axis
const [FORWARD, LONGER] = ["forward, ms", 14]; // the longest of them, and so much more
const RIGHT = 6;
const STRIP = 9;
const AXIS = 15;
const BARS = 48; // the bars' height
const WIDEST = 48; // a bar: wider ones would outshout the text
const TIMES = 13; // the times' row
const NUMBER = 30; // a step that has room for its time as a number

/** A row below the bars: its name, its height, and the room above it. */
/** @typedef {{ name: string, high: number, gap: number }} Row */

/** The rows of a run below its bars. @type {(model: Model, routes: number, numbered: boolean) => Row[]} */
function rowsOf(model, routes, numbered) {
  const { draft_ms: draft, verify_ms: verify } = model.steps;
  const timed = [draft, verify].some((column) => column.some((ms) => ms !== null));
  return [
    { name: "accepted", high: STRIP, gap: 4 },
    ...(routes ? [{ name: "route", high: 8, gap: 4 }] : []),
    ...(timed && numbered ? [{ name: FORWARD, high: 12, gap: 3 }] : []),
    ...(timed ? [{ name: "time", high: TIMES, gap: 2 }] : []),
    ...(oracleLane.oracleOf(model) ? [{ name: "oracle", high: oracleLane.LANE, gap: 5 }] : []),
  ];
}

/** Which steps a filter leaves. @type {Record<StepFilter, (model: Model, step: number) => boolean>} */
export const FILTERS = {
  all: () => true,
  misses: ({ steps }, step) => steps.drafted[step] > 0 && steps.accepted[step] === 0,
  worst: ({ report }, step) => !!report?.regrets.some((one) => one.step === step),
};

/** @type {Record<string, number>} */
const BY_KEY = { ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 };

export class Timeline {
  /** @param {Inspector} owner */
  constructor(owner) {
    this.owner = owner;
    this.canvas = h("canvas.sv-bars", { "aria-hidden": "true" });
    this.head = h("div.sv-playhead", { "aria-hidden": "true" });
    this.element = h(
      "div.sv-timeline",
      { role: "slider", tabindex: "0", "aria-label": "Step" },
      this.canvas,
      this.head,
    );
    this.note = oracleLane.note(owner);
    this.hovered = 0;
    this.width = 1; // of a step
    this.bars = BARS;
    this.height = BARS;
    this.numbered = false; // forwards' times stand as numbers, where they have room
    /** Whether all rows are drawn, not the bars alone. */
    this.whole = () => true;
    this.left = 0; // of the bars
    /** Routes that are marked. @type {Map<string, number>} */
    this.looks = new Map();
    /** @type {(event: PointerEvent) => number} */
    const at = (event) => {
      const box = this.element.getBoundingClientRect();
      return clamp(Math.floor((event.clientX - box.left - this.left) / this.width), 0, this.owner.model.stepCount - 1);
    };
    dragged(this.element, (event) => {
      if (!this.owner.model) return;
      this.owner.pause();
      this.owner.setStep(at(event));
    });
    this.element.addEventListener("pointermove", (event) => {
      if (!this.owner.model) return;
      this.hovered = at(event);
      this.owner.tip.show({ getBoundingClientRect: () => this.box(this.hovered) }, this.describe(this.hovered));
    });
    this.element.addEventListener("keydown", (event) => {
      const by = BY_KEY[event.key];
      if (!by) return;
      event.preventDefault();
      this.owner.go(by);
    });
    this.element.addEventListener("pointerleave", () => this.owner.tip.hide());
  }

  /** Where a step stands in the window. @type {(step: number) => Box} */
  box(step) {
    const all = this.element.getBoundingClientRect();
    const left = all.left + this.left + step * this.width;
    return { left, top: all.top, bottom: all.bottom - AXIS, width: this.width, right: left + this.width };
  }

  /** @type {(step: number) => Child[]} */
  describe(step) {
    const { steps } = this.owner.model;
    if (steps.bonus[step] === OPEN) return [h("b", `Step ${step + 1}`), h("div", "not checked yet")];
    const out = this.owner.model.stepTerm(step, "left_out");
    return [
      h("b", `Step ${step + 1}`),
      h("div", imported.drafted(this.owner.model, step)),
      out ? h("div", `${plural(out, "token")} left out: not worth a row`) : null,
      h("div", `${plural(steps.emitted[step], "token")} written · ${this.time(step)}`),
      this.looks.size ? h("div", `found: ${steps.route[step]}`) : null,
    ];
  }

  /**
   * The outline of what was drafted and not verified, from one depth to another, ``unit`` pixels each.
   * @type {(pen: CanvasRenderingContext2D, x: number, wide: number, to: number, from: number, unit: number) => void}
   */
  leftOut(pen, x, wide, to, from, unit) {
    pen.strokeStyle = this.owner.colors.ghost;
    pen.lineWidth = 1;
    pen.strokeRect(x + 0.5, this.bars - to * unit + 0.5, Math.max(0.5, wide - 1), (to - from) * unit - 1);
  }

  /** A step's time in words. @param {number} step */
  time(step) {
    const { draft_ms: draft, verify_ms: verify } = this.owner.model.steps;
    const measured = draft[step] !== null || verify[step] !== null;
    return measured ? `${format(this.total(step))} ms` : "time not recorded";
  }

  /** A step's time in ms. @param {number} step */
  total(step) {
    const { draft_ms: draft, verify_ms: verify, commit_ms: commit } = this.owner.model.steps;
    return (draft[step] || 0) + (verify[step] || 0) + (commit[step] || 0);
  }

  draw() {
    const { model, colors, filter } = this.owner;
    if (!model) return;
    const { accepted, emitted, depth, drafted, route } = model.steps;
    const count = Math.max(1, accepted.length);
    const full = this.element.clientWidth || 800;
    const whole = this.whole();
    this.left = whole ? NAMES + (this.numbered ? LONGER : 0) : 0;
    oracleLane.describe(this.note, model);
    this.looks = new Map(shares.routes(model));
    this.width = Math.min((full - this.left - RIGHT) / count, 2 * WIDEST); // few steps stand at the left
    const rows = whole ? rowsOf(model, this.looks.size, this.numbered && this.width >= NUMBER) : [];
    /** Name → its top. @type {Record<string, number>} */
    const tops = {};
    let y = this.bars;
    for (const { name, high, gap } of rows) {
      tops[name] = y + gap;
      y += gap + high;
    }
    this.height = y + (whole ? AXIS : 0);
    this.element.style.setProperty("--sv-timeline", `${this.height}px`);
    const pen = sheet(this.canvas, full, this.height);
    const before = depthsBefore(model);
    const most = accepted.reduce((high, _, k) => Math.max(high, accepted[k], depth[k], before[k]), 1);
    if (whole) this.axis(pen, full, most, accepted.length);
    if (whole) this.names(pen, rows, tops);
    const told = !imported.unknown(model, "steps.drafted") && !imported.unknown(model, "steps.accepted");
    const unit = (this.bars - 4) / most;
    const gap = this.width > 5 ? 1.5 : this.width > 2.5 ? 0.6 : 0;
    const wide = clamp(this.width - gap, 0.7, WIDEST);
    const longest = accepted.reduce((most, _, k) => Math.max(most, this.total(k)), 0);
    /** @type {(x: number, from: number, to: number, color: string) => void} */
    const bar = (x, from, to, color) => {
      pen.fillStyle = color;
      pen.fillRect(x, this.bars - to * unit, wide, Math.max(1, (to - from) * unit));
    };
    for (let k = 0; k < accepted.length; k++) {
      const x = this.left + (k + 0.5) * this.width - wide / 2;
      pen.globalAlpha = FILTERS[filter.peek()](model, k) ? 1 : 0.22;
      const open = model.steps.bonus[k] === OPEN;
      if (depth[k] > accepted[k]) bar(x, accepted[k], depth[k], colors.ghost);
      if (before[k] > depth[k]) this.leftOut(pen, x, wide, before[k], depth[k], unit);
      if (accepted[k]) bar(x, 0, accepted[k], colors.accepted);
      else if (drafted[k] && told && !open) bar(x, 0, 3 / unit, colors.rejected);
      else if (!drafted[k]) bar(x, 0, 2 / unit, colors.unreached);
      if (whole) this.cell(pen, x, wide, drafted[k] && told && !open ? accepted[k] / Math.max(1, depth[k]) : -1);
      const look = this.looks.get(route[k]);
      if (look !== undefined) this.lane(pen, x, wide, look, tops.route);
      if (tops.time !== undefined) this.times(pen, x, wide, k, tops.time + TIMES, longest);
      if (tops[FORWARD]) this.number(pen, x + wide / 2, tops[FORWARD] + 7, model.steps.verify_ms[k]);
    }
    pen.globalAlpha = 1;
    if (tops.oracle !== undefined)
      oracleLane.drawLane(pen, (step) => this.left + step * this.width, tops.oracle, model, colors);
  }

  /** The rows' names, at the left. @type {(pen: Pen, rows: Row[], tops: Record<string, number>) => void} */
  names(pen, rows, tops) {
    pen.font = `12px ${this.owner.colors.sans}`;
    pen.fillStyle = this.owner.colors.faint;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillText("tokens", 0, this.bars / 2);
    for (const { name, high } of rows) pen.fillText(name, 0, tops[name] + high / 2 + 0.5);
  }

  /** A step's time: drafting hatched on top, verifying below it, against the longest step. */
  /** @type {(pen: Pen, x: number, wide: number, step: number, bottom: number, longest: number) => void} */
  times(pen, x, wide, step, bottom, longest) {
    const { colors, model } = this.owner;
    const { draft_ms: draft, verify_ms: verify } = model.steps;
    if (!longest) return;
    const unit = TIMES / longest;
    const below = (verify[step] ?? 0) * unit;
    pen.fillStyle = colors.unreached;
    pen.fillRect(x, bottom - below, wide, below);
    const above = (draft[step] ?? 0) * unit;
    pen.fillStyle = colors.heat;
    if (above > 0.3) pen.fillRect(x, bottom - below - above, wide, above);
  }

  /** A forward's time. @type {(pen: Pen, x: number, y: number, ms: number | null) => void} */
  number(pen, x, y, ms) {
    pen.fillStyle = this.owner.colors.faint;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(ms === null ? "–" : format(ms), x, y);
  }

  /** The accept strip: the deeper the blue, the more; red: all rejected; grey: no draft. @type {DrawStep} */
  cell(pen, x, wide, share) {
    const { colors } = this.owner;
    const y = this.bars + 4;
    if (share > 0) {
      const shown = pen.globalAlpha;
      pen.globalAlpha = shown * (0.2 + 0.8 * share);
      pen.fillStyle = colors.accepted;
      pen.fillRect(x, y, wide, STRIP);
      pen.globalAlpha = shown;
    } else if (share === 0) {
      pen.fillStyle = colors.rejected;
      pen.fillRect(x, y + STRIP / 2 - 1, wide, 2);
    } else {
      pen.fillStyle = colors.line;
      pen.fillRect(x, y, wide, STRIP);
    }
  }

  /** Its route, where there are several: a line, a dot, a line at the lane's end, or two dots. */
  /** @type {(pen: Pen, x: number, wide: number, look: number, y: number) => void} */
  lane(pen, x, wide, look, y) {
    const { colors } = this.owner;
    const dot = Math.min(wide, 2.5);
    y += 2;
    pen.fillStyle = look % 2 ? colors.heat : colors.faint;
    if (look === 0) pen.fillRect(x, y, wide, 1.5);
    else if (look === 1) pen.fillRect(x + (wide - dot) / 2, y, dot, 3);
    else if (look === 2) pen.fillRect(x, y + 1.5, wide, 1.5);
    else {
      pen.fillRect(x, y, dot, 3);
      pen.fillRect(x + wide - dot, y, dot, 3);
    }
  }

  /** @type {(pen: Pen, full: number, most: number, count: number) => void} */
  axis(pen, full, most, count) {
    const { colors } = this.owner;
    const unit = (this.bars - 4) / most;
    pen.font = `12px ${colors.sans}`;
    pen.fillStyle = colors.faint;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    /** @type {(value: number) => number} */
    const at = (value) => Math.round(this.bars - value * unit) - 0.5;
    for (const value of [0, ...(most > 3 ? [Math.round(most / 2)] : []), most]) {
      pen.fillStyle = colors.line;
      pen.fillRect(this.left, at(value), full - this.left - RIGHT, 1);
      pen.fillStyle = colors.faint;
      pen.fillText(String(value), this.left - 6, clamp(at(value), 6, this.bars - 6));
    }
    pen.textBaseline = "alphabetic";
    const room = Math.ceil(48 / this.width);
    const tick = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((n) => n >= room) || 2000;
    pen.textAlign = "left";
    pen.fillText("step", 0, this.height - 3);
    pen.textAlign = "center";
    for (let step = tick === 1 ? 1 : 0; step <= count; step += tick)
      pen.fillText(String(Math.max(1, step)), this.left + (Math.max(1, step) - 0.5) * this.width, this.height - 3);
  }

  /** Steps to the next (or previous) step that the filter leaves; without one, to the next miss. @param {1 | -1} by */
  miss(by) {
    const { owner } = this;
    owner.pause();
    const chosen = owner.filter.peek();
    const filter = chosen === "all" ? "misses" : chosen;
    for (let k = owner.number + by; k >= 0 && k < owner.model.stepCount; k += by)
      if (FILTERS[filter](owner.model, k)) return owner.setStep(k);
    const what = filter === "misses" ? "miss" : "step that lost by its ranking";
    owner.say(by > 0 ? `No later ${what}.` : `No earlier ${what}.`);
  }

  /** Brings some of the steps out; the first of them is shown. @param {StepFilter} filter */
  sift(filter) {
    const { owner } = this;
    owner.filter.value = filter;
    this.draw();
    const left = (/** @type {number} */ step) => FILTERS[filter](owner.model, step);
    const first = owner.model.steps.context.findIndex((_, step) => left(step));
    if (filter !== "all" && first >= 0 && !left(owner.number)) owner.setStep(first);
  }

  /** @param {number} step */
  move(step) {
    const wide = clamp(this.width, 2, WIDEST + 8); // round its bar
    const x = this.left + step * this.width + (this.width - wide) / 2;
    this.head.style.width = `${wide}px`;
    this.head.style.transform = `translateX(${x}px)`;
    const { steps } = this.owner.model;
    this.element.setAttribute("aria-valuemin", "1");
    this.element.setAttribute("aria-valuemax", String(Math.max(1, steps.context.length)));
    this.element.setAttribute("aria-valuenow", String(step + 1));
    const said =
      steps.bonus[step] === OPEN
        ? "not checked yet"
        : steps.drafted[step]
          ? `${steps.accepted[step]} of ${steps.drafted[step]} drafted tokens accepted`
          : "no draft";
    this.element.setAttribute("aria-valuetext", `step ${step + 1} of ${steps.context.length}, ${said}`);
  }
}
