/* What if: the step shown, drafted again by the server with another method, other parameters or another candidate. */

import { on } from "specviz/base/bus.js";
import { card, h, must, replace, table } from "specviz/base/dom.js";
import { fields, valuesOf } from "specviz/base/field.js";
import { getJson, postJson, sentence } from "specviz/base/json.js";
import { Model } from "specviz/base/model.js";
import { format, plural, short } from "specviz/base/numbers.js";
import { visited } from "specviz/generated/terms.js";
import { draftDifference, onlyRecorded } from "specviz/inspect/ghosts.js";
import { marks } from "specviz/inspect/tree_words.js";
import { because, named } from "specviz/judges/panel.js";
import { agreement, ending, otherwise, range, rowsOf } from "specviz/judges/rules.js";
import { offerModel } from "specviz/shell/made_with.js";
import { methodOption } from "specviz/shell/methods.js";
import { open } from "specviz/shell/open.js";
import { known, reload } from "specviz/shell/request.js";
import { refreshRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";
import { cardOf, joined, parted, ruleField } from "specviz/shell/verifiers.js";

const REST_MS = 250; // after the last change, before the server is asked
/** The tab: another draft of the step shown, drawn over the recorded one. */
export class WhatIf {
  /** @param {Inspector} inspector */
  constructor(inspector) {
    this.inspector = inspector;
    this.reason = "Looking whether this run can be drafted again …";
    /** What is to be shown of a run that is being opened. @type {{ run: string, method: string } | null} */
    this.wanted = null;
    /** @type {Catalog | null} */
    this.catalog = null;
    /** @type {ReturnType<typeof fields>} */
    this.fields = [];
    /** Method → its parameters as they were set here. @type {Record<string, Record<string, Setting>>} */
    this.kept = {};
    /** A place of the ranking that is tried in place of a method. @type {Candidate | null} */
    this.picked = null;
    /** @type {Redraft | null} */
    this.result = null;
    this.method = "";
    this.id = "";
    this.looked = ""; // the run and the state of the model that ``reason`` is about
    this.shown = false;
    this.asking = false;
    this.dirty = false;
    this.ticket = 0;
    this.timer = 0;

    // ---- the panel ----------------------------------------------------------------------------------------------

    const { tip } = inspector;
    const { element, body, note } = card("whatif", "What if");
    this.element = element;
    this.note = note;
    element.classList.add("svw");
    note.setAttribute("role", "status");
    const again = h("button.sv-button.sv-quiet", { onclick: () => this.ask() }, "Draft again");
    this.goOn = h("button.sv-button.sv-quiet", { onclick: () => this.continue() }, "Continue from here");
    tip.add(this.goOn, () => [
      this.picked
        ? "A new run with the run's own method: it starts with what this place gives."
        : "A new run with this method: it starts with what was written before this step.",
    ]);
    const methods = { "aria-label": "Method to draft this step with", onchange: () => this.chosen() };
    this.select = h("select.svp-select", methods);
    this.byHand = h("option", { value: "" });
    this.controls = h("div.svw-fields");
    this.parameters = h("details.svw-params.ui-fold", h("summary", "Parameters"), this.controls);
    this.rule = h("div.svw-rule"); // by which verifier the draft is judged
    this.words = h("p.svw-words");
    this.small = h("p.ui-soft.svw-visited");
    this.limits = h("details.svw-limits.ui-fold", { hidden: true },
      h("summary", "How far these numbers hold"), this.small);
    this.judged = h("details.svw-judged.ui-fold", { hidden: true });
    this.notes = h("ul.svw-notes");
    const choose = h("div.svw-choose.ui-row", h("label.svw-method", "Method ", this.select), this.rule, this.parameters,
      again, this.goOn);
    this.made = h("p.svm-offer.ui-row.ui-soft", { hidden: true }); // where another model made the run
    this.legend = h("ul.svw-legend.ui-legend");
    body.append(this.made, this.words, this.legend);
    this.below = h("div.svw-below", choose, this.notes, this.judged, this.limits); // the tree stands between

    this.offer();
    inspector.on("step", () => this.stepped());
    on("current", () => this.look());
    on("runs", () => this.look());
    on("model", () => this.look(true));
    this.look();
  }

  /** The tab, as it can be opened now. */
  offer() {
    const way = () => this.made.querySelector("button");
    const open = () => this.expand(true), close = () => this.expand(false);
    const { element, reason: off } = this;
    const shown = { name: "whatif", label: "What if", look: "svw-open", element, tree: true, below: this.below };
    this.inspector.tabs.add({ ...shown, off, way, open, close });
  }

  /** Opens or closes the panel. */
  toggle(open = !this.shown) {
    if (open) this.inspector.tabs.open("whatif");
    else if (this.shown) this.inspector.tabs.close();
  }

  /** @param {boolean} open */
  expand(open) {
    this.shown = open;
    this.inspector.tree.after = open ? () => this.drawLegend() : null;
    if (!open) return this.inspector.tree.overlay(null);
    if (!this.picked) this.fill();
    this.ask();
  }

  begin() {
    if (this.shown) this.ask();
    else this.inspector.tabs.open("whatif");
  }

  /** Whether the run shown can be drafted again; asked for once per run and state of the model. */
  async look(anew = false) {
    const { model } = this.inspector;
    const id = app.shown;
    const looked = `${id} ${model && model.run.complete} ${app.model.state}`;
    if (!id || !app.rules || (!anew && looked === this.looked)) return; // the model's state comes first
    const other = id !== this.id;
    this.looked = looked;
    this.id = id;
    if (other) this.reset();
    let reason = "";
    try {
      ({ reason } = await getJson(`api/whatif/${encodeURIComponent(id)}`));
      if (!reason) this.catalog = await (this.wanted ? reload() : known()); // methods may have come since
    } catch (problem) {
      reason = sentence(problem);
    }
    if (id !== this.id) return;
    this.reason = reason;
    this.inspector.emit("able", reason);
    offerModel(this.made, id);
    this.offer();
    this.inspector.candidates.offer(reason ? null : (/** @type {Candidate} */ candidate) => this.pick(candidate));
    if (reason && this.shown) this.toggle(false); // (the focus stays where it is otherwise)
    else if (!reason && this.shown) this.fill();
    if (reason || this.wanted?.run !== id) return;
    this.method = this.wanted.method;
    this.wanted = this.picked = null;
    this.fill();
    this.begin();
  }

  /** Opens the panel with a method, once the run is shown that is being opened. */
  /** @type {(run: string, method: string) => void} */
  compare(run, method) {
    this.wanted = { run, method };
    this.looked = ""; // the list of methods, too, is another one after a save
  }

  /** Another run is shown: nothing of the last one stays. */
  reset() {
    this.ticket++;
    this.picked = null;
    this.kept = {};
    this.method = "";
    this.result = null;
    this.toggle(false);
  }

  // ---- what is asked --------------------------------------------------------------------------------------------

  /** The methods to choose from, the run's own first. */
  fill() {
    const catalog = must(this.catalog);
    const own = this.own();
    const is = (/** @type {MethodCard} */ m) => m.name === own.base;
    const methods = [...catalog.methods.filter(is), ...catalog.methods.filter((m) => !is(m))];
    this.select.replaceChildren(...methods.map((m) => methodOption(m, is(m) ? " (this run's own)" : "")));
    const able = methods.filter((m) => !m.missing && !m.baseline);
    const chosen = cardOf(catalog, this.method);
    if (!chosen || chosen.missing || chosen.baseline)
      this.method = this.named((able.find((m) => !is(m)) ?? methods[0]).name);
    this.drawControls();
    this.drawChoice();
  }

  /** The run's own method and rule. */
  own() {
    return parted(this.inspector.model.run.method.name);
  }

  /** A method; the run's own under the rule that judged it. @param {string} base */
  named(base) {
    const own = this.own();
    const name = joined(base, base === own.base ? own.rule : "");
    return cardOf(must(this.catalog), name) ? name : base;
  }

  /** Whether a place was picked by hand: the choice of a method then rests. */
  drawChoice() {
    const { picked } = this;
    this.byHand.textContent = picked ? `Place ${picked.rank + 1} of the ranking, picked by hand` : "";
    if (picked && !this.byHand.parentNode) this.select.prepend(this.byHand);
    if (!picked) this.byHand.remove();
    this.select.value = picked ? "" : parted(this.method).base;
    this.parameters.hidden = !!picked || !this.fields.length;
    this.rule.hidden = !!picked;
  }

  /** Another method was chosen. */
  chosen() {
    this.picked = null;
    this.chooses(this.named(this.select.value));
  }

  /** @param {string} name of a method, its verifier's behind it */
  chooses(name) {
    this.method = name;
    this.drawControls();
    this.drawChoice();
    this.soon();
  }

  drawControls() {
    const { run } = this.inspector.model;
    const method = must(cardOf(must(this.catalog), this.method));
    const kept = (this.kept[method.name] ??= method.name === run.method.name ? { ...run.method.params } : {});
    this.fields = fields(method.controls, kept, () => this.soon(), "svw-");
    replace(this.controls, this.fields.map((f) => f.row));
    const greedy = () => !run.sampling?.temperature;
    const choose = (/** @type {string} */ name) => this.chooses(name);
    replace(this.rule, [ruleField(must(this.catalog), this.method, greedy, choose, "svw-")?.row]);
  }

  /** A place of the ranking that was not chosen. @param {Candidate} candidate */
  pick(candidate) {
    this.picked = candidate;
    if (this.shown) this.drawChoice();
    else this.fill();
    this.begin();
  }

  /** Another step is shown. */
  stepped() {
    this.picked = null;
    if (!this.shown) return;
    this.drawChoice();
    this.soon();
  }

  /** Asks once nothing has changed for a moment. */
  soon() {
    this.element.classList.add("svw-stale");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => (this.inspector.player.timer ? this.soon() : this.ask()), REST_MS);
  }

  /** The step shown, and what is to draft it: the place picked by hand, else the method as it is set. */
  /** @returns {RedraftQuestion} */
  question() {
    const { inspector, picked } = this;
    const step = inspector.number;
    if (picked) return { step, candidate: picked.row - inspector.model.rows("candidates", step)[0] };
    return { step, method: this.method, params: valuesOf(this.fields) };
  }

  /** Asks for the draft; one question at a time. @returns {Promise<void>} */
  async ask() {
    clearTimeout(this.timer);
    if (!this.shown) return;
    if (this.asking) return void (this.dirty = true);
    const ticket = ++this.ticket;
    const question = this.question();
    this.element.classList.add("svw-stale");
    this.asking = true;
    this.element.setAttribute("aria-busy", "true");
    const slow = setTimeout(() => (this.note.textContent = "drafting again … (a run that goes on comes first)"), 400);
    /** @type {Redraft | null} */
    let result = null;
    let problem = "";
    try {
      result = await postJson(`api/whatif/${encodeURIComponent(this.id)}/draft`, question);
    } catch (error) {
      problem = sentence(error);
    }
    clearTimeout(slow);
    this.asking = false;
    this.element.removeAttribute("aria-busy");
    if (this.dirty) {
      this.dirty = false;
      return this.ask();
    }
    if (ticket !== this.ticket || !this.shown) return;
    if (result) this.draw(result);
    else this.failed(problem);
  }

  /** A new run from the step shown: with this method, or after the place picked by hand. */
  async continue() {
    this.goOn.disabled = true;
    const run = this.id;
    try {
      const start = { ...this.question(), session: await app.session() };
      const { id } = await postJson(`api/whatif/${encodeURIComponent(run)}/continue`, start);
      app.mine.add(id);
      await open(id);
      refreshRuns();
      scrollTo({ top: 0, behavior: "smooth" });
    } catch (problem) {
      this.failed(sentence(problem));
    } finally {
      this.goOn.disabled = false;
    }
  }

  // ---- what came of it ------------------------------------------------------------------------------------------

  /** @param {string} text */
  failed(text) {
    this.note.textContent = "";
    this.words.replaceChildren(h("span.svp-error", text));
    this.legend.replaceChildren();
    this.notes.replaceChildren();
    this.limits.hidden = true;
    this.judged.hidden = true;
    this.element.classList.remove("svw-stale");
    this.inspector.tree.overlay(null);
  }

  /** @param {Redraft} result */
  draw(result) {
    const { inspector } = this;
    const { recorded, accepted, more, same, step, trace } = result;
    this.result = result;
    this.element.classList.remove("svw-stale");
    this.note.textContent = `step ${step + 1}: ${this.time(result)}`;
    const tokens = (/** @type {number} */ n) => plural(n, "token");
    const verdict = more > 0 ? `${more} more.` : more < 0 ? `${-more} fewer.` : "as many.";
    const model = new Model(trace);
    const other = model.step(0);
    inspector.model.pieces.add(trace.pieces); // it drafts tokens that the run did not have
    this.words.replaceChildren(
      "As recorded ",
      h("b", tokens(recorded)),
      ` accepted, with ${short(model.run.method.title || model.run.method.name)} `,
      h("b", String(accepted)),
      `: ${same ? "the same draft." : `${verdict} ${draftDifference(inspector.model.step(step), other)}`}`,
    );
    this.small.textContent = `${visited} “Continue from here” starts such a run.`;
    this.limits.hidden = same;
    this.notes.replaceChildren(...result.notes.map((text) => h("li", text)));
    this.drawJudged(result, model);
    inspector.tree.overlay(other);
  }

  /** What stands for what in the tree: signs and numbers as they stand in it. */
  drawLegend() {
    const { tree } = this.inspector;
    const { placed } = tree;
    const nodes = placed.flatMap((item) => ("nodes" in item ? item.nodes : "node" in item ? item.node : []));
    const signs = marks(tree, tree.view);
    if (nodes.some(({ draft }) => draft === "other")) signs.push(["+", "only in this draft"]);
    const missing = !onlyRecorded(tree.view) && nodes.some(({ draft }) => draft === "recorded");
    if (missing) signs.push(["−", "only in the recorded draft"]);
    replace(this.legend, signs.map(([sign, said]) => h("li", h("code", sign), said)));
  }

  /** The same draft under every verifier, by the p and q of this step. */
  /** @type {(result: Redraft, model: Model) => void} */
  drawJudged({ judged }, model) {
    this.judged.hidden = !judged;
    if (!judged) return;
    const sampled = (model.run.sampling?.temperature ?? 0) > 0;
    const rows = rowsOf(judged.step, judged.rules, sampled);
    const { nodes } = model.step(0);
    const [count, of] = [otherwise(judged.step), Object.keys(judged.step.rules).length];
    const heads = ["rule", "accepted", "length"];
    const body = rows.map(({ cards, rule }) => [h(
      "tr",
      { "data-verifier": cards.map(({ name }) => name).join(" ") },
      h("th", { scope: "row", title: cards.map((one) => `${one.title}: ${one.summary} (${one.source})`).join("\n") },
        named(cards), h("small", cards[0].lossless ? " = lossless" : " ≈ lossy")),
      h("td.svp-num", String(rule.accepted), rule.open && h("small", " open")),
      h("td.svp-num", range(rule.expected, sampled ? 2 : 0, 1)),
    ), h("tr.svj-because", h("td", { colspan: heads.length }, because(model, ending(nodes, rule, sampled))))]);
    const label = "This draft under every rule";
    replace(this.judged, [
      h("summary", `${label}: ${count ? `of ${of} ` : ""}${agreement(judged.step)}`),
      h("div.ui-scroll", { tabindex: "0", role: "region", "aria-label": label },
        table({ class: "svj-table svj-alike ui-dense" },
          [heads.map((name, k) => h(`th${k ? ".svp-num" : ""}`, { scope: "col" }, name))], body)),
    ]);
  }

  /** What it took. @param {Redraft} result */
  time({ ms, read_ms: read }) {
    const before = read ? `, after ${format(read / 1000, 2)} s of reading the run` : "";
    return `drafted and checked again in ${format(ms, 2)} ms${before}`;
  }
}
