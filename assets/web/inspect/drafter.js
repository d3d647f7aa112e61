/* A draft model's step: how sure it was, what decided, where it looked, its probabilities beside the target's. */

import { append, formula, h, level, told } from "specviz/base/dom.js";
import { OPEN } from "specviz/base/model.js";
import { clamp, format, nth, plural, probability } from "specviz/base/numbers.js";
import { pairs, residual } from "specviz/inspect/drafter_pairs.js";
import {
  STATES, beams, beside, chainOf, choiceOf, drafterOf, guesses, label, numberOf, present, quoted, same,
} from "specviz/inspect/drafting.js";
import { LookPanel, lookedAt, looks } from "specviz/inspect/looks.js";
import { assistantPart } from "specviz/inspect/assistant.js";
import { mass } from "specviz/inspect/mass.js";
import { leftOut } from "specviz/inspect/pruned.js";

const TENTHS = 10;

/** @type {Record<string, number>} */
const BY_KEY = { ArrowDown: 1, ArrowUp: -1 };

export class DrafterView extends LookPanel {
  /** @param {Inspector} owner */
  constructor(owner) {
    super(owner, "drafter", "Drafter", "Shade the text by where the draft model looked for this token");
    this.strip = h("div.sv-places.ui-line", { role: "group", "aria-label": "Drafted positions" });
    this.parts = h("div.sv-drafter-parts");
    this.body.append(this.parts);
    this.body.before(this.strip);
    this.rare = false;
    /** @type {TreeNode[]} */
    this.chain = [];
    /** @type {Map<number, Guess[]>} */
    this.guesses = new Map();
    /** @type {HTMLElement[]} */
    this.places = [];
    this.strip.addEventListener("keydown", (event) => this.key(event));
  }

  /** What depends on the run alone. */
  describe() {
    const { model } = this.owner;
    this.on = present(model);
    this.offerLooks(model.run.attention);
  }

  /** A step; it opens on its first rejected token of the chain, else on the last one; unchecked, on the first. */
  /** @param {StepView} view */
  draw(view) {
    this.view = view;
    this.look = [];
    if (!this.on) return;
    this.guesses = guesses(this.owner.model, view.number);
    this.chain = chainOf(view);
    const first = this.chain.find((node) => node.status === "rejected") ??
      this.chain.at(view.bonus === OPEN ? 0 : -1);
    this.chosen = first ? choiceOf(first) : null;
    this.shown = this.chosen;
    this.rare = false;
    this.buildStrip();
    this.fill();
  }

  /** @type {Picker["choice"]} */
  choice(item) {
    if (!item || !this.on || !this.view) return null;
    if (item.kind === "node" && item.node.index) return choiceOf(item.node);
    const said = item.kind === "bonus" && this.guesses.has(this.view.last);
    return said ? { parent: this.view.last, node: -1, token: this.view.bonus } : null;
  }

  /** @type {Picker["choose"]} */
  choose(one) {
    if (!one) return;
    if (!same(one, this.chosen)) this.rare = false;
    super.choose(one);
    this.bring();
  }

  /** Up and down: the positions of the draft. @param {KeyboardEvent} event */
  key(event) {
    const by = BY_KEY[event.key];
    if (!by) return;
    event.preventDefault();
    const at = this.chain.findIndex((node) => node.parent === this.shown?.parent);
    const k = clamp(at + by, 0, this.chain.length - 1);
    this.choose(choiceOf(this.chain[k]));
    this.places[k].focus();
  }

  /** Down and up in the tree: by position, there from the chain's token to those beside it. @param {number} by */
  walk(by) {
    if (!this.view) return;
    /** @type {(node: TreeNode) => number} */
    const order = (node) => node.depth * 1e4 + (beside(node) ? 1 : 0) * 1e3 + node.index / 1e3;
    const all = this.view.nodes.filter((node) => node.index).sort((a, b) => order(a) - order(b));
    const at = all.findIndex((node) => this.chosen && node.index === this.chosen.node);
    const next = all[clamp(at + by, 0, all.length - 1)];
    if (next) this.choose(choiceOf(next));
  }

  // ---- positions ------------------------------------------------------------------------------------------------

