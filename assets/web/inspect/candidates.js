/* The ranking behind a draft: every candidate with its score terms, what it offered and what it would have accepted. */

import { card, clamp, format, framed, h, plural } from "specviz/base/dom.js";
import { POOL } from "specviz/base/model.js";

const ROW = 30;
const SNIPPET = 9; // tokens
const PIPS = 10;

/** Text is written only where it changed: a new text node costs a layout. */
function write(element, text) {
  if (element.svText === text) return;
  element.svText = text;
  element.textContent = text;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export class CandidateTable {
  constructor(owner) {
    this.owner = owner;
    Object.assign(this, card("candidates", "Candidates"));
    this.head = h("div", { class: "sv-crow sv-chead", role: "row" });
    this.rows = h("div", { class: "sv-crows", role: "rowgroup" });
    this.table = h(
      "div",
      { class: "sv-ctable", role: "table", "aria-label": "Candidates of this step" },
      this.head,
      this.rows,
    );
    this.empty = h("p", { class: "sv-empty", hidden: true });
    this.body.append(this.table, this.empty);
    this.remark = h("footer", { class: "sv-remark", hidden: true });
    this.element.append(this.remark);
    this.active = -1;
    this.pool = [];
    this.top = 0;
    this.height = 300;
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
    const rowOf = (event) => {
      const row = event.target.closest(".sv-crow[data-k]");
      return row ? Number(row.dataset.k) : -1;
    };
    this.rows.addEventListener("pointerover", (event) => this.hover(rowOf(event)));
    this.rows.addEventListener("pointerleave", () => this.hover(-1));
    this.rows.addEventListener("click", (event) => {
      const k = rowOf(event);
      if (k >= 0 && event.target.closest(".sv-try")) this.offered(this.view.candidates[k]);
      else this.go(k);
    });
    this.offered = null;
  }

  /** A button in every losing row: ``act(candidate)`` is told which place was picked; null takes the buttons away. */
  offer(act) {
    const fresh = !act !== !this.offered;
    this.offered = act;
    this.layout = this.headed = null;
    if (fresh && this.view) this.draw(this.view);
  }

  columns(view) {
    const terms = this.owner.model.run.terms || [];
    const { model } = this.owner;
    // a single term that is the score is shown once, under its own name
    const same = (term) => view.candidates.every((one) => model.term(one, term.key) === one.score);
    this.terms = terms.filter((term) => view.candidates.some((one) => typeof model.term(one, term.key) === "number"));
    this.showScore = !this.terms.some(same);
    this.sameAnchor = view.candidates.every((one) => model.id(one.position) === view.root);
    const after = h("code", { class: "sv-token" }, model.pieces.label(view.root, 12));
    const widths = [
      "38px",
      "minmax(150px, 1fr)",
      ...this.terms.map((term) => (term.high > term.low ? "104px" : "58px")),
    ];
    if (this.showScore) widths.push("58px");
    widths.push("46px", "132px");
    if (this.offered) widths.push("58px");
    const layout = [...widths, ...this.terms.map((term) => term.key)].join(" ");
    if (layout !== this.layout || this.owner.model !== this.headedFor) {
      this.layout = layout;
      this.pool = [];
      this.rows.replaceChildren();
    }
    const head = `${layout} ${this.sameAnchor && view.root} ${!!this.offered}`;
    if (head === this.headed && this.owner.model === this.headedFor) return;
    this.headed = head;
    this.headedFor = this.owner.model;
    this.table.style.setProperty("--sv-columns", widths.join(" "));
    const optional = (this.showScore ? 58 : 0) + (this.offered ? 66 : 0);
    this.table.style.minWidth = `${38 + 150 + 104 * this.terms.length + 170 + 40 + optional}px`;
    const cell = (label, help) => {
      const one = h("span", { role: "columnheader" }, label);
      return help ? this.owner.tip.add(one, () => [h("b", {}, one.textContent), h("div", {}, help)]) : one;
    };
    this.head.replaceChildren(
      cell("#", "Rank: 1 is what the method likes best."),
      cell(
        this.sameAnchor ? h("span", {}, "Copy after ", after) : "Copy from",
        "The earlier place and the tokens after it: what it offers. Underlined: those the output then had.",
      ),
      ...this.terms.map((term) => cell(capital(term.label || term.key), term.help)),
      ...(this.showScore ? [cell("Score", "What the method ranks by.")] : []),
      cell("Offers", "Tokens offered."),
      cell("Would accept", "Offered tokens that equal the output that followed. Known when the run is over."),
      ...(this.offered ? [cell("Pick", "Drafts this step again from a place that was not chosen.")] : []),
    );
  }

  clear() {
    this.view = null;
    this.note.textContent = "";
    this.table.hidden = this.empty.hidden = this.remark.hidden = true;
  }

  draw(view) {
    this.view = view;
    const list = view.candidates;
    const some = list.length > 0;
    this.table.hidden = !some;
    this.empty.hidden = some;
    this.active = -1;
    this.note.textContent = some
      ? plural(
          list.length,
          list[0].position >= POOL ? "place in the pool" : "earlier place",
          list[0].position >= POOL ? "places in the pool" : "",
        )
      : "";
    if (some) {
      this.columns(view);
      this.table.setAttribute("aria-rowcount", String(list.length + 1));
      this.rows.style.height = `${list.length * ROW}px`;
      if (this.top) this.body.scrollTop = this.top = 0;
      this.drawRows(true);
    } else {
      this.empty.textContent = view.drafted
        ? "This method does not rank earlier places: its draft comes from elsewhere."
        : "No candidates this step" + (view.reason ? `: ${view.reason}.` : ".");
    }
    this.drawRemark(view);
  }

  /** Only the rows in sight exist; they are used again from step to step. */
  drawRows(fresh) {
    const list = this.view ? this.view.candidates : [];
    if (!list.length) return;
    const from = clamp(Math.floor(this.top / ROW) - 2, 0, list.length);
    const to = clamp(Math.ceil((this.top + this.height) / ROW) + 1, 0, list.length);
    if (!fresh && from === this.from && to === this.to) return;
    this.from = from;
    this.to = to;
    while (this.pool.length < to - from) this.pool.push(this.makeRow());
    for (let k = from; k < to; k++) this.fillRow(this.pool[k - from], list[k], k);
    while (this.rows.childElementCount > to - from) this.rows.lastChild.remove();
    for (let k = this.rows.childElementCount; k < to - from; k++) this.rows.append(this.pool[k].element);
  }

  makeRow() {
    const cell = (name) => h("span", { class: name, role: "cell" }, "");
    const row = {
      rank: cell("sv-rank"),
      place: h("span", { class: "sv-place" }, ""),
      anchor: h("code", { class: "sv-anchor-text" }, ""),
      taken: h("code", { class: "sv-taken" }, ""),
      rest: h("code", {}, ""),
      terms: this.terms.map(() => cell("sv-term")),
      score: cell("sv-number"),
      length: cell("sv-number"),
      pips: cell("sv-pips"),
      pick: this.offered && h("button", { type: "button", class: "sv-try" }, "What if"),
    };
    const snippet = h("span", { class: "sv-snippet", role: "cell" }, row.place, row.anchor, row.taken, row.rest);
    const parts = [row.rank, snippet, ...row.terms, this.showScore && row.score, row.length, row.pips];
    if (row.pick) parts.push(h("span", { role: "cell" }, row.pick));
    row.element = this.owner.tip.add(h("div", { class: "sv-crow", role: "row" }, parts), () => {
      const one = this.view.candidates[Number(row.element.dataset.k)];
      return one && one.excluded ? [`Could not win: ${one.excluded}`] : [];
    });
    return row;
  }

  fillRow(row, one, k) {
    const { model } = this.owner;
    const { best } = this.view;
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
      row.element.dataset.k = k;
      row.element.setAttribute("aria-rowindex", k + 2);
      row.element.style.transform = `translateY(${k * ROW}px)`;
    }
    const most = Math.min(one.length, SNIPPET);
    const taken = clamp(one.would, 0, most);
    const start = one.position + 1;
    const phrase = (a, b) => (b > a ? model.pieces.phrase(model.ids(a, b)) : "");
    write(row.rank, (one.chosen ? "▸" : "") + (one.rank >= 0 ? one.rank + 1 : "–"));
    write(row.place, this.owner.short(one.position));
    if (row.anchor.hidden !== this.sameAnchor) row.anchor.hidden = this.sameAnchor;
    write(row.anchor, this.sameAnchor ? "" : phrase(one.position, start));
    write(row.taken, phrase(start, start + taken));
    write(row.rest, phrase(start + taken, start + most) + (one.length > most ? "…" : ""));
    this.terms.forEach((term, n) => this.level(row.terms[n], model.term(one, term.key), term));
    if (this.showScore) write(row.score, format(one.score));
    write(row.length, String(one.length));
    if (row.pick && row.pick.svKey !== `${k} ${one.chosen}`) {
      row.pick.svKey = `${k} ${one.chosen}`;
      row.pick.hidden = one.chosen;
      row.pick.setAttribute("aria-label", `What if place ${k + 1} had been chosen?`);
    }
    this.pips(row.pips, one, best && best.would > 0 && one.would === best.would);
  }

  /** A number with its bar between the term's low and high; a term without a range (a layer's number) has no bar. */
  level(cell, value, term) {
    const known = typeof value === "number";
    const share = known ? clamp((value - term.low) / (term.high - term.low || 1), 0, 1) : 0;
    write(cell, known ? format(value, 2) : "–");
    const shown = share.toFixed(2);
    if (cell.svShare === shown) return;
    if (cell.svShare === undefined) cell.classList.toggle("sv-barless", !(term.high > term.low));
    cell.svShare = shown;
    cell.style.setProperty("--sv-share", shown);
  }

  pips(cell, one, isBest) {
    const key = `${one.would}/${one.length} ${isBest} ${this.owner.model.run.complete}`;
    if (cell.svKey === key) return;
    cell.svKey = key;
    if (one.would < 0) {
      cell.className = "sv-pips sv-faint";
      cell.textContent = this.owner.model.run.asked ? "?" : this.owner.model.run.complete ? "–" : "after the run";
      return;
    }
    const shown = Math.min(one.length, PIPS);
    const filled = one.length > PIPS ? Math.round((one.would / one.length) * PIPS) : one.would;
    cell.className = "sv-pips sv-pip-bar";
    cell.style.setProperty("--sv-filled", filled);
    cell.style.setProperty("--sv-shown", shown);
    cell.textContent = `${one.would}/${one.length}`;
    if (isBest) cell.append(h("b", { class: "sv-best" }, "best"));
  }

  /** Ties, ranking regret and exclusions, in words. */
  drawRemark(view) {
    const parts = [];
    const { candidates, chosen, best } = view;
    const eligible = candidates.filter((one) => !one.excluded);
    const ties = chosen ? eligible.filter((one) => one.score === chosen.score).length : 0;
    if (ties > 1) parts.push(h("span", {}, `${ties} places tie at ${format(chosen.score)}. `));
    if (chosen && best && best.would > chosen.would && chosen.would >= 0) {
      const text =
        `Ranking regret ${best.would - chosen.would}: the chosen place accepts ${chosen.would}, ` +
        `the best (${this.owner.where(best.position)}) would have accepted ${best.would}. `;
      parts.push(h("span", { class: "sv-regret" }, text));
    } else if (chosen && best && best.would >= 0 && candidates.length > 1 && eligible.length > 1) {
      parts.push(h("span", {}, "No other place would have accepted more. "));
    }
    const out = candidates.length - eligible.length;
    if (out)
      parts.push(
        h("span", {}, `${plural(out, "place")} could not win (${candidates.find((one) => one.excluded).excluded}). `),
      );
    this.remark.replaceChildren(...parts);
    this.remark.hidden = !parts.length;
  }

  hover(k) {
    const one = k >= 0 ? this.view.candidates[k] : null;
    const positions = [];
    if (one) for (let i = 0; i <= one.length; i++) positions.push(one.position + i);
    this.owner.light(positions);
  }

  go(k) {
    if (k >= 0) this.owner.reveal(this.view.candidates[k].position, true);
  }

  key(event) {
    if (event.key === "Enter" && event.target.closest(".sv-try")) return;
    const list = this.view ? this.view.candidates : [];
    const jump = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (jump && list.length) {
      event.preventDefault();
      this.active = clamp(this.active + jump, 0, list.length - 1);
      const top = this.active * ROW;
      const room = this.body.clientHeight - 2 * ROW;
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
    this.drawRows();
  }
}
