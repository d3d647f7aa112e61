/* The layout of a step's draft tree: depth runs down, what stands beside the first path stands to its right. */

import { OPEN } from "specviz/base/model.js";
import { clamp } from "specviz/base/numbers.js";

const NODE = 28; // pixels: a node, at most
const [LOW, TALL] = [24, 50]; // a row: so low that long drafts fit and a finger hits it; short ones are not lost
export const CLEAR = [3, 10]; // between rows, low and tall ones: an edge is seen there
const SNUG = 22; // a node of a row that has no room for more
export const GAP = 8; // between columns
export const MARGIN = 8;
export const STEM = 14; // from a node's left side to where its edges leave
const LINE = 28; // a line more of a row, and the least row that has one
const INDENT = 22; // of what hangs on a token beside the path
const HUNG = 24; // below a node with prompt tokens
const DISTANCES = 72; // beside such a tree: how far ahead a row's tokens were guessed
const [BAR, LEAST_BAR, WIDEST_BAR] = [8, 80, 320]; // a probability beside a chain: its height, its length
const STRETCH = 4; // tokens in a row that one item may stand for
const [DIP, DIPS] = [0.1, 8]; // clearly less likely than a neighbour in the row; how many are kept out of folds
const SLACK = 6; // of a node's width, where columns else have no room
export const SIBLINGS = 8; // shown beside the path before the rest is folded

/** An item without a place yet. @type {(depth: number) => Placed} */
export const unplaced = (depth) => ({
  depth,
  column: 0,
  level: 0,
  row: depth,
  children: [],
  x: 0,
  y: 0,
  width: 0,
  high: NODE,
  text: "",
  line: "",
  tag: "",
  prob: null,
});

/** The fold of one token of a stretch: all of them are opened together. @param {TreeNode} node */
export const along = (node) => `along ${node.index}`;

/** The fold of what was drafted below a lost token. @param {TreeNode} node */
export const under = (node) => `under ${node.index}`;

/** Nodes that are clearly less likely than what stands before or behind them in a row, the least likely ones first:
 * these tell most, so they are folded last. @type {(view: Pick<StepView, "nodes" | "bonus">) => number[]} */
export function dips({ nodes, bonus }) {
  /** @type {Map<number, number>} */
  const low = new Map();
  /** @type {(node: TreeNode, beside: TreeNode) => void} */
  const compare = (node, beside) => {
    if (node.index && beside.index && node.prob !== null && (beside.prob ?? 0) - node.prob > DIP)
      low.set(node.index, node.prob);
  };
  for (const node of bonus === OPEN ? [] : nodes.slice(1)) {
    compare(node, nodes[node.parent]);
    compare(nodes[node.parent], node);
  }
  return [...low].sort(([, a], [, b]) => a - b).slice(0, DIPS).map(([index]) => index);
}

/** The lowest of the probabilities in a fold, where it is clearly below another; else null. */
/** @param {TreeNode[]} nodes */
export function lowest(nodes) {
  const probs = nodes.flatMap(({ prob }) => prob ?? []);
  const least = Math.min(...probs);
  return Math.max(...probs) - least > DIP ? least : null;
}

/** The tokens in a row from ``node`` on that are alike: one child each, the same status, origin and draft; one of
 * ``kept`` stands alone. @type {(node: TreeNode, children: TreeNode[][], kept: Set<number>) => TreeNode[]} */
function straight(node, children, kept) {
  const row = [node];
  for (;;) {
    const last = row[row.length - 1];
    const [next, ...more] = children[last.index];
    if (kept.has(last.index) || (next && kept.has(next.index))) return row;
    if (!next || more.length || next.status !== last.status || next.origin !== last.origin) return row;
    if (next.who !== last.who || next.forbidden !== last.forbidden || next.draft !== last.draft) return row;
    row.push(next);
  }
}

/** The nodes beside a path with others below them, the deepest last: an unchecked draft without room folds these first.
 * @type {(nodes: TreeNode[]) => number[]} */
export function shutters(nodes) {
  const firsts = new Map(nodes.toReversed().map(({ index, parent }) => [parent, index]));
  return nodes.filter(({ index, parent }) => firsts.has(index) && parent >= 0 && firsts.get(parent) !== index)
    .sort((a, b) => a.depth - b.depth).map(({ index }) => index);
}