  /** One button per position of the chain: its token, how sure the draft model was, what became of it. */
  buildStrip() {
    const { model } = this.owner;
    const nodes = this.view?.nodes || [];
    this.strip.hidden = !this.chain.length;
    this.places = this.chain.map((node) => {
      const confidence = numberOf(this.owner, node, "confidence");
      const siblings = nodes.filter((one) => one.parent === node.parent && one !== node);
      const taken = siblings.find((one) => one.status === "accepted");
      const rank = numberOf(this.owner, taken, "draft_rank");
      const token = h("code", { class: `sv-state-${node.status}` }, model.pieces.label(node.token, 12));
      const instead = taken && [
        " → ",
        h("code.sv-state-accepted", model.pieces.label(taken.token, 12)),
        h("b.sv-mark-rank", rank === null ? "other" : nth(rank + 1)),
      ];
      const more = siblings.length && !taken ? h("small", ` of ${siblings.length + 1}`) : null;
      const said = taken ? `; ${rank === null ? "another" : `the ${nth(rank + 1)}`} guess was accepted` : "";
      const sure = confidence === null ? [] : [
        h("span.sv-sure", level(confidence)), " ", h("span.sv-sure-number", probability(confidence)),
      ];
      const place = h(
        "button.sv-button.sv-place-of",
        { onclick: () => this.choose(choiceOf(node)) },
        h("span.sv-place-text", h("small", `${node.depth} `), token, instead, more),
        sure,
      );
      const told = `${sure.length ? "the confidence, " : ""}${STATES[node.status]}${said}`;
      place.ariaLabel = `Position ${place.textContent}: ${told}`;
      return place;
    });
    this.strip.replaceChildren(...this.places);
    this.markStrip();
  }

  markStrip() {
    this.chain.forEach((node, k) => {
      const here = this.shown?.parent === node.parent;
      this.places[k].setAttribute("aria-pressed", String(here));
      this.places[k].tabIndex = here || (k === 0 && !this.onChain()) ? 0 : -1;
    });
  }

  onChain() {
    return this.chain.some((node) => node.parent === this.shown?.parent);
  }

  // ---- one position ---------------------------------------------------------------------------------------------

  fill() {
    const { shown, view } = this;
    if (!view) return;
    this.markStrip();
    if (!shown) {
      const why = view.reason || `the ${drafterOf(this.owner.model)} was not asked`;
      this.look = [];
      this.note.textContent = "no draft this step";
      this.parts.replaceChildren(h("p.sv-empty", `No draft this step: ${why.replace(/\.$/, "")}.`));
      return;
    }
    const node = view.nodes[shown.node] || null;
    // what holds of a position is recorded with any of its tokens
    const any = node || view.nodes.find((node) => node.index && node.parent === shown.parent);
    const after = shown.parent ? view.nodes[shown.parent].token : view.root;
    const { owner } = this;
    const sure = numberOf(owner, any, "confidence") !== null;
    this.note.replaceChildren(sure ? "Bars: confidence · after " : "After ", h("code", label(owner, after, 14)));
    const { attention } = this.owner.model.run;
    this.look = attention ? looks(this.owner.model, view.number, shown.parent, this.layer, this.head) : [];
    const list = this.guesses.get(shown.parent) || [];
    const place = { view, shown, beta: numberOf(this.owner, any, "overlap") };
    const looked = attention ? lookedAt(this, `Where the ${drafterOf(this.owner.model)} looked`) : null;
    this.parts.replaceChildren(
      h(
        "div.ui-stack",
        this.verdict(view, shown, node),
        this.sureness(view, node, any),
        looked,
        leftOut(this.owner, view),
      ),
      h(
        "div.sv-drafter-main.ui-stack",
        assistantPart(this.owner, view),
        ...(list.length || !view.drafted ? [pairs(this, place, list), residual(this, place, list)] : []),
        mass(this.owner, place, list),
      ),
    );
  }

  /** What became of the token. @type {(view: StepView, shown: NodeChoice, node: TreeNode | null) => Child} */
  verdict(view, shown, node) {
    const { owner } = this;
    const line = h("p.sv-verdict");
    /** @type {(...words: Child[]) => HTMLElement} */
    const say = (...words) => append(line, words);
    const after = shown.parent ? view.nodes[shown.parent].token : view.root;
    if (!node) return say("After ", quoted(owner, after), " the target wrote ", quoted(owner, shown.token), " itself.");
    if (view.bonus === OPEN) return say(quoted(owner, node.token), ": not checked yet.");
    const status = h("b", { class: `sv-state-${node.status}` }, STATES[node.status]);
    /** @param {TreeNode} one */
    const guessed = (one) => {
      const rank = numberOf(owner, one, "draft_rank");
      return rank === null ? (beside(one) && beams(view) ? "another beam" : "the draft") : `the ${nth(rank + 1)} guess`;
    };
    const which = guessed(node);
    const draw = numberOf(owner, node, "draw");
    const ratio = numberOf(owner, node, "accept_ratio");
    if (draw !== null && ratio !== null) {
      const stands = node.status === "accepted";
      const { draftProb: q, prob: p } = node;
      const plain = p !== null && q && Math.abs(Math.min(1, p / q) - ratio) < 1e-3;
      const of = `, of the target's p ${format(p)} and the ${drafterOf(owner.model)}'s q ${format(q)}`;
      const chance = plain ? `min(1, p ÷ q) = ${format(ratio)}${of}` : format(ratio);
      say(quoted(owner, node.token), `, ${which}: `, status, `. Its chance was ${chance}. `);
      say(`The number drawn, ${format(draw)}, is ${stands ? "" : "not "}below it`);
      return say(...stands ? [] : ["; the residual gave ", quoted(owner, view.bonus)], ".");
    }
    if (draw !== null && node.reason) // another rule's: as it recorded it
      return say(quoted(owner, node.token), `, ${which}: `, status, ` (${node.reason}).`);
    say(quoted(owner, node.token), `, ${which}: `, status, ". ");
    if (node.status === "unreached") {
      /** @type {Record<string, string>} */
      const ended = { "after stop": "A stop token before it ended the run.",
        "behind the output's end": "The output ended before it." };
      return say(ended[node.reason] ?? "The target refused a token before it.");
    }
    if (node.status !== "rejected") return line;
    const instead = view.nodes.find((one) => one.parent === node.parent && one.status === "accepted");
    if (!instead) return say("The target wrote ", quoted(owner, view.bonus), " instead.");
    return say(`Accepted here was ${guessed(instead)}: `, quoted(owner, instead.token), ".");
  }

