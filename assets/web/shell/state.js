/* What the page knows. */

import "specviz/shell/moved.js";

/** The address's parameters as the page was opened. */
export const params = new URLSearchParams(location.search);

/** @type {App} */
export const app = {
  inspector: null,
  current: "",
  coming: "",
  shown: "",
  drawn: 0,
  attributed: "",
  tab: params.get("tab") || "inspect",
  feeds: new Map(),
  promptOf: new Map(),
  held: "",
  early: Boolean(params.get("trace")),
  mine: new Set(),
  ended: new Set(),
  runs: [],
  room: null,
  rules: null,
  model: { state: "loading", text: "", number: 0, coming: null },
  picks: false,
  session: async () => "",
  pages: {},
  shares: [],
  runViews: [],
  runSearch: null,
  entries: async () => {},
  figureOfRuns: () => "",
};
