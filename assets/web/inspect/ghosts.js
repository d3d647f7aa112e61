/* Another draft of a step over the recorded one: one tree, whose nodes say which of the two drafted them. No DOM. */

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
