/* Page "Acceptance": acceptance by every definition, calibration, two outputs, expected speedup. Text nodes only. */

import { on } from "specviz/base/bus.js";
import { h, place } from "specviz/base/dom.js";
import { alertNote, getJson, postJson } from "specviz/base/json.js";
import { drawCalibration } from "specviz/acceptance/calibration.js";
import { drawDefinitions } from "specviz/acceptance/definitions.js";
import { drawOutputs } from "specviz/acceptance/outputs.js";
import { chosen, drawRuns } from "specviz/acceptance/runs.js";
import { drawSpeedup } from "specviz/acceptance/speedup.js";
import { VIEWS, page } from "specviz/acceptance/state.js";
import { onTheme } from "specviz/base/plotly.js";
import { setAddress } from "specviz/shell/address.js";
import { app } from "specviz/shell/state.js";

/** @typedef {keyof typeof VIEWS} View */

const OF_RUNS = ["definitions", "calibration"];
const DRAWN = {
  definitions: drawDefinitions,
  calibration: drawCalibration,
  outputs: drawOutputs,
  speedup: drawSpeedup,
};
const names = /** @type {View[]} */ (Object.keys(VIEWS));
const views = h(
  "div.svd-views",
  { role: "group", "aria-label": "What is shown" },
  names.map((name) => h("button.svd-view", { "data-view": name, onclick: () => show(name) }, VIEWS[name])),
);
const runs = h("aside.svd-runs", { "aria-label": "Runs that are counted" });
const body = h("div.svd-body");

/** @param {View} view */
function show(view) {
  page.view = view;
  for (const button of views.querySelectorAll("button"))
    button.setAttribute("aria-pressed", String(button.dataset.view === view));
  page.box.classList.toggle("svd-of-runs", OF_RUNS.includes(view));
  if (app.tab === "acceptance") setAddress({ acceptance: view === "definitions" ? null : view });
  if (OF_RUNS.includes(view) && !page.sets.length) {
    body.replaceChildren(h("p.svd-soft", { role: "status" }, "Choose at least one run."));
  } else DRAWN[view](body);
  page.box.dataset.ready = view;
}

let counted = ""; // the runs that were counted last

/** Counts the chosen runs anew, and draws what is shown of them. */
async function count() {
  const asked = ++page.asked;
  const ids = chosen();
  counted = ids.join();
  /** @type {AcceptanceSet[]} */
  let sets = [];
  try {
    if (ids.length) ({ sets, forced: page.forced } = await postJson("api/acceptance/runs", { ids }));
  } catch (problem) {
    counted = "";
    if (asked === page.asked) body.replaceChildren(alertNote(problem));
    return;
  }
  if (asked !== page.asked) return;
  page.sets = sets;
  page.box.dataset.runs = String(ids.length);
  if (OF_RUNS.includes(page.view) || !page.box.dataset.ready) show(page.view);
}

async function load() {
  const { box } = page;
  try {
    page.data = await getJson("api/acceptance");
  } catch (problem) {
    return box.replaceChildren(alertNote(problem));
  }
  const asked = new URLSearchParams(location.search).get("acceptance") || "";
  page.view = names.find((name) => name === asked) ?? page.view;
  box.replaceChildren(
    h("header.svd-head", h("h2", "Acceptance"), views),
    h("div.svd-main", runs, h("section.svd-shown", { "aria-label": "Acceptance" }, body)),
  );
  if (!OF_RUNS.includes(page.view)) show(page.view);
  drawRuns(runs, count);
  await count();
}

/** @param {Part} part */
export function mount({ element }) {
  app.pages.acceptance = page;
  page.box = place(element, "acceptance");
  page.box.replaceChildren(h("p.svp-empty", "Counting …"));
  let begun = false;
  new ResizeObserver(() => {
    if (!page.box.offsetWidth || begun) return;
    begun = true;
    load();
  }).observe(page.box);
  on("runs", () => {
    if (!page.data) return;
    drawRuns(runs, count);
    if (chosen().join() !== counted) count();
  });
  onTheme(() => page.data && page.box.querySelector(".main-svg") && show(page.view));
}
