/* What a step marks: on the tokens of both panes, and on their minimaps. */

import { POOL } from "specviz/base/model.js";

const HEATS = 6; // shades above the faintest

/** How a place that was copied from looks: as what became of the copy. @type {Record<NodeStatus, string>} */
const SOURCES = { root: "", accepted: "sv-source", rejected: "sv-offered", unreached: "sv-unread" };

/** The step's marks on the tokens. @type {(inspector: Inspector, view: StepView) => void} */
export function paint(inspector, view) {
  /** @type {Mark[]} */
  const items = [[view.context - 1, "sv-root"]];
  for (let position = view.context; position < view.end; position++) items.push([position, "sv-now"]);
  for (const { source, status } of view.nodes) if (source >= 0) items.push([source, SOURCES[status]]);
  if (view.chosen) items.push([view.chosen.position, "sv-anchor"]);
  const heat = heatOf(inspector, view);
  const ghosts = inspector.offers ? losersOf(view) : [];
  for (const pane of inspector.panes) {
    pane.paint("step", items);
    pane.paint("heat", heat);
    pane.paint("ghost", ghosts);
  }
}

/** Compared places, shaded by their score; where a draft model looked, by its attention. @type {Told<Mark[]>} */
function heatOf(inspector, view) {
  const { shading, look } = inspector.picker;
  if (shading && look.length) {
    const most = look[0].weight ?? 0;
    const heat = (/** @type {number | null} */ weight) => Math.round(Math.sqrt((weight ?? 0) / most) * HEATS);
    return look.map((one) => [one.position, `sv-heat-${heat(one.weight)}`]);
  }
  if (!inspector.heat) return [];
  const scores = view.candidates.flatMap(({ score }) => (score === null ? [] : [score]));
  const high = Math.max(...scores);
  const low = Math.min(0, ...scores);
  return view.candidates.flatMap(({ position, score }) => {
    if (score === null) return [];
    const share = high > low ? (score - low) / (high - low) : 1;
    return [[position, `sv-heat-${Math.round(share * share * HEATS)}`]];
  });
}

/** The shades alone, anew. @type {(inspector: Inspector, view: StepView) => void} */
export function shade(inspector, view) {
  const heat = heatOf(inspector, view);
  for (const pane of inspector.panes) pane.paint("heat", heat);
  drawMaps(inspector, view);
}

/** What the losing candidates would have offered. @param {StepView} view */
function losersOf(view) {
  /** @type {Mark[]} */
  const items = [];
  for (const one of view.candidates.slice(0, 60)) {
    if (one.chosen) continue;
    for (let k = 1; k <= one.length; k++) items.push([one.position + k, "sv-ghost"]);
  }
  return items;
}

/** The minimaps: copies so far, compared places, this step's sources and tokens, pins. @type {Told<void>} */
export function drawMaps(inspector, view) {
  const { colors, model } = inspector;
  /** Of text and pool. @type {[MapMark[], MapMark[]]} */
  const marks = [[], []];
  /** @type {(from: Position) => 0 | 1} */
  const side = (from) => (from >= POOL ? 1 : 0);
  /** @type {(from: Position, to: Position, color: string, wide: boolean, alpha?: number) => unknown} */
  const add = (from, to, color, wide, alpha) => marks[side(from)].push({ from, to, color, wide, alpha });
  for (const run of model.runs) if (run.stop <= view.end) add(run.start, run.stop, colors.accepted, false, 0.35);
  if (inspector.heat) {
    for (const one of view.candidates.slice(0, 500))
      add(one.position, one.position + 1, colors.heat, true, one.chosen ? 1 : 0.45);
  }
  const { shading, look } = inspector.picker;
  for (const { position, weight } of shading ? look : []) {
    const share = (weight ?? 0) / (look[0].weight ?? 0);
    add(position, position + 1, colors.heat, true, 0.2 + 0.8 * Math.sqrt(share));
  }
  for (const span of view.spans) add(span.start, span.stop, colors.accepted, true);
  if (view.end > view.context) add(view.context, view.end, colors.accepted, true);
  for (const run of inspector.links.pinned) {
    add(run.source, run.source + run.stop - run.start, colors.pin, true);
    add(run.start, run.stop, colors.pin, true);
  }
  inspector.panes.forEach((pane, k) => pane.drawMap(marks[k]));
}
