/* Page "Trees": a size is picked, and its numbers and charts. */

import { h, plural } from "specviz/base/dom.js";
import { plotly } from "specviz/base/plotly.js";
import { address, budget, fixed, number, page, part, point } from "specviz/trees/state.js";
import { drawStates } from "specviz/trees/states.js";

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
export function pick(m, size) {
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

export async function drawCharts() {
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
