/* Which panels a learner has met: a lesson shows each from the stop on that is about it. No DOM. */

/** Panels that wait until a stop is about them; the timeline, the output and the numbers are always there. */
export const WAITING = ["sentence", "prompt", "tree", "candidates", "lattice", "drafter", "prompts", "diff"];

/** What stands for a ranking: it means nothing before candidates are known. */
export const RANKING = "candidates";

/** By the kind of a place, the panels that it stands in. @type {Record<LessonPlace["kind"], string[]>} */
const HOME = { panel: [], tokens: ["prompt"], node: ["tree"], candidate: ["candidates"], metric: [] };

/** The panels that stops up to number ``at`` (from 0) are about. */
/** @type {(stops: LessonStop[], at: number) => Set<string>} */
export function panelsMet(stops, at) {
  const places = stops.slice(0, at + 1).flatMap((stop) => stop.show);
  return new Set(places.flatMap((one) => (one.kind === "panel" ? [one.name] : HOME[one.kind])));
}

/** A run without the oracle's replay, where no ranking was met yet. */
/** @type {(trace: Trace, met: Set<string>) => Trace} */
export const withoutOracle = (trace, met) =>
  met.has(RANKING) || !trace.report ? trace : { ...trace, report: { ...trace.report, oracle: undefined } };
