/* Acceptance of runs, calibration: what methods are confident of, and how often they are right. */

import { h, heads, scrolled, table } from "specviz/base/dom.js";
import { format, percentage, short } from "specviz/base/numbers.js";
import { COLORS } from "specviz/base/plotly.js";
import { drawCharts, headline, layout, meanings, page, term } from "specviz/acceptance/state.js";

/** @param {Calibration} one @param {string} title @returns {Chart} */
function diagram(one, title) {
  const most = Math.max(...one.bins.map((bin) => bin.count));
  const color = COLORS[0];
  const [label] = one.label.split(" = ");
  const shares = {
    type: "bar",
    name: "correct",
    x: one.bins.map((bin) => (bin.low + bin.high) / 2),
    y: one.bins.map((bin) => bin.right),
    width: one.bins.map((bin) => 0.92 * (bin.high - bin.low)),
    text: one.bins.map((bin) => `${bin.count.toLocaleString("en")} predicted, ${format(bin.told)} on average`),
    textposition: "none",
    marker: { color, opacity: one.bins.map((bin) => 0.35 + (0.65 * bin.count) / most) },
    hovertemplate: "%{text}: %{y:.0%} correct<extra></extra>",
  };
  const honest = {
    name: "as predicted",
    x: [0, 1],
    y: [0, 1],
    mode: "lines",
    line: { color: "#8A8A8A", dash: "dot" },
    hoverinfo: "skip",
  };
  return {
    label: `${title}, ${one.label}: the share that was correct by confidence; the same numbers are in the table`,
    data: one.probability ? [shares, honest] : [shares],
    layout: layout(`${short(title)} · ${label}`.replace(/</g, "&lt;"), label, "correct", {
      height: 280,
      xaxis: { range: [one.bins[0].low < 0 ? one.low : 0, one.high] },
      yaxis: { range: [0, 1.02], tickformat: ".0%" },
    }),
  };
}

/** @param {HTMLElement} place */
export function drawCalibration(place) {
  const all = page.sets.flatMap((set) => set.calibration.map((one) => ({ ...one, title: set.title })));
  if (!all.length)
    return place.replaceChildren(
      h(
        "p.svd-lead",
        "None of these runs recorded a confidence that says how often a token is accepted. Draft models and heads " +
          "(where their drafts are not drawn), PPD, LogitSpec, SuffixDecoding and REST give probabilities; PLD+ and " +
          "AdaPLD give cosines.",
      ),
    );
  headline.textContent = page.calibration;
  /** @param {number | null} value */
  const cell = (value) => h("td.svp-num", value === null ? "–" : value.toFixed(3));
  const rows = all.map((one) =>
    h(
      "tr",
      h("th", { scope: "row" }, h("b", one.title)),
      h("td", { title: one.help }, one.label),
      h("td", one.outcome),
      h("td.svp-num", format(one.count)),
      h("td.svp-num", percentage(one.rate)),
      cell(one.ece),
      cell(one.brier),
      cell(one.auroc),
    ),
  );
  const columns = all.length % 3 === 1 ? 4 : 3; // no picture alone in its row
  const grid = h("div.svd-charts.ui-tiles", { style: columns === 4 && all.length > 1 && "--ui-tile: 290px" });
  const names = ["predicted", "correct", "ECE", "Brier", "AUROC"];
  place.replaceChildren(
    scrolled(
      "Calibration",
      table(
        { class: "svd-table" },
        heads(["method", "confidence", "correct where"], names.map((name) => term(name, MEANINGS[name]))),
        rows,
      ),
    ),
    grid,
    meanings(MEANINGS),
  );
  drawCharts(grid, () => all.map((one) => diagram(one, one.title)));
}

/** @type {Record<string, string>} */
const MEANINGS = {
  predicted: "Drafted tokens with this confidence. Left out: drawn drafts, which are accepted with min(1, p ÷ q); " +
    "what stands behind a stop token; of a drafter's confidence, all but its first choices.",
  ECE: "Σ bins (predicted ÷ all) · |correct − mean confidence|, 10 bins; 0 is best. Of probabilities alone.",
  Brier: "mean (confidence − outcome)²; 0 is best. Of probabilities alone: a cosine is none.",
  AUROC: "The chance that a correct token had more confidence than a wrong one: 1 is best, 0.5 says nothing.",
  bars: "Darker: more tokens of that confidence. Dotted: correct as often as predicted.",
};
