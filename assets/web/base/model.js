/* A trace, indexed: rows per step, copied runs, spans; grows with the run. Nothing is searched for in text. */

import { Pieces } from "specviz/base/text.js";

const PER_STEP = ["nodes", "targets", "candidates", "guesses", "attention", "probes"];
// a place in the pool is POOL + its position there: sources, copies and marks need not tell the two texts apart
export const POOL = 2 ** 31;
export const OPEN = -2; // the own token of a step that is not decided yet

const place = (source, pool) => (source >= 0 || !(pool >= 0) ? source : POOL + pool);

export class Model {
  constructor(trace) {
    if (!trace || trace.schema !== "spectrace/1") {
      throw new Error(`This page draws spectrace/1, not ${trace && trace.schema ? trace.schema : "this file"}.`);
    }
    this.trace = trace;
    this.run = trace.run;
    this.pieces = new Pieces(trace.pieces);
    this.promptLength = this.run.prompt_length;
    this.first = {};
    this.scanned = {};
    for (const table of PER_STEP) {
      this.first[table] = [];
      this.scanned[table] = 0;
    }
    this.runs = [];
    this.runOf = new Map();
    this.copies = new Map();
    this.read = this.promptLength;
    this.passages = 1 + Math.max(0, ...new Set(trace.tokens.passage));
    this.counts = { accepted: 0, own: 0, rejected: 0, unreached: 0, sources: 0 };
    this.origins = new Map(); // origin → {nodes, accepted}
    this.differs = 0;
    this.poolIds = [];
    this.poolPassages = [];
    this.pooled = 0;
    this.nodeTerms = this.declared("node_terms", trace.nodes);
    this.stepTerms = this.declared("step_terms", trace.steps);
    this.counted = 0;
    this.cache = null;
    this.index();
  }

  get lossy() {
    return this.run.method.lossless === false;
  }

  /** The numbers of the run's list ``name`` that have a column in ``table``. */
  declared(name, table) {
    return (this.run[name] || []).filter((term) => table[`term:${term.key}`]);
  }

  /** The token at a position, or at a place in the pool; undefined where it was not recorded. */
  id(position) {
    return position >= POOL ? this.poolIds[position - POOL] : this.trace.tokens.id[position];
  }

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

  /** Adds the rows of one or more steps (columns of values per table). */
  append(delta, run) {
    for (const [table, columns] of Object.entries(delta || {})) {
      const mine = this.trace[table];
      if (!mine || typeof columns !== "object") continue;
      if (table === "pieces") this.pieces.add(columns);
      for (const [name, values] of Object.entries(columns)) {
        if (!mine[name]) mine[name] = [];
        for (const value of values) mine[name].push(value);
      }
    }
    if (run) Object.assign(this.run, run);
    this.cache = null;
    this.index();
  }

  index() {
    for (const table of PER_STEP) {
      const steps = (this.trace[table] && this.trace[table].step) || [];
      const first = this.first[table];
      for (let row = this.scanned[table]; row < steps.length; row++) {
        while (first.length <= steps[row]) first.push(row);
      }
      this.scanned[table] = steps.length;
    }
    this.indexPool();
    this.indexRuns();
    const { status, source, pool, origin } = this.trace.nodes;
    for (; this.counted < status.length; this.counted++) {
      const name = status[this.counted];
      if (!this.origins.has(origin[this.counted])) this.origins.set(origin[this.counted], { nodes: 0, accepted: 0 });
      const count = this.origins.get(origin[this.counted]);
      count.nodes++;
      if (name === "accepted") count.accepted++;
      if (name in this.counts) this.counts[name]++;
      if (name === "accepted" && place(source[this.counted], pool[this.counted]) >= 0) this.counts.sources++;
    }
    const { accepted, emitted, drafted, depth } = this.trace.steps;
    this.isTree = drafted.some((count, step) => count > depth[step]);
    this.counts.own = emitted.reduce((sum, n, step) => sum + (n > accepted[step] ? 1 : 0), 0);
  }

  indexPool() {
    const { position, id, passage } = this.trace.pool || { position: [] };
    for (; this.pooled < position.length; this.pooled++) {
      this.poolIds[position[this.pooled]] = id[this.pooled];
      this.poolPassages[position[this.pooled]] = passage[this.pooled];
    }
  }

