/* A block drafter's candidates as a lattice: positions from left to right, each with its candidates, likeliest first;
   between them the transitions, the walk that was drafted, and the tokens that were written. */

import { h, s } from "specviz/base/dom.js";
import { set } from "specviz/base/drawing.js";
import { clamp, format, plural, probability } from "specviz/base/numbers.js";
import { term } from "specviz/base/terms.js";
import { STATES } from "specviz/inspect/drafting.js";
import { Panel } from "specviz/inspect/panel.js";

const [WIDE, WIDEST, HIGH, ROW, TOP, LEFT] = [52, 88, 34, 39, 6, 4]; // px: boxes, and the room between them
const [GAP, LEAST_GAP, NARROW] = [13, 7, 66]; // px: narrower boxes stand closer, so that more of a token is seen
const SHADES = 4; // of transitions
const [LETTER, EDGES] = [7.3, 7.5]; // px: of a letter in a box, and what stays free beside the text
/** @type {[key: string, label: string][]} */
const NUMBERS = [
  ["candidate_recall", "candidate recall"],
  ["selector_accuracy", "selector accuracy"],
  ["oracle_length", "oracle length"],
];

/** Whether a run has lattices. @param {Model} model */
export const present = (model) => (model.trace.lattice?.step.length ?? 0) > 0;

/**
 * A step's lattice as it is drawn. Of every position: its candidates by rank, and the token that was written there
 * (undefined: nothing yet). Transitions have a ``shade`` from 0 (the smallest recorded score of their position) to 1.
 *
 * @type {(model: Model, view: StepView) => Lattice | null}
 */
export function latticeOf(model, view) {
  const table = model.trace.lattice;
  const rows = table ? model.rows("lattice", view.number) : [];
  if (!table || !rows.length) return null;
  /** @type {LatticePosition[]} */
  const positions = [];
  for (const row of rows) {
    const depth = table.depth[row];
    const written = model.id(view.context + depth - 1);
    const position = (positions[depth - 1] ??= { depth, written, candidates: [], drafted: depth <= view.depth });
    const token = table.token[row];
    position.candidates.push({
      token,
      rank: table.rank[row],
      logprob: table.logprob[row],
      walked: table.walked[row],
      written: token === written,
    });
  }
  return { positions, edges: edgesOf(model, view, positions), root: view.root };
}

/** @type {(model: Model, view: StepView, positions: LatticePosition[]) => LatticeEdge[]} */
function edgesOf(model, view, positions) {
  const table = model.trace.transitions;
  if (!table) return [];
  /** @type {(depth: number, rank: number) => boolean} */
  const walked = (depth, rank) => (depth ? positions[depth - 1].candidates[rank].walked : true);
  const edges = model.rows("transitions", view.number).map((row) => {
    const [depth, before, rank] = [table.depth[row], table.before[row], table.rank[row]];
    const taken = walked(depth, rank) && walked(depth - 1, before);
    return { depth, before, rank, score: table.score[row], walked: taken, shade: 0 };
  });
  for (const { depth } of positions) {
    const some = edges.filter((edge) => edge.depth === depth);
    const [low, high] = [Math.min, Math.max].map((most) => most(...some.map((one) => one.score ?? 0)));
    for (const edge of some) edge.shade = high > low ? ((edge.score ?? 0) - low) / (high - low) : 1;
  }
  return edges;
}

/** What a reader hears of it. @type {(lattice: Lattice, label: (token: number) => string) => string} */
export function inWords(lattice, label) {
  return lattice.positions
    .map(({ depth, written, candidates }) => {
      const taken = candidates.find((one) => one.walked);
      const wrote = candidates.find((one) => one.written);
      const walk = taken ? `the walk takes ${label(taken.token)}` : "no walk";
      if (written === undefined) return `Position ${depth}: ${walk}.`;
      if (wrote === taken) return `Position ${depth}: ${walk}, as written.`;
      const where = wrote ? `candidate ${wrote.rank + 1}` : "no candidate";
      return `Position ${depth}: ${walk}; written is ${label(written)}, ${where}.`;
    })
    .join(" ");
}

