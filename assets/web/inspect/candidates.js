/* The ranking behind a draft: every candidate with its score terms, what it offered and what it would have accepted. */

import { closest, framed, h, replace, told, write } from "specviz/base/dom.js";
import { POOL } from "specviz/base/model.js";
import { clamp, format, nth, plain, plural } from "specviz/base/numbers.js";
import { BREAK, capital } from "specviz/base/text.js";
import { Panel } from "specviz/inspect/panel.js";
import { evidence } from "specviz/inspect/sentence.js";

const ROW = 26; // pixels, of a line: of a row whose text stands beside its numbers
const [LINE, EDGE] = [19, 7]; // pixels: of a line of text below the numbers, and of the room around it
const LINES = [5, 4, 3, 2, 1]; // of text below the numbers: as many as all rows have room for
const SNIPPET = 24; // tokens
const LETTER = 7; // pixels, of a head

/** @type {Record<string, number>} */
const JUMPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };

/** Width in pixels (of the text at least), head, help. @typedef {[width: number, head: Child, help: string]} Column */
/** A column of numbers. @type {(width: number, label: string, help: string) => Column} */
const column = (width, label, help) => [width, capital(label), help];

/** Widths of columns, of the gap between them and of the row's edges, in pixels: the first that fit are taken. */
/** @typedef {Record<"rank" | "text" | "term" | "would" | "pick" | "gap" | "edge", number>} Size */
/** @type {Size[]} */
const SIZES = [
  { rank: 30, text: 150, term: 84, would: 104, pick: 58, gap: 8, edge: 10 },
  { rank: 30, text: 104, term: 80, would: 92, pick: 58, gap: 8, edge: 10 },
  { rank: 28, text: 84, term: 44, would: 84, pick: 54, gap: 5, edge: 6 }, // numbers without bars
];

const WOULD = "Offered tokens that equal the output that followed. Known when the run is over.";
const OFFER = "The earlier place and the tokens after it: what it offers. Underlined: those the output then had. " +
  "L28 2nd: the second such place in line 28.";

/** A row in sight, used again from step to step; ``k``: its candidate, the other values: what is drawn. */
class Row {
  /** @param {CandidateTable} table */
  constructor({ terms, plains, showScore, showLength, offered }) {
    /** @type {(name: string) => HTMLElement} */
    const cell = (name) => h("span", { class: name, role: "cell" }, "");
    this.k = -1;
    this.name = this.pipsKey = this.pickKey = this.top = "";
    this.rank = cell("sv-rank");
    this.place = h("span.sv-place", "");
    this.anchor = h("code.sv-anchor-text", "");
    this.taken = h("code.sv-taken", "");
    this.rest = h("code", "");
    this.text = h("span.sv-offered.ui-clip", this.anchor, this.taken, this.rest);
    /** @type {{ cell: HTMLElement, share: string }[]} */
    this.terms = Array.from(terms, () => ({ cell: cell("sv-term"), share: "" }));
    this.plains = Array.from(plains, () => cell("sv-plain ui-clip"));
    this.score = cell("sv-number");
    this.length = cell("sv-number");
    this.pips = cell("sv-pips");
    this.pick = offered ? h("button.sv-button.sv-try", "What if") : null;
    this.element = h(
      "div.sv-crow",
      { role: "row" },
      this.rank,
      h("span.sv-snippet", { role: "cell" }, this.place, this.text),
      this.terms.map((one) => one.cell),
      this.plains,
      showScore && this.score,
      showLength && this.length,
      this.pips,
      this.pick && h("span", { role: "cell" }, this.pick),
    );
  }
}

