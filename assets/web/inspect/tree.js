/* The draft tree of a step, as SVG: accepted path straight down, the rest to its right, the target's own token last. */

import { h, later, must, replace, s, write } from "specviz/base/dom.js";
import { set } from "specviz/base/drawing.js";
import { OPEN } from "specviz/base/model.js";
import { clamp, probability } from "specviz/base/numbers.js";
import { Ruler } from "specviz/base/ruler.js";
import { onlyRecorded, overlaid } from "specviz/inspect/ghosts.js";
import { unknown } from "specviz/inspect/imported.js";
import { GuessWindow } from "specviz/inspect/guess_window.js";
import { rail } from "specviz/inspect/prompt_marks.js";
import { LatticeView } from "specviz/inspect/lattice.js";
import { Panel } from "specviz/inspect/panel.js";
import { drafters, legend } from "specviz/inspect/proposers.js";
import { Box, boxOf, fill, folds, lead, pick, statusOf, tagOf } from "specviz/inspect/tree_boxes.js";
import {
  CLEAR, GAP, MARGIN, SIBLINGS, STEM, along, arrange, chainBars, dips, items, lowest, position, rowsIn, shutters,
  under, unplaced,
} from "specviz/inspect/tree_layout.js";
import { TreeWindow } from "specviz/inspect/tree_window.js";
import { LABEL, explain, marks } from "specviz/inspect/tree_words.js";

/** Edges by the status of what they lead to, from the back to the front. @type {ReturnType<typeof statusOf>[]} */
const EDGES = ["chip", "root", "unreached", "rejected", "bonus", "accepted"];

const [PHRASE, LONG] = [16, 48]; // characters of a stretch, and of one that nothing stands beside

export class TreeView extends Panel {
  /** @param {Inspector} owner */
  constructor(owner) {
    super(owner, "tree", "Draft tree");
    /** Folds that were opened. @type {Set<string>} */
    this.opened = new Set();
    /** How many rows had room before any was opened, and the nodes that no fold of a row has, least likely first. */
    this.rows = Infinity;
    this.kept = new Set(/** @type {number[]} */ ([]));
    this.shut = new Set(/** @type {number[]} */ ([])); // nodes of an unchecked draft that are folded below
    /** @type {StepView} */
    this.view = later();
    /** Another draft of the step, drawn over the recorded one. @type {StepView | null} */
    this.other = null;
    /** Whose step is drawn. @type {Model | null} */
    this.drawn = null;
    this.ruler = new Ruler();
    /** @type {Box[]} */
    this.boxes = [];
    this.shown = 0;
    this.alone = false; // no panel tells of its nodes: those in a row may be folded
    /** The box that is hovered. @type {Box | null} */
    this.lit = null;
    this.svg = s("svg.sv-tree-svg", { role: "group" });
    this.edges = EDGES.map((status) => s("path", { class: `sv-edge sv-edge-${status}` }));
    this.distances = s("g.sv-distances", { "aria-hidden": "true" });
    /** The target's probabilities beside a chain: the whole, and how much of it. */
    this.bars = [s("path.sv-tree-whole"), s("path.sv-tree-probability")];
    this.barred = false;
    this.svg.append(this.distances, ...this.bars, ...this.edges);
    /** What is drawn, in the order of the boxes. @type {TreeItem[]} */
    this.placed = [];
    this.window = new TreeWindow(this);
    this.merged = ""; // the drafters that the legend names
    this.discs = h("ul.sv-tree-discs.ui-legend", { "aria-label": "Who proposed a token" });
    this.signs = h("ul.sv-tree-signs.ui-legend", { "aria-label": "Marks of the tree" });
    this.legendText = ""; // of the marks
    /** Whoever says more of what is drawn. @type {(() => void) | null} */
    this.after = null;
    this.bar.append(this.discs, this.window.tools, this.signs);
    this.guesses = new GuessWindow(this);
    this.lattice = new LatticeView(owner);
    this.svg.addEventListener("pointerover", (event) => this.hover(boxOf(event)));
    this.svg.addEventListener("pointerleave", () => this.hover(null));
    /** @type {(event: Event) => void} */
    const act = (event) => {
      const box = boxOf(event);
      if (!box) return;
      if (folds(box.item)) return this.open(event, box.item);
      if (box.item.kind === "node" && box.item.hidden) this.open(event, box.item);
      event.preventDefault();
      this.owner.selectNode(box.item.kind === "node" ? box.item.node.index : -1);
      if (event.type === "click" && box.place >= 0) this.owner.reveal(box.place, true);
    };
    this.svg.addEventListener("click", act);
    this.svg.addEventListener("keydown", (event) => {
      const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
      const box = boxOf(event);
      const { picker } = this.owner;
      if (event.key === "Enter" || event.key === " ") return act(event);
      if (!by || !box) return;
      event.preventDefault();
      if (!picker.on) return this.boxes[clamp(this.boxes.indexOf(box) + by, 0, this.shown - 1)].group.focus();
      picker.walk(by);
      const to = this.boxes.slice(0, this.shown).find((one) => picker.isChosen(one.item));
      if (to) to.group.focus();
    });
  }

