/* The lens as a chart: tokens' probability or rank from layer to layer. */

import { s } from "specviz/base/dom.js";
import { plural } from "specviz/base/numbers.js";

const HEIGHT = 144;
const LEFT = 50;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 30;
const APART = 44; // px between ticks of the layers

/** @param {number} layer */
export const layerName = (layer) => (layer ? String(layer) : "embedding");

/** At which layers the target's own token was first before it stayed so: " Before that it was at layers 25–27." */
/** @param {Pick<LensCourses, "own" | "settled" | "tops">} result */
export function earlier({ own, settled, tops }) {
  /** @type {[first: number, last: number][]} */
  const runs = [];
  tops.slice(0, settled ?? 0).forEach(([top], layer) => {
    if (top !== own.token) return;
    const run = runs.at(-1);
    if (run?.[1] === layer - 1) run[1] = layer;
    else runs.push([layer, layer]);
  });
  if (!runs.length) return "";
  const said = runs.map(([first, last]) => layerName(first) + (last > first ? `–${layerName(last)}` : ""));
  const many = said.length > 1 || said[0].includes("–");
  return ` Before that it was first at ${many ? "layers" : "layer"} ${said.join(", ")}.`;
}

/** A line as it is drawn, for the legend. @param {LensLine["name"]} name */
export const sample = (name) =>
  s(
    "svg",
    { width: 26, height: 10, "aria-hidden": "true" },
    s("path", { class: `svo-line svo-${name}`, d: "M1 5H25" }),
    mark(name, 13, 5),
  );

/** A token's mark on its line: what the target wants a square, what was drafted a dot. */
/** @type {(name: LensLine["name"], x: number, y: number) => SVGElement} */
const mark = (name, x, y) =>
  name === "own"
    ? s("rect", { class: `svo-mark svo-${name}`, x: x - 2.6, y: y - 2.6, width: 5.2, height: 5.2 })
    : s("circle", { class: `svo-mark svo-${name}`, cx: x, cy: y, r: 2.8 });

/** Layers with a tick: the embedding, the last one, round numbers between. */
/** @type {(last: number, wide: number) => number[]} */
export function ticksOf(last, wide) {
  const most = Math.max(2, Math.floor(wide / APART));
  const by = [1, 2, 5, 10, 20, 50].find((step) => last / step <= most) ?? 100;
  const round = [];
  for (let layer = 0; layer < last; layer += by) if (last - layer >= by * 0.7 || !layer) round.push(layer);
  return [...round, last];
}

/** Ranks with a tick: powers of ten down to the lowest. @param {number} lowest */
export function ranksOf(lowest) {
  const ticks = [1];
  while (ticks[ticks.length - 1] < lowest) ticks.push(ticks[ticks.length - 1] * 10);
  return ticks.length > 1 ? ticks : [1, 10];
}

/** @type {(rank: number) => string} */
const short = (rank) => (rank >= 1000 ? `#${rank / 1000}k` : `#${rank}`);

/** Draws the lines into ``chart``; ``told`` gives a layer's column its words. */
/** @type {(chart: HTMLElement, lines: LensLine[], result: LensCourses, ranks: boolean, width: number,
 *   told: (element: Element, layer: number) => unknown) => void} */
export function drawCourses(chart, lines, { layers, decided }, ranks, width, told) {
  const high = HEIGHT - TOP - BOTTOM;
  const wide = width - LEFT - RIGHT;
  const lowest = Math.max(...lines.flatMap(({ course }) => course.ranks)) + 1;
  const values = ranks ? ranksOf(lowest) : [0, 0.5, 1];
  const depth = Math.log10(values[values.length - 1]);
  /** @param {number} layer */
  const x = (layer) => LEFT + (wide * layer) / Math.max(1, layers);
  /** @param {number} value */
  const y = (value) => TOP + high * (ranks ? Math.log10(value) / depth : 1 - value);
  const what = ranks ? "Rank (log)" : "Probability";
  const label = `${what} of ${plural(lines.length, "token")} by layer; the same numbers are in the table below`;
  const svg = s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label });
  for (const value of values) {
    svg.append(s("path.svo-grid", { d: `M${LEFT} ${y(value)}H${width - RIGHT}` }));
    const text = ranks ? short(value) : value === 0.5 ? ".5" : String(value);
    svg.append(s("text.svo-tick", { x: LEFT - 6, y: y(value) + 3.5, "text-anchor": "end" }, text));
  }
  for (const layer of ticksOf(layers, wide)) {
    svg.append(s("path.svo-tick-mark", { d: `M${x(layer)} ${TOP + high}v4` }));
    const place = { x: x(layer), y: TOP + high + 14, "text-anchor": "middle" };
    svg.append(s("text.svo-tick", place, layer ? String(layer) : "E"));
  }
  const middle = TOP + high / 2;
  const axis = { class: "svo-axis", "text-anchor": "middle" };
  svg.append(s("text", { ...axis, x: LEFT + wide / 2, y: HEIGHT - 3 }, "layer (E: the embedding)"));
  svg.append(s("text", { ...axis, transform: `translate(9 ${middle}) rotate(-90)` }, ranks ? "rank" : "probability"));
  if (decided !== null) svg.append(s("path.svo-decision", { d: `M${x(decided)} ${TOP - 4}V${TOP + high}` }));
  for (const { name, course } of lines) {
    /** @type {[number, number][]} */
    const points = course.probs.map((prob, layer) => [x(layer), y(ranks ? course.ranks[layer] + 1 : prob)]);
    const d = points.map(([left, top]) => `${left.toFixed(1)} ${top.toFixed(1)}`).join("L");
    svg.append(s("path", { class: `svo-line svo-${name}`, d: `M${d}` }));
    for (const [left, top] of points) svg.append(mark(name, left, top));
  }
  const each = wide / Math.max(1, layers);
  for (let layer = 0; layer <= layers; layer++) {
    const column = s("rect.svo-column", { x: x(layer) - each / 2, y: TOP, width: each, height: high });
    told(column, layer);
    svg.append(column);
  }
  chart.replaceChildren(svg);
}