export class CandidateTable extends Panel {
  /** @param {Inspector} owner */
  constructor(owner) {
    super(owner, "candidates", "Candidates");
    this.head = h("div.sv-crow.sv-chead", { role: "row" });
    this.rows = h("div.sv-crows", { role: "rowgroup" });
    this.table = h("div.sv-ctable", { role: "table", "aria-label": "Candidates of this step" }, this.head, this.rows);
    this.empty = h("p.sv-empty", { hidden: true });
    this.body.append(this.table, this.empty);
    this.remark = h("p.sv-remark", { hidden: true });
    this.body.before(this.remark); // its answer first
    this.active = -1;
    /** @type {Row[]} */
    this.pool = [];
    this.top = this.from = this.to = 0;
    this.height = 300;
    this.row = ROW;
    /** Candidates of a line of text that has several → which of them each is: " 2nd". @type {Map<Candidate, string>} */
    this.nths = new Map();
    /** @type {StepView | null} */
    this.view = null;
    /** The columns that are laid out, the heads that are drawn, and for which run. */
    this.layout = this.headed = "";
    /** @type {Model | null} */
    this.headedFor = null;
    /** The run's numbers of candidates that this step has. @type {RunTerm[]} */
    this.terms = [];
    /** Columns that no view knows, shown as they are. @type {PlainColumn[]} */
    this.plains = [];
    this.showScore = this.sameAnchor = false;
    this.showLength = true;
    this.room = 800;
    /** @type {((candidate: Candidate) => void) | null} */
    this.offered = null;
    const refresh = framed(() => this.drawRows());
    this.body.addEventListener(
      "scroll",
      () => {
        this.top = this.body.scrollTop;
        refresh();
      },
      { passive: true },
    );
    this.body.addEventListener("keydown", (event) => this.key(event));
    /** @type {(event: Event) => number} */
    const rowOf = (event) => Number(closest(event, ".sv-crow[data-k]")?.dataset.k ?? -1);
    this.rows.addEventListener("pointerover", (event) => this.hover(rowOf(event)));
    this.rows.addEventListener("pointerleave", () => this.hover(-1));
    this.rows.addEventListener("click", (event) => {
      const k = rowOf(event);
      if (k >= 0 && this.view && closest(event, ".sv-try")) this.offered?.(this.view.candidates[k]);
      else this.go(k);
    });
  }

  /** A button in every losing row: ``act`` is told which place was picked; null takes the buttons away. */
  /** @param {((candidate: Candidate) => void) | null} act */
  offer(act) {
    const fresh = !act !== !this.offered;
    this.offered = act;
    this.layout = this.headed = "";
    if (fresh && this.view) this.draw(this.view);
  }

  /** Lays out the columns that a step needs. @param {StepView} view */
  columns(view) {
    const terms = this.owner.model.run.terms || [];
    const { model } = this.owner;
    // a single term that is the score is shown once, under its own name
    /** @type {(term: RunTerm) => boolean} */
    const same = (term) => view.candidates.every((one) => model.term(one, term.key) === one.score);
    this.terms = terms.filter((term) => view.candidates.some((one) => typeof model.term(one, term.key) === "number"));
    this.plains = model.columns.candidates ?? [];
    this.showScore = !this.terms.some(same);
    this.sameAnchor = view.candidates.every((one) => model.id(one.position) === view.root);
    const after = h("code.sv-token", model.pieces.label(view.root, 12));
    /** @type {Column[]} */
    let columns = [];
    let [wide, size] = [0, SIZES[0]];
    for (size of SIZES) {
      columns = this.columnsIn(size, view, after);
      wide = columns.reduce((sum, [width]) => sum + width + size.gap, 2 * size.edge - size.gap);
      if (wide <= this.room) break;
    }
    this.table.classList.toggle("sv-tight", size !== SIZES[0]);
    this.table.classList.toggle("sv-slim", size === SIZES[2]);
    const widths = columns.map(([width], k) => (k === 1 ? `minmax(${width}px, 1fr)` : `${width}px`)).join(" ");
    const names = [...this.terms.map((term) => term.key), ...this.plains.map((one) => one.name)].join(" ");
    const layout = `${widths} ${names} ${this.showLength}`;
    if (layout !== this.layout || this.owner.model !== this.headedFor) {
      this.layout = layout;
      this.pool = [];
      this.rows.replaceChildren();
    }
    const head = `${layout} ${this.sameAnchor && view.root}`; // the layout says whether a place can be picked
    if (head === this.headed && this.owner.model === this.headedFor) return;
    this.headed = head;
    this.headedFor = this.owner.model;
    this.table.style.setProperty("--sv-columns", widths);
    this.table.style.minWidth = `${wide}px`;
    this.head.replaceChildren(
      ...columns.map(([, label, help]) => {
        const one = h("span.ui-clip", { role: "columnheader" }, label);
        return help ? this.owner.tip.add(one, () => told(one.textContent, help)) : one;
      }),
    );
  }

