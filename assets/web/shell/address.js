/* The address: trace, step, pins, tab. */

import { app, params } from "specviz/shell/state.js";

let addressTimer = 0;
/** Writes it, a moment after the last change. */
export function address() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => history.replaceState(history.state, "", link()), 150);
}

/** The address of what is shown. */
export function link() {
  const url = new URL(location.href);
  const put = (key, value) =>
    value === null || value === "" || value === undefined
      ? url.searchParams.delete(key)
      : url.searchParams.set(key, value);
  put("trace", app.current);
  if (app.inspector && app.shown === app.current) {
    const state = app.inspector.state();
    put("step", String((state.step || 0) + 1));
    put("pins", state.pins.join(","));
  }
  put("tab", app.tab === "inspect" ? null : app.tab);
  return url.href;
}

/** The step and the pins that the page was opened with. */
export function fromAddress() {
  const step = Number.parseInt(params.get("step") || "", 10);
  const pins = (params.get("pins") || "").split(",").filter(Boolean).map(Number);
  return { step: Number.isFinite(step) && step > 0 ? step - 1 : undefined, pins };
}
