/* Prompt tokens (PPD): how many hang on each node, what they guessed, what the text became, the state that follows, and
   where those that were read looked. */

import { append, h, heads, level, replace, tabled } from "specviz/base/dom.js";
import { clamp, percent, plural, probability } from "specviz/base/numbers.js";
import { STATES, choiceOf, label, quoted } from "specviz/inspect/drafting.js";
import { LookPanel, goTo, lookedAt, looks } from "specviz/inspect/looks.js";
import { hung, outcome, over, present } from "specviz/inspect/prompt_marks.js";

const OTHERS = 5; // further guesses named in a row

export class PromptsView extends LookPanel {
  /** @param {Inspector} owner */
  constructor(owner) {
    super(owner, "prompts", "Prompt tokens", "Shade the text by where the chosen prompt token looked");
    this.parts = h("div.sv-prompts-parts.ui-stack");
    this.body.append(this.parts);
    /** The prompt tokens of every node. @type {Map<number, PromptGuess[]>} */
    this.hung = new Map();
    this.distance = 1; // the prompt token chosen of those read
    /** What is recorded of where prompt tokens looked. @type {RunAttention | null} */
    this.attention = null;
    /** The run that is tallied. @type {Model | null} */
    this.of = null;
    this.tallied = 0; // steps
    /** By distance, how many guesses came true. @type {{ seen: number, first: number, any: number }[]} */
    this.tally = [];
    this.clear();
  }

  clear() {
    this.view = null;
    this.chosen = this.shown = null;
    this.look = [];
    this.parts.replaceChildren();
    this.note.textContent = "";
  }

  /** What depends on the run alone, as far as it has gone. */
  describe() {
    const { model } = this.owner;
    this.on = present(model);
    this.attention = (this.on && model.run.attention?.probes && model.run.attention) || null;
    this.offerLooks(this.attention);
    if (!this.on) return this.clear();
    if (this.of !== model) {
      this.of = model;
      this.tallied = 0;
      this.tally = [];
    }
    this.tellTrue();
  }

  /** How often first guesses, and any guess offered, came true; each step once, when its text is known. */
  tellTrue() {
    const { model } = this.owner;
    for (; this.tallied + 1 < model.stepCount; this.tallied++) {
      const rows = outcome(model, this.tallied);
      if (!model.run.complete && rows.some((one) => one.became === undefined)) return;
      for (const { distance, first, others, became } of rows) {
        if (became === undefined || !first) continue;
        const sum = (this.tally[distance - 1] ??= { seen: 0, first: 0, any: 0 });
        sum.seen++;
        if (first.token === became) sum.first++;
        if (first.token === became || others.some((one) => one.token === became)) sum.any++;
      }
    }
  }

  /** Prompt tokens on a node of the step shown. @param {number} node */
  count(node) {
    return (this.hung.get(node) || []).length;
  }

  /** @param {StepView} view */
  draw(view) {
    this.view = view;
    if (!this.on) return;
    this.hung = hung(this.owner.model, view.number);
    this.chosen = this.shown = choiceOf(view.nodes[view.last]);
    this.fill();
  }

  /** Chooses a prompt token of those read: the text shows where it looked. @param {number} distance */
  watch(distance) {
    this.distance = distance;
    this.refresh();
    const pick = this.parts.querySelector(`[data-distance="${distance}"]`);
    if (pick instanceof HTMLElement) pick.focus({ preventScroll: true });
    this.bring();
  }

  /** @param {number} by */
  walk(by) {
    if (!this.view || !this.chosen) return;
    this.choose(choiceOf(this.view.nodes[clamp(this.chosen.node + by, 0, this.view.nodes.length - 1)]));
  }

  // ---- one node -------------------------------------------------------------------------------------------------

  fill() {
    const { owner, view } = this;
    if (!view || !this.shown) return;
    const shown = this.shown.node;
    const count = this.count(shown);
    const read = shown === view.last;
    this.note.textContent = `${plural(count, "prompt token")} · ${read ? "" : "would lead to "}state ${count}`;
    const rows = count && read ? outcome(owner.model, view.number) : [];
    const seen = this.attention ? rows.find((one) => one.distance === this.distance) || rows[0] : null;
    this.look = seen ? looks(owner.model, view.number, view.nodes.length + seen.probe, this.layer, this.head) : [];
    replace(this.parts, [
      this.verdict(view, view.nodes[shown], count, read),
      count ? (read ? this.table(rows, seen) : this.unread(shown)) : null,
      seen ? lookedAt(this, `Where the prompt token of distance ${seen.distance} looked`) : null,
      this.record(),
    ]);
  }