  /** The columns in one of the sizes. @type {(size: Size, view: StepView, after: Child) => Column[]} */
  columnsIn(size, view, after) {
    this.showLength = !view.candidates.every((one) => one.would >= 0); // else "20 of 20" says it
    /** @type {(Column | false)[]} */
    const all = [
      [size.rank, "#", "Rank: 1 is what the method likes best."],
      [size.text, this.sameAnchor ? h("span", "Copy after ", after) : "Copy from", OFFER],
      ...this.terms.map(({ key, label, help, low, high }) => {
        const least = (high ?? 0) > (low ?? 0) ? size.term : Math.min(58, size.term);
        const name = label || key; // whole, where it stands on one line
        return column(size === SIZES[2] ? least : Math.max(least, LETTER * name.length), name, help || "");
      }),
      ...this.plains.map(({ label, help }) => column(80, label, help)),
      this.showScore && [58, "Score", "What the method ranks by."],
      this.showLength && [46, "Offers", "Tokens offered."],
      [size.would, "Would accept", WOULD],
      !!this.offered && [size.pick, "Pick", "Drafts this step again from a place that was not chosen."],
    ];
    return all.filter((one) => one !== false);
  }

  clear() {
    this.view = null;
    this.note.textContent = "";
    this.table.hidden = this.empty.hidden = this.remark.hidden = true;
  }

  /** @param {StepView} view */
  draw(view) {
    this.view = view;
    const list = view.candidates;
    const some = list.length > 0;
    this.table.hidden = !some;
    this.empty.hidden = some;
    this.active = -1;
    const pooled = some && list[0].position >= POOL;
    const [one, many] = pooled ? ["place in the pool", "places in the pool"] : ["earlier place", "earlier places"];
    this.note.textContent = some ? plural(list.length, one, many) : "";
    if (some) {
      this.columns(view);
      this.table.setAttribute("aria-rowcount", String(list.length + 1));
      this.nths = this.twins(list);
      this.stretch();
      if (this.top) this.body.scrollTop = this.top = 0;
      this.drawRows(true);
    } else {
      this.empty.textContent = this.owner.model.run.imported
        ? "Not recorded: the server does not tell how its drafter ranked places."
        : view.drafted
          ? "This method does not rank earlier places: its draft comes from elsewhere."
          : "No candidates this step" + (view.reason ? `: ${view.reason}.` : ".");
    }
    this.drawRemark(view);
  }

  /** Gives every row's text lines of its own, where all of them have room for it; else it stands beside the numbers. */
  stretch() {
    const count = this.view?.candidates.length ?? 0;
    const room = this.height / this.owner.zoom - ROW;
    const lines = LINES.find((many) => count * (ROW + EDGE + many * LINE) <= room) ?? 0;
    this.row = lines ? ROW + EDGE + lines * LINE : ROW;
    this.table.classList.toggle("sv-tall", lines > 0);
    this.table.style.setProperty("--sv-lines", String(lines));
    this.rows.style.height = lines ? "" : `${count * this.row}px`; // a row with lines is as high as it needs
  }

  /** Places that lie in the same line, in its order. @type {(list: Candidate[]) => Map<Candidate, string>} */
  twins(list) {
    /** @type {Map<string, Candidate[]>} */
    const lines = new Map();
    for (const one of list) {
      const name = this.owner.short(this.owner.model.placeOf(one));
      lines.set(name, [...(lines.get(name) ?? []), one]);
    }
    const many = [...lines.values()].filter((one) => one.length > 1);
    const sorted = many.map((all) => all.toSorted((a, b) => a.position - b.position));
    return new Map(sorted.flatMap((all) => all.map((one, k) => [one, ` ${nth(k + 1)}`])));
  }

  /** Only the rows in sight exist; they are used again from step to step. */
  drawRows(fresh = false) {
    const list = this.view ? this.view.candidates : [];
    if (!list.length) return;
    const from = clamp(Math.floor(this.top / this.row) - 2, 0, list.length);
    const to = clamp(Math.ceil((this.top + this.height) / this.row) + 1, 0, list.length);
    if (!fresh && from === this.from && to === this.to) return;
    this.from = from;
    this.to = to;
    while (this.pool.length < to - from) this.pool.push(this.makeRow());
    for (let k = from; k < to; k++) this.fillRow(this.pool[k - from], list[k], k);
    while (this.rows.childElementCount > to - from) this.rows.lastChild?.remove();
    for (let k = this.rows.childElementCount; k < to - from; k++) this.rows.append(this.pool[k].element);
  }

