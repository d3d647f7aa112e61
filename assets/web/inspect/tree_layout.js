/* The layout of a step's draft tree: what is drawn of it, in which row, at which place. */

import { OPEN } from "specviz/base/model.js";
import { lanes } from "specviz/inspect/drafting.js";

export const NODE = 42;
const ROW = 51;
export const GAP = 20;
export const MARGIN = 10;
const HUNG_ROW = 66; // of nodes with their prompt tokens below them
const DISTANCES = 17; // above such a tree: how far ahead a column's tokens were guessed
const LEAF = 25; // an expansion that was not accepted is smaller
const LEAF_ROW = 30;
const FOLD_OVER = 40; // nodes
const FEW = 3; // a subtree up to this size is not worth a chip
const STRETCH = 4; // tokens in a row that one item may stand for
const SIBLINGS = 5; // rejected siblings shown before the rest is folded

/** An item without a place yet. @type {(depth: number) => Placed} */
export const unplaced = (depth) => ({
  depth,
  row: 0,
  children: [],
  small: false,
  after: 0,
  x: 0,
  y: 0,
  width: 0,
  high: NODE,
  axis: 0,
  text: "",
  line: "",
  middle: 0,
  textMiddle: 0,
  sideMiddle: 0,
  prob: null,
});

/** The fold of one token of a stretch: all of them are opened together. @param {TreeNode} node */
export const along = (node) => `along ${node.index}`;

/** The tokens in a row from ``node`` on that stand or fall together: one child each, the same status and origin. */
/** @type {(node: TreeNode, children: TreeNode[][]) => TreeNode[]} */
function straight(node, children) {
  const row = [node];
  for (;;) {
    const last = row[row.length - 1];
    const [next, ...more] = children[last.index];
    if (!next || more.length || next.status !== last.status || next.origin !== last.origin) return row;
    row.push(next);
  }
}

/**
 * The items to draw from the root on: nodes, the target's own token, and what stands for folded nodes: chips, and with
 * ``short`` one item for many tokens in a row. ``wide``: a main chain straight on, its expansions in a lane below it.
 *
 * @typedef {Pick<StepView, "nodes" | "drafted" | "last" | "bonus">} Drawn
 * @type {(view: Drawn, opened: Set<string>, short?: boolean) => { root: TreeItem, wide: boolean }}
 */
export function items(view, opened, short = false) {
  /** @type {TreeNode[][]} */
  const children = view.nodes.map(() => []);
  for (const node of view.nodes) if (node.parent >= 0) children[node.parent].push(node);
  const fold = view.nodes.length > FOLD_OVER;
  const wide = !!lanes(view);
  /** @type {(node: TreeNode) => number} */
  const size = (node) => 1 + children[node.index].reduce((sum, child) => sum + size(child), 0);
  /** @type {(nodes: TreeNode[], depth: number, key: string, what: string) => ChipItem} */
  const chip = (nodes, depth, key, what) => {
    const count = nodes.reduce((sum, node) => sum + size(node), 0);
    return { ...unplaced(depth), kind: "chip", count, key, what };
  };
  /** @type {(node: TreeNode) => boolean} */
  const deep = (node) => node.status === "rejected" || node.status === "unreached";
  /** @type {(node: TreeNode) => boolean} */
  const small = (node) => wide && node.beside && node.status !== "accepted";
  /** @type {(node: TreeNode, depth: number) => TreeItem} */
  const build = (node, depth) => {
    const row = short && node.index > 0 && !opened.has(along(node)) ? straight(node, children) : [];
    if (row.length < STRETCH) return grown(node, { ...unplaced(depth), kind: "node", node, small: small(node) });
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
    const main = wide && rest.length && !rest[0].beside ? rest.splice(0, 1) : [];
    if (!deep(node)) item.children.push(...main.map(branch));
    if (node.index === view.last && view.bonus !== OPEN)
      item.children.push({ ...unplaced(next), kind: "bonus", rank: -1 });
    item.children.push(...taken.map(branch));
    if (deep(node)) rest.unshift(...main);
    if (!rest.length) return item;
    const below = `under ${node.index}`;
    const beside = `beside ${node.index}`;
    if (fold && deep(node) && size(node) > FEW && !opened.has(below)) {
      item.children.push(chip(rest, next, below, "never checked"));
    } else if (fold && rest.length > SIBLINGS + 1 && !opened.has(beside)) {
      item.children.push(...rest.slice(0, SIBLINGS).map(branch));
      item.children.push(chip(rest.slice(SIBLINGS), next, beside, "more"));
    } else {
      item.children.push(...rest.map(branch));
    }
    return item;
  };
  return { root: build(view.nodes[0], 0), wide };
}

