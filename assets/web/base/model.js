/* A trace, indexed: rows per step, copied runs, spans; grows with the run. Nothing is searched for in text. */

import { Pieces } from "specviz/base/text.js";

/** Tables with rows per step. */
/** @typedef {"nodes" | "targets" | "candidates" | "guesses" | "attention" | "probes" | "pruned" | "lattice" |
    "transitions" | "assistant"} PerStep */
/** @type {PerStep[]} */
const PER_STEP = [
  "nodes", "targets", "candidates", "guesses", "attention", "probes", "pruned", "lattice", "transitions",
  "assistant",
];
// a place in the pool is POOL + its position there: sources, copies and marks need not tell the two texts apart
export const POOL = 2 ** 31;
export const OPEN = -2; // the own token of a step that is not decided yet
export const NOT_RECORDED = 2 ** 31; // the id of a token of which nothing is known: importers/request_trace.py

/** @typedef {number | null | undefined} Maybe */

/** @type {(source: number, pool: number) => Position} */
const place = (source, pool) => (source >= 0 || !(pool >= 0) ? source : POOL + pool);

/** A model's precision, by its record, as ``precision_of`` of decoders/model/files/catalog.py has it. */
/** @type {(model?: RunModel) => string | undefined} */
export const precision = ({ weights, activations, dtype } = {}) =>
  weights && activations ? `${weights} with ${activations} rows` : weights ?? dtype;

/** Rows by the value of a column: value → what ``make`` makes of its rows, in order. */
/** @type {<T>(rows: number[], column: number[], make: (row: number) => T) => Map<number, T[]>} */
export function groups(rows, column, make) {
  const lists = new Map();
  for (const row of rows) {
    const list = lists.get(column[row]);
    if (list) list.push(make(row));
    else lists.set(column[row], [make(row)]);
  }
  return lists;
}

/** A value for every table with rows per step. @type {<T>(make: () => T) => Record<PerStep, T>} */
const perStep = (make) => /** @type {any} */ (Object.fromEntries(PER_STEP.map((table) => [table, make()])));

export class Model {
  /** @param {Trace} trace */
  constructor(trace) {
    if (!trace || trace.schema !== "spectrace/1") {
      throw new Error(`This page draws spectrace/1, not ${trace && trace.schema ? trace.schema : "this file"}.`);
    }
    this.trace = trace;
    this.run = trace.run;
    this.pieces = new Pieces(trace.pieces);
    /** What Python counted of the run; null where rows came since, or none did. @type {Report | null} */
    this.report = trace.report ?? null;
    /** How drafted tokens are told apart by where they come from. @type {RunOrigin[]} */
    this.origins = trace.report?.legend ?? trace.run.origins ?? [];
    /** The columns of each table that no view draws in its own way. @type {Record<string, PlainColumn[]>} */
    this.columns = trace.report?.columns ?? {};
    this.promptLength = this.run.prompt_length;
    /** The first row of every step. @type {Record<PerStep, number[]>} */
    this.first = perStep(() => /** @type {number[]} */ ([]));
    /** @type {Record<PerStep, number>} */
    this.scanned = perStep(() => 0);
    /** @type {CopiedRun[]} */
    this.runs = [];
    /** The run that a position was copied in. @type {Map<Position, CopiedRun>} */
    this.runOf = new Map();
    /** The runs that copied a position. @type {Map<Position, CopiedRun[]>} */
    this.copies = new Map();
    this.read = this.promptLength;
    this.passages = 1 + Math.max(0, ...new Set(trace.tokens.passage));
    /** @type {(number | undefined)[]} */
    this.poolIds = [];
    /** @type {(number | undefined)[]} */
    this.poolPassages = [];
    this.pooled = 0;
    this.nodeTerms = this.declared("node_terms", trace.nodes);
    this.stepTerms = this.declared("step_terms", trace.steps);
    /** @type {StepView | null} */
    this.cache = null;
    this.index();
  }

  get lossy() {
    return this.run.method.lossless === false && !this.run.forced;
  }

  /** The numbers of the run's list ``name`` that have a column in ``table``. */
  /** @param {"node_terms" | "step_terms"} name @param {Columns<{}>} table */
  declared(name, table) {
    return (this.run[name] || []).filter((term) => table[`term:${term.key}`]);
  }

  /** The token at a position, or at a place in the pool; undefined where it was not recorded. */
  /** @type {(position: Position) => number | undefined} */
  id(position) {
    return position >= POOL ? this.poolIds[position - POOL] : this.trace.tokens.id[position];
  }

  /** The recorded tokens of a stretch. @type {(from: Position, to: Position) => number[]} */
  ids(from, to) {
    if (from < POOL) return this.trace.tokens.id.slice(from, to);
    return this.poolIds.slice(from - POOL, to - POOL).filter((id) => id !== undefined);
  }

  get steps() {
    return this.trace.steps;
  }

  get stepCount() {
    return this.trace.steps.context.length;
  }

  get tokenCount() {
    return this.trace.tokens.id.length;
  }