/** The rows that a panel has room for. @param {number} high */
export const rowsIn = (high) => Math.floor((high - 2 * MARGIN + CLEAR[0]) / LOW);

/**
 * The items to draw from the root on: nodes, the target's own token, and what stands for folded nodes: chips, and where
 * there are more than ``rows``, one item for tokens in a row, as few of them as that takes. ``most``:
 * siblings beside a node of a path that are not folded; null: nothing is folded. ``kept``: nodes in no row's fold;
 * ``shut``: nodes of an unchecked draft with a fold below them.
 *
 * @typedef {Pick<StepView, "nodes" | "drafted" | "last" | "bonus">} Drawn
 * @typedef {((node: number) => number) | null} Most
 * @type {(view: Drawn, opened: Set<string>, rows?: number, most?: Most, kept?: Set<number>, shut?: Set<number>) =>
 *   TreeItem}
 */
export function items(view, opened, rows = Infinity, most = () => SIBLINGS, kept = new Set(), shut = new Set()) {
  /** @type {TreeNode[][]} */
  const children = view.nodes.map(() => []);
  for (const node of view.nodes) if (node.parent >= 0) children[node.parent].push(node);
  /** Rows drawn below every node. */
  const below = view.nodes.map(() => 0);
  /** @type {(node: TreeNode) => number} */
  const size = (node) => 1 + children[node.index].reduce((sum, child) => sum + size(child), 0);
  /** @type {(nodes: TreeNode[], depth: number, key: string, what: string) => ChipItem} */
  const chip = (nodes, depth, key, what) => {
    const all = nodes.reduce((sum, node) => sum + size(node), 0);
    const hidden = nodes.reduce((sum, node) => sum + (deep(node) ? size(node) - 1 : 0), 0); // folded once it is opened
    return { ...unplaced(depth), kind: "chip", count: all - hidden, hidden, key, what };
  };
  /** Below a node is what tells another draft from the recorded one. */
  const told = view.nodes.map(() => false);
  const fresh = view.nodes.map(({ draft }) => draft === "other"); // it, or one below it
  for (const { parent, draft, index } of view.nodes.toReversed()) {
    if (parent >= 0 && fresh[index]) fresh[parent] = true;
    const parts = draft === "other" || (draft === "recorded" && view.nodes[parent]?.draft === "both");
    if (parent >= 0 && (told[index] || parts)) told[parent] = true;
  }
  /** Whether what was drafted below a lost token is folded. @type {(node: TreeNode) => boolean} */
  const deep = (node) =>
    (view.bonus === OPEN ? shut.has(node.index) : node.status === "rejected" || node.status === "unreached") &&
    most !== null && !told[node.index] && !opened.has(under(node));
  /** @type {(node: TreeNode) => number} */
  const rowsBelow = (node) => (deep(node) ? 0 : below[node.index]);
  for (const node of view.nodes.toReversed()) {
    if (node.index === view.last && view.bonus !== OPEN) below[node.index] = Math.max(1, below[node.index]);
    if (node.parent >= 0) below[node.parent] = Math.max(below[node.parent], 1 + rowsBelow(node));
  }
  /** @type {(node: TreeNode, depth: number) => NodeItem} */
  const alone = (node, depth) => ({ ...unplaced(depth), kind: "node", node });
  /** @type {(node: TreeNode, depth: number) => TreeItem} */
  const build = (node, depth) => {
    const whole = most !== null && node.draft === "other"; // is in one item
    const over = whole ? Infinity : depth + rowsBelow(node) + 1 - rows;
    const row = over > 0 && node.index > 0 && !deep(node) ? straight(node, children, whole ? new Set() : kept) : [];
    if (row.length < STRETCH) return grown(node, alone(node, depth));
    const count = row.some((one) => opened.has(along(one))) ? 1 : clamp(over + 1, STRETCH, row.length);
    const before = count > 1 ? Math.floor((row.length - count) / 2) : row.length - 1; // a fold lies in its row's middle
    const nodes = row.slice(before, before + count);
    const place = unplaced(depth + before);
    const last = nodes[count - 1];
    const end = grown(last, count > 1 ? { ...place, kind: "stretch", nodes } : { ...place, kind: "node", node: last });
    return row.slice(0, before).reduceRight((next, one, k) => ({ ...alone(one, depth + k), children: [next] }), end);
  };
  /** @type {(node: TreeNode, item: NodeItem | StretchItem) => TreeItem} the item with what follows its last node */
  const grown = (node, item) => {
    const next = item.depth + 1;
    /** @type {(child: TreeNode) => TreeItem} */
    const branch = (child) => build(child, next);
    const mine = children[node.index];
    const taken = mine.filter((child) => child.status === "accepted");
    const lost = mine.filter((child) => child.status !== "accepted");
    const parts = (/** @type {TreeNode} */ { index }) => Number(fresh[index]) + Number(told[index]);
    const rest = lost.toSorted((a, b) => parts(b) - parts(a));
    const count = rest.filter(parts).length; // these are not folded
    const shown = Math.min(most?.(node.index) ?? Infinity, fresh[0] ? Math.max(1, count) : Infinity);
    if (node.index === view.last && view.bonus !== OPEN)
      item.children.push({ ...unplaced(next), kind: "bonus", rank: -1 });
    item.children.push(...taken.map(branch));
    if (!rest.length) return item;
    const beside = `beside ${node.index}`;
    if (item.kind === "node" && deep(node)) {
      item.hidden = size(node) - 1;
    } else if (most !== null && rest.length > shown + 1 && !opened.has(beside)) {
      item.children.push(...rest.slice(0, shown).map(branch));
      item.children.push(chip(rest.slice(shown), next, beside, "more"));
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
      const last = chain(child);
      let next = (beside.get(one) || column) + 1;
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

/** The height of a row of a tree so deep in so many pixels. */
/** @type {(depth: number, high: number) => number} */
export const rowHeight = (depth, high) => clamp(Math.floor((high - 2 * MARGIN) / (depth + 1)), LOW, TALL);

/** Gives every item, its width known, its place; ``hangs``: whether prompt tokens hang below the nodes. What has no
 * room beside the path goes on below, as far as the height has it; ``closed``, the same tree before anything was
 * opened: what was opened goes on below whatever the height, and nothing above it moves. */
/** @type {(placed: TreeItem[], columns: number, hangs: boolean, high: number, room?: number, closed?: Laid) => Laid} */
export function position(placed, columns, hangs, high, room = Infinity, closed = undefined) {
  /** @type {number[]} */
  const widths = Array(columns).fill(0);
  /** A fold that nothing stands beside is as wide as its text. @param {TreeItem} item */
  const loose = (item) => item.kind === "stretch" && columns === 1;
  for (const item of placed) if (!loose(item)) widths[item.column] = Math.max(widths[item.column], item.width);
  const lefts = [MARGIN + (hangs ? DISTANCES : 0)];
  widths.forEach((width, column) => (lefts[column + 1] = lefts[column] + width + GAP));
  for (const item of placed) item.x = lefts[item.column];
  const trunk = placed.filter(({ column }) => !column);
  const deep = trunk.reduce((depth, item) => Math.max(depth, item.depth), 0) + 1;
  const line = hangs ? NODE + HUNG + 8 : LINE;
  const lines = closed ? Infinity : Math.max(0, Math.floor((high - 2 * MARGIN) / line) - deep);
  const grown = placed.some(({ column, children }) => column && children.length);
  // each has its column, and depth runs across
  const apart = grown && (hangs || (!closed && lefts[columns] <= room));
  const widest = placed.map(({ width }) => width);
  let added = apart ? [] : flow(trunk, lefts[1], room, lines);
  if (added.some(Boolean)) { // a wire runs down beside these lines
    placed.forEach((item, k) => (item.width = widest[k]));
    added = flow(trunk, lefts[1] + GAP, room, lines);
  }
  const deepest = placed.reduce((most, item) => Math.max(most, item.row), 0);
  const extra = added.reduce((sum, count) => sum + count, 0);
  const fitted = rowHeight(deepest, closed ? high : high - extra * line);
  const row = hangs ? line : Math.min(fitted, closed?.row ?? TALL);
  const node = Math.min(NODE, extra ? line - CLEAR[0] : NODE, row - clamp(row - SNUG, CLEAR[0], CLEAR[1]));
  for (const item of placed) {
    const above = added.slice(0, item.row).reduce((sum, count) => sum + count, item.level);
    item.y = MARGIN + item.row * row + above * line;
    item.high = hangs ? NODE : node;
    if (!item.column && !loose(item)) item.width = widths[0];
  }
  const right = placed.reduce((most, item) => Math.max(most, item.x + item.width), 0);
  const height = 2 * MARGIN + deepest * row + extra * line + (hangs ? NODE + HUNG : node);
  return { placed, row, width: right + MARGIN, height };
}

/** Bars of the target's probability beside a chain's tokens: the paths of the whole and of how much of it, and the
 * width with them; null: they have no room, or it is no chain. */
/** @type {(placed: TreeItem[], room: number) => { paths: [whole: string, part: string], width: number } | null} */
export function chainBars(placed, room) {
  const alone = placed.filter(({ kind }) => kind !== "stretch"); // one that stands for several has no probability
  const left = 2 * GAP + Math.max(...alone.map(({ x, width }) => x + width));
  const wide = Math.min(WIDEST_BAR, room - left - MARGIN);
  if (!(wide >= LEAST_BAR) || placed.some(({ column }) => column)) return null;
  /** @type {[string, string]} */
  const paths = ["", ""];
  for (const { depth, prob, y, high } of alone) {
    if (!depth || prob === null) continue;
    const top = y + (high - BAR) / 2;
    [1, prob].forEach((share, k) => (paths[k] += `M${left} ${top}h${share * wide}v${BAR}H${left}z`));
  }
  return paths[0] ? { paths, width: left + wide + MARGIN } : null;
}

/** The widths of columns in which items that need several lines stand one below the other, in at most so many lines
 * more, all of the room taken; null: they stand as text runs. */
/** @type {(items: TreeItem[], room: number, lines: number) => number[] | null} */
function inColumns(items, room, lines) {
  const whole = items.reduce((sum, { width }) => sum + width + GAP, -GAP);
  if (whole <= room || items.some(({ children }) => children.length)) return null;
  for (let count = items.length - 1; count > 1 && Math.ceil(items.length / count) <= lines + 1; count--) {
    /** @type {number[]} */
    const widths = Array(count).fill(0);
    items.forEach(({ width }, k) => (widths[k % count] = Math.max(widths[k % count], width)));
    const left = room - widths.reduce((sum, width) => sum + width + GAP, -GAP);
    if (left >= -SLACK * count) return widths.map((width) => width + Math.floor(left / count));
  }
  return null;
}

/** Sets what stands beside a path as text runs: where a line is longer than the room it goes on in the next, in at most
 * so many more. What hangs on an item lies in lines of its own right below it. Returns how many lines each row of
 * the path has more. */
/** @type {(trunk: TreeItem[], left: number, room: number, lines: number) => number[]} */
function flow(trunk, left, room, lines) {
  /** @type {number[]} */
  const added = [];
  /** Lays items from a line on. Returns the last line. */
  /** @type {(items: TreeItem[], row: number, from: number, level: number) => number} */
  const lay = (items, row, from, level) => {
    const widths = inColumns(items, room - MARGIN - from, lines);
    if (widths) items.forEach((item, k) => item.kind === "chip" || (item.width = widths[k % widths.length]));
    let x = from;
    let taken = false; // the line, by what hangs on another
    for (const item of items) {
      if (taken || (x > from && x + item.width + MARGIN > room && lines)) {
        x = from;
        taken = false;
        level++;
        lines--;
      }
      Object.assign(item, { x, row, level });
      x += item.width + GAP;
      if (!item.children.length) continue;
      level = lay(item.children, row, from + INDENT, level + 1);
      taken = true;
    }
    return level;
  };
  for (const one of trunk.toSorted((a, b) => a.depth - b.depth)) {
    const beside = one.children.filter(({ column }) => column);
    added[one.depth + 1] = beside.length ? lay(beside, one.depth + 1, left, 0) : 0;
  }
  return Array.from(added, (count) => count ?? 0);
}
