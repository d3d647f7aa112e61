/* What the page knows. */

/** The address's parameters as the page was opened. */
export const params = new URLSearchParams(location.search);

export const app = {
  inspector: null,
  current: "", // the run that is asked for
  shown: "", // the run that is drawn
  drawn: 0, // ms from the navigation to the first view
  tab: params.get("tab") || "inspect",
  feeds: new Map(), // run → its live events
  promptOf: new Map(), // run → its prompt's key
  mine: new Set(), // runs of this page that go on
  ended: new Set(),
  runs: [],
  room: null,
  rules: null,
  model: { state: "loading", text: "" },
  caution: { reason: "", lossy: "" }, // beside the run button
  session: async () => "", // the open page's name for the server
  pages: {}, // by name, what a page that was opened knows
};