  /** Adds the rows of one or more steps; what was counted without them is no longer told. */
  /** @type {(delta: TraceDelta | null, run?: Partial<Run>) => void} */
  append(delta, run) {
    for (const [table, columns] of Object.entries(delta || {})) {
      const mine = Reflect.get(this.trace, table);
      if (!mine || typeof columns !== "object") continue;
      if (table === "pieces") this.pieces.add(delta?.pieces);
      for (const [name, values] of Object.entries(columns)) {
        if (!mine[name]) mine[name] = [];
        for (const value of values || []) mine[name].push(value);
      }
    }
    if (run) Object.assign(this.run, run);
    if (delta && Object.keys(delta).length) this.report = null;
    this.cache = null;
    this.index();
  }

  index() {
    for (const table of PER_STEP) {
      const steps = this.trace[table]?.step || [];
      const first = this.first[table];
      for (let row = this.scanned[table]; row < steps.length; row++) {
        while (first.length <= steps[row]) first.push(row);
      }
      this.scanned[table] = steps.length;
    }
    this.indexPool();
    this.indexRuns();
  }

  indexPool() {
    if (!this.trace.pool) return;
    const { position, id, passage } = this.trace.pool;
    for (; this.pooled < position.length; this.pooled++) {
      this.poolIds[position[this.pooled]] = id[this.pooled];
      this.poolPassages[position[this.pooled]] = passage[this.pooled];
    }
  }

  /** A copied run: consecutive accepted tokens whose sources are consecutive too. */
  indexRuns() {
    const { kind, source, pool, step } = this.trace.tokens;
    for (let position = this.read; position < kind.length; position++) {
      const from = place(source[position], pool[position]);
      if (kind[position] !== "accepted" || from < 0) continue;
      let run = this.runOf.get(position - 1);
      if (!run || from !== run.source + position - run.start) {
        run = { start: position, stop: position, source: from, step: step[position] };
        this.runs.push(run);
      }
      run.stop = position + 1;
      this.runOf.set(position, run);
      const copies = this.copies.get(from);
      if (!copies) this.copies.set(from, [run]);
      else if (!copies.includes(run)) copies.push(run);
    }
    this.read = kind.length;
  }

  /** Runs that a position takes part in: the one it was copied in, and those copied from it. */
  /** @type {(position: Position) => CopiedRun[]} */
  links(position) {
    const own = this.runOf.get(position);
    const from = this.copies.get(position) || [];
    return own ? [own, ...from.filter((run) => run !== own)] : from;
  }

  /** A step's rows of a table. @type {(table: PerStep, step: number) => number[]} */
  rows(table, step) {
    const size = this.trace[table]?.step.length || 0;
    const [from = size, to = size] = this.first[table].slice(step, step + 2);
    return Array.from({ length: to - from }, (_, k) => from + k);
  }

  /** The step that a position was emitted in, -1 for the prompt. @type {(position: Position) => number} */
  stepOf(position) {
    return position >= POOL ? -1 : this.trace.tokens.step[position];
  }

  /** Where an output token was copied from, -1 if nowhere. @type {(position: Position) => Position} */
  sourceOf(position) {
    const { source, pool } = this.trace.tokens;
    return place(source[position], pool[position]);
  }

  /** How an output token was decided: its node (null: not drafted) and what the target liked best there. */
  /** @type {(position: Position) => { node: TreeNode | null, rather: Choice | null } | null} */
  decision(position) {
    const number = this.stepOf(position);
    if (!(number >= 0)) return null;
    const nodes = this.nodes(number);
    const path = nodes.filter((node) => node.status === "accepted" || node.status === "root");
    const k = position - this.trace.steps.context[number];
    const choices = path[k] ? this.targets(number).get(path[k].index) : null;
    return { node: path[k + 1] || null, rather: choices?.[0] || null };
  }

  /** The position in whose distribution a node was drafted: the node's number that ends in "_anchor"; -1 if none. */
  /** @type {(node: TreeNode) => Position} */
  anchorOf(node) {
    for (const { key } of this.nodeTerms) {
      const value = key.endsWith("_anchor") ? this.nodeTerm(node, key) : null;
      if (value !== null && Number.isInteger(value) && value >= 0 && value < this.tokenCount) return value;
    }
    return -1;
  }

  /** A metric's ``value`` and parts by name, as Python gave them. @type {(key: string) => Record<string, Maybe>} */
  metric(key) {
    return this.report?.metrics[key] ?? {};
  }

  /** An origin as the run declares it; one that it does not: a plain box and its first letter. */
  /** @type {(name: string) => RunOrigin & { declared: boolean }} */
  origin(name) {
    const origin = this.origins.find((one) => one.name === name);
    if (origin) return { ...origin, declared: true };
    const letter = name.charAt(0).toUpperCase();
    const sentence = `Nodes whose origin is "${name}".`;
    return { name, letter, label: name, sentence, outline: "box", hue: 0, declared: false };
  }

  /** A node's own number, null where it has none. @type {(node: TreeNode, key: string) => number | null} */
  nodeTerm(node, key) {
    return this.trace.nodes[`term:${key}`]?.[node.row] ?? null;
  }

