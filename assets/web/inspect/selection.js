/* What is selected: one token of the text, one node of the step's tree, or both at once. No DOM. */

import { POOL } from "specviz/base/model.js";

/** A node of a step's tree (-1: the target's own token), and the token of the text it became. */
/** @type {(view: StepView, node: number) => SelectedToken} */
export function ofNode(view, node) {
  const { number: step, context, end, nodes } = view;
  if (node < 0) return { step, node, position: view.bonus >= 0 ? end - 1 : -1 };
  const { status, depth } = nodes[node];
  return { step, node, position: status === "accepted" || status === "root" ? context + depth - 1 : -1 };
}

/** A token of the text, and the node that it was; null where no step wrote it: it is of the prompt, or of the pool. */
/** @type {(model: Model, position: Position) => SelectedToken} */
export function ofPosition(model, position) {
  const step = position >= POOL ? -1 : model.stepOf(position);
  if (step < 0) return { step: -1, node: null, position };
  return { step, node: model.decision(position)?.node?.index ?? -1, position };
}

/** Why a token of a draft stood or fell, in a sentence, from what was recorded of its node. */
/** @type {(view: StepView, node: TreeNode, label: (id: number) => string) => string} */
export function why(view, node, label) {
  const { nodes, targets } = view;
  const parent = nodes[node.parent];
  const after = parent ? `after “${label(parent.token)}” ` : "";
  const stood = nodes.find((one) => one.parent === node.parent && one.status === "accepted");
  if (node.status === "root") return "The last token written: the draft goes on from here.";
  if (node.status === "unreached") {
    let above = parent;
    while (above && above.index && above.status === "unreached") above = nodes[above.parent];
    if (node.reason === "after stop") return "Never checked: a stop token before it ended the run.";
    if (node.reason === "behind the output's end") return "Never checked: the output ended before it.";
    return above?.status === "rejected"
      ? `Never checked: “${label(above.token)}” before it was rejected.`
      : "Never checked.";
  }
  if (node.status === "accepted") return `Accepted: ${after}the target would write it, too.`;
  const [first] = targets.get(node.parent) ?? [];
  const wrote = stood ? stood.token : node.parent === view.last && view.bonus >= 0 ? view.bonus : first?.token;
  return wrote === undefined
    ? `Rejected: ${after}the target wanted something else.`
    : `Rejected: ${after}the target wrote “${label(wrote)}”.`;
}