  makeRow() {
    const row = new Row(this);
    this.owner.tip.add(row.element, () => {
      const one = this.view?.candidates[row.k];
      if (!one) return [];
      const { model } = this.owner;
      const start = one.position + 1;
      const { scrollWidth, clientWidth, scrollHeight, clientHeight } = row.text;
      const whole = one.length <= SNIPPET && scrollWidth <= clientWidth && scrollHeight <= clientHeight + 1;
      const text = whole ? "" : model.pieces.phrase(model.ids(start, start + one.length), Infinity, BREAK);
      /** @type {Child[]} */
      const parts = one.excluded ? [h("div", `Could not win: ${one.excluded}`)] : [];
      return text ? [...parts, h("code.sv-token", text)] : parts;
    });
    return row;
  }

  /** @type {(row: Row, one: Candidate, k: number) => void} */
  fillRow(row, one, k) {
    const { model } = this.owner;
    const best = this.view?.best;
    const names = [
      "sv-crow",
      one.chosen && "sv-chosen",
      one.excluded && "sv-excluded",
      k === this.active && "sv-active",
    ];
    const name = names.filter(Boolean).join(" ");
    if (row.name !== name) row.element.className = row.name = name;
    if (row.k !== k) {
      row.k = k;
      row.element.dataset.k = String(k);
      row.element.setAttribute("aria-rowindex", String(k + 2));
    }
    const top = this.row > ROW ? "" : `translateY(${k * this.row}px)`;
    if (row.top !== top) row.element.style.transform = row.top = top;
    const most = Math.min(one.length, SNIPPET);
    const taken = clamp(one.would, 0, most);
    const start = one.position + 1;
    /** @type {(a: Position, b: Position) => string} */
    const phrase = (a, b) => (b > a ? model.pieces.phrase(model.ids(a, b), Infinity, BREAK) : "");
    write(row.rank, `${one.chosen ? "▸" : ""}${one.rank >= 0 ? one.rank + 1 : "–"}`);
    write(row.place, this.owner.short(this.owner.model.placeOf(one)) + (this.nths.get(one) ?? ""));
    if (row.anchor.hidden !== this.sameAnchor) row.anchor.hidden = this.sameAnchor;
    write(row.anchor, this.sameAnchor ? "" : phrase(one.position, start));
    write(row.taken, phrase(start, start + taken));
    const open = taken && taken < most ? BREAK : "";
    write(row.rest, open + phrase(start + taken, start + most) + (one.length > most ? "…" : ""));
    this.terms.forEach((term, n) => this.level(row.terms[n], model.term(one, term.key), term));
    this.plains.forEach((column, n) => write(row.plains[n], plain(model.plainValue("candidates", column, one.row))));
    if (this.showScore) write(row.score, format(one.score));
    write(row.length, String(one.length));
    if (row.pick && row.pickKey !== `${k} ${one.chosen}`) {
      row.pickKey = `${k} ${one.chosen}`;
      row.pick.hidden = one.chosen;
      row.pick.setAttribute("aria-label", `What if place ${k + 1} had been chosen?`);
    }
    const several = (this.view?.candidates.length ?? 0) > 1;
    this.pips(row, one, several && !!best && best.would > 0 && one.would === best.would);
  }

  /** A number with its bar, from 0 (of a logarithm, from the term's low) to its high; without a range it has none. */
  /** @type {(drawn: Row["terms"][number], value: number | null, term: RunTerm) => void} */
  level(drawn, value, term) {
    const { cell } = drawn;
    const high = term.high ?? 0;
    const low = high > 0 ? Math.max(0, term.low ?? 0) : (term.low ?? 0); // a cosine below 0 is no likeness
    const share = value === null ? "0.00" : clamp((value - low) / (high - low || 1), 0, 1).toFixed(2);
    write(cell, format(value, 2));
    if (drawn.share === share) return;
    if (!drawn.share) cell.classList.toggle("sv-barless", !(high > low));
    drawn.share = share;
    cell.style.setProperty("--sv-share", share);
  }

