/* The list of recorded runs, and which runs of this page go on. */

import { emit, on } from "specviz/base/bus.js";
import { h, write } from "specviz/base/dom.js";
import { getJson } from "specviz/base/json.js";
import { mean, percentage, short } from "specviz/base/numbers.js";
import { cut, inLine } from "specviz/base/text.js";
import { app } from "specviz/shell/state.js";

let newest = 0;
/** As the server has listed them last. @type {RunRecord[]} */
let listed = [];
/** Runs that this page is about to delete. @type {Set<string>} */
const leaving = new Set();
/** Every run that was ever listed and over. @type {Set<string>} */
const seen = new Set();

/** What the kinds of runs are called. @type {Record<string, string>} */
export const KINDS = {
  live: "Running now",
  run: "Your runs",
  opened: "Opened files",
  lesson: "Runs of lessons",
  gallery: "Examples that come with specviz",
  recovered: "Recovered after a crash",
  earlier: "Earlier runs",
};

/** A run has ended, or was over before one could follow it. @param {string} id */
export function over(id) {
  app.mine.delete(id);
  app.ended.add(id);
  running();
}

/** Shows whether one of them does. */
export function running() {
  document.body.classList.toggle("sv-running", app.mine.size > 0);
}

/** The runs that there are, without those about to be deleted: every list of the page has these. */
function list() {
  app.runs = listed.filter((run) => !leaving.has(run.id));
  for (const run of listed) if (run.kind !== "live") seen.add(run.id);
  emit("runs", app.runs);
}

/** Lists a run that this page has started. @param {RunRecord} run */
export function begun(run) {
  newest++; // a list that was asked for before lacks it
  listed = [run, ...listed];
  running();
  list();
}

/** Takes runs out of every list, or back into them. @param {string[]} ids */
export function leave(ids, back = false) {
  for (const id of ids) leaving[back ? "delete" : "add"](id);
  list();
}

/** Whether a run was listed and is not any more: it was deleted, or has made room. @param {string} id */
export const isGone = (id) => seen.has(id) && !app.runs.some((run) => run.id === id);

/** Asks for the list anew. */
export async function refreshRuns() {
  const ticket = ++newest;
  try {
    /** @type {RunList} */
    const answer = await getJson("api/runs");
    if (ticket !== newest) return;
    listed = answer.runs;
    app.room = answer.room;
    for (const run of listed) {
      // this page was loaded again (an answer may be older than the end it was told of)
      if (run.kind === "live" && run.id === app.current && !app.ended.has(run.id)) app.mine.add(run.id);
    }
    running();
    list();
  } catch {
    /* the model's pill tells when the server is gone */
  }
}
on("tab", refreshRuns);

/** Runs that tell how much their method has accepted: over, not empty, and not of a given answer. */
export const countable = () => app.runs.filter((run) => run.kind !== "live" && !run.forced && (run.tokens ?? 0) > 0);

/** A teacher-forced run drafted over a text that it did not write: that is no loss. */
/** @param {Pick<RunRecord, "forced" | "lossless" | "other_share" | "divergence">} run */
export function variant({ forced, lossless, other_share: share, divergence }) {
  if (forced || lossless !== false) return forced ? " (given answer)" : "";
  const known = typeof share === "number" && typeof divergence === "number";
  return known ? ` (lossy: ${percentage(share)} other tokens, divergence ${percentage(divergence)})` : " (lossy)";
}

const MOST_TITLE = 38; // characters: what drafted, and how well, stands behind them
const LEAST_TITLE = 10;

/** A run in a line; its title keeps to itself which way it is written (an option has no element to isolate it). */
/** @type {(run: RunRecord, most?: number, whole?: boolean) => string} */
export function brief(run, most = MOST_TITLE, whole = true) {
  const { title, method, tokens_per_step: speed } = run;
  const perStep = whole && typeof speed === "number" && `${mean(speed)} tokens/step`;
  return [title && inLine(cut(title, most)), method + variant(run), perStep].filter(Boolean).join(" · ");
}

/** Shortens the title of the run that is chosen until what stands behind it is in sight; the number, which the */
/** run's head says too, goes before too little of the title is left. */
/** @type {(select: HTMLSelectElement, measure: (text: string) => number) => void} */
export function fitRun(select, measure) {
  const run = app.runs.find(({ id }) => id === select.value);
  const [option] = select.selectedOptions;
  const { paddingLeft, paddingRight } = getComputedStyle(select);
  const room = select.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  if (!run || !option || room <= 0) return;
  const whole = measure(brief(run, LEAST_TITLE)) <= room;
  let most = MOST_TITLE;
  while (most > LEAST_TITLE && measure(brief(run, most, whole)) > room) most--;
  write(option, brief(run, most, whole));
}

/** The runs to choose from, by kind; ``current`` is chosen, be it in the list or not. */
/** @type {(select: HTMLSelectElement, current: string) => void} */
export function fillRuns(select, current) {
  const kinds = [...new Set(app.runs.map((run) => run.kind))];
  const options = (/** @type {string} */ kind) =>
    app.runs.filter((run) => run.kind === kind).map((run) => h("option", { value: run.id }, brief(run)));
  select.replaceChildren(...kinds.map((kind) => h("optgroup", { label: KINDS[kind] || kind }, options(kind))));
  const run = app.inspector?.model?.run; // another window's, or another user's
  const method = run && short(run.method.title || run.method.name);
  const named = run?.title && run.id === current && `${inLine(cut(run.title, MOST_TITLE))} · ${method}`;
  const gone = isGone(current) ? "A run that was deleted" : named || "A run from a link";
  const other = current ? gone : "No recorded run yet";
  if (!app.runs.some((run) => run.id === current))
    select.prepend(h("option", { value: current, disabled: true }, other));
  select.value = current;
}
