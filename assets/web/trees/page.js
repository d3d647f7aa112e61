/* Page "Trees": PPD's trees of every state by size and prompt budget, their worth on this machine. Text nodes only. */

import { on } from "specviz/base/bus.js";
import { h, plural } from "specviz/base/dom.js";
import { getJson } from "specviz/base/http.js";
import { plotly } from "specviz/base/plotly.js";
import { app } from "specviz/shell/state.js";

const POLL_MS = 700;
const BOX = { width: 112, height: 34, gap: 30, row: 42, margin: 8 };
const page = { box: null, data: null, m: 0, size: 0, timer: 0, charts: 0, asked: false };

const number = (value, digits = 3) =>
  value === null || value === undefined ? "–" : String(Number(value.toPrecision(digits)));
const fixed = (value, digits) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const share = (value) =>
  value >= 0.9995 ? "1.0" : value > 0 && value < 0.0005 ? "<.001" : value.toFixed(3).replace(/^0/, "");
const nth = (n) => `${n}${n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] || "th"}`;
const budget = () => page.data.budgets[page.m];
const point = () => budget().points.find((p) => p.size === page.size);
const part = (name) => page.box.querySelector(`.svt-${name}`);

function s(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A sentence whose commands stand between backticks, as nodes. */
const coded = (text) => text.split("`").map((piece, k) => (k % 2 ? h("code", {}, piece) : piece));

function address() {
  const url = new URL(location.href);
  if (page.size && app.tab === "trees") url.searchParams.set("trees", `${page.m}x${page.size}`);
  history.replaceState(history.state, "", url);
}

// --- one state's tree ---

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
function told(node, state) {
  const hangs = `${plural(node.prompts, "prompt token")} on it: state ${node.prompts} follows.`;
  if (!node.depth) return `The root: nothing of the tree is accepted with probability ${share(node.stop)}; ${hangs}`;
  const names = node.path.map((rank) => nth(rank + 1)).join(", then ");
  return (
    `${names} guess${node.depth > 1 ? ` (distance ${node.depth})` : ""}: accepted with ` +
    `p ${share(node.p)}; acceptance ends here with ${share(node.stop)}; ${hangs}`
  );
}

function diamonds(count, x, y) {
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

function drawStates() {
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

function say(text) {
  part("told").textContent = text;
}

// --- sizes ---

function drawNumbers() {
  const p = point(),
    b = budget();
  const fact = (name, value, title) => h("div", { title }, h("dt", {}, name), h("dd", {}, value));
  part("numbers").replaceChildren(
    fact("tokens per step τ", number(p.tokens_per_step), "1 + R: accepted candidates and the target's own token"),
    fact("accepted R", number(p.R), "Σ π·f over the states"),
    fact("candidates", String(p.candidates), `of the tree of state ${page.m}`),
    fact("prompt tokens", String(p.prompts), `of the tree of state ${page.m}`),
    fact(
      "step L",
      p.ms === null ? "not measured" : `${number(p.ms)} ms`,
      "time of one decode step of so many rows on this machine: drafting, the verify forward, the decision",
    ),
    fact(
      "predicted speedup",
      p.speedup === null ? "–" : `${fixed(p.speedup, 2)}×`,
      "τ(n) · L(1) ÷ L(n), against plain decoding",
    ),
  );
  const best = part("best");
  const use = page.data.in_use;
  best.disabled = b.best === null || b.best === page.size;
  best.textContent =
    b.best === null
      ? "Best size: measure this machine first"
      : b.best === page.size
        ? `${b.best} rows: the best size for this machine`
        : `Go to the best size for this machine: ${b.best} rows`;
  const worth =
    b.best === null
      ? ""
      : b.points.find((one) => one.size === b.best).speedup > 1
        ? ""
        : "With this acceptance, on this machine, no size is faster than plain decoding. ";
  part("use").textContent =
    worth + (use ? `Runs of PPD use trees of ${use.rows} rows (${number(use.tokens_per_step)} tokens per step).` : "");
}

function drawSliders() {
  const { points } = budget();
  const size = part("size"),
    m = part("m");
  size.max = points.length - 1;
  size.value = points.findIndex((p) => p.size === page.size);
  size.setAttribute("aria-valuetext", `${page.size} rows`);
  part("size-now").textContent = plural(page.size, "row");
  m.max = page.data.m;
  m.value = page.m;
  m.disabled = page.data.m < 2;
  m.setAttribute("aria-valuetext", plural(page.m, "prompt token"));
  part("m-now").textContent = plural(page.m, "prompt token");
}

/** Another size or budget: trees and numbers at once, the charts' mark a moment later. */
function pick(m, size) {
  page.m = m;
  const sizes = budget().points.map((p) => p.size);
  page.size = sizes.reduce((near, one) => (Math.abs(one - size) < Math.abs(near - size) ? one : near));
  drawSliders();
  drawNumbers();
  drawStates();
  for (const row of part("sizes").querySelectorAll("tbody tr"))
    row.classList.toggle("svp-now", Number(row.dataset.size) === page.size);
  clearTimeout(page.charts);
  page.charts = setTimeout(() => {
    address();
    drawCharts();
  }, 120);
}

function drawSizes() {
  const b = budget();
  const heads = [
    "size",
    "candidates",
    "prompt tokens",
    "R",
    "τ designed",
    "τ naive",
    "τ random",
    "L ms",
    "τ ÷ L",
    "speedup",
  ];
  const digits = Math.max(...b.points.map((p) => p.ms || 0)) < 10 ? 2 : 1;
  const rows = b.points.map((p) => {
    const perMs = p.tokens_per_ms === null ? "–" : p.tokens_per_ms.toPrecision(3);
    const cells = [
      String(p.candidates),
      String(p.prompts),
      fixed(p.R, 3),
      fixed(p.tokens_per_step, 3),
      fixed(p.naive, 3),
      fixed(p.random, 3),
      fixed(p.ms, digits),
      perMs,
      p.speedup === null ? "–" : `${fixed(p.speedup, 2)}×`,
    ];
    const go = h(
      "button",
      {
        type: "button",
        class: "svp-link",
        "aria-label": `Show the trees of ${p.size} rows`,
        onclick: () => pick(page.m, p.size),
      },
      String(p.size),
    );
    return h(
      "tr",
      { "data-size": p.size, class: p.size === page.size ? "svp-now" : null },
      h("td", {}, go, p.size === b.best ? h("small", {}, " best") : null),
      cells.map((text) => h("td", { class: "svp-num" }, text)),
    );
  });
  part("sizes").replaceChildren(
    h(
      "table",
      { class: "svp-grid svt-grid" },
      h("caption", {}, `Sizes for ${plural(page.m, "prompt token")}`),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((text, k) => h("th", { scope: "col", class: k ? "svp-num" : null }, text)),
        ),
      ),
      h("tbody", {}, rows),
    ),
  );
}

// --- acceptance and latency ---

function drawAcceptance() {
  const { acceptance, source, measured } = page.data;
  const ranks = acceptance[0].length;
  const sum = (row, count) => row.slice(0, count).reduce((a, b) => a + b, 0);
  const most = Math.max(...acceptance.flat());
  const heads = ["distance", ...Array.from({ length: ranks }, (_, k) => `#${k + 1}`), "top 5", `top ${ranks}`];
  const cell = (value) => h("td", { class: "svp-num", style: `--svt-heat:${(value / most).toFixed(3)}` }, share(value));
  part("acceptance").replaceChildren(
    h("h3", {}, "How often a guess holds"),
    h(
      "p",
      { class: `svt-source${measured ? "" : " svt-assumed"}` },
      h("b", {}, measured ? "Measured" : "Assumed"),
      coded(source.replace(/^(measured|assumed)/, "")),
    ),
    h(
      "div",
      { class: "svl-scroll" },
      h(
        "table",
        { class: "svp-grid svt-grid svt-heats" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            heads.map((text, k) => h("th", { scope: "col", class: k ? "svp-num" : null }, text)),
          ),
        ),
        h(
          "tbody",
          {},
          acceptance.map((row, d) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, String(d + 1)),
              row.map(cell),
              h("td", { class: "svp-num" }, share(sum(row, 5))),
              h("td", { class: "svp-num" }, share(sum(row, ranks))),
            ),
          ),
        ),
      ),
    ),
  );
}

