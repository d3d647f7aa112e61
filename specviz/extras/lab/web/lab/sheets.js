/* Page "Lab": tables of methods × tasks, ours beside the paper's, row by row. */

import { h } from "specviz/base/dom.js";
import { lab, tabled } from "specviz/lab/state.js";

/** The model at the end of what a paper's table is about. @param {string} about */
const modelOf = (about) => about.slice(about.lastIndexOf(", ") + 2);

/** What opens the runs of a point, if there are any. @typedef {(point: number) => (() => void) | null} Opener */

/** A number: darker towards the highest of its column; one with runs opens them. */
/** @type {(cell: LabSheetCell | undefined, look: string, open: Opener) => HTMLElement} */
function numberCell(cell, look, open) {
  if (!cell || cell.share === null) return h(`td.svp-num.${look}`, cell ? "–" : "");
  const { text, error, best, share, point } = cell;
  const shown = [best ? h("strong", text) : text, error && h("small", ` ± ${error}`)];
  const runs = point === null ? null : open(point);
  const inside = runs ? h("button.svp-link.svl-cell", { onclick: runs, title: "Its runs" }, shown) : shown;
  return h(`td.svp-num.${look}`, { style: `--share:${share}` }, inside);
}

/** One metric: a row per method, our tasks, then those of one of the paper's tables. */
/** @type {(metric: LabSheets, open: Opener) => HTMLElement} */
function sheetTable({ title, sheets: [ours, ...papers] }, open) {
  const paper = papers.find(({ about }) => modelOf(about) === lab.paper) ?? papers[0];
  const names = [...new Set([...ours.rows, ...(paper?.rows ?? [])].map(({ name }) => name))];
  const row = (/** @type {string} */ name) => {
    const own = ours.rows.find((line) => line.name === name);
    const theirs = paper?.rows.find((line) => line.name === name);
    const missing = own?.absent && h("td.svl-absent", { colspan: String(ours.columns.length) }, own.absent);
    /** @type {(sheet: LabSheet, of: LabSheetRow | undefined, look: string) => HTMLElement[]} */
    const cells = (sheet, of, look) => sheet.columns.map((_, k) => numberCell(of?.cells[k], look, open));
    const printed = paper ? cells(paper, theirs, "svl-theirs") : [];
    return h("tr", h("th", { scope: "row" }, name), missing || cells(ours, own, "svl-ours"), printed);
  };
  /** @type {(sheet: LabSheet, look: string, name: Child) => HTMLElement} */
  const group = ({ columns }, look, name) =>
    h(`th.${look}`, { scope: "colgroup", colspan: String(columns.length) }, name);
  /** @type {(sheet: LabSheet, look: string) => HTMLElement[]} */
  const columns = (sheet, look) => sheet.columns.map((name) => h(`th.svp-num.${look}`, { scope: "col" }, name));
  const printed = paper && group(paper, "svl-theirs", paper.about);
  const groups = h("tr", h("td"), group(ours, "svl-ours", `here: ${ours.about}`), printed);
  const head = [h("td"), columns(ours, "svl-ours"), paper && columns(paper, "svl-theirs")];
  const grid = tabled({ class: "svl-sheet" }, head, names.map(row), h("caption", title));
  grid.querySelector("thead")?.prepend(groups);
  return grid;
}

/**
 * The tables of all metrics, and the choice of the paper's model where it has several.
 *
 * @type {(metrics: LabSheets[], open: Opener, redraw: () => void) => HTMLElement[]}
 */
export function sheetTables(metrics, open, redraw) {
  const models = [...new Set(metrics.flatMap(({ sheets }) => sheets.slice(1)).map(({ about }) => modelOf(about)))];
  const attributes = { value: models.includes(lab.paper) ? lab.paper : models[0], onchange: choose };
  function choose() {
    lab.paper = select.value;
    redraw();
  }
  const select = h("select.svp-select", attributes, models.map((name) => h("option", { value: name }, name)));
  const chooser = h("label.svl-draw.ui-check.ui-soft", "Beside the paper's numbers with", select);
  return [...(models.length > 1 ? [chooser] : []), ...metrics.map((metric) => sheetTable(metric, open))];
}