export class LatticeView extends Panel {
  /** @param {Inspector} owner */
  constructor(owner) {
    super(owner, "lattice", "Lattice");
    this.svg = s("svg.sv-lattice-svg", { role: "img" });
    const shades = Array.from({ length: SHADES }, (_, shade) => `sv-transition sv-transition-${shade}`);
    this.paths = [...shades, "sv-walk"].map((name) => s("path", { class: name }));
    this.svg.append(...this.paths);
    /** @type {BoxElements[]} */
    this.boxes = [];
    this.facts = h("p.sv-lattice-facts");
    this.numbers = h("p.sv-lattice-numbers");
    this.body.append(this.facts, h("div.sv-lattice-scroll", { tabindex: "0" }, this.svg), this.numbers);
    this.body.append((this.legend = legend()));
    this.room = this.wide = 0; // px: of the panel, and of a box
    /** @type {StepView | null} */
    this.view = null;
    owner.on("resized", () => {
      if (this.view && this.width !== this.room) this.draw(this.view, this.width);
    });
  }

  /** Of the panel: in large type a pixel is more. */
  get width() {
    return this.body.clientWidth / Math.max(1, this.owner.zoom - 0.15);
  }

  /** Whether the run has lattices. */
  get on() {
    return !!this.owner.model && present(this.owner.model);
  }

  clear() {
    this.view = null;
    for (const path of this.paths) set(path, { d: "" });
    this.place([]);
    this.facts.textContent = this.note.textContent = "";
  }

  /** ``room``: the panel's width. @type {(view: StepView, room?: number) => void} */
  draw(view, room = this.room || this.width) {
    const { model } = this.owner;
    if (!this.on) return;
    const lattice = latticeOf(model, view);
    if (!lattice) {
      this.clear();
      this.facts.textContent = "This step drafted no block.";
      return;
    }
    const { positions } = lattice;
    [this.view, this.room] = [view, room];
    const pitch = Math.floor((room - 20) / (positions.length + 1));
    const wide = (this.wide = clamp(pitch - GAP < NARROW ? Math.min(pitch - LEAST_GAP, NARROW - 1) : pitch - GAP,
      WIDE, WIDEST));
    const most = Math.max(...positions.map((one) => one.candidates.length));
    this.note.textContent = `${plural(positions.length, "position")} × ${plural(most, "candidate")}`;
    this.tell(view);
    const width = x(positions.length + 1, wide) - gap(wide) + LEFT;
    const height = TOP + (most + 1) * ROW;
    set(this.svg, { width, height, viewBox: `0 0 ${width} ${height}` });
    /** @param {number} token */
    const label = (token) => model.pieces.label(token, Math.floor((wide - EDGES) / LETTER));
    set(this.svg, { "aria-label": inWords(lattice, label) });
    lines(lattice, wide).forEach((d, place) => set(this.paths[place], { d }));
    this.place([
      box(label(lattice.root), 0, 0, "sv-lattice-root", "root", ""),
      ...positions.flatMap((position) => column(position, view, label, most)),
    ]);
    const drawn = { absent: !!this.svg.querySelector(".sv-candidate-absent"), transition: lattice.edges.length > 0 };
    for (const [key, shown] of Object.entries(drawn)) this.legend.classList.toggle(`sv-no-${key}`, !shown);
  }

  /** Puts the boxes there, in elements that are there already. @param {LatticeBox[]} boxes */
  place(boxes) {
    while (this.boxes.length < boxes.length) this.boxes.push(new BoxElements(this.svg));
    this.boxes.forEach((one, place) => one.show(boxes[place], this.wide));
  }

  /** The step's own numbers, and the run's, each with its formula. @param {StepView} view */
  tell(view) {
    const { report } = this.owner.model;
    const one = report?.lattices?.find(({ step }) => step === view.number);
    this.facts.textContent = one
      ? `The best walk would have had ${one.oracle} of ${plural(one.positions, "token")} accepted, the walk taken ` +
        `had ${view.accepted}. The candidates hold ${one.covered} of the ${one.positions} that were written.`
      : "What was written behind this step is not known yet.";
    /** @type {(pair: [key: string, label: string]) => HTMLElement} */
    const number = ([key, label]) =>
      h("span", term(this.owner, key, label), ` ${told(this.owner.model.metric(key).value, key)}`);
    this.numbers.replaceChildren("Over the run: ", ...NUMBERS.map(number));
  }
}

