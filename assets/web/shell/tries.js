/* What this page ran on one prompt, one row per run. */

import { emit } from "specviz/base/bus.js";
import { h, heads, tabled } from "specviz/base/dom.js";
import { format, mean, setting, times } from "specviz/base/numbers.js";
import { app } from "specviz/shell/state.js";

export const strip = h("div.svp-tries", { hidden: true });
/** @type {{prompt: string, run: Run, doubts: Record<string, string>}[]} */
const tries = [];

const percent = (/** @type {number} */ share) => `${(100 * share).toFixed(1)}%`;
/** @type {[metric: string, name: string, shown: (value: number) => string][]} */
const COLUMNS = [
  ["quality_f1", "F1", percent],
  ["quality_rouge_l", "ROUGE-L", percent],
  ["quality_edit", "edit similarity", percent],
  ["tokens_per_step", "tokens/step", mean],
  ["tokens_per_s", "tokens/s", format],
  ["speedup", "speedup", times],
];

/** Remembers a finished run of this page, and draws the rows of its prompt. @param {Trace} trace */
export function keepTry({ run, report }) {
  const prompt = app.promptOf.get(run.id);
  const doubts = report?.doubts ?? {};
  if (prompt && run.complete && !tries.some((one) => one.run.id === run.id)) tries.push({ prompt, run, doubts });
  draw(tries.filter((one) => one.prompt === prompt));
}

/** What stands in a row for a run. @typedef {(run: Run, k: number) => Child} Cell */
/** @type {(head: string, cell: Cell) => [head: string, cell: Cell]} */
const cellOf = (head, cell) => [head, cell];

/** The method and the parameters by which runs differ (of the threshold δ always), and what came of them. */
/** @param {typeof tries} kept */
function draw(kept) {
  const runs = kept.map((one) => one.run);
  strip.hidden = runs.length < 2;
  if (strip.hidden) return;
  const paramsOf = (/** @type {Run} */ run) => run.method.params || {};
  const titleOf = (/** @type {Run} */ run) => run.method.title || run.method.name;
  const label = (/** @type {string} */ name) =>
    name === "delta"
      ? "δ"
      : runs.flatMap((run) => run.method.controls || []).find((control) => control.name === name)?.label || name;
  const names = new Set(runs.flatMap((run) => Object.keys(paramsOf(run))));
  const shown = [...names].filter(
    (name) => name === "delta" || new Set(runs.map((run) => JSON.stringify(paramsOf(run)[name]))).size > 1,
  );
  const methods = new Set(runs.map(titleOf)).size > 1;
  const columns = COLUMNS.filter(([key]) => runs.some((run) => typeof run.metrics?.[key] === "number"));
  /** What stands in a row, and above it. @type {[head: string, cell: Cell][]} */
  const table = [
    ["run", (_, k) => h("button.svp-link", { "aria-label": `Open run ${k + 1} of this prompt` }, `${k + 1}`)],
    ...shown.map((name) => cellOf(label(name), (run) => setting(paramsOf(run)[name]))),
    ...columns.map(([key, name, text]) => {
      const of = (/** @type {Run} */ run) => run.metrics?.[key];
      return cellOf(name, (run, k) => {
        const doubt = kept[k].doubts[key];
        const mark = doubt && h("span", { title: `${doubt}.`, "aria-label": `, ${doubt}` }, " ‡");
        return typeof of(run) === "number" ? [text(Number(of(run))), mark] : "–";
      });
    }),
  ];
  if (methods) table.splice(1, 0, ["method", titleOf]);
  const rows = runs.map((run, k) =>
    h(
      "tr",
      { class: run.id === app.shown && "svp-now", onclick: () => emit("open", run.id) },
      table.map(([, cell]) => h("td", cell(run, k))),
    ),
  );
  const head = heads(table.map(([name]) => name));
  const look = { class: "svp-tried ui-dense ui-picked", "aria-label": "Runs of this prompt" };
  strip.replaceChildren(h("table", look, tabled(head, rows)));
}