function drawMachine() {
  const { latency, measuring, failed, reason } = page.data;
  const told = [];
  if (latency) {
    const { setup } = latency;
    const threads = setup.threads ? `, ${plural(setup.threads, "thread")}` : "";
    told.push(
      h("p", {}, `${latency.model} · ${setup.dtype} · ${setup.device}${threads} · torch ${setup.torch}`),
      h(
        "p",
        { class: "svt-soft" },
        `${plural(latency.rows.length, "size")} from 1 to ` +
          `${latency.rows[latency.rows.length - 1]} rows, ` +
          `${plural(latency.rounds, "step")} each, behind ${latency.context.toLocaleString()} tokens of context.`,
      ),
    );
    if (latency.note)
      told.push(h("p", { class: "svt-disturbed", role: "status" }, h("b", {}, "Disturbed: "), latency.note, "."));
  } else if (!reason)
    told.push(h("p", {}, "Decode steps were not measured on this machine yet, so no size can be chosen for it."));
  if (failed) told.push(h("p", { class: "svp-note svp-error", role: "alert" }, failed));
  const go = h(
    "button",
    { type: "button", class: "svp-button svt-measure", disabled: Boolean(measuring || reason), onclick: measure },
    latency ? "Measure again" : "Measure now",
  );
  const waits = measuring && !measuring.done;
  const progress = measuring
    ? h(
        "span",
        { class: "svt-progress" },
        h("progress", { max: measuring.total, value: measuring.done, "aria-label": "Measuring" }),
        h(
          "span",
          { role: "status" },
          waits
            ? "Waiting for its turn; runs go first."
            : `Measuring: ${measuring.done} of ${measuring.total} rounds at most`,
        ),
      )
    : null;
  const had = document.activeElement?.classList.contains("svt-measure");
  part("machine").replaceChildren(
    h("h3", {}, "This machine: L(n)"),
    ...told,
    h("div", { class: "svt-row" }, go, progress || ""),
  );
  if (had) go.focus();
  if (measuring) {
    clearTimeout(page.timer);
    page.timer = setTimeout(watch, POLL_MS);
  }
}

