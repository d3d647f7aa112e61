/* Page "Compare", its tabs: the race of its lanes, the acceptance of chosen runs, the difference of two of them. */

import { drawAcceptance } from "specviz/acceptance/view.js";
import { h, replace } from "specviz/base/dom.js";
import { plural, short } from "specviz/base/numbers.js";
import { drawDifference } from "specviz/compare/difference.js";
import { begin } from "specviz/compare/live.js";
import { page } from "specviz/compare/state.js";
import { setAddress } from "specviz/shell/address.js";
import { countable } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";
import { Held } from "specviz/ui/element.js";
import { html, render } from "specviz/ui/html.js";
import { Tabs } from "specviz/ui/tabs.js";

/** @typedef {"race" | "acceptance" | "difference"} CompareView */

const place = h("div");
export const results = h("div.svc-results");
const acceptance = h("div");
const difference = h("div.ui-stack");
/** What each tab shows now: it is drawn anew for other runs alone. @type {Record<string, string>} */
let seen = {};
let every = false; // acceptance of all runs, where none is chosen

/** The tabs, empty. */
export const views = () => place;

/** The runs that are looked at: those chosen, else the lanes. */
const chosen = () => (page.runs.length ? page.runs : page.lanes.map(({ id }) => id).filter(Boolean));

/** Whether the chosen runs can race: of one prompt, and no more than there are lanes. */
function racing() {
  const prompts = new Set(page.runs.map((id) => app.runs.find((run) => run.id === id)?.prompt));
  const count = page.runs.length;
  return prompts.size === 1 && !prompts.has(undefined) && count > 1 && count <= page.data.most + 1;
}

/** Shows a tab. @type {(view: CompareView, how?: string) => void} */
export function show(view, how) {
  page.view = view;
  const any = chosen().length > 0 || view !== "race";
  place.hidden = !any;
  if (view === "acceptance") fillAcceptance(how);
  if (view === "difference") fillDifference();
  /** @type {import("specviz/ui/tabs.js").Tab[]} */
  const tabs = [
    { name: "race", label: "Race", panel: html`<${Held} of=${results} />` },
    { name: "acceptance", label: "Acceptance", panel: html`<${Held} of=${acceptance} />` },
    { name: "difference", label: "Difference", panel: html`<${Held} of=${difference} />` },
  ];
  if (!page.lanes.length && page.runs.length && !racing()) tabs.shift();
  const choose = (/** @type {string} */ name) => {
    if (name === "race" && !page.lanes.length) return begin(page.runs.map((id) => ({ id })));
    setAddress({ view: name === "race" ? null : name });
    show(/** @type {CompareView} */ (name));
  };
  render(html`<${Tabs} label="What is compared" tabs=${tabs} at=${view} choose=${choose} />`, place);
}

/** @param {string} how a view of the acceptance */
function fillAcceptance(how = new URLSearchParams(location.search).get("acceptance") ?? "definitions") {
  const all = countable().map(({ id }) => id);
  const some = comparable();
  const ids = chosen().length ? chosen() : every ? all : some;
  if (seen.acceptance === `${ids} ${how}`) return;
  seen.acceptance = `${ids} ${how}`;
  const fresh = h("div.svp-acceptance.ui-stack"); // a late answer of the runs before fills one that is gone
  const other = () => ((every = !every), fillAcceptance());
  const others = every ? `The ${some.length} of one prompt` : `All ${all.length} runs`;
  const which = !chosen().length && some.length < all.length && h("p.ui-soft",
    every ? `${plural(all.length, "run")} of many prompts. ` : `${plural(some.length, "run")} of one prompt. `,
    h("button.svp-link", { onclick: other }, others));
  replace(acceptance, [which, fresh]);
  drawAcceptance(fresh, ids, how);
}

/** The runs of that prompt which most runs have: only they can be held against each other. */
function comparable() {
  /** @type {Map<string, string[]>} */
  const ids = new Map();
  for (const { id, prompt = "" } of countable()) ids.set(prompt, [...(ids.get(prompt) ?? []), id]);
  return [...ids.values()].reduce((most, some) => (some.length > most.length ? some : most), []);
}

/** The first two that drafted, or those that are chosen. */
function fillDifference() {
  if (seen.difference === `${chosen()}`) return;
  const runs = chosen().flatMap((id) => app.runs.filter((run) => run.id === id));
  const options = () => runs.map((run, n) => h("option", { value: run.id }, `${n + 1} · ${short(run.method)}`));
  const [left, right] = ["First run", "Second run"].map((label) =>
    h("select.svp-select", { "aria-label": label, onchange: draw }, options()));
  const drafted = runs.filter((run) => run.tokens_per_step !== 1);
  const [first, second] = drafted.length > 1 ? drafted : runs;
  if (first) left.value = first.id;
  if (second) right.value = second.id;
  let inside = h("div");
  difference.replaceChildren(h("div.svr-choice.ui-row", runs.length > 2 && ["Between ", left, " and ", right]), inside);
  function draw() {
    const fresh = h("div.svr-difference.ui-stack");
    inside.replaceWith(fresh);
    inside = fresh;
    if (runs.length < 2) fresh.append(h("p.svp-empty", "Select two runs of one prompt."));
    else drawDifference(fresh, [left.value, right.value]);
  }
  draw();
  if (runs.length) seen.difference = `${chosen()}`;
}

/** Other runs are looked at. @type {(ids: string[], view: CompareView, how?: string) => void} */
export function look(ids, view, how) {
  page.runs = ids;
  seen = {};
  show(view, how);
}