  /** What is drawn of a node (-1: of the target's own token), be it in sight or not. */
  /** @type {(index: number) => TreeItem | null} */
  itemOf(index) {
    const item = this.placed.find((one) => (one.kind === "node" ? one.node.index === index : false));
    if (item || index < 0) return item ?? this.placed.find((one) => one.kind === "bonus") ?? null;
    const node = this.view?.nodes[index];
    return node ? { ...unplaced(node.depth), kind: "node", node } : null;
  }

  /** Whether an item is what was selected. @param {TreeItem} item */
  isSelected(item) {
    const { selection } = this.owner;
    const now = selection?.peek();
    if (!now || now.node === null || now.step !== this.view.number) return false;
    return item.kind === "node" ? item.node.index === now.node : item.kind === "bonus" && now.node === -1;
  }

  /** Lights the place a node was copied from, or the anchor it was drafted in. @param {Box | null} box */
  hover(box) {
    if (box === this.lit) return;
    this.lit = box;
    this.owner.picker.preview(box && box.item);
    const anchored = !!box && box.anchored;
    this.owner.light(box && box.place >= 0 ? [box.place] : [], anchored ? "sv-light-anchor" : "sv-light");
  }

  clear() {
    this.other = null;
    this.body.replaceChildren();
    this.window.clear();
    this.note.textContent = "";
    this.guesses.show(0);
    this.lattice.clear();
  }

  /** ``keep``: the folds stay open, the place stays in sight. @param {StepView} view */
  draw(view, keep = false) {
    if (!keep) {
      this.opened.clear();
      this.other = null;
    }
    if (!keep) this.lattice.draw(view);
    if (this.other && !view.nodes[0].draft) view = overlaid(view, this.other); // else it is drawn anew
    this.view = view;
    this.drawn = this.owner.model;
    const hangs = this.owner.prompts.on;
    const { placed, row, width: wide, height } = this.lay(view, hangs);
    const bars = hangs ? null : chainBars(placed, this.window.room / this.owner.zoom);
    const width = Math.max(wide, bars?.width ?? 0);
    this.barred = bars !== null;
    this.bars.forEach((bar, k) => set(bar, { d: bars?.paths[k] ?? "" }));
    this.drawDistances(placed, hangs ? view.depth : 0);
    const { svg } = this;
    const label = `Draft tree of step ${view.number + 1}`;
    const look = `sv-tree-svg${row < 24 ? " sv-tree-low" : ""}`;
    set(svg, { class: look, viewBox: `0 0 ${width} ${height}`, "aria-label": label });
    const paths = EDGES.map(() => "");
    for (const item of placed)
      for (const child of item.children) paths[EDGES.indexOf(statusOf(child))] += this.edge(item, child);
    this.edges.forEach((edge, k) => set(edge, { d: paths[k] }));
    this.lit = null;
    placed.forEach((item, k) => fill(this, this.boxes[k] || this.makeBox(k), item, view));
    for (let k = placed.length; k < this.shown; k++) this.boxes[k].group.remove();
    for (let k = this.shown; k < placed.length; k++) svg.append(this.boxes[k].group);
    this.shown = placed.length;
    this.placed = placed;
    this.mark();
    if (svg.parentNode !== this.body) this.body.replaceChildren(svg);
    const deep = view.depth === view.drafted || this.other ? "" : `, ${view.depth} deep`;
    const stood = view.bonus === OPEN ? "not checked yet" : `${view.accepted} accepted`;
    const some = unknown(this.owner.model, "steps.drafted");
    const none = some ? "what was drafted is not recorded" : "no draft this step";
    const all = some ? "drafted: not recorded" : `${view.drafted} drafted${deep}`;
    const counts = view.drafted ? `${all} · ${stood}` : none;
    this.note.textContent = this.other ? `as recorded: ${counts}` : counts;
    const signs = !this.other ? marks(this, view) : []; // else they stand beside the other draft's
    const text = signs.join();
    if (text !== this.legendText) replace(this.signs, signs.map(([sign, words]) => h("li", h("b", sign), words)));
    this.legendText = text;
    const merged = drafters(this.owner.model).join();
    if (merged !== this.merged) this.discs.replaceChildren(...legend(this.owner));
    this.merged = merged;
    this.guesses.draw(view.number);
    this.after?.();
    this.window.fit(width, height, keep);
  }

