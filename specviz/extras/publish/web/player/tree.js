/* A draft tree as lines of tokens: a chain is a line, a branch begins a new one below the node it hangs on. No DOM. */

/** A line: its nodes from left to right, and how many nodes stand before them on their path. */
/** @typedef {{ depth: number, nodes: TreeNode[] }} Line */

/** The lines of a tree, the root left out. @param {TreeNode[]} nodes @returns {Line[]} */
export function lines(nodes) {
  /** @type {Map<number, TreeNode[]>} */
  const children = new Map();
  for (const node of nodes.slice(1)) children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  /** @type {Line[]} */
  const made = [];
  const begins = [...(children.get(0) ?? [])].reverse(); // a stack: a tree may be deeper than calls may be
  for (let first = begins.pop(); first; first = begins.pop()) {
    const line = { depth: first.depth - 1, nodes: [first] };
    made.push(line);
    for (let next = children.get(first.index); next; next = children.get(next[0].index)) {
      line.nodes.push(next[0]);
      begins.push(...next.slice(1).reverse());
    }
  }
  return made;
}
