/* "Would it have been written without this?": the answer read without each source, as a table and as heat. */

import { tile } from "specviz/attribution/board.js";
import { SOURCES, look, sourceKey, tag } from "specviz/attribution/links.js";
import { append, h, replace } from "specviz/base/dom.js";
import { sentence, tell } from "specviz/base/json.js";
import { clamp, format, plural } from "specviz/base/numbers.js";
import { glyphs, inLine } from "specviz/base/text.js";

const HOT = 5; // nats of a token drawn in full colour
const SHOWN = 0.7; // nats of a fall beside which the token that would have come is named
const LN10 = Math.LN10;
/** A sample of each, and what it says. @type {Record<Standing, [sample: string, text: string]>} */
const STANDINGS = {
  contributed: ["−3", "contributed: without it at least ten times less likely"],
  corroborates: ["= 0", "corroborates: the same words, and below ten times"],
  against: ["+2", "against: without it at least ten times likelier"],
  none: ["0", "no decisive part: below ten times"],
};

const QUESTION = "Would it have been written without this?";
const NOT_READ =
  "Not recorded. Open the run in specviz with its model loaded: it can read the answer without each source.";
/** What the tile calls each. @type {Record<Standing, string>} */
const NAMES = {
  contributed: "contributed", corroborates: "corroborates only", against: "against", none: "no decisive part",
};

/** A fall of log p in powers of ten: "−8.6", "+1.2", "0". @param {number} fall */
export function power(fall) {
  const digits = Math.abs(fall / LN10).toFixed(Math.abs(fall) < 10 * LN10 ? 1 : 0);
  return Number(digits) ? `${fall >= 0 ? "−" : "+"}${digits}` : "0";
}

/** A token's text in a sentence: without its blanks, unless it is nothing else. @param {string} text */
const shown = (text) => (text.trim() ? inLine(text.trim()) : glyphs(text));

/** The head's tile and the card below the answer; ``view`` is the Attribution they belong to. */
export class CauseCard {
  /** Source → what was found. @type {Map<string, Cause>} */
  found = new Map();
  /** What is shown as heat, and of which row of the table. @type {{ cause: Cause, row: number } | null} */
  chosen = null;
  /** The sources that are still to be read, while reading goes on. @type {AttributedSource[]} */
  left = [];
  /** Told apart from earlier loads. */
  turn = 0;

  /** @param {import("specviz/attribution/view.js").Attribution} view */
  constructor(view) {
    this.view = view;
    this.go = h("button.svp-button.sv-a-ask", { onclick: () => (this.left.length ? this.stop() : this.readAll()) });
    this.note = h("span.ui-soft.ui-words");
    this.table = h("div.sv-a-matrix-box");
    this.said = h("p.sv-a-said.ui-words", { role: "status" });
    this.bad = h("p.svp-note", { role: "status" });
    this.summary = h("div");
    this.tile = tile(QUESTION, [this.summary, h("div.ui-row", this.go), this.bad]);
    this.element = append(h("section.sv-card.sv-a-cause", { "aria-label": "Cause" }), [
      h("div.ui-row", h("b", "Cause, by sentence"), this.note),
      this.said,
      this.table,
    ]);
  }

  /** The sources that the model read. */
  get sources() {
    return this.view.signal.verbatim.sources.filter(({ kind }) => SOURCES.includes(kind) && kind !== "pool");
  }

  /** Another answer. */
  load() {
    this.turn += 1;
    this.left = [];
    this.chosen = null;
    this.found = new Map();
    const causes = this.view.signals.flatMap((signal) => signal.causes);
    for (const cause of causes) this.found.set(sourceKey(cause), cause);
    tell(this.bad, "");
    this.draw();
  }

  draw() {
    const { sources, found, left } = this;
    const can = Boolean(this.view.ask) && sources.length > 0;
    this.tile.hidden = !sources.length;
    this.element.hidden = !found.size;
    const todo = sources.filter((source) => !found.has(sourceKey(source))).length;
    this.go.hidden = !can || (!todo && !left.length);
    this.go.textContent = left.length ? "Stop" : found.size ? "Read the rest" : "Read it without each source";
    const [first] = found.values();
    this.note.textContent = first ? "Powers of ten: −3 is 10³ times less likely without that source" : "";
    if (first && first.model !== this.view.doc.run.model) this.note.append(`, by ${first.model}`);
    replace(this.summary, this.summarize(can));
    if (found.size) this.drawTable();
    const { cause, row } = this.chosen ?? {};
    this.said.replaceChildren(cause ? this.words(cause, row ?? 0) : "Choose a number: the answer shows its tokens.");
  }