  /** Draws another draft of the step over the recorded one; null: the recorded one alone. */
  /** @param {StepView | null} other */
  overlay(other) {
    if (!other && !this.other) return;
    if (!this.other) this.opened.clear(); // what differs is looked at
    this.other = other;
    this.draw(this.owner.model.step(this.owner.number), true);
    this.window.resized();
  }

  /** What is drawn of a step, each in its place: all of it where there is room, else as few folds as have room. */
  /** @type {(view: StepView, hangs: boolean) => Laid} */
  lay(view, hangs) {
    const { picker, zoom } = this.owner;
    const [room, high] = [this.window.room / zoom, this.window.high / zoom];
    if (!this.opened.size) { // else what was shown stays shown, though the map takes some height
      const told = picker.on && !picker.folds && (!this.alone || this.window.narrow); // by a panel, node by node
      this.rows = told || hangs || !high ? Infinity : rowsIn(high);
      this.kept = new Set(this.rows < Infinity ? dips(view) : []);
    }
    const { rows, kept } = this;
    /** Node → how many tokens beside what follows it have room. @type {Map<number, number>} */
    const most = new Map();
    let wide = this.window.across / zoom;
    /** @type {(rows: number, most: ((node: number) => number) | null, opened?: Set<string>, closed?: Laid) => Laid} */
    const laid = (rows, most, opened = new Set(), closed = undefined) => {
      const drawn = () => arrange(items(view, opened, rows, most, kept, this.shut));
      let { placed, columns } = drawn();
      while (kept.size && !this.opened.size && placed.some(({ depth }) => depth >= rows)) {
        kept.delete([...kept].at(-1) ?? 0);
        ({ placed, columns } = drawn());
      }
      for (const item of placed) this.caption(item, view);
      return position(placed, columns, hangs, high, wide || Infinity, closed);
    };
    const leaves = view.drafted - new Set(view.nodes.map(({ parent }) => parent)).size + 2;
    if (leaves * (46 + GAP) <= room) { // each has a column of its own
      const whole = laid(Infinity, null);
      if (whole.width <= wide && whole.height <= high) return whole;
    }
    wide = room;
    const fits = (/** @type {number} */ node) => most.get(node) ?? SIBLINGS;
    const folded = () => {
      for (;;) {
        const drawn = laid(rows, fits);
        const over = room && drawn.width > room ? drawn.placed.filter(({ x, width }) => x + width + MARGIN > room) : [];
        const parents = drawn.placed.filter((item) => item.children.some((child) => over.includes(child)));
        let fewer = 0;
        for (const { children } of parents) {
          const beside = children.filter(({ kind, column }) => kind === "node" && column);
          const [first] = beside;
          if (first?.kind !== "node") continue;
          const now = Math.min(beside.length, fits(first.node.parent));
          const fit = beside.filter((item) => !over.includes(item)).length;
          const next = Math.max(1, Math.min(fit, now - 1));
          fewer += now - next;
          most.set(first.node.parent, next);
        }
        if (!fewer) return drawn;
      }
    };
    if (this.opened.size) return laid(rows, fits, this.opened, folded()); // what was shown stays shown
    const beside = view.bonus === OPEN && high && !hangs ? shutters(view.nodes) : [];
    const shut = (/** @type {number} */ count) => {
      most.clear();
      this.shut = new Set(beside.slice(beside.length - count));
      return folded();
    };
    const open = shut(0);
    if (!beside.length || open.height <= high) return open;
    let [least, enough] = [0, beside.length]; // how many are folded: too few, and enough
    while (enough - least > 1) {
      const middle = (least + enough) >> 1;
      if (shut(middle).height > high) least = middle;
      else enough = middle;
    }
    return shut(enough);
  }

