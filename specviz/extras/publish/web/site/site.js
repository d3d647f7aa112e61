/* What the pages of a static site share: the list of runs, and the links around what is shown. */

import { h, must } from "specviz/base/dom.js";
import { markOverrides } from "specviz/base/overrides.js";
import { inLine } from "specviz/base/text.js";

const KEY = /^[0-9a-f]{16}$/;
markOverrides();

/** The address's parameters. */
export const asked = new URLSearchParams(location.search);
export const site = shown(JSON.parse(must(document.getElementById("site")).textContent || ""));
/** The page's own place. */
export const main = must(document.querySelector("main"));

/** The list with its texts as they can stand in a line. @param {SiteRuns} list @returns {SiteRuns} */
function shown(list) {
  const runs = list.runs.map((run) => ({
    ...run,
    title: inLine(run.title), method: inLine(run.method), model: inLine(run.model), category: inLine(run.category),
    tags: run.tags.map(inLine),
  }));
  return { ...list, title: inLine(list.title), runs };
}

/** A key in the address; "" where there is none. @param {string} name */
export function askedKey(name) {
  const key = asked.get(name) ?? "";
  return KEY.test(key) ? key : "";
}

/** A sentence in the place of the page. @param {string} text */
export const say = (text) => main.replaceChildren(h("p.st-say", { role: "alert" }, text));

/** The address of a page. @type {(page: string, values: Record<string, string | number>) => string} */
export const to = (page, values) => {
  const pairs = Object.entries(values).map(([key, value]) => [key, String(value)]);
  return `${page}.html?${new URLSearchParams(pairs)}`;
};

/** A link, or its words where it leads here. @type {(words: string, address: string, here?: boolean) => HTMLElement} */
export const link = (words, address, here = false) =>
  here ? h("b", { "aria-current": "page" }, words) : h("a", { href: address }, words);

/** The views of a run. @type {(run: SiteRun, here: string) => Child[]} */
function views(run, here) {
  const several = site.runs.filter((one) => one.prompt === run.prompt).length > 1;
  const { key, answer, prompt } = run;
  return [
    link("Inspect", to("run", { run: key }), here === "run"),
    several && link("Compare", to("compare", { prompt }), here === "compare"),
    answer && link("Attribution", to("attribution", { answer, run: key }), here === "attribution"),
    link("Player", to("player", { run: key })),
  ];
}

/** Links to the list, to what else there is of a run, and more. */
/** @type {(run: SiteRun | undefined, here: string, ...more: Child[]) => void} */
export function around(run, here, ...more) {
  if (asked.has("embed")) return;
  const back = h("a", { href: "index.html" }, `← ${site.title}`);
  const links = run && h("span.ui-row", views(run, here));
  const nav = h("nav.st-nav.ui-row", { "aria-label": "Site" }, back, links, more);
  must(document.getElementById("around")).replaceChildren(nav);
}

/** The runs of a prompt, that of the page without a link. @param {SiteRun} run */
export function samePrompt(run) {
  const others = site.runs.filter((one) => one.prompt === run.prompt);
  const links = others.map((one) => link(one.method, to("run", { run: one.key }), one === run));
  return links.length > 1 && h("span.ui-row", "Same prompt: ", links);
}
