/* A step under every verifier, as rows of a table: which tokens stand, what follows, and why. No DOM. */

import { grouped, range as written } from "specviz/base/numbers.js";

/** Reasons of a rule that compares a token with the target's own, in words: of greedy and of sampled runs. */
/** @type {Record<string, [greedy: string, sampled: string]>} */
const MATCHED = {
  match: ["the target's first choice", "the target drew it, too"],
  mismatch: ["not the target's first choice", "the target drew another token"],
};

/** Why a token stood or fell, in words. @type {(why: string, sampled: boolean) => string} */
export const reason = (why, sampled) => MATCHED[why]?.[+sampled] ?? why;

/** What is the same of two rules, so that they share a row. */
/** @type {(rule: JudgedStepRule, sampled: boolean) => string} */
const likeness = ({ accepted, bonus, expected, other, open, nodes, unreached }, sampled) =>
  JSON.stringify([accepted, bonus, expected, other, open, unreached,
    nodes.map(([node, stands, chance, why]) => [node, stands, chance, reason(why, sampled)])]);

/** How a rule leaves a draft: the nodes that stand, and the one that it refused behind them. */
/** @type {(nodes: TreeNode[], rule: JudgedStepRule) => [stood: number[], fell: TreeNode | undefined]} */
export function ends(nodes, { nodes: judged }) {
  const stood = judged.filter(([, stands]) => stands).map(([node]) => node);
  const fell = judged.find(([node, stands]) => !stands && nodes[node].parent === (stood.at(-1) ?? 0));
  return [stood, fell && nodes[fell[0]]];
}

/** The node at which a rule's tokens end, whether it stands, and why: what fell there; else the last that stands. */
/** @type {(nodes: TreeNode[], rule: JudgedStepRule, sampled: boolean) => RuleEnd} */
export function ending(nodes, rule, sampled) {
  const [stood, fell] = ends(nodes, rule);
  const node = fell ?? nodes[stood.at(-1) ?? 0];
  const why = rule.nodes.find(([index]) => index === node.index)?.[3] ?? "";
  return { node, stands: !fell, why: reason(why, sampled) };
}

/** A recorded token that a rule leaves for another path. */
/** @type {(nodes: Pick<TreeNode, "status">[], rule: JudgedStepRule) => JudgedNode | undefined} */
export const departure = (nodes, { nodes: judged }) =>
  judged.find(([node, stands, , why]) => !stands && why.startsWith("passes") && nodes[node].status === "accepted");

/** How likely a node was to be accepted. @type {(rule: JudgedStepRule, node: number) => [number, number]} */
export const chanceOf = ({ nodes, unreached }, node) =>
  nodes.find(([index]) => index === node)?.[2] ?? unreached[node] ?? [0, 0];

/** Rules with the same verdict in one row, lossless ones apart from lossy ones, in the order of the cards. */
/** @type {(step: JudgedStep, cards: JudgedCard[], sampled: boolean) => JudgedRow[]} */
export function rowsOf({ rules }, cards, sampled) {
  const judging = cards.filter(({ name }) => rules[name]);
  return grouped(judging, ({ name, lossless }) => `${lossless} ${likeness(rules[name], sampled)}`)
    .map((some) => ({ cards: some, rule: rules[some[0].name] }));
}

/** The paths that rules accept: the recorded one to its end, then of each row the nodes that are on none before. */
/** @type {(nodes: TreeNode[], rows: JudgedRow[]) => JudgedPath[]} */
export function pathsOf(nodes, rows) {
  const paths = [{ cards: /** @type {JudgedCard[]} */ ([]), path: recordedPath(nodes) }];
  for (const { cards, rule } of rows) {
    const [stood] = ends(nodes, rule);
    const path = stood.map((node) => nodes[node]).filter((node) => !paths.some((one) => one.path.includes(node)));
    if (path.length) paths.push({ cards, path });
  }
  return paths;
}

/** Where a step's rules part: the first node that some accept and others do not; 0 where they agree. */
/** @type {(step: JudgedStep) => number} */
export function parting({ rules }) {
  const stands = Object.values(rules).map(({ nodes }) => new Map(nodes.map(([node, one]) => [node, one])));
  const all = [...new Set(stands.flatMap((one) => [...one.keys()]))].sort((a, b) => a - b);
  return all.find((node) => new Set(stands.map((one) => one.get(node) ?? false)).size > 1) ?? 0;
}

/** The accepted nodes, and on by first children: the recorded path to its end. */
/** @type {(nodes: TreeNode[]) => TreeNode[]} */
export function recordedPath(nodes) {
  /** @type {TreeNode[]} */
  const path = [];
  for (;;) {
    const below = nodes.filter(({ index, parent }) => index && parent === (path.at(-1)?.index ?? 0));
    const next = below.find(({ status }) => status === "accepted") ?? below[0];
    if (!next) return path;
    path.push(next);
  }
}

/** How many rules accept other drafted tokens than the run did. @param {JudgedStep} step */
export const otherwise = ({ rules }) => Object.values(rules).filter(({ differs }) => differs.length > 0).length;

/** How far rules agree, and how many the record leaves open. @param {JudgedStep} step */
export function agreement(step) {
  const all = Object.values(step.rules);
  const [count, open] = [otherwise(step), all.filter((rule) => rule.open && !rule.differs.length).length];
  const alike = all.length - open;
  const decide = (/** @type {number} */ n) => `${open || count ? n : "all"} ${n === 1 ? "decides" : "decide"}`;
  const parted = count ? `${decide(count)} otherwise` : `${decide(alike)} alike`;
  return open ? `${parted}, ${open} left open` : parted;
}

/** A number, or two where the record leaves a range, each with so much more; what rounds to nothing is said to be. */
/** @type {(both: [number, number], digits?: number, more?: number) => string} */
export function range(both, digits = 2, more = 0) {
  const least = 10 ** -digits;
  if (both[1] + more > 0 && both[1] + more < least / 2) return `<${least}`;
  return written([both[0] + more, both[1] + more], digits).replace(" to ", "–"); // columns are narrow
}
