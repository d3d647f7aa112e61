/* What every race is made of: a lane's text as it is written, and a clock that plays. */

import { h } from "specviz/base/dom.js";

/** The end of what a lane has written after ``done`` steps: accepted tokens and the target's own apart; ``form``: how
    their text is shown. */
/** @type {(lane: import("specviz/compare/lane.js").Lane, done: number, most: number,
 *   form?: (text: string) => string) => (HTMLElement | string)[]} */
export function written(lane, done, most, form = String) {
  const stop = lane.start(done);
  let from = stop,
    size = 0;
  for (let k = done - 1; k >= 0 && size < most; k--) {
    from = lane.start(k);
    size = 0;
    for (let p = from; p < stop && size < most; p++) size += lane.pieces.get(lane.output[p]).text.length;
    if (stop - from > most / 3) break;
  }
  const stretches = lane.stretches(from, stop).filter(({ text }) => text);
  const spans = stretches.map(({ step, accepted, text }) =>
    h(accepted ? "span.svc-acc" : "span.svc-own", { class: step === done - 1 && "svc-new" }, form(text)),
  );
  return from > 0 ? ["… ", ...spans] : spans;
}

/** Calls ``draw`` with the milliseconds that passed, frame by frame, until it returns true; returns what stops it. */
/** @type {(draw: (ms: number) => boolean | void) => () => void} */
export function playing(draw) {
  let frame = 0;
  let begun = 0;
  /** @param {number} now */
  const tick = (now) => {
    begun ||= now;
    frame = requestAnimationFrame(tick);
    if (draw(now - begun)) cancelAnimationFrame(frame);
  };
  frame = requestAnimationFrame(tick);
  return () => cancelAnimationFrame(frame);
}
