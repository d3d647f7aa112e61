/* The layout of a step's draft tree: what is drawn of it, in which row, at which place. */

import { OPEN } from "specviz/base/model.js";
import { lanes } from "specviz/inspect/drafting.js";

export const NODE = 38;
const ROW = 48;
export const GAP = 20;
export const MARGIN = 10;
const HUNG_ROW = 62; // of nodes with their prompt tokens below them
const DISTANCES = 17; // above such a tree: how far ahead a column's tokens were guessed
const LEAF = 24; // an expansion that was not accepted is smaller
const LEAF_ROW = 30;
const FOLD_OVER = 40; // nodes
const FEW = 3; // a subtree up to this size is not worth a chip
const SIBLINGS = 5; // rejected siblings shown before the rest is folded

/** The items to draw: nodes, the target's own token, and chips that stand for folded nodes. */
export function items(view, opened) {
  const children = view.nodes.map(() => []);
  for (const node of view.nodes) if (node.parent >= 0) children[node.parent].push(node);
  const fold = view.nodes.length > FOLD_OVER;
  const wide = !!lanes(view); // a main chain straight on, its expansions in a lane below it
  const size = (node) => 1 + children[node.index].reduce((sum, child) => sum + size(child), 0);
  const chip = (nodes, depth, key, what) => {
    const count = nodes.reduce((sum, node) => sum + size(node), 0);
    return { kind: "chip", count, depth, key, what, children: [] };
  };
  const deep = (node) => node.status === "rejected" || node.status === "unreached";
  const small = (node) => wide && node.origin === "expansion" && node.status !== "accepted";
  const build = (node) => {
    const item = { kind: "node", node, depth: node.depth, children: [], small: small(node) };
    const mine = children[node.index];
    const taken = mine.filter((child) => child.status === "accepted");
    const rest = mine.filter((child) => child.status !== "accepted");
    const main = wide && rest.length && rest[0].origin !== "expansion" ? rest.splice(0, 1) : [];
    if (!deep(node)) item.children.push(...main.map(build));
    if (node.index === view.last && view.bonus !== OPEN)
      item.children.push({ kind: "bonus", depth: node.depth + 1, children: [] });
    item.children.push(...taken.map(build));
    if (deep(node)) rest.unshift(...main);
    if (!rest.length) return item;
    const below = `under ${node.index}`;
    const beside = `beside ${node.index}`;
    if (fold && deep(node) && size(node) > FEW && !opened.has(below)) {
      item.children.push(chip(rest, node.depth + 1, below, "never checked"));
    } else if (fold && rest.length > SIBLINGS + 1 && !opened.has(beside)) {
      item.children.push(...rest.slice(0, SIBLINGS).map(build));
      item.children.push(chip(rest.slice(SIBLINGS), node.depth + 1, beside, "more"));
    } else {
      item.children.push(...rest.map(build));
    }
    return item;
  };
  return Object.assign(build(view.nodes[0]), { wide });
}

const stands = (item) => item.kind === "bonus" || (item.kind === "node" && item.node.status === "accepted");

/** Gives every item a row; subtrees share rows where they do not meet. Returns the items in drawing order. */
export function arrange(root) {
  const rows = [];
  const placed = [];
  const chain = (item) => {
    const line = [item];
    while (line[line.length - 1].children.length) line.push(line[line.length - 1].children[0]);
    return line;
  };
  const free = (row, from, to) => !(rows[row] || []).some(([a, b]) => from <= b && to >= a);
  const crosses = (row, depth) => (rows[row] || []).some(([a, b]) => a < depth && b >= depth);
  const place = (item, row) => {
    const line = chain(item);
    (rows[row] = rows[row] || []).push([item.depth, line[line.length - 1].depth]);
    for (const one of line) {
      one.row = row;
      placed.push(one);
    }
    const below = new Map(); // item → the row its last child was given
    const taken = new Set();
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
      if (root.wide && told) for (const shared of taken) rows[shared].push([0, Infinity]); // for no leaves
    }
  };
  place(root, 0);
  return { placed, rows: rows.length };
}

/** Gives every item, its width known, its place; ``hangs``: whether prompt tokens hang below the nodes. */
export function position(placed, rows, hangs) {
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
