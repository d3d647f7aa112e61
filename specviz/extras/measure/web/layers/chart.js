/* The share of first choices that stay without each layer, as bars. */

import { percentage } from "specviz/base/numbers.js";
import { html } from "specviz/ui/html.js";

const [HIGH, LEFT, RIGHT, TOP, BELOW] = [170, 48, 8, 8, 34]; // pixels
const [BAR, LEAST] = [18, 300];
const [HEIGHT, STEPS] = [HIGH - TOP - BELOW, [0, 0.5, 1]];

/** The layers that were needed least, and most: numbers from 1, at most so many. */
/** @type {(kept: number[], most: number) => { least: number[], most: number[] }} */
export function extremes(kept, most) {
  const order = kept.map((share, k) => ({ share, k })).sort((a, b) => b.share - a.share || a.k - b.k);
  const count = kept.length < 2 ? 0 : Math.min(most, Math.max(1, Math.floor(kept.length / 5)));
  /** @param {{ k: number }[]} some */
  const numbers = (some) => some.map(({ k }) => k + 1).sort((a, b) => a - b);
  return { least: numbers(order.slice(0, count)), most: numbers(order.slice(kept.length - count)) };
}

/** ``of``: how many layers there are. */
/** @param {{ kept: number[], of: number, chosen: number, choose: (layer: number) => void }} props */
export function Bars({ kept, of, chosen, choose }) {
  const wide = Math.max(LEAST, of * BAR);
  const each = wide / of;
  /** @param {number} share */
  const y = (share) => TOP + (1 - share) * HEIGHT;
  const by = of > 16 ? 5 : 1;
  return html`<svg class="svly-bars" viewBox="0 0 ${LEFT + wide + RIGHT} ${HIGH}" width=${LEFT + wide + RIGHT}
      height=${HIGH} role="group" aria-label="First choices that stay without each layer">
    ${STEPS.map((share) => html`<line x1=${LEFT} x2=${LEFT + wide} y1=${y(share)} y2=${y(share)} />
      <text x=${LEFT - 6} y=${y(share) + 4} text-anchor="end">${percentage(share)}</text>`)}
    ${kept.map((share, k) => html`<g key=${k} class=${k === chosen ? "svly-chosen" : ""} role="button" tabindex="0"
        aria-pressed=${String(k === chosen)} aria-label="Without layer ${k + 1}: ${percentage(share)}"
        onClick=${() => choose(k)} onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
          if (event.key === "Enter" || event.key === " ") event.preventDefault(), choose(k);
        }}>
      <rect class="svly-hit" x=${LEFT + k * each} y=${TOP} width=${each} height=${HEIGHT} />
      <rect x=${LEFT + k * each + 2} y=${y(share)} width=${each - 4} height=${TOP + HEIGHT - y(share)} />
      <title>Without layer ${k + 1}: ${percentage(share)} of first choices stay</title></g>
      ${(k + 1) % by === 0 || !k ? html`<text x=${LEFT + (k + 0.5) * each} y=${HIGH - BELOW + 15}
        text-anchor="middle">${k + 1}</text>` : null}`)}
    <text x=${LEFT + wide / 2} y=${HIGH - 3} text-anchor="middle">layer left out</text>
  </svg>`;
}
