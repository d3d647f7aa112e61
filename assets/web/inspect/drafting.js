/* What a trace says of a draft model's step, and the words for it. */

import { h } from "specviz/base/dom.js";
import { groups } from "specviz/base/model.js";

/** @type {Record<NodeStatus, string>} */
export const STATES = { root: "root", accepted: "accepted", rejected: "rejected", unreached: "never checked" };

/** A token's text. @type {(owner: Inspector, id: number | undefined, most?: number) => string} */
export const label = (owner, id, most) => owner.model.pieces.label(id, most);
/** A token in a sentence; -1: a stop token. @type {(owner: Inspector, id: number) => HTMLElement} */
export const quoted = (owner, id) => h("code.sv-token", id < 0 ? "stop" : owner.model.pieces.word(id, 24));
/** Whether a node stands beside the main chain. @type {(node: TreeNode) => boolean} */
export const beside = (node) => node.beside;
/** @type {(view: StepView) => boolean} */
export const beams = (view) => view.route.startsWith("beam");

/** The choice of a node in the tree. @type {(node: TreeNode) => NodeChoice} */
export const choiceOf = (node) => ({ parent: node.parent, node: node.index, token: node.token });

/** @type {(a: NodeChoice | null, b: NodeChoice | null) => boolean} */
export const same = (a, b) =>
  a === b || (!!a && !!b && a.parent === b.parent && a.node === b.node && a.token === b.token);

/** A node's number of that name, null where the method records none. @type {NumberOf} */
export function numberOf(owner, node, key) {
  return node ? owner.model.nodeTerm(node, key) : null;
}

/** Whether a trace has anything of a draft model's to show; a live one is known by its numbers. @param {Model} model */
export function present(model) {
  const { guesses, attention } = model.trace;
  /** @type {(table?: { step: number[] }) => number} */
  const rows = (table) => (table ? table.step.length : 0);
  const own = model.run.attention?.probes ? 0 : rows(attention); // else the prompt tokens'
  return rows(guesses) + own > 0 || (!!guesses && model.nodeTerms.some(({ key }) => key === "overlap"));
}

/** What wrote the draft, as its part is called. @param {Model} model */
export const drafterOf = ({ run }) => (/\bheads?\b/i.test(run.part?.title ?? "") ? "draft head" : "draft model");

/**
 * The chain of a draft: the first drafted token after each of its own, those beside it left out. Heads fill a tree
 * that has no chain of its own: theirs are the first guesses.
 *
 * @type {(view: StepView) => TreeNode[]}
 */
export function chainOf(view) {
  /** @type {TreeNode[]} */
  const chain = [];
  for (const node of view.nodes) {
    const last = chain[chain.length - 1]?.index ?? 0;
    if (node.index && node.parent === last && !beside(node)) chain.push(node);
  }
  return chain;
}

/** Node → tokens with both probabilities, in the order of the drafter's ranks. @type {OfStep<Map<number, Guess[]>>} */
export function guesses(model, step) {
  const table = model.trace.guesses;
  if (!table) return new Map();
  return groups(model.rows("guesses", step), table.node, (row) => ({
    token: table.token[row],
    rank: table.rank[row],
    q: table.draft_prob[row],
    p: table.prob[row],
    residual: table.residual[row],
  }));
}
