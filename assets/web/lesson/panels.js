/* Which panels a learner has met: a lesson shows each from the stop on that is about it. No DOM. */

/** Panels that wait until a stop is about them; the timeline, the output and the numbers are always there. */
export const WAITING = ["sentence", "prompt", "tree", "candidates", "lattice", "drafter", "prompts", "diff"];

/** What stands for a ranking: it means nothing before candidates are known. */
export const RANKING = "candidates";

/** By the kind of a place, the panels that it stands in. @type {Record<LessonPlace["kind"], string[]>} */
const HOME = { panel: [], tokens: ["prompt"], node: ["tree"], candidate: ["candidates"], metric: [] };

/** The panels that stops up to number ``at`` (from 0) are about; a lattice needs all room, and is there for its own. */
/** @type {(stops: LessonStop[], at: number) => Set<string>} */
export function panelsMet(stops, at) {
  const told = (/** @type {LessonStop[]} */ some) =>
    some.flatMap((stop) => stop.show).flatMap((one) => (one.kind === "panel" ? [one.name] : HOME[one.kind]));
  const own = told(stops.slice(at, at + 1));
  return new Set(told(stops.slice(0, at + 1)).filter((name) => name !== "lattice" || own.includes(name)));
}

/** A run without the oracle's replay, where no ranking was met yet. */
/** @type {(trace: Trace, met: Set<string>) => Trace} */
export const withoutOracle = (trace, met) =>
  met.has(RANKING) || !trace.report ? trace : { ...trace, report: { ...trace.report, oracle: undefined } };

const [DEEP, LONG] = [8, 12]; // tokens: of a slim tree, and of a chain

/** The shape of a draft: a chain, or a deep tree of two columns, stands beside the text; a long one in more width. */
/** @type {(drafted: Pick<TreeNode, "parent" | "depth">[]) => Record<"undrafted" | "chain" | "chain-long", boolean>} */
export function looks(drafted) {
  /** @type {Map<number, number>} */
  const wide = new Map();
  for (const { depth } of drafted) wide.set(depth, (wide.get(depth) ?? 0) + 1);
  const chain = new Set(drafted.map(({ parent }) => parent)).size === drafted.length;
  const slim = !chain && wide.size > DEEP && Math.max(...wide.values()) <= 2;
  return { undrafted: !drafted.length, chain: chain || slim, "chain-long": slim || (chain && drafted.length > LONG) };
}