/** The status of what is drawn of the draft itself. @type {(item: TreeItem) => NodeStatus | null} */
const statusIn = (item) =>
  item.kind === "node" ? item.node.status : item.kind === "stretch" ? item.nodes[0].status : null;

/** @type {(item: TreeItem) => boolean} */
const stands = (item) => item.kind === "bonus" || statusIn(item) === "accepted";

/** Gives every item a row; subtrees share rows where they do not meet. Returns the items in drawing order. */
/** @type {(tree: { root: TreeItem, wide: boolean }) => { placed: TreeItem[], rows: number }} */
export function arrange({ root, wide }) {
  /** The depths that are taken in every row. @type {[from: number, to: number][][]} */
  const rows = [];
  /** @type {TreeItem[]} */
  const placed = [];
  /** @type {(item: TreeItem) => TreeItem[]} */
  const chain = (item) => {
    const line = [item];
    while (line[line.length - 1].children.length) line.push(line[line.length - 1].children[0]);
    return line;
  };
  /** @type {(row: number, from: number, to: number) => boolean} */
  const free = (row, from, to) => !(rows[row] || []).some(([a, b]) => from <= b && to >= a);
  /** @type {(row: number, depth: number) => boolean} */
  const crosses = (row, depth) => (rows[row] || []).some(([a, b]) => a < depth && b >= depth);
  /** @type {(item: TreeItem, row: number) => void} */
  const place = (item, row) => {
    const line = chain(item);
    (rows[row] = rows[row] || []).push([item.depth, line[line.length - 1].depth]);
    for (const one of line) {
      one.row = row;
      placed.push(one);
    }
    /** Item → the row its last child was given. @type {Map<TreeItem, number>} */
    const below = new Map();
    /** @type {Set<number>} */
    const taken = new Set();
    /** @type {(one: TreeItem, child: TreeItem) => void} */
    const drop = (one, child) => {
      child.after = below.get(one) || row;
      const last = chain(child);
      let next = child.after + 1;
      const blocked = () => !free(next, child.depth, last[last.length - 1].depth) || crosses(next, child.depth);
      while (blocked() && next < 4000) next++;
      place(child, next);
      below.set(one, next);
      taken.add(next);
    };
    line.reverse();
    // what was accepted or written beside a chain lies nearest to it
    for (const told of [true, false]) {
      for (const one of line) for (const child of one.children.slice(1)) if (stands(child) === told) drop(one, child);
      if (wide && told) for (const shared of taken) rows[shared].push([0, Infinity]); // for no leaves
    }
  };
  place(root, 0);
  return { placed, rows: rows.length };
}

/** Gives every item, its width known, its place; ``hangs``: whether prompt tokens hang below the nodes. */
/** @type {(placed: TreeItem[], rows: number, hangs: boolean) => { lefts: number[], width: number, height: number }} */
export function position(placed, rows, hangs) {
  /** @type {number[]} */
  const columns = [];
  for (const item of placed) columns[item.depth] = Math.max(columns[item.depth] || 0, item.width);
  const lefts = [MARGIN];
  columns.forEach((width, depth) => (lefts[depth + 1] = lefts[depth] + (width || 0) + GAP));
  const width = lefts[columns.length] - GAP + MARGIN;
  const low = Array.from({ length: rows }, () => true); // rows of leaves alone
  for (const item of placed) if (!item.small) low[item.row] = false;
  const high = hangs ? HUNG_ROW : ROW;
  const tops = [MARGIN + (hangs ? DISTANCES : 0)];
  low.forEach((leaves, row) => (tops[row + 1] = tops[row] + (leaves ? LEAF_ROW : high)));
  const height = tops[rows] - (hangs ? 0 : ROW - NODE) + 2 * MARGIN;
  for (const item of placed) {
    item.x = lefts[item.depth];
    item.high = item.small ? LEAF : NODE;
    // a leaf in a higher row stands in its middle, as what is joined to it does
    item.y = tops[item.row] + (item.small && !low[item.row] ? (NODE - LEAF) / 2 : 0);
    item.axis = item.y + item.high / 2;
  }
  return { lefts, width, height };
}
