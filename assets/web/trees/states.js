/* Page "Trees": the trees of every state, drawn. */

import { h, plural, s } from "specviz/base/dom.js";
import { nth, number, part, point, say, share } from "specviz/trees/state.js";

const BOX = { width: 112, height: 34, gap: 30, row: 42, margin: 8 };

/** Nodes with their places, the root first, parents before children; a first child goes on in its parent's row. */
function arranged(state) {
  const nodes = [{ path: [], p: 1 }, ...state.paths.map((path, k) => ({ path, p: state.p[k] }))];
  const byPath = new Map();
  nodes.forEach((node, k) => {
    Object.assign(node, { stop: state.stop[k], prompts: state.prompts[k], depth: node.path.length, children: [] });
    byPath.set(node.path.join(), node);
  });
  for (const node of nodes.slice(1)) {
    node.parent = byPath.get(node.path.slice(0, -1).join());
    node.parent.children.push(node);
  }
  let rows = 0;
  const place = (node) => {
    node.children.sort((a, b) => b.p - a.p);
    node.row = rows;
    node.children.forEach((child, k) => {
      if (k) rows++;
      place(child);
    });
  };
  place(nodes[0]);
  return { nodes, rows: rows + 1, depth: Math.max(...nodes.map((node) => node.depth)) };
}

/** What a node is and what its numbers mean, in a sentence or two. */
export function told(node, state) {
  const hangs = `${plural(node.prompts, "prompt token")} on it: state ${node.prompts} follows.`;
  if (!node.depth) return `The root: nothing of the tree is accepted with probability ${share(node.stop)}; ${hangs}`;
  const names = node.path.map((rank) => nth(rank + 1)).join(", then ");
  return (
    `${names} guess${node.depth > 1 ? ` (distance ${node.depth})` : ""}: accepted with ` +
    `p ${share(node.p)}; acceptance ends here with ${share(node.stop)}; ${hangs}`
  );
}

export function diamonds(count, x, y) {
  const shown = count > 4 ? 1 : count;
  let d = "";
  for (let k = 0; k < shown; k++) d += `M${x + 9 * k + 4} ${y}l4 4-4 4-4-4z`;
  return d;
}

/** Sets what differs from the last time: what stays as it is costs nothing. */
function set(element, values) {
  const had = (element.svtHad ??= {});
  for (const [name, value] of Object.entries(values)) {
    if (had[name] === value) continue;
    had[name] = value;
    if (name === "text") element.textContent = value;
    else element.setAttribute(name, value);
  }
}

/** As many children as are needed; those that are there are used again. */
function fit(parent, count, make) {
  while (parent.childElementCount > count) parent.lastChild.remove();
  while (parent.childElementCount < count) parent.append(make());
  return parent.children;
}

function box() {
  const { width, height } = BOX;
  return s(
    "g",
    { role: "img" },
    s("rect", { class: "svt-box", width, height, rx: 6 }),
    s("rect", { class: "svt-p", x: 1, y: height - 5, height: 4 }),
    s("rect", { class: "svt-stop", x: 1, y: height - 5, height: 4 }),
    s("text", { class: "svt-rank", x: 7, y: 15 }),
    s("text", { class: "svt-number", x: 37, y: 15 }),
    s("text", { class: "svt-small", x: 7, y: 26 }),
    s("path", { class: "svt-hung" }),
    s("text", { class: "svt-next", x: width - 6, y: 26 }),
  );
}

