/* Acceptance of a run's tokens by their place in the tree: a map of depth and rank, and second branches' worth. */

import { h } from "specviz/base/dom.js";
import { clamp, nth, plural, probability } from "specviz/base/numbers.js";

const DEEPEST = 24; // columns of the map

/** The map's cells by rank (rows) and depth (columns), each where a token was judged. */
/** @type {(cells: BranchCounts["depth_rank"]) => (BranchCounts["depth_rank"][number] | undefined)[][]} */
export function mapOf(cells) {
  const deepest = Math.min(DEEPEST, Math.max(0, ...cells.map(({ depth }) => depth)));
  const ranks = 1 + Math.max(-1, ...cells.map(({ rank }) => rank));
  /** @type {(rank: number, depth: number) => typeof cells[number] | undefined} */
  const cell = (rank, depth) => cells.find((one) => one.rank === rank && one.depth === depth);
  return Array.from({ length: ranks }, (_, rank) =>
    Array.from({ length: deepest }, (_, k) => cell(rank, k + 1)));
}

/** What second branches were worth, in a sentence. @type {(counts: BranchCounts["second_branch"]) => string} */
export function branchWords({ misses, with_sibling: beside, sibling, with_child: followed, child }) {
  if (!misses) return "The first guess was never refused, so nothing says what a second one is worth.";
  const where = `The chain of first guesses was refused at ${plural(misses, "place")}.`;
  if (!beside) return `${where} The draft had no other guess there.`;
  if (!sibling) return `${where} The draft had other guesses at ${beside} of them, and none was right.`;
  const right = `${where} Another guess was right at ${sibling} of them (${probability(sibling / misses)}).`;
  if (!followed) return `${right} None of those had a token behind it.`;
  return `${right} At ${child} of those (${probability(child / sibling)}), a token behind it was right, too.`;
}

/** All of it; nothing of a run without a judged draft, or that goes on. @type {(owner: Inspector) => HTMLElement[]} */
export function byPlace({ model, tip }) {
  const branches = model.report?.branches;
  const rows = mapOf(branches?.depth_rank ?? []);
  if (!branches || !rows.length || !model.run.complete) return [];
  /** @type {(cell: typeof rows[number][number], rank: number, k: number) => HTMLElement} */
  const draw = (cell, rank, k) => {
    if (!cell) return h("td");
    const { accepted, judged, share } = cell;
    const look = { style: `--share:${(share ?? 0).toFixed(3)}` };
    const shown = h("td.sv-map-cell", look, accepted ? probability(share) : "0");
    const words = `The ${nth(rank + 1)} guess at depth ${k + 1}: ${accepted} of ${plural(judged, "token")} accepted.`;
    return tip.add(shown, () => [words]);
  };
  const depths = rows[0].map((_, k) => h("th", { scope: "col" }, String(k + 1)));
  const body = rows.map((cells, rank) => h(
    "tr", h("th", { scope: "row" }, `${nth(rank + 1)} guess`), cells.map((cell, k) => draw(cell, rank, k)),
  ));
  const label = "Accepted share of each guess whose parent was accepted";
  const table = h("table.sv-place-map", { style: `--sv-cell:${clamp(Math.floor(436 / depths.length), 20, 40)}px` },
    h("thead", h("tr", h("th", "at depth"), depths)), h("tbody", body));
  return [
    h("p.sv-faint", `${label}:`),
    h("div.ui-scroll", { tabindex: "0", role: "region", "aria-label": label }, table),
    h("p", branchWords(branches.second_branch)),
    h("p.sv-faint", `These are ${branches.note}.`),
  ];
}