  /** The sources by their part in the whole answer. @param {boolean} can whether the model may be asked */
  summarize(can) {
    const { sources, found, left } = this;
    const read = sources.filter((source) => found.has(sourceKey(source)));
    const count = sources.length - read.length;
    if (left.length) return [h("p", `${read.length} of ${plural(sources.length, "source")} left out …`)];
    if (!read.length) return [h("p", can ? `The model reads it again, ${plural(count, "time")}.` : NOT_READ)];
    const standings = /** @type {Standing[]} */ (Object.keys(NAMES));
    const lines = standings.map((standing) => {
      const of = read.filter((source) => found.get(sourceKey(source))?.weights[0].standing === standing);
      return of.length > 0 && h("p.sv-a-caused", `${NAMES[standing]} `, of.map((source) => this.key(source)));
    });
    return [...lines, this.most(read), count > 0 && can && h("p.ui-soft", `${count} not read yet`)];
  }

  /** What the source that matters most does to the whole answer. @param {AttributedSource[]} read @returns {Child} */
  most(read) {
    /** @param {AttributedSource} source */
    const fall = (source) => (this.found.get(sourceKey(source))?.weights[0].fall ?? 0) / LN10;
    const [first] = [...read].sort((a, b) => fall(b) - fall(a));
    if (!first || fall(first) < 1) return false;
    const count = this.view.signal.verbatim.output_tokens;
    const each = format(10 ** (fall(first) / count), 2); // of a whole answer the power of ten says nothing
    const tokens = plural(count, "token");
    return h("p.ui-soft", `Without ${tag(first)} each of the ${tokens} is on average ${each} times less likely.`);
  }

  /** A source's tag in its colour. @param {AttributedSource} source */
  key(source) {
    const name = { class: look(source, this.sources.indexOf(source)), "data-source": sourceKey(source) };
    return h("span.sv-a-key", { ...name, title: source.name }, tag(source));
  }

  /** A source's part in the whole answer, beside its name. @type {(source: AttributedSource) => HTMLElement | null} */
  chip(source) {
    const weight = this.found.get(sourceKey(source))?.weights[0];
    if (!weight || weight.standing === "none") return null;
    return h("span.sv-a-weight", { "data-standing": weight.standing }, weight.standing);
  }

  /** @type {(cause: Cause, row: number) => HTMLElement} */
  words(cause, row) {
    const weight = cause.weights[row];
    const changes = weight ? this.changes(cause, weight) : "";
    return h("span", weight?.said ?? "", changes && h("span.ui-soft", ` Instead: ${changes}.`));
  }

  /** The tokens that fall most, and what would have come in their place. */
  /** @type {(cause: Cause, weight: Weight) => string} */
  changes(cause, weight) {
    const { signal } = this.view;
    const characters = [...signal.verbatim.output];
    const falls = cause.fall.map((fall, at) => ({ fall, at })).slice(weight.start, weight.stop);
    const changed = falls.filter(({ fall, at }) => fall >= SHOWN && cause.instead[at]);
    return changed
      .sort((a, b) => b.fall - a.fall)
      .slice(0, 4)
      .map(({ at }) => {
        const text = characters.slice(...signal.tokens[at]).join("");
        return `“${shown(text)}” → “${shown(cause.instead[at]?.[0] ?? "")}”`;
      })
      .join(", ");
  }

  drawTable() {
    const { sources, view } = this;
    const characters = [...view.signal.verbatim.output];
    const rows = [
      { name: "the whole answer", row: 0 },
      ...view.signal.sentences.map(({ output }, k) => ({
        name: characters.slice(...output).join("").trim(),
        row: k + 1,
      })),
    ];
    if (rows.length === 2) rows.shift(); // one sentence is the whole answer
    const head = h(
      "tr",
      h("th", { scope: "col" }, "part of the answer"),
      sources.map((source) => h("th", { scope: "col" }, this.key(source))),
    );
    const current = this.chosen?.cause.kind ? this.chosen.row : -1; // of a link's words no row is current
    const body = rows.map(({ name, row }) =>
      h(
        "tr",
        { "aria-current": row === current ? "true" : null },
        h("th", { scope: "row", title: name }, h("span.sv-a-part", inLine(name))),
        sources.map((source, k) => h("td", this.cell(source, k, row))),
      ),
    );
    const used = new Set([...this.found.values()].flatMap(({ weights }) => weights.map(({ standing }) => standing)));
    const standings = /** @type {Standing[]} */ (Object.keys(STANDINGS));
    this.table.replaceChildren(
      h("table.sv-a-matrix", h("thead", head), h("tbody", body)),
      h(
        "ul.ui-legend",
        standings
          .filter((standing) => used.has(standing))
          .map((standing) => {
            const [sample, text] = STANDINGS[standing];
            return h("li", h("span.sv-a-weight", { "data-standing": standing }, sample), ` ${text}`);
          }),
      ),
    );
  }

