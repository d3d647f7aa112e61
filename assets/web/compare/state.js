/* What the page "Compare" knows, and the small things its files share. Text nodes only. */

import { h } from "specviz/base/dom.js";
import { postJson } from "specviz/base/json.js";

export const MARKS = ["P", "A", "B", "C", "D", "E"]; // P is plain decoding
export const page = {
  box: null,
  data: null,
  catalog: null, // what the server offers
  form: null,
  wanted: [], // the methods asked for
  common: {},
  lanes: [],
  clock: "time",
  at: 0, // of the clock
  live: false, // the newest is shown, whatever the clock says
  lasts: 10, // seconds of a race
  playing: 0,
  mark: null, // the stretch marked in the ruler
  parts: new Map(), // by class, see part()
  numbers: {},
  lens: {},
  stretches: [],
  ticket: 0, // of the comparison shown: an answer to an older one is dropped
  title: "",
  kept: {}, // parameters by place and method
};

/** A part of the page by its class; those of the results are looked up once per comparison. */
export function part(name) {
  const known = page.parts.get(name);
  if (known?.isConnected) return known;
  const found = page.box.querySelector(`.svc-${name}`);
  if (found) page.parts.set(name, found);
  return found;
}

export const post = (what, body) => postJson(`api/compare/${what}`, body);
export const short = (title) => title.split(":")[0];
export const seconds = (ms) =>
  ms >= 9950 ? `${(ms / 1000).toFixed(1)} s` : ms >= 100 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(0)} ms`;
export const mark = (lane) => h("b", { class: "sv-lane-mark", "aria-hidden": "true" }, lane.mark);
export const colored = (element, n) => {
  element.style.setProperty("--sv-lane", `var(--svc-lane-${n})`);
  return element;
};
export const going = () => page.lanes.some((lane) => ["waiting", "running"].includes(lane.state));
export const drawn = () => page.lanes.filter((lane) => lane.lane && lane.lane.steps);
export const name = (lane) =>
  short(
    lane.lane?.run.method.title ||
      page.catalog?.methods.find((m) => m.name === lane.method)?.title ||
      lane.method ||
      "A run",
  );

/** Parameters in which lanes of one method differ from one another, or else those that are set. */
export function settings(lane) {
  const method = lane.lane?.run.method;
  if (!method) return "";
  const labels = Object.fromEntries((method.controls || []).map((c) => [c.name, c.label]));
  const text = (v) => (v === true ? "on" : v === false ? "off" : v === null ? "off" : String(v));
  const twins = drawn().filter((other) => other !== lane && other.method === lane.method);
  const entries = Object.entries(method.params || {}).filter(([key, value]) =>
    twins.length
      ? twins.some((other) => JSON.stringify(other.lane.run.method.params?.[key]) !== JSON.stringify(value))
      : typeof value === "number",
  );
  return entries
    .slice(0, 3)
    .map(([key, value]) => `${labels[key] || key} ${text(value)}`)
    .join(" · ");
}