  /** @type {(view: StepView, node: TreeNode, count: number, read: boolean) => Child} */
  verdict(view, node, count, read) {
    const { owner } = this;
    const state = h("b", `state ${count}`);
    const some = plural(count, "prompt token");
    const line = h("p.sv-verdict");
    const token = quoted(owner, node.token);
    if (!read) {
      const hangs = `, ${node.index ? STATES[node.status] : "the root"}, has ${some}; had acceptance ended here, `;
      return append(line, [token, hangs, state, " would have followed."]);
    }
    const where = node.index ? ["Acceptance ended at ", token] : ["Nothing was accepted after the root ", token];
    if (over(owner, view)) return append(line, [...where, "; the run ended, so its prompt tokens were not needed."]);
    if (!count) return append(line, [...where, ", without a prompt token: the next step has no guesses, ", state, "."]);
    const make = count === 1 ? "makes" : "make";
    return append(line, [...where, `: its ${some} ${make} the guesses of the next step, `, state, "."]);
  }

  /** Guessed, and became. @type {(rows: PromptOutcome[], seen: PromptOutcome | null) => HTMLElement} */
  table(rows, seen) {
    const { owner } = this;
    const head = heads(["distance", "guessed first", "further guesses offered", "became"]);
    const body = rows.map((row) => {
      const { first, became } = row;
      const right = !!first && became !== undefined && first.token === became;
      const look = became === undefined ? "" : right ? "sv-state-accepted" : "sv-state-rejected";
      const guess = first
        ? [h("code", { class: look }, label(owner, first.token, 16)), " ", h("small", probability(first.prob))]
        : h("span.sv-faint", "not offered");
      return h(
        "tr",
        h("th", { scope: "row" }, this.pick(row, seen)),
        h("td", guess),
        h("td", this.others(row)),
        h("td", this.became(row, right)),
      );
    });
    const table = h("table.sv-guessed.ui-dense", { "aria-label": "Guessed and became" }, tabled(head, body));
    return h("div.sv-guessed-box", table);
  }

  /** A prompt token's distance; a button that shows where it looked, if that is recorded. @type {PickPrompt} */
  pick({ distance }, seen) {
    if (!seen) return String(distance);
    return h(
      "button.sv-button.sv-toggle.sv-pick",
      {
        "aria-pressed": String(distance === seen.distance),
        "aria-label": `Prompt token of distance ${distance}: show where it looked`,
        "data-distance": distance,
        onclick: () => this.watch(distance),
      },
      String(distance),
    );
  }

  /** @type {(row: PromptOutcome) => Child} */
  others({ others, became }) {
    if (!others.length) return h("span.sv-faint", "–");
    const { owner } = this;
    const later = others.findIndex((one) => one.token === became);
    const named = others.filter((one, k) => k < OTHERS || k === later);
    const parts = named.map((one) =>
      h(
        "span.sv-other",
        h("small", `${one.rank + 1} `),
        h("code", { class: one.token === became ? "sv-state-accepted" : "" }, label(owner, one.token, 10)),
        h("small", ` ${probability(one.prob)}`),
      ),
    );
    const rest = others.length - named.length;
    return [parts, rest ? h("small", `+${rest}`) : null];
  }

  /** @type {(row: PromptOutcome, right: boolean) => Child} */
  became({ became, first, others, position }, right) {
    const { owner } = this;
    if (became === undefined) return h("span.sv-faint", owner.model.run.complete ? "the run ended" : "not written yet");
    const later = others.find((one) => one.token === became);
    const words = right ? "as guessed" : later ? `guess ${later.rank + 1}` : first ? "not offered" : "";
    const go = goTo(owner, position, h("code", label(owner, became, 16)));
    const look = right || later ? "sv-role-accepted" : "sv-role-rejected";
    return [go, " ", h("small", { class: `sv-role ${look}` }, words)];
  }

  /** First choices of prompt tokens that were not read. */
  unread(/** @type {number} */ node) {
    const { owner } = this;
    const items = (this.hung.get(node) || []).map(({ distance, rows }) =>
      h(
        "li",
        h("small", `distance ${distance} `),
        rows
          .slice(0, 3)
          .map((one) => [h("code", label(owner, one.token, 16)), h("small", ` ${probability(one.prob)} `)]),
        rows.length > 3 ? h("small", `+${rows.length - 3} vectors`) : null,
      ),
    );
    return h("div.sv-unread", h("h4", "Guesses that were not read"), h("ul", items));
  }

  /** How often guesses came true so far in the run. */
  record() {
    if (!this.tally.length) return null;
    const help =
      "Of the prompt tokens that were read: how often the first guess was the token that came, and how often any " +
      "guess in the next tree was.";
    const title = this.owner.tip.explained("h4", () => [h("div", help)], "Guesses that were correct, this run");
    const rows = this.tally.map(({ seen, first, any }, k) => {
      const levels = [level(any / seen, "sv-true-any"), level(first / seen, "sv-true-first")];
      const shares = `first ${percent(first, seen)}, offered ${percent(any, seen)} of ${seen.toLocaleString("en")}`;
      const bar = h("span.sv-true-bar", { "aria-hidden": "true" }, levels);
      return h("div.sv-true.ui-words", h("span", `distance ${k + 1}`), bar, h("span", shares));
    });
    return h("section", title, rows);
  }
}
