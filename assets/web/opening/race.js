/* The opening race: plain decoding against one run, from what was recorded. No DOM. */

import { Lane } from "specviz/compare/lane.js";

/** How long the run's own lane takes, in ms. */
export const LASTS_MS = 5000;

// plain decoding not recorded: the run's own text at one token per forward, which is what it needs; at its mean speed
// where that was measured, else without times
/** The lanes of a run and of plain decoding. @param {Trace} trace @param {Trace | null} plain */
export function lanes(trace, plain) {
  const run = new Lane(trace);
  const recorded = plain && comparable(trace, plain) ? new Lane(plain) : null;
  const other = recorded ?? replayed(trace);
  return { run, plain: other, recorded: !!recorded, timed: run.ms > 0 && other.ms > 0 };
}

/** Whether a recorded plain run is this one's: drawn alike, and (unless the method is lossy) the same text. */
/** @type {(trace: Trace, plain: Trace) => boolean} */
function comparable(trace, plain) {
  /** @param {Trace} one */
  const text = ({ run, tokens }) => tokens.id.slice(run.prompt_length).join();
  const alike = (trace.run.sampling?.temperature ?? 0) === (plain.run.sampling?.temperature ?? 0);
  return alike && plain.run.complete && (trace.run.method.lossless === false || text(trace) === text(plain));
}

/** A run's text, one token per forward, at plain decoding's mean speed where it is known. @param {Trace} trace */
function replayed({ run, pieces, tokens }) {
  const count = tokens.id.length - run.prompt_length;
  const rows = Array.from({ length: count }, (_, k) => k);
  const speed = run.timings?.plain_tokens_per_s;
  const steps = {
    emitted: rows.map(() => 1),
    accepted: rows.map(() => 0),
    elapsed_ms: rows.map((k) => (speed ? ((k + 1) * 1000) / speed : 0)),
  };
  return new Lane(/** @type {Trace} */ (/** @type {unknown} */ ({ run, pieces, tokens, steps })));
}

/** The clock when the run has ended: ms, or forwards where plain decoding has no times of its own. */
/** @param {ReturnType<typeof lanes>} race */
export const whole = ({ run, timed }) => (timed ? run.ms : run.steps);

/** Steps that a lane has done when ``share`` of the race is over. */
/** @type {(race: ReturnType<typeof lanes>, lane: Lane, share: number) => number} */
export const done = (race, lane, share) => lane.done(race.timed ? "time" : "step", share * whole(race));

/** The first step whose draft was wholly rejected, from 0; -1 where there is none. */
/** @param {Pick<Trace["steps"], "drafted" | "accepted">} steps */
export const firstMiss = ({ drafted, accepted }) => drafted.findIndex((n, step) => n > 0 && accepted[step] === 0);

/** The step of which most was accepted, the first of them, from 0; -1 where nothing was. */
/** @param {Pick<Trace["steps"], "accepted">} steps */
export const bestStep = ({ accepted }) => {
  const most = Math.max(0, ...accepted);
  return most ? accepted.indexOf(most) : -1;
};

/** Whether somebody came here for the first time, and for nothing in particular. */
/** @type {(search: string, hash: string, seen: string | null) => boolean} */
export const cold = (search, hash, seen) =>
  !seen && hash.length < 2 && [...new URLSearchParams(search).keys()].every((key) => key === "__theme");
