/* Charts: plotly.js, as the Python package ships it. */

import { h, readColors } from "specviz/base/dom.js";
import { alertNote } from "specviz/base/json.js";

/** As many as can be told apart in one chart: no colour is used twice. */
export const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9", "#8A8A8A", "#7A4FBF"];
export const DASHES = ["solid", "dash", "dashdot", "longdash", "longdashdot", "solid", "dash", "dot"];
export const SYMBOLS = ["circle", "square", "diamond", "cross", "x", "triangle-up", "star", "pentagon"];

/** The look of the ``n``-th line of a chart: no two are alike in colour, dash and marks. Methods of a comparison are */
/** 0, 1, … in the order of its lanes, plain decoding is -1 (the last look). @param {number} n */
export const lineLook = (n, color = COLORS.at(n % COLORS.length)) => ({
  mode: "lines+markers",
  cliponaxis: false, // marks at 0 % and 100 % are whole
  line: { color, dash: DASHES.at(n % DASHES.length), width: 2 },
  marker: { color, symbol: SYMBOLS.at(n % SYMBOLS.length), size: 7 },
});

/** A distribution as stems with a mark each, the ``n``-th of ``of`` that stand beside each other. */
/** @type {(shares: [value: number, share: number][], n: number, of: number, look: object) => object} */
export const stems = (shares, n, of, look) => ({
  ...look,
  mode: "markers",
  x: shares.map(([value]) => value + (n - (of - 1) / 2) * Math.min(0.24, 0.8 / of)),
  y: shares.map(([, share]) => share),
  error_y: { type: "percent", symmetric: false, value: 0, valueminus: 100, width: 0, thickness: 2 },
  customdata: shares.map(([value]) => value),
  hovertemplate: "%{customdata} accepted: %{y:.0%} of the steps with a draft",
});

/** A chart without buttons. */
const STILL = { displaylogo: false, displayModeBar: false, responsive: false };

/** @type {Promise<PlotlyLibrary> | null} */
let loading = null;

/** plotly.js, which this server has at `url`: loaded when a chart is first drawn. @param {string} url */
function plotly(url) {
  loading ??= new Promise((done, failed) => {
    const fail = () => {
      loading = null;
      failed(new Error("The charts' script could not be loaded: is the server still running?"));
    };
    const ready = () => (window.Plotly ? done(window.Plotly) : fail());
    if (window.Plotly) return ready();
    document.head.append(h("script", { src: url, onload: ready, onerror: fail }));
  });
  return loading;
}

/** A card as high as its chart will be. @param {Chart} chart */
function space({ layout }) {
  const { height = 300 } = /** @type {{ height?: number }} */ (layout);
  return h("figure.svp-chart", { style: `box-sizing: content-box; height: ${height}px` });
}

/** Told what was clicked. @typedef {(points: PlotPoint[]) => void} Clicked */

// ``make`` gives the charts when the library is there; null: they are no longer wanted
/** Draws charts into a grid once the library at ``url`` is there, or says in it why they cannot be. */
/** @type {(grid: HTMLElement, url: string, make: () => Chart[] | null, clicked?: Clicked) => Promise<void>} */
export async function charts(grid, url, make, clicked) {
  let library;
  if (!window.Plotly) grid.replaceChildren(...(make() ?? []).map(space)); // what is below them stays where it is
  try {
    library = await plotly(url);
  } catch (problem) {
    clearCharts(grid);
    return grid.replaceChildren(alertNote(problem));
  }
  const wanted = make();
  if (!wanted) return;
  if (!plotsOf.has(grid)) grid.replaceChildren(); // a note of before
  drawCharts(library, grid, wanted, clicked);
}

/** The page's colours, and what its charts share: a template of what their layouts leave open. */
export function theme() {
  const { ink, faint: soft, card: bgcolor, line: bordercolor } = readColors(document.body);
  const axis = { gridcolor: "rgba(128,128,128,.25)", zeroline: false, title: { standoff: 6 } };
  const hoverlabel = { bgcolor, bordercolor, font: { color: ink, size: 12.5 } };
  const layout = {
    title: { font: { size: 14 }, x: 0.02, xanchor: "left" },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: ink },
    xaxis: { ...axis, ticks: "outside", ticklen: 6, tickcolor: "rgba(0,0,0,0)" }, // its labels clear of marks at 0
    yaxis: axis,
    hoverlabel,
  };
  return { ink, soft, hoverlabel, template: { layout } };
}

/** A chart's layout in the page's colours: its title, what its axes say, and what else it needs of Plotly. */
/** @type {(title: string, x: string, y: string, more?: ChartLayout) => object} */
export const layout = (title, x, y, { xaxis, yaxis, ...more } = {}) => ({
  template: theme().template,
  title: { text: title },
  height: 300,
  margin: { l: 56, r: 14, t: 44, b: 50 },
  ...more,
  xaxis: { title: { text: x }, ...xaxis },
  yaxis: { title: { text: y }, ...yaxis },
});

/** Calls ``draw`` whenever light turns dark, or back. @param {() => unknown} draw */
export const onTheme = (draw) =>
  new MutationObserver(() => draw()).observe(document.body, { attributeFilter: ["class"] });

/** @type {WeakMap<Element, Plot[]>} */
const plotsOf = new WeakMap();

// all cards are there before one is drawn, so that each is drawn as wide as it stays
/** Draws charts into a grid, a card each; those that are there are used again. */
/** @type {(library: PlotlyLibrary, grid: HTMLElement, charts: Chart[], clicked?: Clicked) => void} */
function drawCharts(library, grid, charts, clicked) {
  const plots = plotsOf.get(grid) ?? [];
  plotsOf.set(grid, plots);
  while (plots.length < charts.length) {
    /** @type {Plot} */
    const plot = h("div.svp-plot", { role: "group" });
    grid.append(h("figure.svp-chart", plot));
    new ResizeObserver(() => {
      if (plot.data && plot.offsetWidth) library.Plots.resize(plot);
    }).observe(plot);
    plots.push(plot);
  }
  for (const plot of plots.splice(charts.length)) {
    library.purge(plot);
    plot.parentElement?.remove();
  }
  charts.forEach(({ key = "", label, data, layout, config = STILL, kind = "" }, n) => {
    const plot = plots[n];
    const drawn = Boolean(plot.data);
    plot.setAttribute("aria-label", label);
    plot.dataset.chart = key;
    if (plot.parentElement) plot.parentElement.className = `svp-chart ${kind}`;
    // what is not rendered (content-visibility) cannot be measured: first drawn, then left out while out of sight
    const figure = plot.parentElement;
    figure?.removeAttribute("data-drawn");
    library.react(plot, data, layout, config).then(() => figure?.setAttribute("data-drawn", ""));
    if (!drawn && clicked) plot.on?.("plotly_click", (event) => clicked(event.points));
  });
}

/** Takes all charts out of a grid. @param {HTMLElement} grid */
export function clearCharts(grid) {
  for (const plot of plotsOf.get(grid) ?? []) window.Plotly?.purge(plot);
  plotsOf.delete(grid);
  grid.replaceChildren();
}
