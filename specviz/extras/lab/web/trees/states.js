/* Trees of prompt tokens: the trees of every state, drawn. */

import { closest, h, level, must, s } from "specviz/base/dom.js";
import { set } from "specviz/base/drawing.js";
import { nth, plural, probability } from "specviz/base/numbers.js";
import { number, point } from "specviz/trees/state.js";

const BOX = { width: 112, height: 34, gap: 30, row: 42, margin: 8 };

export const states = h("div.svt-states.ui-tiles");
/** What the node under the hand is. */
export const told = h("p.svt-told");
export const sum = h("p.svt-sum");
for (const name of ["pointerover", "focusin"]) states.addEventListener(name, tell);
for (const name of ["pointerleave", "focusout"]) states.addEventListener(name, () => tell());

/** @type {WeakMap<Element, PlacedNode>} */
const nodeOf = new WeakMap();

/** Nodes with their places, parents before children; a first child stays in its row. @param {TreeState} state */
function arranged(state) {
  /** @type {Map<string, PlacedNode>} */
  const byPath = new Map();
  [[], ...state.paths].forEach((path, k) => {
    const parent = k ? must(byPath.get(path.slice(0, -1).join())) : null;
    /** @type {PlacedNode} */
    const node = {
      path,
      p: k ? state.p[k - 1] : 1,
      stop: state.stop[k],
      prompts: state.prompts[k],
      depth: path.length,
      parent,
      children: [],
      row: 0,
      x: 0,
      y: 0,
      group: null,
      words: "",
    };
    byPath.set(path.join(), node);
    parent?.children.push(node);
  });
  const nodes = [...byPath.values()];
  let rows = 0;
  const place = (/** @type {PlacedNode} */ node) => {
    node.children.sort((a, b) => b.p - a.p);
    node.row = rows;
    node.x = BOX.margin + node.depth * (BOX.width + BOX.gap);
    node.y = BOX.margin + rows * BOX.row;
    node.children.forEach((child, k) => {
      if (k) rows++;
      place(child);
    });
  };
  place(nodes[0]);
  return { nodes, rows: rows + 1, depth: Math.max(...nodes.map((node) => node.depth)) };
}

/** What a node is and what its numbers mean, in a sentence or two. @param {PlacedNode} node */
function words(node) {
  const hangs = `${plural(node.prompts, "prompt token")} on it: state ${node.prompts} follows.`;
  const stops = probability(node.stop);
  if (!node.depth) return `The root: nothing of the tree is accepted with probability ${stops}; ${hangs}`;
  const names = node.path.map((rank) => nth(rank + 1)).join(", then ");
  return (
    `${names} guess${node.depth > 1 ? ` (distance ${node.depth})` : ""}: accepted with ` +
    `p ${probability(node.p)}; acceptance ends here with ${stops}; ${hangs}`
  );
}

/** A path of as many diamonds. @param {number} count @param {number} x @param {number} y */
export function diamonds(count, x, y) {
  const shown = count > 4 ? 1 : count;
  let d = "";
  for (let k = 0; k < shown; k++) d += `M${x + 9 * k + 4} ${y}l4 4-4 4-4-4z`;
  return d;
}

/** As many children as needed. @type {(parent: Element, count: number, make: () => Element) => HTMLCollection} */
function fit(parent, count, make) {
  while (parent.childElementCount > count) parent.lastElementChild?.remove();
  while (parent.childElementCount < count) parent.append(make());
  return parent.children;
}

function box() {
  const { width, height } = BOX;
  return s(
    "g",
    { role: "img" },
    s("rect.svt-box", { width, height, rx: 6 }),
    s("rect.svt-p", { x: 1, y: height - 5, height: 4 }),
    s("rect.svt-stop", { x: 1, y: height - 5, height: 4 }),
    s("text.svt-rank", { x: 7, y: 15 }),
    s("text.svt-number", { x: 37, y: 15 }),
    s("text.svt-small", { x: 7, y: 26 }),
    s("path.svt-hung"),
    s("text.svt-next", { x: width - 6, y: 26 }),
  );
}

