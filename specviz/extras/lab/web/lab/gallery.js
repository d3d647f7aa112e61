/* Page "Lab", its first view: every experiment as a small picture of what was recorded, by paper. */

import { h, s } from "specviz/base/dom.js";
import { when } from "specviz/base/numbers.js";
import { COLORS } from "specviz/base/plotly.js";
import { BATCH, OWN, catalog, parts, shortPaper, tools } from "specviz/lab/state.js";

const [WIDE, HIGH, EDGE] = [132, 66, 6];

/** @type {(share: number) => number} */
const up = (share) => HIGH - EDGE - share * (HIGH - 2 * EDGE);

/** @type {Record<LabPicture["kind"], (lines: LabPicture["lines"]) => SVGElement[]>} */
const DRAW = {
  line: (lines) => lines.map((values, n) => {
    const step = (WIDE - 2 * EDGE) / Math.max(1, values.length - 1);
    const points = values.flatMap((value, k) => (value === null ? [] : [`${EDGE + k * step},${up(value)}`]));
    if (points.length === 1) { // a level: one number for all places
      const y = points[0].split(",")[1];
      return s("path", { class: "svl-level", d: `M${EDGE} ${y}H${WIDE - EDGE}`, stroke: COLORS[n % COLORS.length] });
    }
    return s("polyline", { points: points.join(" "), stroke: COLORS[n % COLORS.length] });
  }),
  bar: (lines) => {
    const bars = lines.flatMap((values, n) => values.map((value) => ({ value: value ?? 0, n })));
    const step = (WIDE - 2 * EDGE) / bars.length;
    return bars.map(({ value, n }, k) => s("rect", {
      x: EDGE + k * step, y: up(value), width: Math.max(1, Math.min(18, step - 2)), height: HIGH - EDGE - up(value),
      fill: COLORS[n % COLORS.length],
    }));
  },
  heat: (lines) => {
    const high = (HIGH - 2 * EDGE) / lines.length;
    return lines.flatMap((values, row) => values.map((value, k) => s("rect", {
      x: EDGE + (k * (WIDE - 2 * EDGE)) / values.length, y: EDGE + row * high, height: high - 1,
      width: (WIDE - 2 * EDGE) / values.length - 1, fill: COLORS[0], "fill-opacity": value ?? 0,
    })));
  },
};

/** A picture of results: what a reader would know a figure by. @param {LabPicture | undefined} picture */
function drawn(picture) {
  if (!picture) return h("span.svl-picture", { "aria-hidden": "true" });
  const { kind, lines } = picture;
  const frame = { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "svl-picture", "aria-hidden": "true" };
  const axis = s("path", { class: "svl-axis", d: `M${EDGE} ${EDGE}V${HIGH - EDGE}H${WIDE - EDGE}` });
  return s("svg", frame, axis, DRAW[kind](lines));
}

/** @type {(name: string, title: string, above: string, about: string, choose: (name: string) => void,
 *   picture?: Child) => HTMLElement} */
const card = (name, title, above, about, choose, picture) =>
  h(
    "button.svp-bare.svl-card",
    { "data-name": name, title: about, onclick: () => choose(name) },
    picture,
    above && h("small.ui-soft", above),
    h("b", title),
  );

/** Fills the gallery. @type {(choose: (name: string) => void, reopen: (about: LabListed) => void) => void} */
export function drawGallery(choose, reopen) {
  const { papers, recipes, results, recorded, pictures } = catalog();
  const sections = Object.keys(papers).filter(Boolean).map((paper) => {
    const own = recipes.filter((recipe) => recipe.paper === paper);
    const cards = own.map(({ name, title, figure, question }) =>
      card(name, title, figure, question, choose, drawn(pictures[name])));
    const head = h("h3", shortPaper(paper), h("small.ui-soft", papers[paper].title));
    return own.length > 0 && h("section", { "aria-label": shortPaper(paper) }, head, h("div.svl-cards", cards));
  });
  const others = recorded.filter(({ name }) => !recipes.some((recipe) => recipe.name === name));
  const mine = [...results, ...others].map((about) => {
    const said = [when(about.created, "short"), about.state === "complete" ? "" : about.state].filter(Boolean);
    const open = { "data-result": about.id, onclick: () => reopen(about) };
    return h("button.svp-bare.svl-card", open, h("small.ui-soft", said.join(" · ")), h("b", about.title));
  });
  const tool = [
    card(OWN, "Your own sweep", "", "A method, one or two parameters, values, prompts and a metric", choose),
    card(BATCH, "Methods × prompts", "", "Batch mode: a table of tasks and methods, as in the papers", choose),
    ...tools().map(({ name, title, about }) => card(name, title, "", about, choose)),
  ];
  parts.gallery.replaceChildren(
    h("header.svp-asked", h("h2", "Experiments of the papers, and what they gave here"), h("p.svp-question",
      `${recipes.length} experiments were recorded with a small model; a picture opens its results. Each can be run `,
      "again here, with other prompts and your own model.")),
    h("section", { "aria-label": "Your own" }, h("div.svl-cards.svl-tools", tool, mine)),
    ...sections.filter((section) => section !== false),
  );
}
