/* Tokens per step by the rows that are verified: a line per drafter, and one of their drafts merged. */

import { format } from "specviz/base/numbers.js";
import { html } from "specviz/ui/html.js";

const [WIDE, HIGH, LEFT, RIGHT, TOP, BELOW] = [500, 190, 34, 150, 10, 32]; // pixels
const APART = 15; // pixels between two lines' names

const MERGED = "merged"; // the line of all drafters (../../places/replaying.py)
const ALL = "all together";

/** Round values from 0 up to ``top``, four or five. @param {number} top */
export function ticks(top) {
  const power = 10 ** Math.floor(Math.log10(top / 4));
  const step = power * ([1, 2, 5, 10].find((one) => (one * power * 5) >= top) ?? 10);
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, k) => k * step);
}

/** Where the lines' names stand, near their ends and apart from each other. @type {(ends: number[]) => number[]} */
export function apart(ends) {
  const order = ends.map((y, k) => ({ y, k })).sort((a, b) => a.y - b.y);
  /** @type {number[]} */
  const places = [];
  let next = -Infinity;
  for (const { y, k } of order) next = (places[k] = Math.max(y, next)) + APART;
  return places;
}

/** @type {(props: { rows: number[], lines: Record<string, number[]>, title: (name: string) => string }) => unknown} */
export function Frontier({ rows, lines, title }) {
  const names = Object.keys(lines).sort((a, b) => +(b === MERGED) - +(a === MERGED)); // the broad line lies below
  /** @param {string} name */
  const called = (name) => (name === MERGED ? ALL : title(name));
  const top = Math.max(1, ...Object.values(lines).flat());
  const span = Math.log2(rows[rows.length - 1] / rows[0]) || 1;
  /** @param {number} k */
  const x = (k) => LEFT + (Math.log2(rows[k] / rows[0]) / span) * (WIDE - LEFT - RIGHT);
  /** @param {number} value */
  const y = (value) => TOP + (1 - value / top) * (HIGH - TOP - BELOW);
  const labels = apart(names.map((name) => y(lines[name][rows.length - 1])));
  /** @param {string} name */
  const said = (name) => `${called(name)} ${lines[name].map((value) => format(value, 2)).join(", ")}`;
  return html`<figure class="svps-frontier" tabindex="0">
    <figcaption><h3>Tokens per step, by rows that a step verifies</h3>
      ${MERGED in lines && html`<p class="ui-soft">${ALL}: their drafts merged into one tree, its likeliest nodes
        verified.</p>`}</figcaption>
    <svg viewBox="0 0 ${WIDE} ${HIGH}" role="img"
      aria-label="Tokens per step at ${rows.join(", ")} rows: ${names.map(said).join("; ")}">
      ${ticks(top).map((value) => html`<line x1=${LEFT} x2=${WIDE - RIGHT} y1=${y(value)} y2=${y(value)} />
        <text x=${LEFT - 6} y=${y(value) + 4} text-anchor="end">${format(value, 2)}</text>`)}
      ${rows.map((count, k) => html`<text x=${x(k)} y=${HIGH - BELOW + 16} text-anchor="middle">${count}</text>`)}
      <text x=${(LEFT + WIDE - RIGHT) / 2} y=${HIGH - 2} text-anchor="middle">
        rows: drafted tokens and the root</text>
      ${names.map((name, at) => html`<g class=${name === MERGED ? "svps-merged" : `svps-line-${(at + 3) % 4}`}>
        <polyline points=${lines[name].map((value, k) => `${x(k)},${y(value)}`).join(" ")} />
        ${lines[name].map((value, k) => html`<circle cx=${x(k)} cy=${y(value)} r="2.5">
          <title>${called(name)}, ${rows[k]} rows: ${format(value, 2)}</title></circle>`)}
        <text x=${WIDE - RIGHT + 8} y=${labels[at] + 4}>${called(name)}</text></g>`)}
    </svg>
  </figure>`;
}
