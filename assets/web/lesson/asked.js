/* A run as it stood before a step's verdict, for a learner who is asked about it: later facts are not there. */

import { OPEN } from "specviz/base/model.js";

// what a step's row tells before the forward: the rest of its numbers come with the verdict
const BEFORE = ["route", "reason", "drafted", "depth", "context", "draft_ms"];
const EMPTY = { accepted: 0, emitted: 0, bonus: OPEN, outcome: "", origins: "" };
const SAID = ["confidence", "bin", "draft_rank", "branch_rank", "branch_anchor", "branch_logprob", "guess_rank"];

/** The first rows of a table, as columns. */
const first = (table, count) => Object.fromEntries(Object.entries(table).map(([k, v]) => [k, v.slice(0, count)]));

/** Rows whose step is at most ``step``. */
function upTo(table, step) {
  if (!table || !table.step) return table;
  let count = 0;
  while (count < table.step.length && table.step[count] <= step) count++;
  return first(table, count);
}

/** Writes values into one row. */
function set(table, row, values) {
  for (const [name, value] of Object.entries(values)) table[name][row] = value;
}

/** Puts the rows of the last step into the order of the text, so that it tells nothing of their ranks. */
function inTextOrder(table, step) {
  const from = table.step.indexOf(step);
  if (from < 0) return;
  const rows = table.step.slice(from).map((_, k) => from + k);
  rows.sort((a, b) => table.pool[a] - table.pool[b] || table.position[a] - table.position[b]);
  for (const values of Object.values(table)) values.splice(from, rows.length, ...rows.map((row) => values[row]));
}

const kept = (key, names) => names.includes(key.replace("term:", ""));

/**
 * ``trace`` before step ``step`` (from 0) was decided. ``kind`` is the question's: of "candidate" the draft and the
 * ranking are withheld too, its scores unless ``scores``; of "value" and "yes" the run's metrics.
 */
export function before(trace, step, kind, scores) {
  const ranking = kind === "candidate";
  const context = trace.steps.context[step];
  const steps = first(trace.steps, step + 1);
  for (const [name, values] of Object.entries(steps)) {
    if (name in EMPTY) values[step] = EMPTY[name];
    else if (!BEFORE.includes(name) && !kept(name, ["state", "gamma"])) values[step] = null;
  }
  if (ranking) steps.drafted[step] = steps.depth[step] = 0;
  const nodes = upTo(trace.nodes, step);
  const roots = nodes.step.indexOf(step);
  if (ranking && roots >= 0) for (const values of Object.values(nodes)) values.length = roots + 1;
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
  const guesses = upTo(trace.guesses, step);
  if (guesses && guesses.step)
    guesses.step.forEach((number, row) => {
      if (number === step) set(guesses, row, { prob: null, residual: null });
    });
  const count = (table) => (table && table.step ? table.step.filter((number) => number < step).length : 0);
  const run = { ...trace.run, complete: false, stop: "", asked: true, error: "" };
  if (kind === "value" || kind === "yes") run.metrics = {};
  return {
    ...trace,
    run,
    steps,
    nodes,
    candidates,
    guesses,
    tokens: first(trace.tokens, context),
    targets: first(trace.targets, count(trace.targets)),
    probes: trace.probes && upTo(trace.probes, step),
    attention: trace.attention && upTo(trace.attention, step),
    plain: { id: [] },
  };
}