  /** Scrolls so that the end of the accepted path is seen. Apart from draw(), as scrolling costs a layout. */
  settle() {
    this.window.settle();
  }

  /** The box in which a node is drawn, be it alone or with others. @param {number} index */
  boxOf(index) {
    return this.boxes.slice(0, this.shown).find(({ item }) => {
      if (item.kind === "stretch") return item.nodes.some((node) => node.index === index);
      return item.kind === "node" && item.node.index === index;
    });
  }

  resized() {
    this.window.resized();
  }

  /** The width of a node's text; ``small``: of its second line. @type {(text: string, small?: boolean) => number} */
  measure(text, small = false) {
    const { sans, mono } = this.owner.colors;
    return Math.ceil(this.ruler.width(text, small ? `12px ${sans}` : `13px ${mono}`));
  }

  /** Sets an item's text, what is said beside it, and its width. @type {(item: TreeItem, view: StepView) => void} */
  caption(item, view) {
    const { pieces } = this.owner.model;
    const first = item.kind === "stretch" ? item.nodes[0] : item.kind === "node" ? item.node : null;
    if (item.kind === "chip") {
      item.text = `${view.nodes[0].draft ? "▸" : "+"}${item.count}`; // beside another draft + says whose a token is
    } else if (item.kind === "stretch") {
      const parents = new Set(view.nodes.map(({ parent }) => parent));
      const alone = view.bonus === OPEN || view.last === view.nodes.length - 1; // the target's token is not beside it
      const chain = alone && parents.size === view.nodes.length;
      item.text = pieces.phrase(item.nodes.map((node) => node.token), chain ? LONG : PHRASE);
      const least = view.bonus === OPEN ? null : lowest(item.nodes);
      item.line = `⋯${item.nodes.length}${least === null ? "" : `, lowest ${probability(least)}`}`;
    } else if (item.kind === "bonus") {
      const choices = view.targets.get(view.last) || [];
      item.rank = choices.findIndex((one) => one.token === view.bonus);
      item.prob = choices[item.rank]?.prob ?? null;
      item.text = view.bonus < 0 ? "■ stop" : pieces.word(view.bonus, LABEL);
      item.line = item.prob === null || view.bonus < 0 ? "" : probability(item.prob);
    } else {
      const { node } = item;
      const word = pieces.word(node.token, LABEL);
      // two that differ by their space alone are told apart by it
      const beside = view.nodes.filter((one) => one.parent === node.parent && one !== node);
      const twin = beside.some((one) => pieces.word(one.token, LABEL) === word);
      item.text = twin ? pieces.label(node.token, LABEL) : word;
      item.prob = node.prob;
      const decided = node.prob !== null && view.bonus !== OPEN;
      const guessed = node.draftProb === null ? "" : `q${probability(node.draftProb)}`;
      item.line = !node.index ? "" : decided ? probability(node.prob) : guessed;
    }
    if (first?.draft === "other") item.text = `+ ${item.text}`;
    else if (first?.draft === "recorded" && !onlyRecorded(view)) item.text = `− ${item.text}`;
    const hidden = "hidden" in item && item.hidden ? ` ▾${item.hidden}` : "";
    item.line = `${item.line}${hidden}`.trim();
    const side = item.line ? this.measure(item.line, true) + 10 : 0;
    item.tag = first ? tagOf(this, first, view) : "";
    const before = lead(this, first, item.tag);
    item.width = Math.max(item.kind === "chip" ? 40 : 46, before + this.measure(item.text) + side + 18);
    if (item.kind === "node" && this.owner.prompts.on) item.width = Math.max(this.rail(item).width, 62, item.width);
  }