  /** @type {(source: AttributedSource, k: number, row: number) => Child} */
  cell(source, k, row) {
    const cause = this.found.get(sourceKey(source));
    const weight = cause?.weights[row];
    if (!cause || !weight) return h("span.ui-soft", "…");
    const chosen = this.chosen?.cause === cause && this.chosen.row === row;
    const text = weight.standing === "corroborates" ? `= ${power(weight.fall)}` : power(weight.fall);
    const label = `${text}: ${weight.said}`;
    const attributes = { "data-standing": weight.standing, "aria-pressed": String(chosen), "aria-label": label };
    const onclick = () => this.choose(chosen ? null : { cause, row });
    return h("button.sv-a-weight", { class: look(source, k), ...attributes, onclick }, text);
  }

  /** @param {CauseCard["chosen"]} chosen */
  choose(chosen) {
    const cells = () => [...this.table.querySelectorAll("button")];
    const focused = cells().findIndex((cell) => cell === document.activeElement);
    this.chosen = chosen;
    this.draw();
    cells()[focused]?.focus({ preventScroll: true }); // the table was drawn anew
    this.view.sides.drawAnswer();
    this.view.light(); // the heat breaks lines elsewhere
  }

  /** Shows the source that matters most to a sentence. @param {number} sentence */
  chooseSentence(sentence) {
    const row = sentence + 1;
    /** @type {(cause: Cause) => number} */
    const size = (cause) => Math.abs(cause.weights[row]?.fall ?? 0);
    const [cause] = [...this.found.values()].sort((a, b) => size(b) - size(a));
    if (cause?.weights[row]) this.choose({ cause, row });
  }

  /** Reads the answer without each source that is left, one by one. */
  async readAll() {
    const turn = this.turn;
    this.left = this.sources.filter((source) => !this.found.has(sourceKey(source)));
    while (this.left.length && turn === this.turn) {
      const { kind, passage } = this.left[0];
      if (!(await this.read({ kind, passage }, turn))) return;
      this.left = this.left.slice(1);
      this.draw();
    }
  }

  stop() {
    this.left = [];
    this.draw();
  }

  /** Reads the answer without the words of a link, once sources were read. @param {SourceLink} link */
  async readLink(link) {
    if (!this.view.ask || !this.found.size || !["context", "turn", "prompt"].includes(link.kind)) return;
    const { turn, chosen, view } = this;
    const cause = await this.read({ link: link.source_tokens, span: link.output_tokens }, turn);
    const wanted = turn === this.turn && chosen === this.chosen && view.pinned === link.number; // still held
    if (cause && wanted) this.choose({ cause, row: 0 });
  }

  /** @type {(part: object, turn: number) => Promise<Cause | null>} */
  async read(part, turn) {
    this.draw();
    try {
      const cause = await this.view.ask?.(part);
      if (!cause || turn !== this.turn) return null;
      if (cause.kind) {
        this.found.set(sourceKey(cause), cause);
        this.view.board.drawSummary();
        this.view.sides.drawSources();
      }
      tell(this.bad, "");
      return cause;
    } catch (problem) {
      if (turn !== this.turn) return null;
      this.left = [];
      this.draw();
      tell(this.bad, sentence(problem), true);
      return null;
    }
  }

  /** The heat over a token of the answer: its colour, and the token that would have come instead. */
  /** @type {(token: number) => { style: string, instead: string, rises: boolean } | null} */
  heat(token) {
    const { cause, row } = this.chosen ?? {};
    const weight = cause?.weights[row ?? 0];
    if (!cause || !weight || token < weight.start || token >= weight.stop) return null;
    const fall = cause.fall[token];
    const share = clamp(Math.abs(fall) / HOT, 0, 1);
    if (share < 0.04) return null;
    const other = fall >= SHOWN ? (cause.instead[token]?.[0] ?? "") : "";
    const instead = glyphs(other.trim() || other);
    return { style: `--heat:${(100 * share).toFixed(0)}%`, instead, rises: fall < 0 };
  }
}