async function measure() {
  try {
    const answer = await getJson(
      "",
      fetch("api/trees/measure", { method: "POST", headers: { "content-type": "application/json" }, body: "{}" }),
    );
    Object.assign(page.data, answer);
  } catch (problem) {
    page.data.failed = problem.message;
  }
  drawMachine();
}

async function watch() {
  try {
    const answer = await getJson("api/trees/latency");
    Object.assign(page.data, answer);
    if (answer.measuring) drawMachine();
    else await load();
  } catch (problem) {
    Object.assign(page.data, { measuring: null, failed: problem.message });
    drawMachine();
  }
}

// --- charts ---

const BLUE = "#0072B2",
  VERMILLION = "#D55E00",
  GREEN = "#009E73",
  GREY = "#8A8A8A";

function charts() {
  const { points, best } = budget(),
    { latency } = page.data,
    now = point();
  const x = points.map((p) => p.size);
  const line = (name, key, color, dash, symbol) => ({
    name,
    x,
    y: points.map((p) => p[key]),
    mode: "lines+markers",
    line: { color, dash, width: 2 },
    marker: { size: 6, symbol },
    hovertemplate: `%{x} rows: %{y:.3f}<extra>${name}</extra>`,
  });
  const mark = (key) => ({
    name: "shown",
    x: [now.size],
    y: [now[key]],
    mode: "markers",
    marker: { size: 15, symbol: "circle-open", color: "#B8860B", line: { width: 3 } },
    hoverinfo: "skip",
    showlegend: now[key] !== null,
  });
  const star = (key) => {
    const p = points.find((one) => one.size === best);
    return p
      ? [
          {
            name: `best: ${best}`,
            x: [best],
            y: [p[key]],
            mode: "markers",
            marker: { size: 13, symbol: "star", color: VERMILLION },
            hovertemplate: `best size: %{x} rows, %{y:.3f}<extra></extra>`,
          },
        ]
      : [];
  };
  const found = [
    {
      key: "tau",
      title: "Tokens per step τ(n)",
      unit: "tokens per step",
      data: [
        line("designed", "tokens_per_step", BLUE, "solid", "circle"),
        line("naive", "naive", GREEN, "dash", "square"),
        line("random", "random", GREY, "dot", "diamond"),
        ...star("tokens_per_step"),
        mark("tokens_per_step"),
      ],
    },
  ];
  if (!latency) return found;
  const band = {
    x: [...latency.rows, ...[...latency.rows].reverse()],
    y: [...latency.high, ...[...latency.low].reverse()],
    fill: "toself",
    mode: "none",
    fillcolor: "rgba(0,114,178,.18)",
    name: "quartiles",
    hoverinfo: "skip",
  };
  const median = {
    name: "median",
    x: latency.rows,
    y: latency.median,
    mode: "lines+markers",
    line: { color: BLUE, width: 2 },
    marker: { size: 6 },
    hovertemplate: "%{x} rows: %{y:.3f} ms<extra></extra>",
  };
  return [
    ...found,
    {
      key: "latency",
      title: "One decode step L(n)",
      unit: "milliseconds",
      data: [band, median, ...star("ms"), mark("ms")],
    },
    {
      key: "speedup",
      title: "Predicted speedup τ(n) · L(1) ÷ L(n)",
      unit: "× plain decoding",
      data: [
        line("designed", "speedup", BLUE, "solid", "circle"),
        {
          x: [x[0], x[x.length - 1]],
          y: [1, 1],
          mode: "lines",
          line: { color: GREY, dash: "dot", width: 1.5 },
          name: "plain decoding",
          hoverinfo: "skip",
        },
        ...star("speedup"),
        mark("speedup"),
      ],
    },
  ];
}

