/* A table of rows: heads that say what they mean, numbers to the right, one row current. */

import { Hint } from "specviz/ui/tooltip.js";
import { html } from "specviz/ui/html.js";

/**
 * @template Row
 * @typedef {object} Column One column: its head, what it holds of a row, and whether that is a number.
 * @property {string} head
 * @property {(row: Row, k: number) => import("preact").Drawn} cell
 * @property {boolean} [number]
 * @property {Tip | string} [tip]
 */

/**
 * A table; rows that can be picked are picked by a click, their first cell's button by the keyboard.
 *
 * @template Row
 * @param {{ label: string, columns: Column<Row>[], rows: Row[], pick?: (row: Row, k: number) => unknown,
 *   current?: (row: Row) => boolean, empty?: string, class?: string }} props
 */
export function Table({ label, columns, rows, pick, current, empty, class: name = "" }) {
  if (!rows.length && empty) return html`<p class="ui-empty">${empty}</p>`;
  /** @type {(row: Row, k: number) => object} */
  const row = (one, k) => {
    const now = current?.(one);
    const cells = columns.map(({ cell, number }, at) => {
      const inside = cell(one, k);
      const button = pick && at === 0;
      return html`<td class=${number ? "ui-num" : null}>${button
        ? html`<button type="button" class="ui-link" aria-current=${now ? "true" : null}
            onClick=${(/** @type {Event} */ event) => (event.stopPropagation(), pick(one, k))}>${inside}</button>`
        : inside}</td>`;
    });
    const click = pick ? () => pick(one, k) : null;
    return html`<tr class=${now ? "ui-now" : null} onClick=${click}>${cells}</tr>`;
  };
  return html`<div class="ui-scroll" tabindex="0" role="region" aria-label=${label}>
    <table class="ui-table ${pick ? "ui-picked" : ""} ${name}" aria-label=${label}>
      <thead><tr>${columns.map(({ head, number, tip }) => !head ? html`<td></td>` : html`<th scope="col"
        class=${number ? "ui-num" : null}>${
          tip ? html`<${Hint} tip=${tip}>${head}</${Hint}>` : head}</th>`)}</tr></thead>
      <tbody>${rows.map(row)}</tbody>
    </table>
  </div>`;
}