  /** A copied run: consecutive accepted tokens whose sources are consecutive too. */
  indexRuns() {
    const { kind, source, pool, step, rank } = this.trace.tokens;
    for (let position = this.read; position < kind.length; position++) {
      if (rank[position] > 0) this.differs++;
      const from = place(source[position], pool[position]);
      if (kind[position] !== "accepted" || from < 0) continue;
      const before = this.runOf.get(position - 1);
      let run = before;
      if (!before || from !== before.source + position - before.start) {
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
  links(position) {
    const own = this.runOf.get(position);
    const from = this.copies.get(position) || [];
    return own ? [own, ...from.filter((run) => run !== own)] : from;
  }

  rows(table, step) {
    const first = this.first[table];
    const size = (this.trace[table] && this.trace[table].step.length) || 0;
    if (step >= first.length) return [size, size];
    return [first[step], step + 1 < first.length ? first[step + 1] : size];
  }

  /** The step that a position was emitted in, -1 for the prompt. */
  stepOf(position) {
    return position >= POOL ? -1 : this.trace.tokens.step[position];
  }

  /** Where an output token was copied from, -1 if nowhere. */
  sourceOf(position) {
    const { source, pool } = this.trace.tokens;
    return place(source[position], pool[position]);
  }

  /** How an output token was decided: {node (null: not drafted), rather (the target's first choice there)}. */
  decision(position) {
    const number = this.stepOf(position);
    if (!(number >= 0)) return null;
    const nodes = this.nodes(number);
    const path = nodes.filter((node) => node.status === "accepted" || node.status === "root");
    const k = position - this.trace.steps.context[number];
    const choices = path[k] ? this.targets(number).get(path[k].index) : null;
    return { node: path[k + 1] || null, rather: (choices && choices[0]) || null };
  }

  /** The position in whose distribution a node was found: the node's number that ends in "_anchor"; -1 if none. */
  anchorOf(node) {
    for (const { key } of this.nodeTerms) {
      const value = key.endsWith("_anchor") ? this.nodeTerm(node, key) : null;
      if (Number.isInteger(value) && value >= 0 && value < this.tokenCount) return value;
    }
    return -1;
  }

  nodeTerm(node, key) {
    return this.trace.nodes[`term:${key}`][node.row];
  }

  stepTerm(step, key) {
    return this.trace.steps[`term:${key}`][step];
  }

  /** Everything the views show of one step. */
  step(number) {
    if (this.cache && this.cache.number === number) return this.cache;
    const steps = this.trace.steps;
    const view = { number };
    for (const name of Object.keys(steps)) view[name] = steps[name][number];
    view.end = view.context + view.emitted;
    view.root = this.trace.tokens.id[view.context - 1];
    view.nodes = this.nodes(number);
    view.targets = this.targets(number);
    view.path = view.nodes.filter((node) => node.status === "accepted");
    view.last = view.path.length ? view.path[view.path.length - 1].index : 0;
    view.spans = this.spans(view.nodes);
    view.candidates = this.candidates(number);
    view.chosen = view.candidates.find((candidate) => candidate.chosen) || null;
    view.best = this.best(view.candidates);
    view.refused = view.nodes.filter((node) => node.parent === view.last && node.status === "rejected");
    this.cache = view;
    return view;
  }

  nodes(step) {
    const table = this.trace.nodes;
    const [from, to] = this.rows("nodes", step);
    const found = [];
    for (let row = from; row < to; row++) {
      found.push({
        row,
        index: row - from,
        token: table.token[row],
        parent: table.parent[row],
        depth: table.depth[row],
        origin: table.origin[row],
        source: place(table.source[row], table.pool[row]),
        draftProb: table.draft_prob[row],
        prob: table.prob[row],
        rank: table.rank[row],
        status: table.status[row],
        reason: table.reason[row],
        span: 0,
      });
    }
    return found;
  }

  /** node → the target's first choices after it, likeliest first. */
  targets(step) {
    const table = this.trace.targets;
    const found = new Map();
    const [from, to] = this.rows("targets", step);
    for (let row = from; row < to; row++) {
      const node = table.node[row];
      if (!found.has(node)) found.set(node, []);
      found.get(node).push({ token: table.token[row], prob: table.prob[row] });
    }
    return found;
  }

  /** Source spans used by a tree, numbered from 1; every node of a span gets its number. */
  spans(nodes) {
    const found = [];
    for (const node of nodes) {
      if (node.source < 0) continue;
      const parent = nodes[node.parent];
      const span = parent && parent.span && parent.source + 1 === node.source ? found[parent.span - 1] : null;
      if (span) span.stop = Math.max(span.stop, node.source + 1);
      else found.push({ number: found.length + 1, start: node.source, stop: node.source + 1 });
      node.span = span ? span.number : found.length;
    }
    return found;
  }

  candidates(step) {
    const table = this.trace.candidates;
    const [from, to] = this.rows("candidates", step);
    const found = [];
    for (let row = from; row < to; row++) {
      found.push({
        row,
        position: place(table.position[row], table.pool[row]),
        score: table.score[row],
        length: table.length[row],
        rank: table.rank[row],
        chosen: table.chosen[row],
        excluded: table.excluded[row],
        would: table.would_accept[row],
      });
    }
    const order = (candidate) => (candidate.excluded ? 1e9 : 0) + (candidate.rank < 0 ? 1e8 : candidate.rank);
    return found.sort((a, b) => order(a) - order(b));
  }

  term(candidate, key) {
    const column = this.trace.candidates[`term:${key}`];
    return column ? column[candidate.row] : null;
  }

  /** The candidate that would have accepted most (the first of them), null while the run goes on. */
  best(candidates) {
    let best = null;
    for (const candidate of candidates) {
      if (candidate.would >= 0 && (!best || candidate.would > best.would)) best = candidate;
    }
    return best;
  }
}