async function drawCharts() {
  const wanted = charts();
  const grid = part("charts");
  let Plotly;
  try {
    Plotly = await plotly(page.data.plotly);
  } catch (problem) {
    grid.replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
    return;
  }
  const style = getComputedStyle(document.body),
    color = (name) => style.getPropertyValue(`--svp-${name}`).trim();
  while (grid.children.length < wanted.length) {
    const plot = h("div", { class: "svl-plot", role: "img" });
    grid.append(h("figure", { class: "svl-card" }, plot));
    new ResizeObserver(() => {
      if (plot.data && plot.offsetWidth) Plotly.Plots.resize(plot);
    }).observe(plot);
  }
  while (grid.children.length > wanted.length) {
    Plotly.purge(grid.lastChild.firstChild);
    grid.lastChild.remove();
  }
  wanted.forEach((chart, n) => {
    const plot = grid.children[n].firstChild;
    plot.setAttribute("aria-label", `${chart.title}; the same numbers are in the tables of this page`);
    plot.dataset.chart = chart.key;
    const axis = { gridcolor: "rgba(128,128,128,.25)", zeroline: false };
    const layout = {
      title: { text: chart.title, font: { size: 14 }, x: 0.02, xanchor: "left" },
      height: 300,
      margin: { l: 56, r: 14, t: 44, b: 74 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: color("ink") },
      xaxis: { ...axis, title: { text: "rows n of the tree", standoff: 6 } },
      yaxis: { ...axis, title: { text: chart.unit }, rangemode: chart.key === "latency" ? "tozero" : "normal" },
      legend: { orientation: "h", y: -0.28, x: 0 },
      hoverlabel: { bgcolor: color("face"), bordercolor: color("line"), font: { color: color("ink"), size: 12.5 } },
    };
    Plotly.react(plot, chart.data, layout, { displaylogo: false, displayModeBar: false, responsive: false });
    if (plot.dataset.told) return;
    plot.dataset.told = "yes";
    plot.on("plotly_click", (event) => pick(page.m, event.points[0].x));
  });
}

// --- the page ---

