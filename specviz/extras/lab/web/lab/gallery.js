/* Page "Lab", its first view: every experiment as a small picture of what was recorded, by paper. */

import { h, s } from "specviz/base/dom.js";
import { plural, when } from "specviz/base/numbers.js";
import { COLORS } from "specviz/base/plotly.js";
import { BATCH, OWN, gallery, lab, onDark, parts, shortPaper, tools } from "specviz/lab/state.js";
import { unbroken } from "specviz/lab/verdict.js";

const [WIDE, HIGH, EDGE] = [132, 66, 6];
const STROKE = 1.5; // of a bar of height 0
const FEW = 4; // experiments of a paper that has half a line

/** @type {(share: number) => number} */
const up = (share) => HIGH - EDGE - share * (HIGH - 2 * EDGE);

/** The colour of the ``n``-th line. @param {number} n */
const tone = (n) => `color: light-dark(${COLORS[n % COLORS.length]}, ${onDark(COLORS[n % COLORS.length])})`;

/** The place of a line's ``k``-th value. @type {(values: unknown[], k: number) => number} */
const along = (values, k) => EDGE + k * ((WIDE - 2 * EDGE) / Math.max(1, values.length - 1));

/** Bars of one colour, as each has a name of its own. @param {LabPicture} picture */
const isPlain = ({ kind, lines }) => kind === "bar" && lines.every((values) => values.length === 1);

/** @type {Record<LabPicture["kind"], (lines: LabPicture["lines"]) => SVGElement[]>} */
const DRAW = {
  line: (lines) => lines.map((values, n) => {
    const points = values.flatMap((value, k) => (value === null ? [] : [`${along(values, k)},${up(value)}`]));
    if (points.length === 1) { // a level: one number for all places
      const y = points[0].split(",")[1];
      return s("path", { class: "svl-level", d: `M${EDGE} ${y}H${WIDE - EDGE}`, style: tone(n) });
    }
    return s("polyline", { points: points.join(" "), style: tone(n) });
  }),
  bar: (lines) => {
    const bars = lines.flatMap((values, n) => values.map((value) => ({ value: value ?? 0, n })));
    const step = (WIDE - 2 * EDGE) / bars.length;
    const width = Math.max(1, Math.min(18, step - 2));
    return bars.map(({ value, n }, k) => {
      const top = Math.min(up(value), HIGH - EDGE - STROKE); // nothing at all is seen too
      return s("rect", {
        x: EDGE + k * step + (step - width) / 2, y: top, width, height: HIGH - EDGE - top, style: tone(n),
      });
    });
  },
  heat: (lines) => {
    const high = (HIGH - 2 * EDGE) / lines.length;
    return lines.flatMap((values, row) => values.map((value, k) => s("rect", {
      x: EDGE + (k * (WIDE - 2 * EDGE)) / values.length, y: EDGE + row * high, height: high - 1,
      width: (WIDE - 2 * EDGE) / values.length - 1, style: tone(0), "fill-opacity": value ?? 0,
    })));
  },
};

/** A picture of results: what a reader would know a figure by. @param {LabPicture | undefined} picture */
function drawn(picture) {
  if (!picture) return h("span.svl-picture", { "aria-hidden": "true" });
  const { kind, marks = [] } = picture;
  const lines = isPlain(picture) ? [picture.lines.flat()] : picture.lines;
  const frame = { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "svl-picture", "aria-hidden": "true" };
  const axis = s("path", { class: "svl-axis", d: `M${EDGE} ${EDGE}V${HIGH - EDGE}H${WIDE - EDGE}` });
  const circles = kind !== "line" ? [] : marks.map(([n, k]) => s("circle", { // the values that its sentence compares
    cx: along(lines[n], k), cy: up(lines[n][k] ?? 0), r: 4, style: tone(n),
  }));
  return s("svg", frame, axis, DRAW[kind](lines), circles);
}

/** A tool, and what it is for. */
/** @type {(name: string, title: string, about: string, open: () => void) => HTMLElement} */
const tool = (name, title, about, open) =>
  h("button.svp-bare.svl-card", { "data-name": name, onclick: open }, h("b", title), h("span.svl-say", about));

