/* A step under every verifier, as rows of a table: which tokens stand, what follows, and why. No DOM. */

import { range as written } from "specviz/base/numbers.js";

/** What is the same of two rules, so that they share a row. @param {JudgedStepRule} one */
const likeness = ({ accepted, bonus, expected, other, open, nodes }) =>
  JSON.stringify([accepted, bonus, expected, other, open, nodes]);

/** The node that decided, and why: the first that fell on the accepted path, else the last that stood. */
/** @type {(nodes: JudgedNode[]) => { node: number, why: string } | null} */
export function decisive(nodes) {
  const fell = nodes.find(([, stands]) => !stands);
  const last = fell ?? nodes.findLast(([, stands]) => stands);
  return last ? { node: last[0], why: last[3] } : null;
}

/** Rules with the same verdict in one row, lossless ones apart from lossy ones, in the order of the cards. */
/** @type {(step: JudgedStep, cards: JudgedCard[]) => JudgedRow[]} */
export function rowsOf(step, cards) {
  /** @type {Map<string, JudgedRow>} */
  const rows = new Map();
  for (const card of cards) {
    const rule = step.rules[card.name];
    if (!rule) continue;
    const key = `${card.lossless} ${likeness(rule)}`;
    const row = rows.get(key);
    if (row) row.cards.push(card);
    else rows.set(key, { cards: [card], rule, ...(decisive(rule.nodes) ?? { node: 0, why: "" }) });
  }
  return [...rows.values()];
}

/** Where a step's rules part: the first node that some accept and others do not; 0 where they agree. */
/** @type {(step: JudgedStep) => number} */
export function parting({ rules }) {
  const stands = Object.values(rules).map(({ nodes }) => new Map(nodes.map(([node, one]) => [node, one])));
  const all = [...new Set(stands.flatMap((one) => [...one.keys()]))].sort((a, b) => a - b);
  return all.find((node) => new Set(stands.map((one) => one.get(node) ?? false)).size > 1) ?? 0;
}

/** The path through a node (0: the root): down to it, then on by accepted nodes, and by first children. */
/** @type {(nodes: TreeNode[], node: number) => TreeNode[]} */
export function pathOf(nodes, node) {
  /** @type {TreeNode[]} */
  const path = [];
  for (let at = node; at; at = nodes[at].parent) path.unshift(nodes[at]);
  for (let last = node; ;) {
    const below = nodes.filter(({ index, parent }) => index && parent === last);
    const next = below.find(({ status }) => status === "accepted") ?? below[0];
    if (!next) return path;
    path.push(next);
    last = next.index;
  }
}

/** How many rules accept other drafted tokens than the run did. @param {JudgedStep} step */
export const otherwise = ({ rules }) => Object.values(rules).filter(({ differs }) => differs.length > 0).length;

/** How far rules agree, of ``otherwise``. @param {number} count */
export const agreement = (count) =>
  count ? `${count} ${count === 1 ? "decides" : "decide"} otherwise` : "all decide alike";

/** A number, or two where the record leaves a range, each with so much more. */
/** @param {[number, number] | null} both @param {number} [more] @param {number} [digits] */
export const range = (both, more = 0, digits = 2) =>
  written(both && [both[0] + more, both[1] + more], digits).replace(" to ", "–"); // columns are narrow
