/* A draft model's step: how sure it was, what decided, where it looked, its probabilities beside the target's. */

import { append, card, clamp, format, h, plural, probability } from "specviz/base/dom.js";
import { OPEN } from "specviz/base/model.js";
import { pairs, residual } from "specviz/inspect/drafter_pairs.js";
import { STATES, beams, beside, guesses, label, lanes, numberOf, present, quoted } from "specviz/inspect/drafting.js";
import { heaviest, lookTools, lookedAt, looks, offerLooks } from "specviz/inspect/looks.js";
import * as marks from "specviz/inspect/marks.js";

const TENTHS = 10;

const nth = (n) => `${n}${n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] || "th"}`;

export class DrafterView {
  constructor(owner) {
    this.owner = owner;
    Object.assign(this, card("drafter", "Drafter"));
    this.strip = h("div", { class: "sv-places", role: "group", "aria-label": "Drafted positions" });
    this.parts = h("div", { class: "sv-drafter-parts" });
    this.body.append(this.parts);
    this.body.before(this.strip);
    this.shading = true;
    this.head = -1;
    this.layer = -1;
    this.chosen = this.shown = null; // {parent, node: index or −1, token}
    this.rare = false;
    this.look = [];
    this.chain = [];
    this.guesses = new Map();
    this.strip.addEventListener("keydown", (event) => this.key(event));
    lookTools(this, "Shade the text by where the draft model looked for this token");
  }

  /** What depends on the run alone. */
  describe() {
    const { model } = this.owner;
    this.on = present(model);
    this.owner.root.classList.toggle("sv-drafted", this.on);
    offerLooks(this, model.run.attention);
  }

  /** A step; it opens on its first rejected token of the chain, else on the last one. */
  draw(view) {
    this.view = view;
    this.look = [];
    if (!this.on) return;
    this.guesses = guesses(this.owner.model, view.number);
    this.chain = view.nodes.filter((node) => node.index && !beside(node));
    const first = this.chain.find((node) => node.status === "rejected") || this.chain[this.chain.length - 1];
    this.chosen = first ? this.of(first) : null;
    this.shown = this.chosen;
    this.rare = false;
    this.buildStrip();
    this.fill();
  }

  of(node) {
    return { parent: node.parent, node: node.index, token: node.token };
  }

  /** The choice an item of the tree stands for; null where the draft model said nothing there. */
  choice(item) {
    if (!item || !this.on) return null;
    if (item.kind === "node" && item.node.index) return this.of(item.node);
    const said = item.kind === "bonus" && this.guesses.has(this.view.last);
    return said ? { parent: this.view.last, node: -1, token: this.view.bonus } : null;
  }

  isChosen(item) {
    const one = this.choice(item);
    return !!one && !!this.chosen && one.parent === this.chosen.parent && one.node === this.chosen.node;
  }

  /** Shows an item of the tree for as long as it is hovered; null: what was chosen again. */
  preview(item) {
    if (!this.on || !this.view) return;
    const one = this.choice(item) || this.chosen;
    if (same(one, this.shown)) return;
    this.shown = one;
    this.refresh();
  }

  choose(one) {
    if (!one) return;
    if (!same(one, this.chosen)) this.rare = false;
    this.chosen = this.shown = one;
    this.owner.tree.mark();
    this.refresh();
    this.bring();
  }

  /** Scrolls the prompt to the place looked at most, unless the panes are to stay where they are. */
  bring() {
    if (this.owner.follow) this.owner.reveal(heaviest(this));
  }

  refresh() {
    if (!this.view) return;
    this.markStrip();
    this.fill();
    marks.shade(this.owner, this.view);
  }

