/* How a trained part's acceptance grew with the tokens it saw, and where a straight line would lead. */

import { format } from "specviz/base/numbers.js";
import { html } from "specviz/ui/html.js";

const [WIDE, HIGH, LEFT, BELOW] = [320, 96, 34, 18]; // pixels
const AHEAD = 8; // times the tokens of the last point

/** A share, or a difference of shares: .25, −.21. @param {number} share */
export const share = (share) => share.toFixed(2).replace(/^0/, "").replace(/^-0?/, "−");

/** @param {{ curve: LearningCurve | null }} props */
export function Curve({ curve }) {
  if (!curve) return null;
  const [seen, last] = curve.points[curve.points.length - 1];
  /** @param {number} doubling @returns {[number, number]} */
  const ahead = (doubling) => [seen * AHEAD, Math.min(1, Math.max(0, last + doubling * Math.log2(AHEAD)))];
  const ends = [curve.doubling, curve.low, curve.high].map(ahead);
  const first = Math.log2(curve.points[0][0]), span = Math.log2(seen * AHEAD) - first;
  const top = Math.max(...curve.points.map(([, y]) => y), ...ends.map(([, y]) => y), 0.1);
  /** @param {[number, number]} point */
  const at = ([x, y]) => `${LEFT + ((Math.log2(x) - first) / span) * (WIDE - LEFT - 8)},` +
    `${6 + (1 - y / top) * (HIGH - BELOW - 6)}`;
  const [middle, low, high] = ends.map(at);
  const from = at([seen, last]);
  const words = `Held-out acceptance of its first drafted token: ${share(last)} after ${format(seen)} tokens. A ` +
    `doubling brought ${share(curve.doubling)} (${share(curve.low)} to ${share(curve.high)}); dashed: if it went on ` +
    "so, which nobody has checked.";
  return html`<figure class="svdr-curve">
    <svg viewBox="0 0 ${WIDE} ${HIGH}" width=${WIDE} height=${HIGH} role="img" aria-label=${words}>
      <polygon class="svdr-range" points="${from} ${low} ${high}" />
      <polyline class="svdr-guess" points="${from} ${middle}" />
      <polyline points=${curve.points.map(at).join(" ")} />
      ${curve.points.map((point) => {
        const [x, y] = at(point).split(",");
        return html`<circle cx=${x} cy=${y} r="3" />`;
      })}
      <text x="0" y="12">${share(top)}</text><text x="0" y=${HIGH - BELOW}>0</text>
      <text x=${LEFT} y=${HIGH - 4}>${format(curve.points[0][0])} tokens seen</text>
      <text x=${WIDE - 8} y=${HIGH - 4} text-anchor="end">${format(seen * AHEAD)}</text>
    </svg>
    <figcaption>${words}</figcaption>
  </figure>`;
}
