/* Acceptance of chosen runs: by every definition, and the calibration of each confidence. Text nodes only. */

import { drawCalibration } from "specviz/acceptance/calibration.js";
import { drawDefinitions } from "specviz/acceptance/definitions.js";
import { drawJudges } from "specviz/acceptance/judges.js";
import { headline, page } from "specviz/acceptance/state.js";
import { h } from "specviz/base/dom.js";
import { getJson, postJson, sentFile, within } from "specviz/base/json.js";
import { onTheme } from "specviz/base/plotly.js";
import { setAddress } from "specviz/shell/address.js";
import { app } from "specviz/shell/state.js";

/** The core's views. @type {RunView[]} */
const VIEWS = [
  { name: "definitions", title: "Definitions", order: 10, draw: drawDefinitions },
  { name: "calibration", title: "Calibration", order: 20, draw: drawCalibration },
  { name: "judges", title: "Other judges", order: 40, draw: drawJudges },
];
const views = () => [...VIEWS, ...app.runViews].sort((a, b) => a.order - b.order);
/** @param {string} name */
const viewOf = (name) => views().find((view) => view.name === name) ?? VIEWS[0];
const tabs = h("div.svd-views.ui-seg", { role: "group", "aria-label": "What is shown of the runs" });
const body = h("div.svd-body.ui-stack");
const split = h("input", { type: "checkbox", onchange: splitSets });
const file = h("input", {
  type: "file", multiple: true, hidden: true, "aria-label": "Servers' files", onchange: addFiles,
});
const added = h("span", { role: "status" });
const more = h("div.svd-more.ui-row.ui-soft",
  h("label.ui-check", split, " split by the server's cached tokens of the prompt"),
  h("button.ui-button", { type: "button", onclick: () => file.click() }, "Add a server's answer or log …"),
  file, added);
let counting = false;

/** Another view of the same runs. @param {string} view */
function choose(view) {
  if (app.tab === "compare") setAddress({ acceptance: view });
  draw(view);
}

/** The sets by the server's cached tokens, or whole again. */
function splitSets() {
  recount({ by: split.checked ? "cached" : "" });
}

async function addFiles() {
  const files = await Promise.all([...(file.files ?? [])].map(sentFile));
  recount({ files: files.filter((one) => one !== null) });
}

/** Counts the same runs again. @param {Partial<typeof page>} change */
function recount(change) {
  Object.assign(page, change);
  return count(page.ids, page.view);
}

/** @param {string} view */
function draw(view) {
  page.view = view;
  page.drawn++;
  headline.textContent = "";
  for (const button of tabs.querySelectorAll("button"))
    button.setAttribute("aria-pressed", String(button.dataset.view === view));
  if (counting) return; // drawn when the answer is there
  if (page.sets.length) viewOf(view).draw(body);
  else body.replaceChildren(h("p.ui-soft", { role: "status" }, page.forced ? GIVEN : NOTHING));
  page.box.dataset.ready = view;
}

const NOTHING = "No run is chosen: select some in the list of runs.";
const GIVEN = "Every chosen run wrote an answer that was given to it, so nothing says how much a method accepts.";

/** Fills a place with the acceptance of runs. */
/** @type {(box: HTMLElement, ids: string[], view: string) => Promise<void>} */
export async function drawAcceptance(box, ids, view) {
  app.pages.acceptance = page;
  page.box = box;
  Object.assign(page, { files: [], by: "" });
  split.checked = false;
  file.value = "";
  box.replaceChildren(tabs, headline, body, more);
  await app.entries();
  tabs.replaceChildren(
    ...views().map(({ name, title }) => h("button", { "data-view": name, onclick: () => choose(name) }, title)),
  );
  return count(ids, view);
}

/** Counts runs and files, and draws what came of it. @param {string[]} ids @param {string} view */
async function count(ids, view) {
  body.replaceChildren(h("p.svp-empty", "Counting …"));
  const asked = ++page.asked;
  page.drawn++;
  counting = true;
  headline.textContent = "";
  added.textContent = page.files.map(({ name }) => name).join(", ");
  Object.assign(page, { sets: [], sentence: "", calibration: "", forced: 0, charted: [], ids });
  page.view = viewOf(view).name;
  const { files, by } = page;
  const ask = async () => {
    page.data ??= await getJson("api/acceptance");
    return ids.length + files.length ? postJson("api/acceptance/runs", { ids, files, by }) : {};
  };
  const answer = await within(body, ask, () => asked === page.asked);
  if (asked === page.asked) counting = false;
  if (!answer) return;
  Object.assign(page, answer);
  draw(page.view);
}

onTheme(() => page.box.isConnected && page.box.querySelector(".main-svg") && draw(page.view));
