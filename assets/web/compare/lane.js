/* A run as a lane beside others of its prompt: what it had written by when. No DOM. */

import { clamp, upTo } from "specviz/base/numbers.js";
import { Pieces, safe } from "specviz/base/text.js";

const NEAR = 8; // tokens before a cut that may share a grapheme with what follows it

/** The first index at which two id lists differ, or the end of the shorter one. */
/** @type {(a: number[], b: number[]) => number} */
export function firstDifference(a, b) {
  const most = Math.min(a.length, b.length);
  for (let i = 0; i < most; i++) if (a[i] !== b[i]) return i;
  return most;
}

/** A stretch of a lane's text: written by step ``step``, accepted from a draft or the target's own. */
/** @typedef {{ step: number, accepted: boolean, text: string }} Written */

/** A run as a lane: its output, and after how many forwards and milliseconds each position was reached. */
export class Lane {
  /** The output's token ids. @type {number[]} */
  output = [];
  /** Output position → the step that wrote it. @type {number[]} */
  stepOf = [];
  /** Step → output tokens written by its end. @type {number[]} */
  ends = [];
  /** Step → milliseconds of decoding by its end. @type {number[]} */
  times = [];
  /** Step → draft tokens that it accepted. @type {number[]} */
  accepted = [];
  /** What its recorded times are multiplied by, so that the last is the median of its repeats. */
  pace = 1;

  /** @param {Trace} trace */
  constructor({ run, pieces, tokens, steps }) {
    this.run = run;
    this.promptLength = run.prompt_length;
    /** The ids of prompt and output. @type {number[]} */
    this.ids = [];
    this.pieces = new Pieces(pieces);
    this.append({ tokens, steps });
  }

  /** Rows of more steps. @param {TraceDelta} delta @param {Partial<Run>} [run] */
  append({ pieces, tokens, steps }, run) {
    if (pieces) this.pieces.add(pieces);
    for (const id of tokens?.id ?? []) this.ids.push(id);
    Object.assign(this.run, run);
    steps?.emitted?.forEach((emitted, k) => {
      const step = this.steps;
      for (let i = 0; i < emitted; i++) {
        this.output.push(this.ids[this.promptLength + this.output.length]);
        this.stepOf.push(step);
      }
      this.ends.push(this.output.length);
      this.accepted.push(steps.accepted?.[k] ?? 0);
      this.times.push(Math.max(this.ms, (steps.elapsed_ms?.[k] ?? 0) * this.pace));
    });
  }

  get length() {
    return this.output.length;
  }

  get steps() {
    return this.ends.length;
  }

  /** Times as long as ``pace`` says. @param {number} pace */
  setPace(pace) {
    this.times = this.times.map((ms) => (ms * pace) / this.pace);
    this.pace = pace;
  }

  get ms() {
    return this.times[this.times.length - 1] ?? 0;
  }

  /** Output tokens written before a step. @param {number} step */
  start(step) {
    return step ? this.ends[step - 1] : 0;
  }

  /** The text of output positions from … to − 1 in stretches; ``form``: how a token's is shown. */
  /** @type {(from?: number, to?: number, form?: (text: string) => string) => Written[]} */
  stretches(from = 0, to = this.length, form = String) {
    /** @type {Written[]} */
    const made = [];
    for (const { start, text } of this.pieces.cells(this.output, from, to)) {
      const step = this.stepOf[start];
      const accepted = start - this.start(step) < this.accepted[step];
      const shown = this.pieces.special(this.output[start]) ? "" : form(safe(text));
      const last = made[made.length - 1];
      if (last && last.step === step && last.accepted === accepted) last.text += shown;
      else made.push({ step, accepted, text: shown });
    }
    return made;
  }

  /** The first of the whole tokens before ``stop`` that together are at most ``most`` wide. */
  /** @type {(stop: number, most: number, size: (text: string) => number) => number} */
  tail(stop, most, size) {
    let from = stop;
    for (let left = most; from > 0 && stop - from < most; from--) {
      const { text, special } = this.pieces.get(this.output[from - 1]);
      if (!special) left -= size(text);
      if (left < 0) break;
    }
    const near = this.pieces.cells(this.output, Math.max(0, from - NEAR), stop);
    return near.find(({ start }) => start >= from)?.start ?? stop; // no half of a grapheme
  }

  /** Steps done when the clock ("time" in ms, "step" or "position") shows ``value``. */
  /** @type {(clock: Clock, value: number) => number} */
  done(clock, value) {
    if (clock === "time") return upTo(this.times, value);
    if (clock === "step") return clamp(Math.floor(value), 0, this.steps);
    const position = Math.floor(value);
    if (position <= 0) return 0;
    return position > this.length ? this.steps : this.stepOf[position - 1] + 1;
  }
}