  /** Confidence and its tenth, the candidates there, ranks, overlap and delay. */
  /** @type {(view: StepView, node: TreeNode | null, any: TreeNode | undefined) => Child} */
  sureness(view, node, any) {
    const { owner } = this;
    const confidence = numberOf(owner, any, "confidence");
    if (!any || confidence === null) return null;
    const bin = numberOf(owner, any, "bin");
    const here = view.nodes.filter((one) => one.index && one.parent === any.parent);
    const extra = here.filter(beside).length;
    const tenths = h("span.sv-tenths", { "aria-hidden": "true" });
    for (let k = 0; k < TENTHS; k++) tenths.append(h("i", { class: k === bin ? "sv-this" : "" }));
    tenths.append(h("b", { style: `width:${(100 * confidence).toFixed(1)}%` }));
    const count = plural(here.length, "candidate");
    const [low, high] = [0, 1].map((k) => String(((bin ?? 0) + k) / TENTHS).replace("0.", "."));
    const granted = view.route === "cape" ? `From ${low} to ${high} CAPE grants ${count}` : `${count} here`;
    const parts = extra ? ` (${plural(extra, "expansion")})` : "";
    const help = `The ${drafterOf(owner.model)}'s highest probability here.${
      view.route === "cape" ? " CAPE puts more candidates where it is lower." : ""}`;
    const box = bin !== null && owner.tip.explained( // else the cards and the table say it
      "div.sv-sureness",
      () => told("Confidence", formula(`= max q = ${format(confidence)}`), help),
      h("span", "Confidence (highest q) ", h("b", probability(confidence))),
      tenths,
      here.length < 2 && view.route !== "cape" ? null : h("span.sv-faint", granted + parts),
    );
    const rank = numberOf(owner, node, "draft_rank");
    const theirs = node && node.rank >= 0 ? `, the target's ${nth(node.rank + 1)}` : "";
    const choices = rank === null ? null : h("p", `The ${drafterOf(owner.model)}'s ${nth(rank + 1)} choice${theirs}.`);
    return h("div.sv-drafter-facts.ui-stack.ui-words", box, choices, this.origin(node), this.delay(view, any),
      this.cosine(view));
  }

  /** How near the states that a head made came to the target's own. @param {StepView} view */
  cosine(view) {
    const { owner } = this;
    const near = owner.model.stepTerm(view.number, "feature_cosine");
    if (near === null) return null;
    const what = "The head's states against the target's own: cosine ";
    const help = "Mean over the root and the accepted tokens that the head went on from in this step.";
    return owner.tip.explained("p", () => told("Feature cosine", help), what, h("b", format(near, 2)), ".");
  }

  /** How a draft model with prompt tokens of its own came to the token. @type {(node: TreeNode | null) => Child} */
  origin(node) {
    const forward = numberOf(this.owner, node, "draft_forward");
    if (forward === null) return null;
    const by = numberOf(this.owner, node, "distance");
    if (by !== null)
      return h("p", `Guessed by the drafter's prompt token ${by}, and confirmed in its forward ${forward}.`);
    return h("p", forward ? `Written by the drafter's forward ${forward}.` : "Known from an earlier step.");
  }

  /** "Saw the target's keys up to position 174; 2 behind." @type {(view: StepView, any: TreeNode) => Child} */
  delay(view, any) {
    const late = numberOf(this.owner, any, "kv_delay");
    if (late === null) return null;
    const newest = view.context - 2 + any.depth - late;
    const place = newest < 0 ? "" : `${newest.toLocaleString("en")} (${this.owner.where(newest)})`;
    const seen = [`Saw the target's keys up to position ${place}; `, h("b", `${plural(late, "position")} behind`), "."];
    const words = newest < 0 ? ["No key of the target was there to read."] : seen;
    const help = "From the newest of the target's keys it saw to the last token the draft model read.";
    return this.owner.tip.explained("p", () => told("KV delay", help), ...words);
  }

  clear() {
    this.view = this.chosen = this.shown = null;
    this.look = [];
    this.chain = [];
    this.guesses = new Map();
    this.strip.replaceChildren();
    this.parts.replaceChildren();
  }
}
