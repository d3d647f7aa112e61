/* Acceptance of runs: what is known, and what its views share. */

import { h, must } from "specviz/base/dom.js";
import { mean, percentage } from "specviz/base/numbers.js";
import { charts, layout as common } from "specviz/base/plotly.js";

export const page = {
  /** @type {HTMLElement} */
  box: h("div"),
  /** @type {AcceptanceAnswer | null} */
  data: null,
  /** The name of a ``RunView``. */
  view: "definitions",
  /** @type {AcceptanceSet[]} */
  sets: [],
  /** Who has more accepted. */
  sentence: "",
  /** Which confidence is worth more. */
  calibration: "",
  /** The runs that are counted. @type {string[]} */
  ids: [],
  /** Servers' files that are counted beside them. @type {SentFile[]} */
  files: [],
  /** "cached": split by the server's cached tokens of the prompt. @type {"" | "cached"} */
  by: "",
  /** Runs of given answers that were left out. */
  forced: 0,
  /** Titles of the methods that the charts draw, each in its slot; "": free. @type {string[]} */
  charted: [],
  asked: 0,
  /** How often a view was drawn: an answer for an earlier drawing is not wanted any more. */
  drawn: 0,
};

/** One sentence on the view that is open. */
export const headline = h("p.svc-outcome", { role: "status" });

/** A column's name; its meaning is in its tooltip, and below the table. */
/** @type {(name: string, words?: string) => Child} */
export const term = (name, words) => (words ? h("abbr.svd-term", { title: words }, name) : name);

/** The meanings of columns, below their table. @param {Record<string, string>} words */
export const meanings = (words) =>
  h("dl.svd-meanings", Object.entries(words).map(([name, text]) => h("div", h("dt", name), h("dd", text))));

/** Whether the drawing that begins now is still the one that is looked at, as it is asked later. */
export function drawing() {
  const mine = page.drawn;
  return () => mine === page.drawn && page.box.isConnected;
}

/** The server's answer, once it is there. */
export const data = () => must(page.data, "answer yet");

/** A value of a definition as people read it. @param {number | null | undefined} value @param {string} unit */
export const shown = (value, unit) =>
  value === null || value === undefined ? "–" : unit === "share" ? percentage(value) : mean(value);

/** Draws charts into a grid, unless other runs are counted by then. */
/** @type {(grid: HTMLElement, make: () => Chart[]) => void} */
export function drawCharts(grid, make) {
  const { asked } = page;
  charts(grid, data().plotly, () => (asked === page.asked && grid.isConnected ? make() : null));
}

/** The layout of the page's charts. @type {typeof common} */
export const layout = (title, x, y, { xaxis, yaxis, ...more } = {}) =>
  common(title, x, y, {
    showlegend: false,
    ...more,
    xaxis: { automargin: true, ...xaxis },
    yaxis: { automargin: true, rangemode: "tozero", ...yaxis },
  });
