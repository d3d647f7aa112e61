/* Tokens that a head thought of and left out of its draft: reranked away, or not in its vocabulary at all. */

import { h } from "specviz/base/dom.js";
import { OPEN } from "specviz/base/model.js";
import { format, plural, probability } from "specviz/base/numbers.js";
import { quoted } from "specviz/inspect/drafting.js";

/** What was left out of a step, best first; ``wrote``: the target wrote it, where the accepted path ended. */
/** @type {(model: Model, view: StepView) => PrunedNode[]} */
export function prunedNodes(model, view) {
  const table = model.trace.pruned;
  if (!table) return [];
  /** @type {PrunedNode[]} */
  const rows = [];
  /** @type {(node: number) => number[]} */
  const line = (node) =>
    node >= view.nodes.length
      ? rows[node - view.nodes.length].path
      : node > 0
        ? [...line(view.nodes[node].parent), view.nodes[node].token]
        : [];
  for (const row of model.rows("pruned", view.number)) {
    const token = table.token[row];
    const parent = table.parent[row];
    const wrote = view.bonus !== OPEN && parent === view.last && token === view.bonus;
    rows.push({ path: [...line(parent), token], q: table.draft_prob[row], score: table.score[row], wrote });
  }
  return rows;
}

/** Whether the target's own token is none that the head can draft. */
/** @type {(owner: Inspector, view: StepView) => boolean} */
const outside = (owner, view) => owner.model.stepTerm(view.number, "outside") === 1;

/** All of it, closed at first; a token that the target wrote is told at once. */
/** @type {(owner: Inspector, view: StepView) => HTMLElement | null} */
export function leftOut(owner, view) {
  const rows = prunedNodes(owner.model, view);
  const wrote = rows.find((one) => one.wrote);
  const all = owner.model.stepTerm(view.number, "scored");
  if (!rows.length) return outside(owner, view) ? h("div.sv-left-out", missing(owner, view)) : null;
  const items = rows.map((one) =>
    h(
      "li",
      { class: one.wrote ? "sv-wrote" : "" },
      one.path.map((token) => quoted(owner, token)),
      h("small", ` ${probability(one.q)}, Σ log q ${format(one.score, 2)}${one.wrote ? ": the target wrote it" : ""}`),
    ),
  );
  const count = all === null ? rows.length : all - view.drafted;
  const shown = count > rows.length ? ` (the best ${rows.length} of them)` : "";
  return h(
    "div.sv-left-out",
    outside(owner, view) ? missing(owner, view) : null,
    wrote ? h("p", "The target wrote ", quoted(owner, view.bonus), ", which the head had and left out.") : null,
    h("details", h("summary", `Left out of the tree: ${plural(count, "token")}${shown}`), h("ol", items)),
  );
}

/** @type {(owner: Inspector, view: StepView) => HTMLElement} */
const missing = (owner, view) =>
  h("p", "The target wrote ", quoted(owner, view.bonus), ", which is not in the head's vocabulary.");
