/* Charts: plotly.js, as the Python package ships it. */

import { h, must } from "specviz/base/dom.js";

/** @type {Promise<PlotlyLibrary> | null} */
let plotlyLoading = null;

/** plotly.js, which this server has at ``url``: loaded when a chart is first drawn. @param {string} url */
export function plotly(url) {
  plotlyLoading ??= new Promise((done, failed) => {
    if (window.Plotly) return done(window.Plotly);
    const script = h("script", { src: url });
    script.onload = () => done(must(window.Plotly, "chart library"));
    script.onerror = () => {
      plotlyLoading = null;
      failed(new Error("The charts' script could not be loaded: is the server still running?"));
    };
    document.head.append(script);
  });
  return plotlyLoading;
}
