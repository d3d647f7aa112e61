/* Lens: what every layer of the target says at a drafted token's place, computed by the server when it is asked for. */

import { on } from "specviz/base/bus.js";
import { append, button, card, framed, h, heads, icon, replace, table } from "specviz/base/dom.js";
import { postJson, sentence } from "specviz/base/json.js";
import { clamp, format, nth, probability } from "specviz/base/numbers.js";
import { Pieces } from "specviz/base/text.js";
import { choiceOf } from "specviz/inspect/drafting.js";
import { STATUS } from "specviz/inspect/tree_boxes.js";
import { app } from "specviz/shell/state.js";
import { drawCourses, earlier, layerName, sample } from "specviz/whatif/lens_chart.js";

const NO_DRAFT = "Nothing was drafted in this step: there is no token to look at.";
const MOST_KEPT = 200; // answers

/** @type {(layer: number) => string} */
const from = (layer) => (layer ? `from layer ${layer} on` : "from the embedding on");

/** The panel, in the candidates' place while it is open; a click on a node of the tree chooses what it shows. */
export class LensView {
  /** @param {Inspector} inspector */
  constructor(inspector) {
    this.inspector = this.owner = inspector;
    this.reason = "";
    this.shading = false;
    /** Nowhere was looked: nothing is shaded. @type {Look[]} */
    this.look = [];
    /** @type {TreeNode | null} */
    this.node = null;
    /** @type {LensCourses | null} */
    this.result = null;
    /** Step and node → the answer, of the run shown. @type {Map<string, LensCourses>} */
    this.answers = new Map();
    this.id = "";
    this.on = false;
    this.asking = false;
    this.ranks = false;

    /** A long draft is folded as it is without this panel. */
    this.folds = true;
    const { element, body, note, bar } = card("lens", "Lens");
    this.element = element;
    this.note = note;
    note.setAttribute("role", "status");
    /** @type {(name: string, ranks: boolean) => HTMLButtonElement} */
    const scale = (name, ranks) =>
      h("button", { "aria-pressed": String(!ranks), onclick: () => this.scaled(ranks) }, name);
    this.scales = [scale("Probability", false), scale("Rank", true)];
    /** @type {(label: string, by: number, name: "previous" | "next") => HTMLButtonElement} */
    const steps = (label, by, name) =>
      button(label, { class: "sv-square sv-quiet", onclick: () => this.walk(by) }, icon(name));
    this.walks = [steps("Previous drafted token", -1, "previous"), steps("Next drafted token", 1, "next")];
    bar.append(h("span.svo-scales.ui-seg", { role: "group", "aria-label": "Scale" }, this.scales), ...this.walks);
    this.words = h("p.svo-words");
    this.legend = h("ul.ui-legend");
    this.chart = h("div.svo-chart");
    this.rows = h("div.svo-rows");
    body.append(this.words, this.legend, this.chart, this.rows);
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.toggle(false);
    });

    this.offer();
    inspector.on("step", () => this.on && this.begin());
    inspector.on("able", (reason) => this.able(reason));
    on("model", () => this.answers.clear());
    new ResizeObserver(framed(() => this.draw())).observe(body);
  }

  /** @param {string} reason */
  able(reason) {
    this.reason = reason;
    this.offer();
    if (app.shown === this.id && !reason) return;
    this.id = app.shown;
    this.answers.clear();
    this.toggle(false);
  }

  /** The tab, as it can be opened now. */
  offer() {
    const open = () => this.expand(true), close = () => this.expand(false);
    const { element, reason: off } = this;
    this.inspector.tabs.add({ name: "lens", label: "Lens", look: "svo-open", element, off, open, close });
  }

  /** Opens or closes the panel. @returns {void} */
  toggle(open = !this.on) {
    if (!open) return this.on ? this.inspector.tabs.close() : undefined;
    this.inspector.tabs.open("lens");
    if (this.on) requestAnimationFrame(() => this.walks[1].focus({ preventScroll: true }));
  }

  /** @param {boolean} open */
  expand(open) {
    const { inspector } = this;
    this.on = open;
    inspector.borrowed = open ? this : null;
    inspector.tree.mark();
    if (open) this.begin();
  }

  /** The step shown: at its first refused token, else at the last accepted one. */
  begin() {
    const { inspector } = this;
    const { nodes, path, refused, number } = inspector.model.step(inspector.number);
    const selected = inspector.selection.peek();
    const own = selected?.step === number && selected.node !== null ? nodes[selected.node] : null;
    this.node = own ?? refused[0] ?? path.at(-1) ?? nodes[nodes.length - 1];
    if (!this.node.index) this.node = null;
    inspector.tree.mark();
    this.ask();
  }

  // ---- the tree's picker ------------------------------------------------------------------------------------------

  /** @type {Picker["choice"]} */
  choice(item) {
    return item?.kind === "node" && item.node.index ? choiceOf(item.node) : null;
  }

  /** @type {Picker["isChosen"]} */
  isChosen(item) {
    return item.kind === "node" && !!this.node && item.node.index === this.node.index;
  }

  preview() {}

  /** @type {Picker["choose"]} */
  choose(one) {
    if (!one) return;
    this.node = this.inspector.model.step(this.inspector.number).nodes[one.node];
    this.inspector.tree.mark();
    this.ask();
  }

  /** @type {Picker["walk"]} */
  walk(by) {
    const { nodes } = this.inspector.model.step(this.inspector.number);
    const next = nodes[clamp((this.node?.index ?? 0) + by, 1, nodes.length - 1)];
    if (next) this.choose(choiceOf(next));
  }

  // ---- what is asked ----------------------------------------------------------------------------------------------

  /** Asks for the node shown, one question at a time; what was answered once is not asked again. */
  async ask() {
    const { node, id } = this;
    const step = this.inspector.number;
    if (!node) return this.say(NO_DRAFT);
    const key = `${step} ${node.index}`;
    const known = this.answers.get(key);
    if (known) return this.show(known);
    this.result = null;
    this.element.classList.add("svo-stale");
    if (!this.words.childNodes.length) this.note.textContent = "computing each layer's first choices …";
    if (this.asking) return;
    this.asking = true;
    this.element.setAttribute("aria-busy", "true");
    let problem = "";
    try {
      const answer = await postJson(`api/whatif/${encodeURIComponent(id)}/lens`, { step, node: node.index });
      if (this.answers.size >= MOST_KEPT) this.answers.clear();
      if (id === this.id) this.answers.set(key, answer);
    } catch (error) {
      problem = sentence(error);
    }
    this.asking = false;
    this.element.removeAttribute("aria-busy");
    if (!this.on) return;
    const other = id !== this.id || step !== this.inspector.number || node.index !== this.node?.index;
    if (other) this.ask();
    else if (problem) this.say(problem);
    else this.ask();
  }

  /** @param {string} text */
  say(text) {
    this.result = null;
    this.element.classList.remove("svo-stale");
    this.note.textContent = "";
    this.words.replaceChildren(text === NO_DRAFT ? text : h("span.svp-error", text));
    for (const part of [this.legend, this.chart, this.rows]) part.replaceChildren();
  }

  // ---- what is shown ----------------------------------------------------------------------------------------------

  /** @param {boolean} ranks */
  scaled(ranks) {
    this.ranks = ranks;
    this.scales.forEach((one, k) => one.setAttribute("aria-pressed", String(ranks === !!k)));
    this.draw();
  }

  /** @param {LensCourses} result */
  show(result) {
    const pieces = new Pieces(result.pieces);
    this.result = result;
    this.element.classList.remove("svo-stale");
    this.note.textContent = "computed now, teacher-forced";
    /** @type {(id: number) => HTMLElement} */
    const token = (id) => h("code.sv-token", pieces.label(id, 16));
    replace(this.words, this.told(result, token));
    const text = this.words.textContent ?? "";
    if (this.node) this.inspector.layers.value = { step: this.inspector.number, node: this.node.index, text };
    const lines = this.lines(result);
    const last = result.layers;
    this.legend.replaceChildren(
      ...lines.map(({ name, words, course }) =>
        h(
          "li",
          sample(name),
          h("span", `${words} `, token(course.token), ` ${probability(course.probs[last])}`),
          h("small", ` #${(course.ranks[last] + 1).toLocaleString("en")}`),
        ),
      ),
    );
    const rows = result.tops.map(([top, prob], layer) =>
      h(
        "tr",
        { class: layer === result.decided ? "svo-decided" : null },
        h("th", { scope: "row" }, layerName(layer)),
        h("td", token(top), ` ${probability(prob)}`),
        lines.flatMap(({ course }) => [
          h("td.svp-num", probability(course.probs[layer])),
          h("td.svp-num", `#${(course.ranks[layer] + 1).toLocaleString("en")}`),
        ]),
      ),
    );
    const names = () => lines.flatMap(({ course }) => [h("span", token(course.token), " p"), "rank"]);
    const bottom = h("p.svo-limits.ui-soft", result.limits);
    const check = `Check: the last layer, read so, is within ${format(result.apart, 2)} of the model's own logits.`;
    // the layers of one line stand in two columns
    const half = lines.length > 1 ? rows.length : Math.ceil(rows.length / 2);
    const parts = [rows.slice(0, half), rows.slice(half)].filter((part) => part.length);
    const tables = parts.map((part) =>
      table({ class: "svo-table ui-dense" }, heads(["layer", "first choice"], names()), part));
    this.rows.replaceChildren(h("div.svo-columns", tables), append(bottom, [" ", check]));
    this.draw();
  }

  /** The tokens that are followed through the layers. @param {LensCourses} result @returns {LensLine[]} */
  lines({ drafted, own }) {
    const status = this.node?.status ?? "rejected";
    if (drafted.token === own.token) {
      const fate = status === "accepted" ? "" : `, ${STATUS[status]}`;
      return [{ name: status, words: `drafted${fate}, and the target's own`, course: own }];
    }
    return [
      { name: status, words: `drafted, ${STATUS[status]}`, course: drafted },
      { name: "own", words: "target's own", course: own },
    ];
  }

  /** Which token of the draft it is: it may have the same one several times. */
  get place() {
    const { depth, drafted } = this.inspector.model.step(this.inspector.number);
    const at = this.node?.depth ?? 0;
    return depth === drafted ? `token ${at} of the draft` : `${nth(at)} level of the draft`;
  }

  /** What the layers come to, in a sentence. @type {(result: LensCourses, token: (id: number) => Child) => Child[]} */
  told(result, token) {
    const { drafted, own, decided, settled, layers } = result;
    const all = `of ${layers} layers`;
    if (drafted.token === own.token)
      return settled === null
        ? [token(own.token), ` (${this.place}) was drawn: it is not the first choice of the last layer.`]
        : [token(own.token), ` (${this.place}) is the first choice for good `, h("b", from(settled)), ` (${all}).`,
          earlier(result)];
    if (decided === null)
      return ["In the end ", token(drafted.token), ` (${this.place}) still ranks above `, token(own.token), "."];
    /** @type {Child[]} */
    const words = ["The target ranks ", token(own.token), " above the drafted ", token(drafted.token)];
    words.push(` (${this.place}) for good `, h("b", from(decided)), ` (${all})`);
    if (settled === decided) words.push(", as its first choice");
    else if (settled !== null) words.push(`; its first choice ${from(settled)}`);
    return [...words, ".", earlier(result)];
  }

  draw() {
    const { result, chart, ranks } = this;
    const width = this.rows.clientWidth;
    if (!result || !this.on || !width) return;
    const pieces = new Pieces(result.pieces);
    drawCourses(chart, this.lines(result), result, ranks, width, (element, layer) =>
      this.inspector.tip.add(element, () => [
        h("b", layerName(layer)),
        h("div", "first choice ", h("code.sv-token", pieces.label(result.tops[layer][0]))),
      ]),
    );
  }
}
