/* What every race is made of: a lane's text as it is written, and a clock that plays. */

import { h } from "specviz/base/dom.js";

const MORE = "… ";
/** @param {string} text */
const LENGTH = (text) => text.length;

/** The end of what a lane has written after ``done`` steps, in whole tokens: accepted ones and the target's own apart;
    ``form``: how their text is shown; ``size``: how wide that is, together at most ``most``. */
/** @type {(lane: import("specviz/compare/lane.js").Lane, done: number, most: number,
 *   form?: (text: string) => string, size?: (text: string) => number) => (HTMLElement | string)[]} */
export function written(lane, done, most, form = String, size = LENGTH) {
  const stop = lane.start(done);
  const from = lane.tail(stop, most - size(MORE), (text) => size(form(text)));
  const stretches = lane.stretches(from, stop, form).filter(({ text }) => text);
  const spans = stretches.map(({ step, accepted, text }) =>
    h(accepted ? "span.svc-acc" : "span.svc-own", { class: step === done - 1 && "svc-new" }, text),
  );
  return from > 0 ? [MORE, ...spans] : spans;
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