  /** @type {(step: number, key: string) => number | null} */
  stepTerm(step, key) {
    return this.trace.steps[`term:${key}`]?.[step] ?? null;
  }

  /** Labels, values and help of a row's plain columns, in the table's order. */
  /** @param {keyof Tables} table @param {number} row */
  plainValues(table, row) {
    return (this.columns[table] ?? []).map((column) => ({ ...column, value: this.plainValue(table, column, row) }));
  }

  /** A row's value in a plain column, null where it has none. */
  /** @type {(table: keyof Tables, column: PlainColumn, row: number) => unknown} */
  plainValue(table, { name }, row) {
    return Reflect.get(this.trace[table] ?? {}, name)?.[row] ?? null;
  }

  /** Everything the views show of one step. @type {(number: number) => StepView} */
  step(number) {
    if (this.cache && this.cache.number === number) return this.cache;
    const columns = Object.entries(this.trace.steps);
    const row = /** @type {any} */ (Object.fromEntries(columns.map(([name, values]) => [name, values?.[number]])));
    const nodes = this.nodes(number);
    const path = nodes.filter((node) => node.status === "accepted");
    const last = path.length ? path[path.length - 1].index : 0;
    const candidates = this.candidates(number);
    return (this.cache = {
      ...row,
      number,
      end: row.context + row.emitted,
      root: this.trace.tokens.id[row.context - 1],
      nodes,
      targets: this.targets(number),
      path,
      last,
      spans: this.spans(nodes),
      candidates,
      chosen: candidates.find((candidate) => candidate.chosen) || null,
      best: this.best(candidates),
      refused: nodes.filter((node) => node.parent === last && node.status === "rejected"),
    });
  }

  /** The tree of a step, the root first. @type {(step: number) => TreeNode[]} */
  nodes(step) {
    const table = this.trace.nodes;
    return this.rows("nodes", step).map((row, index) => ({
      row,
      index,
      token: table.token[row],
      parent: table.parent[row],
      depth: table.depth[row],
      origin: table.origin[row],
      beside: Boolean(this.origin(table.origin[row]).beside),
      source: place(table.source[row], table.pool[row]),
      draftProb: table.draft_prob[row],
      prob: table.prob[row],
      rank: table.rank[row],
      status: table.status[row],
      reason: table.reason[row],
      who: table["term:who"]?.[row] ?? 0,
      forbidden: table["term:forbidden"]?.[row] === 1,
      span: 0,
    }));
  }

  /** Node → the target's first choices after it, likeliest first. @type {(step: number) => Map<number, Choice[]>} */
  targets(step) {
    const { node, token, prob } = this.trace.targets;
    return groups(this.rows("targets", step), node, (row) => ({ token: token[row], prob: prob[row] }));
  }

  /** Source spans used by a tree, numbered from 1; every node of a span gets its number. @param {TreeNode[]} nodes */
  spans(nodes) {
    /** @type {StepView["spans"]} */
    const spans = [];
    for (const node of nodes) {
      if (node.source < 0) continue;
      const parent = nodes[node.parent];
      const span = parent && parent.span && parent.source + 1 === node.source ? spans[parent.span - 1] : null;
      if (span) span.stop = Math.max(span.stop, node.source + 1);
      else spans.push({ number: spans.length + 1, start: node.source, stop: node.source + 1 });
      node.span = span ? span.number : spans.length;
    }
    return spans;
  }

  /** The ranked places of a step, those that could not win last. @type {(step: number) => Candidate[]} */
  candidates(step) {
    const table = this.trace.candidates;
    const candidates = this.rows("candidates", step).map((row) => ({
      row,
      position: place(table.position[row], table.pool[row]),
      score: table.score[row],
      length: table.length[row],
      rank: table.rank[row],
      chosen: table.chosen[row],
      excluded: table.excluded[row],
      would: table.would_accept[row],
    }));
    /** @type {(candidate: Candidate) => number} */
    const order = (candidate) => (candidate.excluded ? 1e9 : 0) + (candidate.rank < 0 ? 1e8 : candidate.rank);
    return candidates.sort((a, b) => order(a) - order(b));
  }

  /** A candidate's number that the method declared. @type {(candidate: Candidate, key: string) => number | null} */
  term(candidate, key) {
    return this.trace.candidates[`term:${key}`]?.[candidate.row] ?? null;
  }

  /** Where a candidate's copy begins to be seen: at its first token that is no white space; without a copy, itself. */
  /** @param {Pick<Candidate, "position" | "length">} candidate @returns {Position} */
  placeOf({ position, length }) {
    for (let at = position + 1; at <= position + length; at++)
      if (this.pieces.get(this.id(at)).text.trim()) return at;
    return length ? position + 1 : position;
  }

  /** The candidate that would have accepted most (the first of them), null while the run goes on. */
  /** @param {Candidate[]} candidates */
  best(candidates) {
    const known = candidates.filter(({ would }) => would >= 0);
    return known.length ? known.reduce((best, one) => (one.would > best.would ? one : best)) : null;
  }
}