  /** Up and down: the positions of the draft. */
  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const at = this.chain.findIndex((node) => node.parent === this.shown.parent);
    const next = this.chain[clamp(at + by, 0, this.chain.length - 1)];
    this.choose(this.of(next));
    this.strip.children[this.chain.indexOf(next)].focus({ preventScroll: false });
  }

  /** Down and up in the tree: from position to position, there from the chain's token to those beside it. */
  walk(by) {
    const order = (node) => node.depth * 1e4 + (beside(node) ? 1 : 0) * 1e3 + node.index / 1e3;
    const all = this.view.nodes.filter((node) => node.index).sort((a, b) => order(a) - order(b));
    const at = all.findIndex((node) => this.chosen && node.index === this.chosen.node);
    const next = all[clamp(at + by, 0, all.length - 1)];
    if (next) this.choose(this.of(next));
  }

  // ---- positions ------------------------------------------------------------------------------------------------

  /** One button per position of the chain: its token, how sure the draft model was, what became of it. */
  buildStrip() {
    const { model } = this.owner;
    this.strip.hidden = !this.chain.length;
    this.strip.replaceChildren(
      ...this.chain.map((node) => {
        const confidence = numberOf(this.owner, node, "confidence");
        const siblings = this.view.nodes.filter((one) => one.parent === node.parent && one !== node);
        const taken = siblings.find((one) => one.status === "accepted");
        const rank = numberOf(this.owner, taken, "draft_rank");
        const level = h("i", { style: `width:${Math.round(100 * (confidence || 0))}%` });
        const token = h("code", { class: `sv-state-${node.status}` }, model.pieces.label(node.token, 12));
        const instead = taken && [
          " ",
          h("code", { class: "sv-state-accepted" }, model.pieces.label(taken.token, 12)),
          h("b", { class: "sv-mark-e" }, `E${rank === null ? "" : rank + 1}`),
        ];
        const more = siblings.length && !taken ? h("small", {}, ` +${siblings.length}`) : null;
        const said = taken ? `; an expansion${rank === null ? "" : ` (rank ${rank + 1})`} was accepted` : "";
        const label =
          `Position ${node.depth}: ${model.pieces.label(node.token)}, confidence ${probability(confidence)}, ` +
          `${STATES[node.status]}${said}`;
        return h(
          "button",
          { type: "button", class: "sv-place-of", "aria-label": label, onclick: () => this.choose(this.of(node)) },
          h("span", { class: "sv-place-text" }, h("small", {}, `${node.depth} `), token, instead, more),
          h("span", { class: "sv-sure" }, level),
          h("span", { class: "sv-sure-number" }, probability(confidence)),
        );
      }),
    );
    this.markStrip();
  }

  markStrip() {
    this.chain.forEach((node, k) => {
      const here = !!this.shown && this.shown.parent === node.parent;
      this.strip.children[k].setAttribute("aria-pressed", String(here));
      this.strip.children[k].tabIndex = here || (k === 0 && !this.onChain()) ? 0 : -1;
    });
  }

  onChain() {
    return !!this.shown && this.chain.some((node) => node.parent === this.shown.parent);
  }

  // ---- one position ---------------------------------------------------------------------------------------------

  fill() {
    const { shown, view } = this;
    if (!shown) {
      const why = view.reason || "the draft model was not asked";
      this.look = [];
      this.note.textContent = "no draft this step";
      this.parts.replaceChildren(h("p", { class: "sv-empty" }, `No draft this step: ${why.replace(/\.$/, "")}.`));
      return;
    }
    this.node = view.nodes[shown.node] || null;
    // what holds of a position is recorded with any of its tokens
    this.any = this.node || view.nodes.find((node) => node.index && node.parent === shown.parent);
    const after = shown.parent ? view.nodes[shown.parent].token : view.root;
    this.note.replaceChildren("what follows ", h("code", {}, label(this.owner, after, 14)));
    const { attention } = this.owner.model.run;
    this.look = attention ? looks(this.owner.model, view.number, shown.parent, this.layer, this.head) : [];
    const list = this.guesses.get(shown.parent) || [];
    this.parts.replaceChildren(
      h("div", { class: "sv-drafter-side" }, this.verdict(), this.sureness(), this.looked()),
      h("div", { class: "sv-drafter-main" }, pairs(this, list), residual(this, list)),
    );
  }

  /** What became of the token, in a sentence. */
  verdict() {
    const { owner, node, view, shown } = this;
    const line = h("p", { class: "sv-verdict" });
    const say = (...words) => append(line, words);
    const after = shown.parent ? view.nodes[shown.parent].token : view.root;
    if (!node) return say("After ", quoted(owner, after), " the target wrote ", quoted(owner, shown.token), " itself.");
    if (view.bonus === OPEN) return say(quoted(owner, node.token), ": not checked yet.");
    const status = h("b", { class: `sv-state-${node.status}` }, STATES[node.status]);
    const part = beside(node)
      ? beams(view)
        ? "another beam"
        : "an expansion"
      : lanes(view)
        ? "the main chain"
        : "the draft";
    const rank = numberOf(owner, node, "draft_rank");
    const which = beside(node) && rank !== null ? `${part} (rank ${rank + 1})` : part;
    const draw = numberOf(owner, node, "draw");
    const ratio = numberOf(owner, node, "accept_ratio");
    if (draw !== null && ratio !== null) {
      const stands = node.status === "accepted";
      const words = h("span", { class: "sv-draw", tabindex: "0" });
      append(words, [`draw ${format(draw, 2)} ${stands ? "<" : "≥"} p/q ${format(ratio, 2)}: `, status]);
      if (!stands) append(words, ["; the residual gave “", view.bonus < 0 ? "stop" : label(owner, view.bonus), "”"]);
      owner.tip.add(words, () => [
        h("div", { class: "sv-formula" }, "accept ratio = min(1, p ÷ q)"),
        h("div", {}, "A uniform number below it lets the drawn token stand."),
      ]);
      return say(quoted(owner, node.token), ` of ${which}, `, words, ".");
    }
    say(quoted(owner, node.token), ` of ${which}: `, status, ". ");
    if (node.status === "unreached") {
      const ended = node.reason === "after stop";
      return say(ended ? "A stop token before it ended the run." : "The target refused a token before it.");
    }
    if (node.status !== "rejected") return line;
    const instead = view.nodes.find((one) => one.parent === node.parent && one.status === "accepted");
    if (instead && beside(instead)) {
      const place = numberOf(owner, instead, "draft_rank");
      return say(
        `Here an expansion${place === null ? "" : ` (rank ${place + 1})`} was accepted: `,
        quoted(owner, instead.token),
        ".",
      );
    }
    return instead
      ? say("Here the main chain's ", quoted(owner, instead.token), " was accepted.")
      : say("The target wrote ", quoted(owner, view.bonus), " instead.");
  }

  /** Confidence and its tenth, the candidates there, ranks, overlap and delay. */
  sureness() {
    const { owner, view, shown, any, node } = this;
    const confidence = numberOf(owner, any, "confidence");
    if (confidence === null) return null;
    const bin = numberOf(owner, any, "bin");
    const here = view.nodes.filter((one) => one.index && one.parent === shown.parent);
    const extra = here.filter(beside).length;
    const tenths = h("span", { class: "sv-tenths", "aria-hidden": "true" });
    for (let k = 0; k < TENTHS; k++) tenths.append(h("i", { class: k === bin ? "sv-this" : "" }));
    tenths.append(h("b", { style: `width:${(100 * confidence).toFixed(1)}%` }));
    const granted =
      view.route === "cape"
        ? `${nth(bin + 1)} tenth: CAPE grants ${plural(here.length, "candidate")}`
        : `${nth(bin + 1)} tenth; ${plural(here.length, "candidate")} here`;
    const parts = extra ? ` (${plural(extra, "expansion")})` : "";
    const box = h(
      "div",
      { class: "sv-sureness", tabindex: "0" },
      h("span", {}, "Confidence ", h("b", {}, probability(confidence))),
      tenths,
      bin === null ? null : h("span", { class: "sv-faint" }, granted + parts),
    );
    owner.tip.add(box, () => [
      h("b", {}, "Confidence"),
      h("div", { class: "sv-formula" }, `= max q = ${format(confidence)}`),
      h("div", {}, "The draft model's highest probability here. CAPE puts more candidates where it is lower."),
    ]);
    const rank = numberOf(owner, node, "draft_rank");
    const theirs = node && node.rank >= 0 ? `, the target's no. ${node.rank + 1}` : "";
    const choices = rank === null ? null : h("p", {}, `The drafter's no. ${rank + 1}${theirs}.`);
    return h("div", { class: "sv-drafter-facts" }, box, choices, this.origin(), this.delay());
  }

  /** How a draft model with prompt tokens of its own came to the token. */
  origin() {
    const forward = numberOf(this.owner, this.node, "draft_forward");
    if (forward === null) return null;
    const by = numberOf(this.owner, this.node, "distance");
    if (by !== null)
      return h("p", {}, `Guessed by the drafter's prompt token ${by}, and confirmed in its forward ${forward}.`);
    return h("p", {}, forward ? `Written by the drafter's forward ${forward}.` : "Known from an earlier step.");
  }

  /** "Saw the target's keys up to position 174 (line 12); 2 positions behind." */
  delay() {
    const late = numberOf(this.owner, this.any, "kv_delay");
    if (late === null) return null;
    const newest = this.view.context - 2 + this.any.depth - late;
    const words = h("p", { tabindex: "0" });
    if (newest < 0) words.append("No key of the target was there to read.");
    else
      words.append(
        `Saw the target's keys up to position ${newest.toLocaleString("en")} (${this.owner.where(newest)}); `,
        h("b", {}, `${plural(late, "position")} behind`),
        ".",
      );
    return this.owner.tip.add(words, () => [
      h("b", {}, "KV delay"),
      h("div", {}, "From the newest of the target's keys it saw to the last token the draft model read."),
    ]);
  }

  looked() {
    return this.owner.model.run.attention ? lookedAt(this, "Where the draft model looked") : null;
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

const same = (a, b) => a === b || (!!a && !!b && a.parent === b.parent && a.node === b.node && a.token === b.token);
