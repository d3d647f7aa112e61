/* Trees of prompt tokens: a size is picked, and its numbers and charts. */

import { fact, rested } from "specviz/base/dom.js";
import { plural } from "specviz/base/numbers.js";
import { charts, layout } from "specviz/base/plotly.js";
import { address, budget, data, number, page, parts, point, times } from "specviz/trees/state.js";
import { drawStates } from "specviz/trees/states.js";

function drawNumbers() {
  const { R, tokens_per_step, candidates, prompts, ms, speedup } = point();
  const { best, points } = budget();
  const rows = "time of one decode step of so many rows on this machine: drafting, the verify forward, the decision";
  parts.numbers.replaceChildren(
    fact("tokens per step τ", number(tokens_per_step), "1 + R: accepted candidates and the target's own token"),
    fact("accepted R", number(R), "Σ π·f over the states"),
    fact("candidates", String(candidates), `of the tree of state ${page.m}`),
    fact("prompt tokens", String(prompts), `of the tree of state ${page.m}`),
    fact("step L", ms === null ? "not measured" : `${number(ms)} ms`, rows),
    fact("predicted speedup", times(speedup), "τ(n) · L(1) ÷ L(n), against plain decoding"),
  );
  parts.best.disabled = best === null || best === page.size;
  parts.best.textContent =
    best === null
      ? "Best size: measure this machine first"
      : best === page.size
        ? `${best} rows: the best size for this machine`
        : `Go to the best size for this machine: ${best} rows`;
  const used = data().in_use;
  const gains = best === null || (points.find(({ size }) => size === best)?.speedup ?? 0) > 1;
  parts.use.textContent =
    (gains ? "" : "With this acceptance, on this machine, no size is faster than plain decoding. ") +
    (used ? `Runs of PPD use trees of ${used.rows} rows (${number(used.tokens_per_step)} tokens per step).` : "");
}

/** @type {(slider: (typeof parts)["m"], most: number, value: number, words: string) => void} */
function setSlider({ input, output }, most, value, words) {
  input.max = String(most);
  input.value = String(value);
  input.setAttribute("aria-valuetext", words);
  output.textContent = words;
}

function drawSliders() {
  const { points } = budget();
  const place = points.findIndex(({ size }) => size === page.size);
  setSlider(parts.size, points.length - 1, place, plural(page.size, "row"));
  setSlider(parts.m, data().m, page.m, plural(page.m, "prompt token"));
  parts.m.input.disabled = data().m < 2;
}

/** Another size or budget: trees and numbers at once, charts a bit later. @type {(m: number, size: number) => void} */
export function pick(m, size) {
  page.m = m;
  const sizes = budget().points.map((p) => p.size);
  page.size = sizes.reduce((near, one) => (Math.abs(one - size) < Math.abs(near - size) ? one : near));
  drawSliders();
  drawNumbers();
  drawStates();
  for (const row of parts.sizes.querySelectorAll("tbody tr"))
    row.classList.toggle("svp-now", row.getAttribute("data-size") === String(page.size));
  settle();
}

const settle = rested(() => {
  address();
  drawCharts();
}, 120);

const [BLUE, VERMILLION, GREEN, GREY] = ["#0072B2", "#D55E00", "#009E73", "#8A8A8A"];

/** A series of a chart. @type {(name: string, x: number[], y: (number | null)[], look: object) => object} */
const series = (name, x, y, look) => ({ name, x, y, mode: "lines", hoverinfo: "skip", ...look });

/** What is drawn: titles, units, plotly's traces. */
function drawings() {
  const { points, best } = budget();
  const { latency } = data();
  const now = point();
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

/** Draws the charts, or says why it cannot. */
export const drawCharts = () => charts(parts.charts, data().plotly, dressed, ([first]) => pick(page.m, first.x));

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
