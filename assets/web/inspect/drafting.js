/* What a trace says of a draft model's step, and the words for it. */

import { h, plural } from "specviz/base/dom.js";

export const STATES = { accepted: "accepted", rejected: "rejected", unreached: "never checked" };

export const label = (owner, id, most) => owner.model.pieces.label(id, most);
export const quoted = (owner, id) =>
  h("code", { class: "sv-token" }, id < 0 ? "stop" : owner.model.pieces.label(id, 24));
export const beside = (node) => node.origin === "expansion";
export const beams = (view) => view.route.startsWith("beam");

/** A node's number of the given name, null where the method records none. */
export function numberOf(owner, node, key) {
  const column = owner.model.trace.nodes[`term:${key}`];
  const value = column && node ? column[node.row] : null;
  return typeof value === "number" ? value : null;
}

/** Whether a trace has anything of a draft model's to show; a live one that will have is known by its numbers. */
export function present(model) {
  const { guesses, attention } = model.trace;
  const rows = (table) => (table ? table.step.length : 0);
  const own = model.run.attention && model.run.attention.probes ? 0 : rows(attention); // else the prompt tokens'
  return rows(guesses) + own > 0 || (!!guesses && model.nodeTerms.some(({ key }) => key === "overlap"));
}

/** Whether a step's tree has leaves beside a main chain: [chain, expansions], null where it has not. */
export function lanes(view) {
  const extra = view.nodes.filter(beside).length;
  return extra ? [view.drafted - extra, extra] : null;
}

/** Node → tokens with both probabilities, in the order of the drafter's ranks. */
export function guesses(model, step) {
  const table = model.trace.guesses;
  const found = new Map();
  const [from, to] = model.rows("guesses", step);
  for (let row = from; row < to; row++) {
    const node = table.node[row];
    if (!found.has(node)) found.set(node, []);
    found
      .get(node)
      .push({
        token: table.token[row],
        rank: table.rank[row],
        q: table.draft_prob[row],
        p: table.prob[row],
        residual: table.residual[row],
      });
  }
  return found;
}

// ---- words ------------------------------------------------------------------------------------------------------

/** "a main chain of 4 tokens and 6 expansions beside it" */
export function offered(view) {
  const [chain, extra] = lanes(view);
  const others = beams(view) ? `${plural(extra, "token")} of other beams` : plural(extra, "expansion");
  return `a main chain of ${plural(chain, "token")} with ${others} beside it`;
}

/** Which part of a widened draft stood, as nodes; ``own`` says what made it stand. */
export function stood(owner, view, own) {
  const main = view.path.filter((node) => !beside(node));
  const extra = view.path.slice(main.length);
  const count = (n) => (n === 1 ? "first token" : `first ${n} tokens`);
  const all = main.length === lanes(view)[0];
  const parts = [];
  if (all) parts.push(`and the whole main chain was ${own}`);
  else if (main.length)
    parts.push(`the ${count(main.length)} of the main chain ${main.length === 1 ? "was" : "were"} ${own}`);
  if (!extra.length) return parts;
  parts.push(main.length ? "; then " : "and ");
  if (beams(view))
    return [...parts, `${plural(extra.length, "token")} of another beam ${extra.length > 1 ? "were" : "was"} accepted`];
  const rank = numberOf(owner, extra[0], "draft_rank");
  const chain = view.nodes.find((node) => node.parent === extra[0].parent && node.index && !beside(node));
  parts.push(`an expansion${rank === null ? "" : ` (rank ${rank + 1})`} was accepted, `, quoted(owner, extra[0].token));
  if (chain) parts.push(" in place of the main chain's ", quoted(owner, chain.token));
  return parts;
}
