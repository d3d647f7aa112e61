/* Page "Lab": what there is to run, what is asked, progress, charts and the runs behind every point. */

import { emit, on } from "specviz/base/bus.js";
import { h, place } from "specviz/base/dom.js";
import { getJson, sentence, within } from "specviz/base/json.js";
import { when } from "specviz/base/numbers.js";
import * as batch from "specviz/lab/batch.js";
import { onTheme } from "specviz/base/plotly.js";
import { drawMain } from "specviz/lab/form.js";
import { drawGallery, drawMine } from "specviz/lab/gallery.js";
import { drawResults, show } from "specviz/lab/results.js";
import {
  BATCH, OWN, SPEEDUP, address, catalog, gallery, isTool, lab, parts, recipe, refresh, restore, shortPaper, tools,
} from "specviz/lab/state.js";
import { speedupView } from "specviz/lab/speedup.js";
import { app } from "specviz/shell/state.js";

/** @type {Record<string, string>} */
const NAMES = { [OWN]: "Your own sweep", [BATCH]: "Methods × prompts" };
/** Tools, drawn when they are first looked at. @type {Map<string, HTMLElement>} */
const drawnTools = new Map();
const side = h("details.svl-side", parts.chosen, parts.list);
/** A copy of the list as it was last drawn. @type {Node | null} */
let listed = null;

/** The list: experiments and results. */
function items() {
  const { papers } = gallery();
  const { recipes, results, recorded } = catalog();
  /** @type {(name: string, tag: string, title: string, more: string) => HTMLElement} */
  const item = (name, tag, title, more) =>
    h(
      "button.svp-bare.svl-item",
      {
        class: tag ? null : "svl-own",
        "data-name": name,
        "aria-current": name === lab.choice ? "true" : null,
        onclick: () => choose(name),
        title: more,
      },
      tag ? h("span.ui-soft", tag) : null,
      h("span.svl-name", title),
    );
  const groups = Object.entries(papers)
    .filter(([key]) => key)
    .map(([key, { title }]) => [
      h("h3", { title }, shortPaper(key)),
      recipes.filter((r) => r.paper === key).map((r) => item(r.name, r.figure, r.title, r.question)),
    ]);
  const examples = recorded.filter((about) => !recipe(about.name)); // a recipe shows its own
  const earlier = [...results, ...examples].map((about) =>
    h(
      "button.svp-bare.svl-item.svl-result",
      { "data-result": about.id, "aria-current": about.id === lab.id ? "true" : null, onclick: () => reopen(about) },
      h("span.svl-name", about.figure ? `${shortPaper(about.paper)} ${about.figure}: ${about.title}` : about.title),
      h(
        "span.svl-when.ui-soft",
        [when(about.created), about.state === "complete" ? "" : about.state].filter(Boolean).join(" · "),
      ),
    ),
  );
  const open = Boolean(parts.list.querySelector(".svl-earlier[open]"));
  const count = `Results (${earlier.length})`;
  return [
    h("h2.svp-unseen", "Experiments"),
    item("", "", "← All experiments", "The small pictures of all"),
    item(OWN, "", NAMES[OWN], "A method, one or two parameters, values, prompts and a metric"),
    item(BATCH, "", NAMES[BATCH], "Batch mode: a table of tasks and methods, as in the papers"),
    ...tools().map(({ name, title, about }) => item(name, "", title, about)),
    ...(earlier.length ? [h("details.svl-earlier.ui-fold", { open }, h("summary", count), earlier)] : []),
    ...groups.flat(2),
  ];
}

/** @type {() => HTMLElement[]} */
const entries = () => [...parts.list.querySelectorAll(".svl-item")].filter((one) => one instanceof HTMLElement);

/** One of the list's entries is a tab stop: the chosen one, and the way leads on to what is asked. */
/** @param {HTMLElement | undefined} at */
function stopAt(at) {
  for (const one of entries()) one.tabIndex = one === at ? 0 : -1;
}

/** Arrows, Home and End walk along the entries that are in sight. @param {KeyboardEvent} event */
function walk(event) {
  const all = entries().filter((one) => one.checkVisibility());
  const at = all.findIndex((one) => one === document.activeElement);
  /** @type {Record<string, number>} */
  const ways = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 };
  if (at < 0 || !(event.key in ways)) return;
  event.preventDefault();
  const next = all[Math.min(Math.max(ways[event.key], 0), all.length - 1)];
  stopAt(next);
  next.focus();
}
parts.list.addEventListener("keydown", walk);

function drawSide() {
  const top = parts.list.scrollTop;
  const inside = parts.list.contains(document.activeElement);
  const next = h("div", items());
  const isNew = !next.isEqualNode(listed) || !parts.list.firstChild; // else a click that is going on would be lost
  if (isNew) {
    listed = next.cloneNode(true);
    parts.list.replaceChildren(...next.childNodes);
  }
  parts.list.scrollTop = top;
  const chosen = entries().filter((one) => one.matches("[aria-current]"));
  const current = chosen.find((one) => !one.closest(".svl-earlier:not([open])")) ?? entries()[0];
  stopAt(current);
  if (inside && isNew) current.focus({ preventScroll: true }); // what was pressed has been drawn again
  const asked = recipe();
  const name = NAMES[lab.choice] ?? tools().find((tool) => tool.name === lab.choice)?.title;
  parts.chosen.textContent = asked ? `${shortPaper(asked.paper)} ${asked.figure}: ${asked.title}` : name;
  if (isNew) centre();
}