function frame() {
  const slider = (name, label, help) =>
    h(
      "div",
      { class: "svt-slider" },
      h("label", { for: `svt-${name}` }, label),
      h("output", { class: `svt-${name}-now`, for: `svt-${name}` }),
      h("input", {
        type: "range",
        class: `svt-${name}`,
        id: `svt-${name}`,
        min: name === "m" ? 1 : 0,
        step: 1,
        "aria-describedby": `svt-${name}-help`,
      }),
      h("small", { id: `svt-${name}-help` }, help),
    );
  const mini = (...inside) =>
    s("svg", { class: "svt-mini", width: 30, height: 14, viewBox: "0 0 30 14", "aria-hidden": "true" }, ...inside);
  page.box.replaceChildren(
    h(
      "section",
      { class: "svt-setup" },
      h("p", { class: "svt-cite" }, "Parallel prompt decoding (PPD)"),
      h("h2", {}, "Trees for prompt tokens"),
      h(
        "p",
        { class: "svt-question" },
        "Each row of a verify forward is a guess to check, or a prompt token that makes " +
          "guesses for the next step. Which split of how many rows pays on this machine?",
      ),
      h("div", { class: "svt-notes" }),
      h(
        "div",
        { class: "svt-sliders" },
        slider("size", "Size", "Rows of a verify forward at most: root, candidates and prompt tokens."),
        slider("m", "Prompt tokens m", "On a node at most: how far ahead its guesses reach."),
      ),
      h("dl", { class: "svt-numbers" }),
      h(
        "div",
        { class: "svt-row" },
        h("button", { type: "button", class: "svp-button svt-best", onclick: () => pick(page.m, budget().best) }),
        h("span", { class: "svt-use" }),
      ),
    ),
    h(
      "section",
      { "aria-label": "Trees of each state" },
      h(
        "div",
        { class: "svt-key" },
        h("b", {}, "A tree per state"),
        h(
          "span",
          {},
          "the state is the number of prompt tokens that the last accepted node had; columns: how far ahead",
        ),
        h("span", {}, h("b", {}, "#1 .350"), " first guess, and the chance that the path to it is accepted"),
        h("span", {}, "ends: that acceptance ends there"),
        h("span", {}, mini(s("path", { class: "svt-hung", d: diamonds(3, 1, 3) })), "prompt tokens on it, "),
        h("span", {}, "→3: the state that follows"),
        h("span", {}, "Hover a node, or walk with the arrow keys, to read it in words."),
      ),
      h("div", { class: "svt-states" }),
      h("p", { class: "svt-told" }),
      h("p", { class: "svt-sum" }),
    ),
    h("div", { class: "svt-charts" }),
    h(
      "div",
      { class: "svt-pair" },
      h("section", { class: "svt-card svt-acceptance" }),
      h("section", { class: "svt-card svt-machine" }),
    ),
    h("div", { class: "svl-scroll svt-sizes" }),
  );
  part("size").addEventListener("input", (event) => pick(page.m, budget().points[Number(event.target.value)].size));
  part("m").addEventListener("input", (event) => {
    pick(Number(event.target.value), page.size);
    drawSizes();
  });
  const states = part("states");
  const tell = (event) => {
    const group = event.target.closest(".svt-node");
    say(group ? group.svtLabel : "");
  };
  states.addEventListener("pointerover", tell);
  states.addEventListener("focusin", tell);
  for (const name of ["pointerleave", "focusout"]) states.addEventListener(name, () => say(""));
}

function drawNotes() {
  const { reason, missing, problem, trained, measured } = page.data;
  const notes = [];
  if (problem) notes.push(h("p", { class: "svp-note svp-error", role: "alert" }, coded(problem)));
  if (reason)
    notes.push(h("p", { class: "svt-note" }, coded(reason), " The trees below are for an assumed acceptance."));
  if (missing)
    notes.push(h("p", { class: "svt-note" }, coded(missing), " The trees below are for an assumed acceptance."));
  if (trained && !measured && !problem)
    notes.push(
      h(
        "p",
        { class: "svt-note" },
        coded(
          "The acceptance of these prompt tokens was not measured: `specviz " +
            "tree design` does. The trees below are for an assumed one.",
        ),
      ),
    );
  part("notes").replaceChildren(...notes);
}

async function load() {
  try {
    page.data = await getJson("api/trees");
  } catch (problem) {
    page.box.replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
    return;
  }
  if (!part("states")) frame();
  drawNotes();
  drawAcceptance();
  drawMachine();
  const drawable = Object.keys(page.data.budgets).length > 0;
  page.box.classList.toggle("svt-undrawn", !drawable);
  if (!drawable) return;
  const [, m, size] = /^(\d+)x(\d+)$/.exec(new URLSearchParams(location.search).get("trees") || "") || [];
  const budgets = page.data.budgets;
  page.m = page.m in budgets ? page.m : Number(m) in budgets ? Number(m) : page.data.m;
  page.size ||= Number(size) || budget().chosen;
  pick(page.m, page.size);
  drawSizes();
  page.box.dataset.ready = `${page.m}x${page.size}`;
}

export function mount({ element }) {
  app.pages.trees = page;
  page.box = element.querySelector(".svp-trees");
  page.box.replaceChildren(h("p", { class: "svp-empty" }, "Designing trees …"));
  // nothing is designed before the page is looked at
  const seen = new ResizeObserver(() => {
    if (!page.box.offsetWidth || page.asked) return;
    page.asked = true;
    load();
  });
  seen.observe(page.box);
  on("model", () => {
    if (page.asked) {
      page.size = 0;
      page.m = 0;
      load();
    }
  });
  new MutationObserver(() => {
    if (page.data && part("charts")?.children.length) drawCharts();
  }).observe(document.body, { attributeFilter: ["class"] });
}
