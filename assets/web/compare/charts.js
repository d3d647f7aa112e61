/* Page "Compare", the charts, drawn with Plotly once they are needed. */

import { h } from "specviz/base/dom.js";
import { plotly } from "specviz/base/plotly.js";
import { drawn, name, page, part } from "specviz/compare/state.js";

const DASHES = ["dot", "solid", "dash", "dashdot", "longdash", "longdashdot"];
const SHAPES = ["", "", "/", "x", ".", "-"];

function charts() {
  const lanes = drawn().filter((lane) => page.numbers[lane.id]);
  const label = (lane) => `${lane.mark} ${name(lane)}`;
  const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const methods = lanes.filter((lane) => lane.method !== "plain");
  const cumulative = lanes.map((lane) => ({
    x: [0, ...lane.lane.times.map((t) => t / 1000)],
    y: [0, ...lane.lane.ends],
    type: "scatter",
    mode: "lines",
    name: escape(label(lane)),
    line: { color: lane.color, dash: DASHES[lane.n], shape: "hv", width: 2 },
    hovertemplate: "%{y} tokens after %{x:.3f} s",
  }));
  const lengths = methods.map((lane) => {
    const all = page.numbers[lane.id].lengths,
      counts = [];
    for (const n of all) counts[n] = (counts[n] || 0) + 1;
    return {
      x: [...counts.keys()],
      y: Array.from(counts, (c) => (c || 0) / all.length),
      type: "bar",
      name: escape(label(lane)),
      marker: {
        color: lane.color,
        pattern: { shape: SHAPES[lane.n], fillmode: "overlay", fgcolor: page.colors.card, size: 5, solidity: 0.3 },
      },
      hovertemplate: "%{x} accepted: %{y:.0%} of the steps with a draft",
    };
  });
  const steps = methods.map((lane) => ({
    x: lane.lane.ends.map((_, k) => k + 1),
    y: [...lane.lane.trace.steps.accepted],
    type: "scatter",
    mode: "lines+markers",
    name: escape(label(lane)),
    marker: { color: lane.color, size: 4, symbol: lane.n },
    line: { color: lane.color, width: 1, dash: DASHES[lane.n], shape: "hvh" },
    hovertemplate: "forward %{x}: %{y} accepted",
  }));
  const parts = [
    ["prefill", "reading the prompt", page.colors.line],
    ["draft", "drafting", page.colors.heat],
    ["verify", "verify forwards", page.colors.accepted],
    ["commit", "keeping", page.colors.faint],
  ];
  const times = parts.map(([key, text, color], n) => ({
    y: lanes.map((lane) => escape(label(lane))),
    x: lanes.map((lane) => page.numbers[lane.id].times[key]),
    type: "bar",
    orientation: "h",
    name: text,
    marker: {
      color,
      pattern: { shape: ["", "/", "", "x"][n], fillmode: "overlay", fgcolor: page.colors.card, size: 5, solidity: 0.3 },
    },
    hovertemplate: "%{x:.1f} ms",
  }));
  return [
    { key: "cumulative", title: "Tokens written over time", x: "seconds of decoding", y: "tokens", data: cumulative },
    { key: "times", title: "Where the time went", x: "ms", y: "", data: times, stack: true },
    methods.length
      ? {
          key: "lengths",
          title: "Accepted per step with a draft",
          x: "accepted draft tokens",
          y: "share of the steps",
          data: lengths,
          percent: true,
        }
      : null,
    methods.length
      ? { key: "steps", title: "Accepted, step by step", x: "forward", y: "accepted draft tokens", data: steps }
      : null,
  ].filter(Boolean);
}

export async function drawCharts() {
  if (!Object.keys(page.numbers).length || !page.box.offsetWidth) return;
  const ticket = page.ticket,
    grid = part("charts");
  let Plotly;
  try {
    Plotly = await plotly(page.data.plotly);
  } catch (problem) {
    return grid.replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
  }
  if (ticket !== page.ticket) return;
  const wanted = charts();
  while (grid.children.length < wanted.length) {
    const plot = h("div", { class: "svc-plot", role: "img" });
    grid.append(h("figure", { class: "svc-card" }, plot));
    new ResizeObserver(() => {
      if (plot.data && plot.offsetWidth) Plotly.Plots.resize(plot);
    }).observe(plot);
  }
  while (grid.children.length > wanted.length) {
    Plotly.purge(grid.lastChild.firstChild);
    grid.lastChild.remove();
  }
  const { ink, card: face, line } = page.colors;
  wanted.forEach((chart, n) => {
    const plot = grid.children[n].firstChild;
    plot.dataset.chart = chart.key;
    plot.setAttribute("aria-label", `${chart.title}; its numbers are in the table and the race`);
    const axis = { gridcolor: "rgba(128,128,128,.25)", zeroline: false, automargin: true };
    Plotly.react(
      plot,
      chart.data,
      {
        title: { text: chart.title, font: { size: 14 }, x: 0.02, xanchor: "left" },
        height: 300,
        margin: { l: 52, r: 14, t: 44, b: 78 },
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: "system-ui, sans-serif", size: 12, color: ink },
        xaxis: { ...axis, title: { text: chart.x, standoff: 6 } },
        yaxis: {
          ...axis,
          title: { text: chart.y },
          autorange: chart.stack ? "reversed" : true,
          tickformat: chart.percent ? ".0%" : "",
        },
        barmode: chart.stack ? "stack" : "group",
        legend: { orientation: "h", y: -0.3, x: 0, traceorder: "normal" },
        hoverlabel: { bgcolor: face, bordercolor: line, font: { color: ink, size: 12.5 } },
      },
      { displaylogo: false, displayModeBar: false, responsive: false },
    );
  });
}
