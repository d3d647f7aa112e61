/* The layout of a step's draft tree: depth runs down, what stands beside the first path stands to its right. */

import { OPEN } from "specviz/base/model.js";
import { clamp } from "specviz/base/numbers.js";

const NODE = 28; // pixels: a node, at most
const [LOW, TALL] = [19, 46]; // a row: so low that long drafts fit, so tall that short ones are not lost
const CLEAR = [3, 10]; // between rows, low and tall ones
export const GAP = 8; // between columns
export const MARGIN = 8;
export const STEM = 14; // from a node's left side to where its edges leave
const HUNG = 24; // below a node with prompt tokens
const DISTANCES = 84; // beside such a tree: how far ahead a row's tokens were guessed
const STRETCH = 4; // tokens in a row that one item may stand for
export const SIBLINGS = 5; // shown beside the path before the rest is folded

/** An item without a place yet. @type {(depth: number) => Placed} */
export const unplaced = (depth) => ({
  depth,
  column: 0,
  children: [],
  after: 0,
  x: 0,
  y: 0,
  width: 0,
  high: NODE,
  text: "",
  line: "",
  prob: null,
});

/** The fold of one token of a stretch: all of them are opened together. @param {TreeNode} node */
export const along = (node) => `along ${node.index}`;

/** The fold of what was drafted below a lost token. @param {TreeNode} node */
export const under = (node) => `under ${node.index}`;

/** The tokens in a row from ``node`` on that stand or fall together: one child each, the same status and origin. */
/** @type {(node: TreeNode, children: TreeNode[][]) => TreeNode[]} */
function straight(node, children) {
  const row = [node];
  for (;;) {
    const last = row[row.length - 1];
    const [next, ...more] = children[last.index];
    if (!next || more.length || next.status !== last.status || next.origin !== last.origin) return row;
    if (next.who !== last.who || next.forbidden !== last.forbidden) return row;
    row.push(next);
  }
}

/**
 * The items to draw from the root on: nodes, the target's own token, and what stands for folded nodes: chips, and with
 * ``short`` one item for many tokens in a row. ``most``: siblings beside a path that are not folded.
 *
 * @typedef {Pick<StepView, "nodes" | "drafted" | "last" | "bonus">} Drawn
 * @type {(view: Drawn, opened: Set<string>, short?: boolean, most?: number) => TreeItem}
 */
export function items(view, opened, short = false, most = SIBLINGS) {
  /** @type {TreeNode[][]} */
  const children = view.nodes.map(() => []);
  for (const node of view.nodes) if (node.parent >= 0) children[node.parent].push(node);
  /** @type {(node: TreeNode) => number} */
  const size = (node) => 1 + children[node.index].reduce((sum, child) => sum + size(child), 0);
  /** @type {(nodes: TreeNode[], depth: number, key: string, what: string) => ChipItem} */
  const chip = (nodes, depth, key, what) => {
    const count = nodes.reduce((sum, node) => sum + size(node), 0);
    return { ...unplaced(depth), kind: "chip", count, key, what };
  };
  /** @type {(node: TreeNode) => boolean} */
  const deep = (node) => node.status === "rejected" || node.status === "unreached";
  /** @type {(node: TreeNode, depth: number) => TreeItem} */
  const build = (node, depth) => {
    const row = short && node.index > 0 && !opened.has(along(node)) ? straight(node, children) : [];
    if (row.length < STRETCH) return grown(node, { ...unplaced(depth), kind: "node", node });
    return grown(row[row.length - 1], { ...unplaced(depth), kind: "stretch", nodes: row });
  };
  /** @type {(node: TreeNode, item: NodeItem | StretchItem) => TreeItem} the item with what follows its last node */
  const grown = (node, item) => {
    const next = item.depth + 1;
    /** @type {(child: TreeNode) => TreeItem} */
    const branch = (child) => build(child, next);
    const mine = children[node.index];
    const taken = mine.filter((child) => child.status === "accepted");
    const rest = mine.filter((child) => child.status !== "accepted");
    if (node.index === view.last && view.bonus !== OPEN)
      item.children.push({ ...unplaced(next), kind: "bonus", rank: -1 });
    item.children.push(...taken.map(branch));
    if (!rest.length) return item;
    const beside = `beside ${node.index}`;
    if (item.kind === "node" && deep(node) && view.bonus !== OPEN && !opened.has(under(node))) {
      item.hidden = size(node) - 1;
    } else if (rest.length > most + 1 && !opened.has(beside)) {
      item.children.push(...rest.slice(0, most).map(branch));
      item.children.push(chip(rest.slice(most), next, beside, "more"));
    } else {
      item.children.push(...rest.map(branch));
    }
    return item;
  };
  return build(view.nodes[0], 0);
}

