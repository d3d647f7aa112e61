/* Tokens that were left out of a draft: reranked away by its head, not worth their row, or in no vocabulary at all. */

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
    const why = table.why?.[row] ?? "rank";
    rows.push({ path: [...line(parent), token], q: table.draft_prob[row], score: table.score[row], wrote, why });
  }
  return rows;
}

/** Per step how deep its draft went before draft length auto left a part of it out; 0 where nothing was. */
/** @type {(model: Model) => number[]} */
export function depthsBefore(model) {
  const table = model.trace.pruned;
  const deepest = model.steps.context.map(() => 0);
  /** Of the rows of a step. @type {number[]} */
  let depths = [];
  for (let row = 0; row < (table?.why ?? []).length; row++) {
    const { step, parent, why } = /** @type {NonNullable<typeof table>} */ (table);
    if (step[row] !== step[row - 1]) depths = [];
    const behind = parent[row] - model.steps.drafted[step[row]] - 1;
    const above = behind < 0 ? model.trace.nodes.depth[model.first.nodes[step[row]] + parent[row]] : depths[behind];
    depths.push(above + 1);
    if (why?.[row] === "cost") deepest[step[row]] = Math.max(deepest[step[row]], above + 1);
  }
  return deepest;
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
  if (!rows.length) return outside(owner, view) ? h("div.sv-left-out.ui-fold", missing(owner, view)) : null;
  const items = rows.map((one) =>
    h(
      "li",
      { class: one.wrote ? "sv-wrote" : "" },
      one.path.map((token) => quoted(owner, token)),
      h("small", ` ${numbers(one)}${one.wrote ? ": the target wrote it" : ""}`),
    ),
  );
  const paid = rows.filter((one) => one.why === "cost").length;
  const count = all === null ? rows.length : Math.max(all - view.drafted, rows.length);
  const shown = count > rows.length ? ` (the best ${rows.length} of them)` : "";
  return h(
    "div.sv-left-out.ui-fold",
    outside(owner, view) ? missing(owner, view) : null,
    wrote ? h("p", "The target wrote ", quoted(owner, view.bonus), ", which the head had and left out.") : null,
    paid ? h("p", gain(owner, view, paid)) : null,
    h("details", h("summary", `Left out of the tree: ${plural(count, "token")}${shown}`), h("ol", items)),
  );
}

/** What a token that was left out was ranked by. @param {PrunedNode} node */
function numbers({ why, q, score }) {
  if (why === "grammar") return "the grammar forbids it";
  if (why === "cost") return `survival ${probability(score)}`;
  return `${probability(q)}, Σ log q ${format(score, 2)}`;
}

/** What draft length auto expected of the step, and what came of it. */
/** @type {(owner: Inspector, view: StepView, paid: number) => string} */
function gain(owner, view, paid) {
  /** @param {string} key */
  const of = (key) => owner.model.stepTerm(view.number, key);
  const [expected, lost] = [of("expected"), of("left_out_expected")];
  const brings = expected === null ? "" : ` Expected: ${format(expected, 2)} of the ${view.drafted} verified accepted`;
  const came = brings && `; ${view.path.length} did.`;
  const would = lost === null ? "" : ` (expected of them: ${format(lost, 2)})`;
  return `Draft length auto left out ${plural(paid, "token")} not worth a row${would}.${brings}${came}`;
}

/** @type {(owner: Inspector, view: StepView) => HTMLElement} */
const missing = (owner, view) =>
  h("p", "The target wrote ", quoted(owner, view.bonus), ", which is not in the head's vocabulary.");
