/* The pane of a pool: text that drafts are taken from and that does not stand in the prompt. */

import { h } from "specviz/base/dom.js";
import { POOL } from "specviz/base/model.js";
import { TokenPane } from "specviz/inspect/pane.js";

/** The text a method drafts from, where it is not in the prompt: all of it, or the stretches that were recorded. */
export class PoolPane extends TokenPane {
  /** @param {Inspector} owner */
  constructor(owner) {
    super(owner, "pool", "Context pool");
    this.offset = POOL;
    this.shownCount = 0;
  }

  /** @param {Position} position */
  where(position) {
    return `${super.where(position)} of the pool`;
  }

  refill() {
    const { model } = this.owner;
    const { poolIds: id, poolPassages: passage } = model;
    this.clear(POOL);
    this.stop = POOL + id.length;
    /** @type {number[]} */
    const from = [];
    id.forEach((_, at) => {
      if (!from.length || id[at - 1] === undefined || passage[at - 1] !== passage[at]) from.push(at);
    });
    const many = new Set(passage.filter((number) => number !== undefined)).size > 1;
    for (const start of from) {
      let stop = start + 1;
      while (id[stop] !== undefined && passage[stop] === passage[start]) stop++;
      this.open = false;
      this.segment = "context";
      const named = many && (start === 0 || passage[start - 1] !== passage[start]);
      const left = start > 0 && id[start - 1] === undefined;
      this.newRow(POOL + start, true);
      if (named || left) {
        const gap = left ? "…" : "";
        const name = named ? `Passage ${(passage[start] ?? 0) + 1}` : "";
        this.row.label = h("span.sv-segment", { "aria-hidden": "true" }, [gap, name].filter(Boolean).join(" "));
        this.row.element.before(this.row.label);
      }
      for (const cell of model.pieces.cells(id, start, stop)) this.addCell(cell, id);
    }
    this.code.classList.toggle("sv-big", this.rows.length > 200);
    this.shownCount = model.pooled;
  }
}