/** How a paper's claims come out here, by the mark of it. */
const MARKS = { "✓": "in the paper's order", "◐": "in part", "≈": "undecided", "✗": "otherwise" };
/** @typedef {keyof typeof MARKS} Mark */

const UNDECIDED = "Undecided: the difference is no larger than its spread, or no spread is known.";
const NONE = "–"; // the mark of what has no printed number

/** @type {(finding: LabSummary | undefined) => Mark | typeof NONE} */
function markOf(finding) {
  if (!finding?.claims) return NONE;
  const { claims, alike, open } = finding;
  return alike === claims ? "✓" : open === claims ? "≈" : alike ? "◐" : "✗";
}

/** How many experiments have which mark. @param {LabShort[]} recipes */
function tally(recipes) {
  const marks = recipes.map(({ name }) => markOf(gallery().pictures[name]?.finding));
  /** @type {(mark: Mark) => [Mark, number]} */
  const counted = (mark) => [mark, marks.filter((one) => one === mark).length];
  return /** @type {Mark[]} */ (Object.keys(MARKS)).map(counted).filter(([, count]) => count > 0);
}

/** How many of the paper's claims come out in its order. @param {LabSummary} finding */
function agreed(finding) {
  const { claims, alike, open } = finding;
  const unruled = finding.mark ? "The paper has both orders" : "The paper prints no number";
  if (!claims) return h("span.svl-agreed.ui-soft", `${NONE} ${unruled}`);
  const mark = h("span", { "aria-hidden": "true" }, markOf(finding));
  const count = alike ? `${alike} of ${claims}` : claims === 1 ? "Not" : `None of ${claims}`;
  const words = open === claims ? ["Undecided"] : [`${count} as in the paper`, open ? `, ${open} undecided` : ""];
  return h("span.svl-agreed.ui-soft", { title: open > 0 && UNDECIDED }, mark, " ",
    words.map((part) => h("span", part)));
}

/** A recipe: its picture, and what was found. */
/** @type {(recipe: LabShort, choose: (name: string) => void) => HTMLElement} */
function recipeCard({ name, title, figure, question }, choose) {
  const picture = gallery().pictures[name];
  return h(
    "button.svp-bare.svl-card.svl-recipe",
    { "data-name": name, title: question, onclick: () => choose(name) },
    h("small.ui-soft", figure),
    h("b", title),
    picture && [
      h("small", picture.metric),
      isPlain(picture) ? bars(picture) : h("span.svl-framed", drawn(picture), legend(picture)),
      h("span.svl-say", unbroken(`${picture.finding.mark ?? ""} ${picture.finding.text}`)),
      picture.finding.paper && h("small.ui-soft", unbroken(picture.finding.paper)),
      agreed(picture.finding),
    ],
  );
}

/** A bar for each number, with its name and the number on it. @param {LabPicture} picture */
const bars = ({ lines, names = [] }) => h("span.svl-bars", names.map((one, n) => {
  const [name, number] = unbroken(one).split(/: (?=[^:]+$)/);
  return h("small", { style: `--share: ${lines[n][0]}` }, h("span", name), h("span", number));
}));

/** What a picture draws: what it spans, and a name for each of its colours. @param {LabPicture} picture */
const legend = ({ lines, range, names = [], note }) => h("span.svl-scale",
  h("small", unbroken(range)),
  names.map((one, n) => h("small", lines.length > 1 && h("i", { style: tone(n) }), unbroken(one))),
  note && h("small.ui-soft", note));

