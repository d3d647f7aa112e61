/* Charts: plotly.js, as the Python package ships it. */

import { h } from "specviz/base/dom.js";

let plotlyLoading = null;
/** plotly.js, which this server has at `url`: loaded when a chart is first drawn. */
export function plotly(url) {
  plotlyLoading ??= new Promise((done, failed) => {
    if (window.Plotly) return done(window.Plotly);
    const script = h("script", { src: url });
    script.onload = () => done(window.Plotly);
    script.onerror = () => {
      plotlyLoading = null;
      failed(new Error("The charts' script could not be loaded: is the server still running?"));
    };
    document.head.append(script);
  });
  return plotlyLoading;
}
