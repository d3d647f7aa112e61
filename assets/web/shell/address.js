/* The address: trace, step, pins, tab. */

import { rested } from "specviz/base/dom.js";
import { app, params } from "specviz/shell/state.js";

/** @param {URL} url @param {Record<string, string | null>} values null and "" remove a parameter */
function put(url, values) {
  for (const [key, value] of Object.entries(values)) {
    if (value) url.searchParams.set(key, value);
    else url.searchParams.delete(key);
  }
  return url;
}

/** Changes parameters of the address now; null removes one. @param {Record<string, string | null>} values */
export const setAddress = (values) => history.replaceState(history.state, "", put(new URL(location.href), values));

/** Writes it, a moment after the last change. */
export const address = rested(() => history.replaceState(history.state, "", link()), 150);

/** The address of what is shown. */
export function link() {
  const seen = app.shown === app.current ? app.inspector?.state() : null;
  const place = seen && { step: String((seen.step || 0) + 1), pins: seen.pins.join(",") };
  const tab = app.tab === "inspect" ? null : app.tab;
  return put(new URL(location.href), { trace: app.current, ...place, tab }).href;
}

/** The step and the pins that the page was opened with. */
export function fromAddress() {
  const step = Number.parseInt(params.get("step") || "", 10);
  const pins = (params.get("pins") || "").split(",").filter(Boolean).map(Number);
  return { step: Number.isFinite(step) && step > 0 ? step - 1 : undefined, pins };
}
