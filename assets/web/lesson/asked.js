/* A run as it stood before a step's verdict, for a learner who is asked about it: later facts are not there. */

import { OPEN } from "specviz/base/model.js";

// what a step's row tells before the forward: the rest of its numbers come with the verdict
/** @type {string[]} */
const BEFORE = ["route", "reason", "drafted", "depth", "context", "draft_ms"];
/** @type {Record<string, number | string>} */
const EMPTY = { accepted: 0, emitted: 0, bonus: OPEN, outcome: "", origins: "" };
const SAID = [
  "confidence", "bin", "draft_rank", "branch_rank", "branch_anchor", "branch_logprob", "guess_rank", "who", "estimate",
  ...[1, 2, 3].flatMap((k) => [`q${k}`, `rank${k}`]),
];

/** The columns of a table by name, to be written to. @typedef {Record<string, any[]>} Writable */

/** The first rows of a table. @type {<Table extends object>(table: Table, count: number) => Table & Writable} */
const first = (table, count) =>
  /** @type {any} */ (Object.fromEntries(Object.entries(table).map(([k, v]) => [k, v.slice(0, count)])));

/** How many rows of a table stand before ``step``. @type {(table: { step: number[] }, step: number) => number} */
const rowsBefore = (table, step) => table.step.filter((number) => number < step).length;

/** Rows whose step is at most ``step``. */
/** @type {<Table extends { step: number[] }>(table: Table, step: number) => Table & Writable} */
const upTo = (table, step) => first(table, rowsBefore(table, step + 1));

/** A table's columns by name. @type {(table: Writable) => [name: string, values: any[]][]} */
const columns = (table) => Object.entries(table);

/** Writes values into one row. @type {(table: Writable, row: number, values: object) => void} */
function set(table, row, values) {
  for (const [name, value] of Object.entries(values)) table[name][row] = value;
}

/** Puts the rows of the last step into the order of the text, so that it tells nothing of their ranks. */
/** @type {(table: Columns<CandidateRow> & Writable, step: number) => void} */
function inTextOrder(table, step) {
  const from = table.step.indexOf(step);
  if (from < 0) return;
  const rows = table.step.slice(from).map((_, k) => from + k);
  rows.sort((a, b) => table.pool[a] - table.pool[b] || table.position[a] - table.position[b]);
  for (const [, values] of columns(table)) values.splice(from, rows.length, ...rows.map((row) => values[row]));
}

/** @type {(key: string, names: string[]) => boolean} */
const kept = (key, names) => names.includes(key.replace("term:", ""));

/**
 * ``trace`` before step ``step`` (from 0) was decided. ``kind`` is the question's: of "candidate" the draft and the
 * ranking are withheld too, its scores unless ``scores``; of "value" and "yes" the run's metrics.
 *
 * @type {(trace: Trace, step: number, kind: QuestionKind, scores: boolean) => Trace}
 */
export function before(trace, step, kind, scores) {
  const ranking = kind === "candidate";
  const context = trace.steps.context[step];
  const steps = first(trace.steps, step + 1);
  for (const [name, values] of columns(steps)) {
    if (name in EMPTY) values[step] = EMPTY[name];
    else if (!BEFORE.includes(name) && !kept(name, ["state", "gamma"])) values[step] = null;
  }
  if (ranking) steps.drafted[step] = steps.depth[step] = 0;
  const nodes = upTo(trace.nodes, step);
  const roots = nodes.step.indexOf(step);
  if (ranking && roots >= 0) for (const [, values] of columns(nodes)) values.length = roots + 1;
  nodes.step.forEach((number, row) => {
    if (number !== step || nodes.status[row] === "root") return;
    set(nodes, row, { status: "unreached", reason: "", prob: null, rank: -1 });
    for (const name of Object.keys(nodes)) if (name.startsWith("term:") && !kept(name, SAID)) nodes[name][row] = null;
  });
  const candidates = upTo(trace.candidates, step);
  candidates.step.forEach((number, row) => {
    const far = trace.steps.context[number];
    candidates.would_accept[row] = number === step ? -1 : Math.min(candidates.would_accept[row], context - far);
    if (!ranking || number !== step) return;
    candidates.chosen[row] = false;
    candidates.rank[row] = -1;
    candidates.excluded[row] = "";
    for (const name of Object.keys(candidates))
      if (!scores && (name === "score" || name.startsWith("term:"))) candidates[name][row] = null;
  });
  if (ranking) inTextOrder(candidates, step);
  const guesses = trace.guesses?.step && upTo(trace.guesses, step);
  guesses?.step.forEach((number, row) => {
    if (number === step) set(guesses, row, { prob: null, residual: null });
  });
  const origins = trace.report?.legend ?? trace.run.origins;
  const run = { ...trace.run, origins, complete: false, stop: "", asked: true, error: "" };
  if (kind === "value" || kind === "yes") run.metrics = {};
  return {
    ...trace,
    report: undefined, // it counts the answer too
    run,
    steps,
    nodes,
    candidates,
    guesses: guesses ?? trace.guesses,
    tokens: first(trace.tokens, context),
    targets: first(trace.targets, rowsBefore(trace.targets, step)),
    probes: trace.probes && upTo(trace.probes, step),
    attention: trace.attention && upTo(trace.attention, step),
    plain: { id: [] },
  };
}
