/* The share of first choices that stay without each layer, as bars. */

import { percentage } from "specviz/base/numbers.js";
import { html } from "specviz/ui/html.js";

const [HIGH, TOP, BELOW] = [190, 8, 34]; // pixels
const [BAR, LEAST] = [18, 300]; // a bar at most, all bars where they are few
const [HEIGHT, STEPS] = [HIGH - TOP - BELOW, [0, 0.5, 1]];

/** The layers that were needed least, and most, with those that are no different: numbers from 1. */
/** @type {(kept: number[], most: number) => { least: number[], most: number[] }} */
export function extremes(kept, most) {
  const order = [...kept].sort((a, b) => b - a);
  const count = Math.min(most, Math.max(1, Math.floor(kept.length / 5)));
  const [high, low] = [order[count - 1], order[kept.length - count]];
  if (!(high > low)) return { least: [], most: [] };
  const numbers = kept.map((_, k) => k + 1);
  return { least: numbers.filter((k) => kept[k - 1] >= high), most: numbers.filter((k) => kept[k - 1] <= low) };
}

/** How many layers change the choice at each place, of positions from ``start``. */
/** @type {(changed: number[][], start: number, places: number) => number[]} */
export function needed(changed, start, places) {
  const counts = new Array(places).fill(0);
  for (const positions of changed) for (const position of positions) counts[position - start]++;
  return counts;
}

/** ``of``: how many layers there are; ``least``, ``most``: which of them are marked. */
/** @param {{ kept: number[], of: number, least: number[], most: number[], chosen: number,
 *   choose: (layer: number) => void }} props */
export function Bars({ kept, of, least, most, chosen, choose }) {
  /** @param {number} share */
  const y = (share) => TOP + (1 - share) * HEIGHT;
  /** @param {number} k */
  const x = (k) => `${(100 * k) / of}%`; // of the room that there is: all bars are in sight
  const by = of > 16 ? 5 : 1;
  /** @param {number} k */
  const looks = (k) =>
    [k === chosen && "svly-chosen", least.includes(k + 1) && "svly-least", most.includes(k + 1) && "svly-most"];
  return html`<svg class="svly-bars" style="max-width: ${Math.max(LEAST, of * BAR)}px" height=${HIGH}
      role="group" aria-label="First choices that stay without each layer">
    ${STEPS.map((share) => html`<line x1="0" x2="100%" y1=${y(share)} y2=${y(share)} />
      <text x="-6" y=${y(share) + 4} text-anchor="end">${percentage(share)}</text>`)}
    ${kept.map((share, k) => html`<g key=${k} class=${looks(k).filter(Boolean).join(" ")} role="button" tabindex="0"
        aria-pressed=${String(k === chosen)} aria-label="Without layer ${k + 1}: ${percentage(share)}"
        onClick=${() => choose(k)} onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
          if (event.key === "Enter" || event.key === " ") event.preventDefault(), choose(k);
        }}>
      <rect class="svly-hit" x=${x(k)} y=${TOP} width=${x(1)} height=${HEIGHT} />
      <rect x=${x(k + 0.12)} y=${y(share)} width=${x(0.76)} height=${TOP + HEIGHT - y(share)} />
      <title>Without layer ${k + 1}: ${percentage(share)} of first choices stay</title></g>
      ${(k + 1) % by === 0 || !k ? html`<text x=${x(k + 0.5)} y=${HIGH - BELOW + 15}
        text-anchor="middle">${k + 1}</text>` : null}`)}
    <text x="50%" y=${HIGH - 3} text-anchor="middle">layer left out</text>
  </svg>`;
}
