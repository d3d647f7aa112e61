/* Charts: plotly.js, as the Python package ships it. */

import { h } from "specviz/base/dom.js";

/** @type {Promise<PlotlyLibrary> | null} */
let loading = null;

/** plotly.js, which this server has at `url`: loaded when a chart is first drawn. @param {string} url */
export function plotly(url) {
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

/** @type {WeakMap<Element, Plot[]>} */
const plotsOf = new WeakMap();

/**
 * Draws charts into a grid, a card each; those that are there are used again. All are there before one is drawn, so
 * that each is drawn as wide as it stays.
 *
 * @param {PlotlyLibrary} library
 * @param {HTMLElement} grid
 * @param {Chart[]} charts
 * @param {(points: PlotPoint[]) => void} [clicked]
 */
export function drawCharts(library, grid, charts, clicked) {
  const plots = plotsOf.get(grid) ?? [];
  plotsOf.set(grid, plots);
  while (plots.length < charts.length) {
    /** @type {Plot} */
    const plot = h("div.svp-plot", { role: "img" });
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
  charts.forEach(({ key = "", label, data, layout, config, kind = "" }, n) => {
    const plot = plots[n];
    const drawn = Boolean(plot.data);
    plot.setAttribute("aria-label", label);
    plot.dataset.chart = key;
    if (plot.parentElement) plot.parentElement.className = `svp-chart ${kind}`;
    library.react(plot, data, layout, config);
    if (!drawn && clicked) plot.on?.("plotly_click", (event) => clicked(event.points));
  });
}

/** Takes all charts out of a grid. @param {HTMLElement} grid */
export function clearCharts(grid) {
  for (const plot of plotsOf.get(grid) ?? []) window.Plotly?.purge(plot);
  plotsOf.delete(grid);
  grid.replaceChildren();
}