  /** Accepted tokens of those offered. @type {(row: Row, one: Candidate, isBest: boolean) => void} */
  pips(row, one, isBest) {
    const { run } = this.owner.model;
    const cell = row.pips;
    const key = `${one.would}/${one.length} ${isBest} ${run.complete}`;
    if (row.pipsKey === key) return;
    row.pipsKey = key;
    if (one.would < 0) {
      cell.className = "sv-pips sv-faint ui-line";
      cell.textContent = run.asked ? "?" : run.complete ? "–" : "after the run";
      return;
    }
    cell.className = "sv-pips ui-line";
    cell.textContent = one.length ? `${one.would} of ${one.length}` : "no copy"; // branches alone
    if (isBest) cell.append(h("b.sv-best", "best"));
  }

  /** Ties, ranking regret and exclusions, in words. @param {StepView} view */
  drawRemark(view) {
    const { candidates, chosen, best } = view;
    /** @type {Child[]} */
    const parts = [];
    const eligible = candidates.filter((one) => !one.excluded);
    const ties = chosen ? eligible.filter((one) => one.score === chosen.score).length : 0;
    if (chosen && ties > 1) parts.push(h("span", `${ties} places tie at ${format(chosen.score)}. `));
    else if (chosen && eligible.length > 1) parts.push(this.lead(chosen, eligible.filter((one) => one !== chosen)));
    if (chosen && best && best.would > chosen.would && chosen.would >= 0) {
      const text =
        `Of the chosen place ${chosen.would} were accepted; of the best, ` +
        `${this.owner.where(this.owner.model.placeOf(best))}, ${best.would} would have been ` +
        `(ranking regret ${best.would - chosen.would}). `;
      parts.push(h("span.sv-regret", text));
    } else if (chosen && best && best.would >= 0 && candidates.length > 1 && eligible.length > 1) {
      parts.push(h("span", `No other ${view.unlisted ? "recorded " : ""}place would have accepted more. `));
    }
    const out = candidates.filter((one) => one.excluded);
    if (out.length) parts.push(h("span", `${plural(out.length, "place")} could not win (${out[0].excluded}). `));
    if (view.unlisted)
      parts.push(h("span", `Not recorded: ${plural(view.unlisted, "place")} ranked behind these. `));
    replace(this.remark, parts);
    this.remark.hidden = !parts.length;
  }

  /** What put the chosen place first, where the next one's number shows it. */
  /** @type {(chosen: Candidate, others: Candidate[]) => Child} */
  lead(chosen, others) {
    const { model } = this.owner;
    const where = this.owner.where(model.placeOf(chosen));
    const [words, term] = evidence(this.owner, chosen);
    const [own, ...rest] = [chosen, ...others].map((one) => (term ? model.term(one, term.key) : one.score) ?? NaN);
    const next = Math.max(...rest);
    return own > next &&
      h("span", `${capital(where)} is first by its ${words}; the next place has ${format(next, 2)}. `);
  }

  /** @param {number} k */
  hover(k) {
    const one = this.view?.candidates[k];
    this.owner.draft.compare(one && !one.chosen ? one.position + 1 : -1);
    this.owner.light(one ? Array.from({ length: one.length + 1 }, (_, i) => one.position + i) : []);
  }

  /** @param {number} k */
  go(k) {
    const one = this.view?.candidates[k];
    if (one) this.owner.reveal(one.position, true);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "Enter" && closest(event, ".sv-try")) return;
    const list = this.view?.candidates || [];
    const jump = JUMPS[event.key];
    if (jump && list.length) {
      event.preventDefault();
      this.active = clamp(this.active + jump, 0, list.length - 1);
      const top = this.active * this.row;
      const room = this.body.clientHeight - 2 * this.row;
      if (top < this.body.scrollTop) this.body.scrollTop = top;
      else if (top > this.body.scrollTop + room) this.body.scrollTop = top - room;
      this.top = this.body.scrollTop;
      this.drawRows(true);
      this.hover(this.active);
    } else if (event.key === "Enter" && this.active >= 0) {
      this.go(this.active);
    }
  }

  resized() {
    this.height = this.body.clientHeight;
    this.stretch();
    const room = this.body.clientWidth / this.owner.zoom;
    if (room && room !== this.room) {
      this.room = room;
      if (!this.view?.candidates.length || this.headedFor !== this.owner.model) return;
      this.columns(this.view);
    }
    this.drawRows(true);
  }
}
