/* What the server says of itself and its model: asked every few seconds, and at once where another tab says so. */

import { emit } from "specviz/base/bus.js";
import { SILENT, getJson } from "specviz/base/json.js";
import { app } from "specviz/shell/state.js";

/** Until it is asked again: while a model loads, while the page is looked at, while it is not, while nobody answers. */
const LOADING_MS = 700, SEEN_MS = 5000, HIDDEN_MS = 15000, SILENT_MS = 3000;

const tabs = new BroadcastChannel("specviz-status"); // this browser's, of this server
let timer = 0;
let newest = 0;
let misses = 0;

/** Asks now. */
export async function ask() {
  clearTimeout(timer);
  const ticket = ++newest;
  let wait = document.hidden ? HIDDEN_MS : SEEN_MS;
  /** @type {Status | null} */
  let status = null;
  try {
    status = await getJson("api/status");
    if (ticket !== newest) return;
    const { model, rules, picks } = /** @type {Status} */ (status);
    const changed = !app.rules || model.state !== app.model.state || model.number !== app.model.number;
    misses = 0;
    Object.assign(app, { model, rules, picks });
    if (model.state === "loading" || model.coming) wait = LOADING_MS;
    if (changed) emit("model", model);
  } catch (problem) {
    if (ticket !== newest) return;
    const out = problem instanceof Error && "status" in problem && problem.status === 401;
    if (out) app.model = { ...app.model, state: "out", text: problem.message };
    else if (++misses > 1) app.model = { ...app.model, state: "gone", text: SILENT };
    wait = SILENT_MS;
  }
  emit("status", status);
  timer = setTimeout(ask, wait);
}

/** Asks now, in this tab and in this browser's others: the model was chosen here. */
export function askAll() {
  tabs.postMessage("");
  return ask();
}

/** Asks from now on. */
export function watch() {
  tabs.onmessage = ask;
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) ask();
  });
  ask();
}
