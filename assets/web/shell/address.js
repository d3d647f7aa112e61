/* The address: trace, step, pins, tab; another view is an entry of the browser's history, another step is none. */

import { on } from "specviz/base/bus.js";
import { rested } from "specviz/base/dom.js";
import { put } from "specviz/base/storage.js";
import { isGone } from "specviz/shell/runs.js";
import { app, params } from "specviz/shell/state.js";

/** The parameters that name a tab's view. @type {Record<string, string[]>} */
const VIEWS = {
  inspect: ["trace"],
  attribution: ["trace"],
  compare: ["lanes", "view", "runs", "acceptance"],
  lessons: ["lesson", "at"],
};
/** Where one of these is missing, the page says which it has opened: that is no other view. */
const FILLED = ["trace", "at"];

/** An annex's page says which parameter names its view. @param {string} tab @param {string} parameter */
export function addView(tab, parameter) {
  VIEWS[tab] = [parameter];
}

/** Whether two addresses show different views. @type {(before: URLSearchParams, after: URLSearchParams) => boolean} */
export function otherView(before, after) {
  const tab = after.get("tab") || "inspect";
  if (tab !== (before.get("tab") || "inspect")) return true;
  return ["library", ...(VIEWS[tab] ?? [])].some((key) => {
    const [old, now] = [before.get(key) || "", after.get(key) || ""];
    return old !== now && !(FILLED.includes(key) && (!old || !now));
  });
}

/** @param {URL} url */
function write(url) {
  if (otherView(new URLSearchParams(location.search), url.searchParams)) history.pushState(null, "", url);
  else history.replaceState(history.state, "", url);
}

/** Changes parameters of the address now; null removes one. @param {Record<string, string | null>} values */
export const setAddress = (values) => write(put(new URL(location.href), values));

/** Writes it, a moment after the last change; the run that is being opened does so when it is there. */
export const address = rested(() => app.coming || write(new URL(link())), 150);

// a page that is loaded again asks for the run that its address names: one that was deleted is not named any more
on("runs", () => (isGone(app.current) ? write(new URL(link())) : address()));

/** The address of what is shown. */
export function link() {
  const gone = isGone(app.current);
  const seen = !gone && app.shown === app.current ? app.inspector?.state() : null;
  const place = seen && { step: String((seen.step || 0) + 1), pins: seen.pins.join(",") };
  const tab = app.tab === "inspect" ? null : app.tab;
  const run = gone ? { trace: null, step: null, pins: null } : { trace: app.current, ...place };
  return put(new URL(location.href), { ...run, ...lesson(), tab }).href;
}

/** The lesson that is open, on its tab alone: turned back to, the tab names it again. */
function lesson() {
  if (app.tab !== "lessons") return { lesson: null, at: null };
  /** @type {{ player?: { lesson: { id: string }, at: number } | null }} */
  const { player } = app.pages.lesson ?? {};
  const named = new URL(location.href).searchParams.has("lesson");
  return named || !player ? {} : { lesson: player.lesson.id, at: String(player.at + 1) };
}

/** The address of what is shown, without where other pages stand. */
export function sharedLink() {
  const url = new URL(link());
  const own = VIEWS[app.tab] ?? [];
  for (const key of Object.values(VIEWS).flat()) if (!own.includes(key)) url.searchParams.delete(key);
  return url.href;
}

/** The step and the pins that an address has: by default the one with which the page was opened. */
export function fromAddress(asked = params) {
  const step = Number.parseInt(asked.get("step") || "", 10);
  const pins = (asked.get("pins") || "").split(",").filter(Boolean).map(Number);
  return { step: Number.isFinite(step) && step > 0 ? step - 1 : undefined, pins };
}