/** On a small screen what was chosen stands below the list. */
function fold() {
  if (innerWidth < 900) side.open = false;
}

/** @param {string} name */
function choose(name) {
  if (!name) return home();
  lab.choice = name;
  clearTimeout(lab.check); // an estimate of what was chosen before
  if (isTool(name)) {
    show("");
    fold();
    return draw();
  }
  const { results, recorded } = catalog();
  const named = (/** @type {LabListed} */ about) => about.name === name;
  const example = recipe(name) ? recorded.find(named) : undefined; // it comes along
  const latest = results.find(named) ?? example;
  if (!recipe(name) && latest && !lab.forms[name]) return reopen(latest);
  show(latest ? latest.id : "");
  fold();
  draw();
}

/** @param {string} id @returns {Promise<LabProgress>} */
const resultsOf = (id) => getJson(`api/lab/results/${encodeURIComponent(id)}`);

/** @param {LabListed} about */
async function reopen({ id, name }) {
  lab.choice = recipe(name) || name === BATCH ? name : OWN;
  if (!recipe()) {
    try {
      const { about } = await resultsOf(id);
      if (lab.choice === BATCH) batch.restore(about);
      else restore(about);
    } catch {
      /* told where the results are shown */
    }
  }
  fold();
  show(id);
  draw();
}

/** @param {string} name @returns {HTMLElement} */
function drawTool(name) {
  if (name === SPEEDUP) return speedupView();
  const element = h("div", h(`div.svp-${name}`));
  emit("tool", { name, element });
  return element;
}

/** All experiments, small. */
function home() {
  lab.choice = "";
  clearTimeout(lab.check);
  show("");
  drawGallery(whenKnown(choose), whenKnown(reopen));
  draw();
  scrollTo({ top: 0 });
}

/** Scrolls the list, where the chosen entry is out of sight: others stand above and below it. */
function centre() {
  const entry = entries().find((one) => one.matches("[aria-current]"));
  if (!entry) return;
  const { top, bottom } = side.getBoundingClientRect();
  const box = entry.getBoundingClientRect();
  if (box.top < top || box.bottom > bottom) side.scrollTop += box.top - (top + bottom) / 2;
}

function draw() {
  const first = !lab.choice && !lab.id;
  lab.box.classList.toggle("svl-first", first);
  side.hidden = parts.main.hidden = first;
  parts.gallery.hidden = !first;
  if (first) parts.list.replaceChildren();
  else parts.gallery.replaceChildren();
  if (first) return address();
  drawSide();
  const name = lab.choice;
  const tool = isTool(name);
  parts.tool.hidden = !tool;
  parts.setup.hidden = parts.results.hidden = !!tool;
  if (tool) {
    const view = drawnTools.get(name) ?? drawTool(name);
    drawnTools.set(name, view);
    parts.tool.replaceChildren(view);
  } else drawMain();
  address();
}

/** What there is to run, while it is asked for. */
let known = Promise.resolve();

/** Work on what there is to run: it waits until that is known. */
/** @type {<T>(work: (given: T) => void) => (given: T) => Promise<void>} */
const whenKnown = (work) => async (given) => {
  parts.gallery.ariaBusy = lab.catalog ? null : "true";
  await known;
  parts.gallery.ariaBusy = null;
  if (lab.catalog) work(given);
};

/** What the address names: an experiment or results. @param {URLSearchParams} asked */
async function begin(asked) {
  const name = asked.get("recipe") || asked.get("lab") || "";
  if (!name) return home();
  if ([OWN, BATCH, ...tools().map((tool) => tool.name)].includes(name) || recipe(name)) return choose(name);
  try {
    reopen((await resultsOf(name)).about);
  } catch (problem) {
    home();
    parts.gallery.prepend(h("p.svp-note.svp-error", { role: "alert" }, sentence(problem)));
  }
}

/** @param {Part} part */
export async function mount({ element }) {
  app.pages.lab = lab;
  const box = place(element, "lab");
  box.replaceChildren(h("p.svp-empty", "Looking for experiments …"));
  lab.gallery = (await within(box, () => getJson("api/lab/gallery"))) ?? null;
  if (!lab.gallery) return;
  const asked = new URLSearchParams(location.search);
  side.open = innerWidth >= 900;
  lab.box = box;
  parts.main.replaceChildren(parts.setup, parts.results, parts.tool);
  box.replaceChildren(parts.gallery, side, parts.main, parts.dialog);
  side.hidden = parts.main.hidden = true;
  const notes = h("div");
  parts.gallery.after(notes);
  known = within(notes, async () => {
    await app.entries();
    await refresh();
  });
  if (!asked.get("recipe") && !asked.get("lab")) home();
  await known;
  if (!lab.catalog) return;
  notes.remove();
  if (asked.get("recipe") || asked.get("lab")) await begin(asked);
  else drawMine(choose, reopen);
  on("address", (asked) => {
    if (asked.get("tab") === "lab" && (asked.get("lab") ?? "") !== (lab.id || lab.choice)) begin(asked);
  });
  on("lab", () => lab.choice && drawSide()); // what there is has changed
  on("model", async () => {
    await refresh();
    if (lab.choice || lab.id) draw();
    else drawMine(choose, reopen);
  });
  onTheme(() => lab.shown?.charts && drawResults());
}