function drawNode(group, node, k) {
  const label = told(node, k);
  const wide = (value) => Math.max(value > 0 ? 1 : 0, (BOX.width - 2) * value).toFixed(1);
  const [, p, stop, rank, number_, small, hung, next] = group.children;
  set(group, {
    class: `svt-node${node.depth ? "" : " svt-root"}`,
    transform: `translate(${node.x} ${node.y})`,
    tabindex: node.depth ? -1 : 0,
    "aria-label": label,
  });
  set(p, { width: wide(node.p) });
  set(stop, { width: wide(node.stop) });
  set(rank, { text: node.depth ? `#${node.path[node.depth - 1] + 1}` : "root" });
  set(number_, { text: node.depth ? share(node.p) : "" });
  set(small, { text: `ends ${share(node.stop)}` });
  set(hung, { d: diamonds(node.prompts, BOX.width - 45, 6) });
  set(next, { text: `${node.prompts > 4 ? `×${node.prompts} ` : ""}→${node.prompts}` });
  Object.assign(group, { svtNode: node, svtLabel: label });
  node.group = group;
}

function drawTree(svg, state, k) {
  const { nodes, rows, depth } = arranged(state);
  const { width, height, gap, row, margin } = BOX;
  for (const node of nodes) Object.assign(node, { x: margin + node.depth * (width + gap), y: margin + node.row * row });
  const size = { width: 2 * margin + (depth + 1) * width + depth * gap, height: margin + rows * row };
  set(svg, {
    ...size,
    viewBox: `0 0 ${size.width} ${size.height}`,
    "aria-label": `Tree of state ${k}: ${plural(nodes.length - 1, "candidate")}`,
  });
  const edges = fit(svg.firstChild, nodes.length - 1, () => s("path", { class: "svt-edge" }));
  const groups = fit(svg.lastChild, nodes.length, box);
  nodes.forEach((node, n) => {
    drawNode(groups[n], node, k);
    if (!n) return;
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

/** Arrows walk the tree: right and left along a path, up and down among all nodes. */
function walk(event) {
  const node = event.target.svtNode;
  if (!node) return;
  const all = [...event.currentTarget.querySelectorAll(".svt-node")].map((group) => group.svtNode);
  const at = all.indexOf(node);
  const to = {
    ArrowRight: node.children[0],
    ArrowLeft: node.parent,
    ArrowDown: all[at + 1],
    ArrowUp: all[at - 1],
    Home: all[0],
    End: all[all.length - 1],
  }[event.key];
  if (!to) return;
  event.preventDefault();
  for (const one of all) set(one.group, { tabindex: one === to ? 0 : -1 });
  to.group.focus();
}

export function drawStates() {
  const p = point();
  const cards = fit(part("states"), p.states.length, () =>
    h(
      "section",
      { class: "svt-state" },
      h("header", {}),
      h("div", { class: "svt-tree", onkeydown: walk }, s("svg", { role: "group" }, s("g", {}), s("g", {}))),
    ),
  );
  p.states.forEach((state, k) => {
    const candidates = state.paths.length;
    const [head, body] = cards[k].children;
    cards[k].setAttribute("aria-label", `State ${k}`);
    head.replaceChildren(
      h("h3", {}, `State ${k}`),
      h(
        "span",
        { class: "svt-pi", title: "π: the share of steps in this state in the long run" },
        h(
          "i",
          { class: "svt-pi-bar", "aria-hidden": "true" },
          h("b", { style: `width:${(100 * state.pi).toFixed(1)}%` }),
        ),
        "π ",
        h("b", {}, share(state.pi)),
      ),
      h(
        "span",
        { title: "f: candidates accepted in one step, on average" },
        "f ",
        h("b", {}, candidates ? number(state.f) : "0"),
      ),
      h(
        "span",
        {},
        `${plural(candidates, "candidate")}, ${plural(
          state.prompts.reduce((a, b) => a + b, 0),
          "prompt token",
        )}, ${plural(state.rows, "row")}`,
      ),
    );
    drawTree(body.firstChild, state, k);
  });
  say("");
  const sum = p.states.map((state) => `${share(state.pi)}·${number(state.f)}`).join(" + ");
  part("sum").replaceChildren(
    "R = Σ π·f = ",
    sum,
    " = ",
    h("b", {}, number(p.R)),
    " accepted per step;  τ = 1 + R = ",
    h("b", {}, number(p.tokens_per_step)),
    " tokens per step",
  );
}