  /** What hangs on an item's node. @param {NodeItem} item */
  rail(item) {
    return rail(this.owner.prompts.count(item.node.index));
  }

  /** Beside each row of guesses, where it begins: how far ahead they are. */
  /** @type {(placed: TreeItem[], depth: number) => void} */
  drawDistances(placed, depth) {
    while (this.distances.childElementCount < depth) this.distances.append(s("text", { x: MARGIN }));
    [...this.distances.children].forEach((text, k) => {
      const tops = placed.filter((item) => item.depth === k + 1).map(({ y }) => y);
      set(text, { display: k < depth && tops.length ? null : "none", y: (tops.length ? Math.min(...tops) : 0) + 18 });
      write(text, `distance ${k + 1}`);
    });
  }

  /** @type {(from: TreeItem, to: TreeItem) => string} */
  edge(from, to) {
    const [x1, x2] = [from.x + STEM, to.x + STEM];
    const below = from.y + from.high;
    /** @type {(child: TreeItem) => boolean} */
    const straight = (child) => child.column === from.column && child.x === from.x;
    if (straight(to)) return to.y - below < CLEAR[0] ? "" : `M${x1} ${below}V${to.y}`; // "": they touch
    // a trunk grows from sibling to sibling, so that dashes never lie on dashes
    const before = from.children[from.children.indexOf(to) - 1];
    const turn = to.y - Math.min(7, (to.y - below) / 2);
    const first = must(from.children.find((child) => !straight(child)));
    if (before && to.level > before.level) // around those of the line above
      return `M${first.x - GAP} ${first.y - Math.min(7, (first.y - below) / 2)}V${turn}H${x2}V${to.y}`;
    return before ? `M${before.x + STEM} ${turn}H${x2}V${to.y}` : `M${x1} ${below}V${turn}H${x2}V${to.y}`;
  }

  /** @param {number} k */
  makeBox(k) {
    const box = new Box();
    this.boxes[k] = box;
    this.owner.tip.add(box.group, () => explain(this, box.item, this.view));
    return box;
  }

  /** What is selected, or what the panel below the tree tells of, has changed: Tab leads there, else to the root. */
  mark() {
    const { picker } = this.owner;
    const items = this.placed.filter((item) => !folds(item));
    /** @type {(item: TreeItem) => boolean} */
    const isChosen = picker.on && !this.other ? (item) => picker.isChosen(item) : (item) => this.isSelected(item);
    const chosen = items.find(isChosen) ?? items.find((item) => this.isSelected(item)) ?? null;
    const told = picker.on && (this.owner.options.drawer === false || !!this.owner.borrowed); // beside the tree
    this.body.classList.toggle("sv-tree-picked", told || items.some((item) => this.isSelected(item)));
    for (const box of this.boxes.slice(0, this.shown))
      if (!folds(box.item)) pick(box, box.item === chosen, box.item === (chosen ?? items[0]));
  }

  /** Draws a node by itself where it is folded with others. @param {number} index */
  unfold(index) {
    const { nodes } = this.view ?? { nodes: [] };
    if (!nodes[index] || this.boxOf(index)?.item.kind === "node") return;
    for (let at = nodes[index]; at.index > 0; at = nodes[at.parent])
      for (const key of [along(at), `beside ${at.parent}`, under(nodes[at.parent])]) this.opened.add(key);
    this.draw(this.view, true);
    this.window.resized();
  }

  /** Unfolds what an item stands for, or has below it. @type {(event: Event, item: TreeItem) => void} */
  open(event, item) {
    event.preventDefault();
    event.stopPropagation();
    if (item.kind === "chip") this.opened.add(item.key);
    else if (item.kind === "stretch") for (const node of item.nodes) this.opened.add(along(node));
    else if (item.kind === "node") this.opened.add(under(item.node));
    this.draw(this.view, true);
    this.window.resized(); // the map came or went
    this.body.focus({ preventScroll: true });
  }
}