/** @type {(value: number | null | undefined, key: string) => string} */
const told = (value, key) =>
  value === null || value === undefined ? "–" : key === "oracle_length" ? format(value, 2) : probability(value);

/** @type {(depth: number, wide: number) => number} */
const x = (depth, wide) => LEFT + depth * (wide + gap(wide));
/** Between the boxes of two positions. @param {number} wide */
const gap = (wide) => (wide < NARROW ? LEAST_GAP : GAP);
/** @param {number} rank */
const y = (rank) => TOP + rank * ROW;

/** @type {(depth: number, before: number, rank: number, wide: number) => string} */
const line = (depth, before, rank, wide) => {
  const [from, to] = [x(depth - 1, wide) + wide, x(depth, wide)];
  const [a, b] = [y(before) + HIGH / 2, y(rank) + HIGH / 2];
  const middle = (from + to) / 2;
  return `M${from} ${a}C${middle} ${a} ${middle} ${b} ${to} ${b}`;
};

/** Transitions by shade, then the walk, each shade one path. @type {(lattice: Lattice, wide: number) => string[]} */
function lines({ positions, edges }, wide) {
  const shades = Array.from({ length: SHADES }, () => "");
  for (const { depth, before, rank, shade } of edges) {
    shades[Math.min(SHADES - 1, Math.floor(shade * SHADES))] += line(depth, before, rank, wide);
  }
  let walk = "";
  let last = 0;
  for (const { depth, candidates } of positions) {
    const taken = candidates.find((one) => one.walked)?.rank ?? 0;
    walk += line(depth, last, taken, wide);
    last = taken;
  }
  return [...shades, walk];
}

/** @type {(text: string, column: number, row: number, name: string, about: string, small: string) => LatticeBox} */
function box(text, column, row, name, about, small) {
  return { text, depth: column, top: y(row), name: `sv-candidate ${name}`, about, small };
}

/** The elements of a box, which stay while steps change. */
class BoxElements {
  /** @param {SVGElement} svg */
  constructor(svg) {
    this.title = s("title");
    this.text = s("text", { x: 4, y: 14 });
    this.small = s("text.sv-candidate-prob", { y: 28, "text-anchor": "end" });
    this.rect = s("rect", { height: HIGH, rx: 5 });
    this.group = s("g", this.title, this.rect, this.text, this.small);
    svg.append(this.group);
  }

  /** @type {(box: LatticeBox | undefined, wide: number) => void} */
  show(box, wide) {
    if (!box) return set(this.group, { display: "none" });
    const { text, depth, top, name, about, small } = box;
    set(this.group, { display: null, class: name, transform: `translate(${x(depth, wide)} ${top})` });
    set(this.rect, { width: wide });
    set(this.title, { text: about });
    set(this.text, { text });
    set(this.small, { x: wide - 5, text: small });
  }
}

/** @type {MakeColumn} */
function column({ depth, written, candidates, drafted }, view, label, most) {
  const node = view.nodes[depth];
  const boxes = candidates.map((one) => {
    const state = one.walked ? (drafted && node ? node.status : "cut") : "other";
    const likelihood = probability(one.logprob === null ? null : Math.exp(one.logprob));
    const said = one.walked ? `on the walk, ${drafted && node ? STATES[node.status] : "not sent to the target"}` : "";
    const facts = [
      `candidate ${one.rank + 1} of position ${depth}`,
      `${likelihood} by itself`,
      said,
      one.written ? "what was written" : "",
    ];
    const name = `sv-candidate-${state}${one.written ? " sv-candidate-written" : ""}`;
    const about = `${label(one.token)}: ${facts.filter(Boolean).join(", ")}`;
    return box(label(one.token), depth, one.rank, name, about, likelihood);
  });
  const missing = written !== undefined && !candidates.some((one) => one.written);
  const absent = missing
    ? box(label(written), depth, most, "sv-candidate-absent sv-candidate-written", "written, and no candidate", "")
    : null;
  return absent ? [...boxes, absent] : boxes;
}

/** How boxes and lines are told apart: what the step does not have is left out. */
const legend = () =>
  h(
    "ul.sv-lattice-legend.ui-legend",
    h("li", "the walk that was drafted"),
    h("li.sv-key-written", "what was written"),
    h("li.sv-key-absent", "written, and no candidate"),
    h("li.sv-key-transition", "darker: a larger transition score, among those of its position"),
  );
