/* What the page "Compare" knows, and the small things its files share. Text nodes only. */

import { find, h, later } from "specviz/base/dom.js";
import { postJson } from "specviz/base/json.js";
import { precision } from "specviz/base/model.js";
import { format, setting, short, times } from "specviz/base/numbers.js";
import { cardOf } from "specviz/shell/verifiers.js";

export const MARKS = ["P", "A", "B", "C", "D", "E"]; // P is plain decoding

export class ComparePage {
  /** @type {HTMLElement} */
  box = document.body; // until the page is there
  /** Where runs come from, and what is around the comparison. @type {CompareHost} */
  host = later();
  /** What the page offers. @type {CompareOffer} */
  data = { most: 0, metrics: [], plotly: "" };
  /** The methods that can run. @type {Catalog | null} */
  catalog = null;
  /** The methods asked for. @type {WantedLane[]} */
  wanted = [];
  /** What was typed: settings of all lanes, parameters by place and method. @type {Record<string, Setting>} */
  common = {};
  /** @type {Record<string, Record<string, Setting>>} */
  kept = {};
  /** @type {() => Record<string, Setting>} */
  readSettings = () => ({});
  /** The prompt whose recorded runs are listed. */
  group = "";
  /** @type {CompareLane[]} */
  lanes = [];
  /** The runs whose acceptance or difference is looked at, where they are not the lanes. @type {string[]} */
  runs = [];
  /** The tab. @type {"race" | "acceptance" | "difference"} */
  view = "race";
  title = "";
  /** Of the comparison shown: an answer to an older one is dropped. */
  ticket = 0;
  /** Whether an address is being followed: nothing is written into it. */
  turning = false;
  /** Whether nothing can be run. */
  runsAlone = false;
  stopping = false;
  framed = false;
  /** @type {Clock} */
  clock = "time";
  /** What lanes are ordered by. @type {"time" | "step"} */
  by = "time";
  /** Where the clock stands. */
  at = 0;
  /** Whether somebody moved the clock, or the race plays: else the picture by position stands at its beginning. */
  moved = false;
  /** Whether the newest is shown, whatever the clock says. */
  live = false;
  /** Seconds of a race. @type {number | "real"} */
  lasts = 10;
  playing = false;
  /** The stretch marked in the ruler. @type {TokenRange | null} */
  mark = null;
  /** @type {import("specviz/compare/ruler.js").Ruler | null} */
  ruler = null;
  /** @type {Tooltip | null} */
  tip = null;
  /** @type {LaneColors | null} */
  colors = null;
  /** Places of the page by class, see part(). @type {Map<string, HTMLElement>} */
  parts = new Map();
  /** By run. @type {Record<string, LaneNumbers>} */
  numbers = {};
  /** @type {Record<string, LaneCheck>} */
  lens = {};
  /** @type {Advantage[]} */
  stretches = [];
  /** Who won, once all are over. @type {Claim | null} */
  claim = null;
  /** Whether the lanes are being repeated. */
  repeating = false;
}

export const page = new ComparePage();
/** A part of the page by its class; those of the results are looked up once per comparison. */
/** @type {<T extends HTMLElement = HTMLElement>(name: string, kind?: new () => T) => T} */
export function part(name, kind) {
  const seen = page.parts.get(name);
  if (seen?.isConnected && seen instanceof (kind ?? HTMLElement)) return /** @type {any} */ (seen);
  const element = find(page.box, `.svc-${name}`, kind);
  page.parts.set(name, element);
  return element;
}

/** Asks the server for an action. @param {string} what @param {object} body */
export const post = (what, body) => postJson(`api/compare/${what}`, body);
/** @param {number} ms */
export const seconds = (ms) =>
  ms >= 9950 ? `${(ms / 1000).toFixed(1)} s` : ms >= 100 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(0)} ms`;
/** @type {(element: HTMLElement, text: string) => void} */
export const put = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};
/** A lane's speedup, marked where it cannot be right; "" where there is none. @param {CompareLane} lane */
export function speedup({ id }) {
  const { metrics, doubts } = page.numbers[id] ?? {};
  return typeof metrics?.speedup === "number" ? `${times(metrics.speedup)}${doubts?.speedup ? " ‡" : ""}` : "";
}
/** @param {CompareLane} lane */
export const mark = (lane) => h("b.sv-lane-mark", { "aria-hidden": "true" }, lane.mark);
/** The style of what has a lane's colour. @param {number} n */
export const tint = (n) => `--sv-lane: var(--svc-lane-${n})`;
/** Whether a lane goes on. */
export const going = () => page.lanes.some((lane) => ["waiting", "running"].includes(lane.state));
/** @type {(lane: CompareLane) => lane is DrawnLane} */
const hasWritten = (lane) => Boolean(lane.lane?.steps);
/** The lanes that have written something. */
export const drawn = () => page.lanes.filter(hasWritten);
export const repeated = () => Object.values(page.numbers).some(({ runs }) => runs > 1);
const WHISKER =
  " A whisker spans the middle half; a place is 1 + the lanes whose whiskers end before this lane's begins.";
/** How often lanes were run. @param {Claim} claim */
export const repeats = (claim) =>
  `${claim.repeats}${page.by === "time" && claim.time.lanes.some(({ place, low }) => place && low) ? WHISKER : ""}`;
/** A lane's place by the measure that orders them. @type {(lane: CompareLane) => LanePlace | undefined} */
export const placeOf = (lane) => page.claim?.[page.by].lanes.find(({ id }) => id === lane.id);
/** @param {CompareLane} lane */
export const name = (lane) =>
  short(
    lane.lane?.run.method.title || (page.catalog && cardOf(page.catalog, lane.method)?.title) || lane.method || "A run",
  );

/** Parameters in which lanes of one method differ, or else those that are set. @param {CompareLane} lane */
export function settings(lane) {
  const method = lane.lane?.run.method;
  if (!method) return "";
  const labels = new Map(method.controls?.map((control) => [control.name, control.label]));
  const twins = drawn().filter((other) => other !== lane && other.method === lane.method);
  const entries = Object.entries(method.params || {}).filter(([key, value]) =>
    twins.length
      ? twins.some((other) => JSON.stringify(other.lane.run.method.params?.[key]) !== JSON.stringify(value))
      : typeof value === "number",
  );
  /** @type {(key: string, value: unknown) => string} one setting stays on a line */
  const said = (key, value) => `${labels.get(key) || key} ${setting(value)}`.replaceAll(" ", "\u00a0");
  return entries.slice(0, 3).map(([key, value]) => said(key, value)).join(" · ");
}

/** What ran, and when. @param {Run} run */
export function about({ model = {}, created }) {
  const size = model.parameters && `${format(Number(model.parameters) / 1e6)}M parameters`;
  return [model.name, size, precision(model), model.device, created?.slice(0, 10)].filter(Boolean).join(" · ");
}
