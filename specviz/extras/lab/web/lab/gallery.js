/* Page "Lab", its first view: every experiment as a small picture of what was recorded, by paper. */

import { h, s } from "specviz/base/dom.js";
import { when } from "specviz/base/numbers.js";
import { COLORS } from "specviz/base/plotly.js";
import { BATCH, OWN, catalog, link, parts, shortPaper, tools } from "specviz/lab/state.js";

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

/** A tool, and what it is for. */
/** @type {(name: string, title: string, about: string, open: () => void) => HTMLElement} */
const tool = (name, title, about, open) =>
  h("button.svp-bare.svl-card", { "data-name": name, onclick: open }, h("b", title), h("span.svl-say", about));

/** How many of the paper's claims come out alike. @param {LabSummary} finding */
function agreed({ claims, alike }) {
  const mark = h("span", { "aria-hidden": "true" }, alike === claims ? "✓" : alike ? "◐" : "✗");
  return claims > 0 && h("span.svl-agreed.ui-soft", mark, ` ${alike} of ${claims} as in the paper`);
}

/** A recipe: its picture, and what was found. */
/** @type {(recipe: LabRecipe, choose: (name: string) => void) => HTMLElement} */
function recipeCard({ name, title, figure, question }, choose) {
  const picture = catalog().pictures[name];
  return h(
    "button.svp-bare.svl-card.svl-recipe",
    { "data-name": name, title: question, onclick: () => choose(name) },
    drawn(picture),
    h("small.ui-soft", figure),
    h("b", title),
    picture && [h("span.svl-say", picture.finding.text), agreed(picture.finding)],
  );
}

/** Fills the gallery. @type {(choose: (name: string) => void, reopen: (about: LabListed) => void) => void} */
export function drawGallery(choose, reopen) {
  const { papers, recipes, results, recorded } = catalog();
  const sections = Object.keys(papers).filter(Boolean).map((paper) => {
    const own = recipes.filter((recipe) => recipe.paper === paper);
    const cards = own.map((recipe) => recipeCard(recipe, choose));
    const head = h("h3", shortPaper(paper), h("small.ui-soft", papers[paper].title));
    return own.length > 0 && h("section", { "aria-label": shortPaper(paper) }, head, h("div.svl-cards", cards));
  });
  const others = recorded.filter(({ name }) => !recipes.some((recipe) => recipe.name === name));
  const mine = [...results, ...others].map((about) => {
    const said = [when(about.created, "short"), about.state === "complete" ? "" : about.state].filter(Boolean);
    const open = { "data-result": about.id, onclick: () => reopen(about) };
    const line = h("span.svl-say", `Results · ${said.join(" · ")}`);
    return h("button.svp-bare.svl-card", open, h("b", about.title), line);
  });
  const own = [
    { name: OWN, title: "Your own sweep", about: "A method, one or two parameters, values, prompts and a metric" },
    { name: BATCH, title: "Methods × prompts", about: "Batch mode: a table of tasks and methods, as in the papers" },
    ...tools(),
  ];
  const cards = own.map(({ name, title, about }) => tool(name, title, about, () => choose(name)));
  const shown = sections.filter((section) => section !== false);
  const jumps = shown.map((section) => link(section.ariaLabel ?? "", () => section.scrollIntoView()));
  parts.gallery.replaceChildren(
    h("header.svp-asked", h("h2", "Experiments of the papers, and what they gave here"), h("p.svp-question",
      `${recipes.length} experiments were recorded with a small model; a card says what was found and opens the rest. `,
      "Each can be run again here, with other prompts and your own model.")),
    h("nav.svl-jump.ui-row", { "aria-label": "Papers" }, jumps),
    h("section", { "aria-label": "Tools and results of your own" }, h("h3", "Tools"),
      h("div.svl-cards", cards, mine)),
    ...shown,
  );
}