/** The status of what is drawn of the draft itself. @type {(item: TreeItem) => NodeStatus | null} */
const statusIn = (item) =>
  item.kind === "node" ? item.node.status : item.kind === "stretch" ? item.nodes[0].status : null;

/** @type {(item: TreeItem) => boolean} */
const stands = (item) => item.kind === "bonus" || statusIn(item) === "accepted";

/** Gives every item a column; subtrees share columns where they do not meet. Returns the items in drawing order. */
/** @type {(root: TreeItem) => { placed: TreeItem[], columns: number }} */
export function arrange(root) {
  /** The depths that are taken in every column. @type {[from: number, to: number][][]} */
  const columns = [];
  /** @type {TreeItem[]} */
  const placed = [];
  /** @type {(item: TreeItem) => TreeItem[]} */
  const chain = (item) => {
    const line = [item];
    while (line[line.length - 1].children.length) line.push(line[line.length - 1].children[0]);
    return line;
  };
  /** @type {(column: number, from: number, to: number) => boolean} */
  const free = (column, from, to) => !(columns[column] || []).some(([a, b]) => from <= b && to >= a);
  /** @type {(column: number, depth: number) => boolean} */
  const crosses = (column, depth) => (columns[column] || []).some(([a, b]) => a < depth && b >= depth);
  /** @type {(item: TreeItem, column: number) => void} */
  const place = (item, column) => {
    const line = chain(item);
    (columns[column] = columns[column] || []).push([item.depth, line[line.length - 1].depth]);
    for (const one of line) {
      one.column = column;
      placed.push(one);
    }
    /** Item → the column its last child was given. @type {Map<TreeItem, number>} */
    const beside = new Map();
    /** @type {(one: TreeItem, child: TreeItem) => void} */
    const drop = (one, child) => {
      child.after = beside.get(one) || column;
      const last = chain(child);
      let next = child.after + 1;
      const blocked = () => !free(next, child.depth, last[last.length - 1].depth) || crosses(next, child.depth);
      while (blocked() && next < 4000) next++;
      place(child, next);
      beside.set(one, next);
    };
    line.reverse();
    // what was accepted or written beside a chain lies nearest to it
    for (const near of [true, false])
      for (const one of line) for (const child of one.children.slice(1)) if (stands(child) === near) drop(one, child);
  };
  place(root, 0);
  return { placed, columns: columns.length };
}

/** The height of a row of a tree so deep in so many pixels. @type {(depth: number, high: number) => number} */
export const rowHeight = (depth, high) => clamp(Math.floor((high - 2 * MARGIN) / (depth + 1)), LOW, TALL);

/** Gives every item, its width known, its place; ``hangs``: whether prompt tokens hang below the nodes. */
/** @type {(placed: TreeItem[], columns: number, hangs: boolean, high: number) => Laid} */
export function position(placed, columns, hangs, high) {
  /** @type {number[]} */
  const widths = Array(columns).fill(0);
  for (const item of placed) widths[item.column] = Math.max(widths[item.column], item.width);
  const lefts = [MARGIN + (hangs ? DISTANCES : 0)];
  widths.forEach((width, column) => (lefts[column + 1] = lefts[column] + width + GAP));
  const deepest = placed.reduce((depth, item) => Math.max(depth, item.depth), 0);
  const row = hangs ? NODE + HUNG + 8 : rowHeight(deepest, high);
  const node = Math.min(NODE, row - (row < 26 ? CLEAR[0] : CLEAR[1]));
  for (const item of placed) {
    item.x = lefts[item.column];
    item.y = MARGIN + item.depth * row;
    item.high = hangs ? NODE : node;
    if (!item.column) item.width = widths[0];
  }
  const height = 2 * MARGIN + deepest * row + (hangs ? NODE + HUNG : node);
  return { placed, row, width: lefts[columns] - GAP + MARGIN, height };
}
