/* Another draft of a step over the recorded one: one tree, whose nodes say which of the two drafted them. No DOM. */

import { plural } from "specviz/base/numbers.js";

/**
 * A step with the nodes of another draft of it. What both drafted is one node; what the other alone drafted is added
 * behind the recorded nodes, whose numbers stay, and has no row in the run's tables.
 *
 * @type {(view: StepView, other: StepView) => StepView}
 */
export function overlaid(view, other) {
  /** @type {TreeNode[]} */
  const nodes = view.nodes.map((node) => ({ ...node, draft: node.index ? "recorded" : "both" }));
  /** The other's node → its place here. @type {number[]} */
  const places = [];
  for (const node of other.nodes) {
    const parent = node.index ? places[node.parent] : -1;
    const same = nodes.find((one) => one.parent === parent && (one.token === node.token || !node.index));
    if (same) same.draft = "both";
    else nodes.push({ ...node, index: nodes.length, parent, row: -1, span: 0, draft: "other" });
    places.push(same ? same.index : nodes.length - 1);
  }
  return { ...view, nodes };
}

/** Whether another draft has none of the nodes: then none needs a sign. @param {Pick<StepView, "nodes">} view */
export const onlyRecorded = ({ nodes }) => nodes.every(({ index, draft }) => !index || draft === "recorded");

/** What another draft has that the recorded one has not, in a sentence; "" where both are alike in all. */
/** @type {(view: StepView, other: StepView) => string} */
export function draftDifference(view, other) {
  const { nodes } = overlaid(view, other);
  const [added, missing] = ["other", "recorded"].map((name) => nodes.filter(({ draft }) => draft === name).length);
  if (!other.drafted) return view.drafted ? "Nothing was drafted this way." : "";
  if (added && missing) return `It drafts ${plural(added, "other token")}, and leaves out ${missing}.`;
  if (added) return `It drafts ${plural(added, "token")} more.`;
  if (missing) return `It leaves out ${plural(missing, "drafted token")}.`;
  /** @type {(one: StepView) => string} */
  const order = (one) => one.nodes.map(({ token, parent }) => `${token} ${parent}`).join();
  if (order(view) !== order(other)) return "It drafts the same tokens in another order.";
  const judged = (/** @type {StepView} */ one) => one.nodes.map(({ status }) => status).join();
  return judged(view) === judged(other) ? "" : "It drafts the same tokens; they are judged by another rule.";
}