/** @param {Element} group @param {PlacedNode} node */
function drawNode(group, node) {
  const wide = (/** @type {number} */ value) => Math.max(value > 0 ? 1 : 0, (BOX.width - 2) * value).toFixed(1);
  const [, p, stop, rank, chance, ends, hung, next] = group.children;
  node.group = group;
  node.words = words(node);
  nodeOf.set(group, node);
  set(group, {
    class: `svt-node${node.depth ? "" : " svt-root"}`,
    transform: `translate(${node.x} ${node.y})`,
    tabindex: node.depth ? -1 : 0,
    "aria-label": node.words,
  });
  set(p, { width: wide(node.p) });
  set(stop, { width: wide(node.stop) });
  set(rank, { text: node.depth ? `#${node.path[node.depth - 1] + 1}` : "root" });
  set(chance, { text: node.depth ? probability(node.p) : "" });
  set(ends, { text: `ends ${probability(node.stop)}` });
  set(hung, { d: diamonds(node.prompts, BOX.width - 45, 6) });
  set(next, { text: `${node.prompts > 4 ? `×${node.prompts} ` : ""}→${node.prompts}` });
}

/** @param {Element} svg @param {TreeState} state @param {number} k */
function drawTree(svg, state, k) {
  const { nodes, rows, depth } = arranged(state);
  const { width, height, gap, row, margin } = BOX;
  const size = { width: 2 * margin + (depth + 1) * width + depth * gap, height: margin + rows * row };
  set(svg, {
    ...size,
    viewBox: `0 0 ${size.width} ${size.height}`,
    "aria-label": `Tree of state ${k}: ${plural(nodes.length - 1, "candidate")}`,
  });
  const [lines, boxes] = svg.children;
  const edges = fit(lines, nodes.length - 1, () => s("path.svt-edge"));
  const groups = fit(boxes, nodes.length, box);
  nodes.forEach((node, n) => {
    drawNode(groups[n], node);
    if (!node.parent) return;
    const from = node.parent,
      x = from.x + width,
      y = from.y + height / 2,
      to = node.y + height / 2,
      turn = x + gap / 2;
    const d =
      node.row === from.row
        ? `M${x} ${y}H${node.x}`
        : `M${turn} ${y}V${to - 6}Q${turn} ${to} ${turn + 6} ${to}H${node.x}`;
    set(edges[n - 1], { d, "stroke-width": (1 + 4 * node.p).toFixed(2) });
  });
}

/** Says what a node is, or nothing. @param {Event} [event] */
function tell(event) {
  const group = event && closest(event, ".svt-node");
  told.textContent = (group && nodeOf.get(group)?.words) ?? "";
}

/** Right and left: along a path; up and down: all nodes. @param {KeyboardEvent & {currentTarget: Element}} event */
function walk(event) {
  const group = closest(event, ".svt-node");
  const node = group && nodeOf.get(group);
  if (!node) return;
  const all = [...event.currentTarget.querySelectorAll(".svt-node")];
  const at = all.indexOf(group);
  /** @type {Record<string, Element | null | undefined>} */
  const next = {
    ArrowRight: node.children[0]?.group,
    ArrowLeft: node.parent?.group,
    ArrowDown: all[at + 1],
    ArrowUp: all[at - 1],
    Home: all[0],
    End: all[all.length - 1],
  };
  const to = next[event.key];
  if (!(to instanceof SVGElement)) return;
  event.preventDefault();
  for (const one of all) set(one, { tabindex: one === to ? 0 : -1 });
  to.focus();
}

/** The trees of every state at the size shown. */
export function drawStates() {
  const p = point.value;
  const cards = fit(states, p.states.length, () =>
    h(
      "section.svt-state",
      h("header"),
      h("div.svt-tree", { onkeydown: walk }, s("svg", { role: "group" }, s("g"), s("g"))),
    ),
  );
  p.states.forEach((state, k) => {
    const candidates = state.paths.length;
    const [head, body] = cards[k].children;
    cards[k].setAttribute("aria-label", `State ${k}`);
    head.replaceChildren(
      h("h3", `State ${k}`),
      h(
        "span.ui-check",
        { title: "π: the share of steps in this state in the long run" },
        h("i.ui-bar.svt-pi-bar", { "aria-hidden": "true" }, level(state.pi)),
        "π ",
        h("b", number(state.pi)),
      ),
      h(
        "span",
        { title: "f: candidates accepted in one step, on average" },
        "f ",
        h("b", candidates ? number(state.f) : "0"),
      ),
      h(
        "span",
        [plural(candidates, "candidate"), plural(state.prompt_tokens, "prompt token"), plural(state.rows, "row")].join(
          ", ",
        ),
      ),
    );
    drawTree(body.children[0], state, k);
  });
  tell();
  const products = p.states.map((state) => `${number(state.pi)}·${number(state.f)}`).join(" + ");
  sum.replaceChildren(
    "R = Σ π·f = ",
    products,
    " = ",
    h("b", number(p.R)),
    " accepted per step;  τ = 1 + R = ",
    h("b", number(p.tokens_per_step)),
    " tokens per step",
  );
}