/** A recipe's picture with what it shows, its place in the paper and its mark; of the ``only`` one its sentence. */
/** @type {(recipe: LabShort, only: boolean) => HTMLElement} */
function named({ name, title, figure }, only) {
  const picture = gallery().pictures[name];
  const place = figure.replace(/, [a-z§].*/, "");
  const words = { title: picture?.finding.text };
  const mark = markOf(picture?.finding);
  const bars = picture && isPlain(picture) ? picture.names ?? [] : []; // from left to right
  return h("span", words, drawn(picture), h("small", h("span", place), "\u00a0", mark), h("span", title),
    picture && (bars.length && !only ? h("small.svl-named", picture.metric, bars.map((one) => h("span", unbroken(one))))
      : h("small", `${picture.metric}: `, h("span", unbroken(picture.range)))),
    picture && only && h("small", unbroken(picture.finding.text)));
}

/** A paper: its experiments as cards; folded, their pictures in a row. */
/** @type {(paper: string, choose: (name: string) => void) => HTMLElement | null} */
function section(paper, choose) {
  const { papers, recipes } = gallery();
  const own = recipes.filter((recipe) => recipe.paper === paper);
  if (!own.length) return null;
  const marks = tally(own);
  const outcome = marks.map(([mark, count]) => `${count} ${MARKS[mark]}`).join(", ");
  const key = `paper ${paper}`;
  const strip = h("span.svl-strip", { "aria-hidden": "true" }, own.map((recipe) => named(recipe, own.length === 1)));
  const rest = h("span.svl-rest", { "aria-hidden": "true" });
  new ResizeObserver(() => { // what does not fit has wrapped into a line that is out of sight
    const top = strip.getBoundingClientRect().bottom;
    const hidden = [...strip.children].filter((one) => one.getBoundingClientRect().top >= top).length;
    rest.textContent = hidden ? `+ ${hidden} more` : "";
  }).observe(strip);
  const details = h("details.svl-paper", { open: !!lab.unfolded.get(key), class: own.length <= FEW && "svl-few" },
    h("summary",
      h("h3", shortPaper(paper)),
      h("span.ui-soft", papers[paper].title.replace(/^[^:]+: /, "")),
      marks.length > 0 && h("span.svl-tally", { role: "img", "aria-label": outcome, title: outcome },
        marks.map(([mark, count]) => h("span", `${mark} ${count}`, h("i", ` ${MARKS[mark]}`)))),
      strip, rest),
    h("div.svl-cards", own.map((recipe) => recipeCard(recipe, choose))));
  details.addEventListener("toggle", () => lab.unfolded.set(key, details.open));
  return details;
}

/** What the Lab is, and how the experiments came out; the marks are explained here. */
function head() {
  const { papers, recipes } = gallery();
  const marks = tally(recipes);
  const rest = recipes.length - marks.reduce((sum, [, count]) => sum + count, 0);
  const words = { ...MARKS, "✓": "come out in their paper's order", "≈": "undecided: no larger than the spread" };
  const outcome = marks.map(([mark, count]) => h("li", h("b", `${mark} ${count}`), words[mark]));
  const count = Object.keys(papers).filter(Boolean).length;
  return h("header.svp-asked", h("h2", "The papers' experiments, run again"),
    h("p.svp-question",
      `${recipes.length} figures and tables of ${count} papers, measured again with a small model. `,
      "Open one to see its figure and what was found, or to run it with your model and prompts."),
    h("ul.svl-outcome", outcome, rest > 0 && h("li", h("b", `${NONE} ${rest}`), "without one order in the paper")));
}

/** What one measures oneself, and what was: results join once they are known. */
const mineSection = h("section");

/** @type {(choose: (name: string) => void, reopen: (about: LabListed) => void) => void} */
export function drawMine(choose, reopen) {
  const { recipes, results, recorded } = lab.catalog ?? { recipes: [], results: [], recorded: [] };
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
  const heading = h("h3", "Measure something of your own");
  mineSection.replaceChildren(heading, h("div.svl-cards.svl-tools", cards, mine));
}

/** Fills the gallery. @type {(choose: (name: string) => void, reopen: (about: LabListed) => void) => void} */
export function drawGallery(choose, reopen) {
  const { papers } = gallery();
  const shown = Object.keys(papers).filter(Boolean).map((paper) => section(paper, choose));
  drawMine(choose, reopen);
  parts.gallery.replaceChildren(head(), ...shown.filter((one) => one !== null), mineSection);
}
