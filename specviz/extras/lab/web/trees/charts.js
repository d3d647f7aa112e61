/* Trees of prompt tokens: the charts of all sizes. */

import { h } from "specviz/base/dom.js";
import { charts, layout } from "specviz/base/plotly.js";
import { budget, data, point, shown } from "specviz/trees/state.js";

/** Where the charts stand. */
export const grid = h("div.svt-charts.ui-tiles");

const [BLUE, VERMILLION, GREEN, GREY] = ["#0072B2", "#D55E00", "#009E73", "#8A8A8A"];

/** A series of a chart. @type {(name: string, x: number[], y: (number | null)[], look: object) => object} */
const series = (name, x, y, look) => ({ name, x, y, mode: "lines", hoverinfo: "skip", ...look });

/** What is drawn: titles, units, plotly's traces. */
function drawings() {
  const { points, best } = budget.value;
  const { latency } = data();
  const now = point.value;
  const x = points.map((p) => p.size);
  /** @type {(name: string, key: TreeCurve, color: string, dash: string, symbol: string) => object} */
  const line = (name, key, color, dash, symbol) =>
    series(
      name,
      x,
      points.map((p) => p[key]),
      {
        mode: "lines+markers",
        line: { color, dash, width: 2 },
        marker: { size: 6, symbol },
        hoverinfo: "all",
        hovertemplate: `%{x} rows: %{y:.3f}<extra>${name}</extra>`,
      },
    );
  /** The best size and the one that is shown. @param {TreeCurve} key */
  const marks = (key) => {
    const chosen = points
      .filter((one) => one.size === best)
      .map((one) =>
        series(`best: ${best}`, [one.size], [one[key]], {
          mode: "markers",
          marker: { size: 13, symbol: "star", color: VERMILLION },
          hoverinfo: "all",
          hovertemplate: `best size: %{x} rows, %{y:.3f}<extra></extra>`,
        }),
      );
    const marker = { size: 15, symbol: "circle-open", color: "#B8860B", line: { width: 3 } };
    return [
      ...chosen,
      series("shown", [now.size], [now[key]], { mode: "markers", marker, showlegend: now[key] !== null }),
    ];
  };
  const tau = [
    line("designed", "tokens_per_step", BLUE, "solid", "circle"),
    line("naive", "naive", GREEN, "dash", "square"),
    line("random", "random", GREY, "dot", "diamond"),
    ...marks("tokens_per_step"),
  ];
  const always = [{ key: "tau", title: "Tokens per step τ(n)", unit: "tokens per step", data: tau }];
  if (!latency) return always;
  const { rows, low, high } = latency;
  const steps = [
    series("quartiles", [...rows, ...rows.toReversed()], [...high, ...low.toReversed()], {
      fill: "toself",
      mode: "none",
      fillcolor: "rgba(0,114,178,.18)",
    }),
    series("median", rows, latency.median, {
      mode: "lines+markers",
      line: { color: BLUE, width: 2 },
      marker: { size: 6 },
      hoverinfo: "all",
      hovertemplate: "%{x} rows: %{y:.3f} ms<extra></extra>",
    }),
    ...marks("ms"),
  ];
  const speedup = [
    line("designed", "speedup", BLUE, "solid", "circle"),
    series("plain decoding", [x[0], x[x.length - 1]], [1, 1], { line: { color: GREY, dash: "dot", width: 1.5 } }),
    ...marks("speedup"),
  ];
  return [
    ...always,
    { key: "latency", title: "One decode step L(n)", unit: "milliseconds", data: steps },
    { key: "speedup", title: "Predicted speedup τ(n) · L(1) ÷ L(n)", unit: "× plain decoding", data: speedup },
  ];
}

/** Draws the charts, or says why it cannot; a click picks a size. @param {(m: number, size: number) => void} pick */
export const drawCharts = (pick) => charts(grid, data().plotly, dressed, ([first]) => pick(shown.value.m, first.x));

const dressed = () =>
  drawings().map(({ key, title, unit, data }) => ({
    key,
    label: `${title}; the same numbers are in the tables of this page`,
    data,
    layout: layout(title, "rows n of the tree", unit, {
      margin: { l: 56, r: 14, t: 44, b: 74 },
      yaxis: { rangemode: key === "latency" ? "tozero" : "normal" },
      legend: { orientation: "h", y: -0.28, x: 0 },
    }),
  }));
