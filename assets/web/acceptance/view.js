/* Acceptance of chosen runs: by every definition, and the calibration of each confidence. Text nodes only. */

import { drawCalibration } from "specviz/acceptance/calibration.js";
import { drawDefinitions } from "specviz/acceptance/definitions.js";
import { drawJudges } from "specviz/acceptance/judges.js";
import { drawLengths } from "specviz/acceptance/lengths.js";
import { VIEWS, page } from "specviz/acceptance/state.js";
import { h } from "specviz/base/dom.js";
import { getJson, postJson, within } from "specviz/base/json.js";
import { onTheme } from "specviz/base/plotly.js";
import { setAddress } from "specviz/shell/address.js";
import { app } from "specviz/shell/state.js";

/** @typedef {keyof typeof VIEWS} View */

const DRAWN = { definitions: drawDefinitions, calibration: drawCalibration, lengths: drawLengths, judges: drawJudges };
const names = /** @type {View[]} */ (Object.keys(VIEWS));
const tabs = h(
  "div.svd-views.ui-seg",
  { role: "group", "aria-label": "What is shown of the runs" },
  names.map((name) => h("button", { "data-view": name, onclick: () => choose(name) }, VIEWS[name])),
);
const body = h("div.svd-body.ui-stack");
let counting = false;

/** Another view of the same runs. @param {View} view */
function choose(view) {
  if (app.tab === "runs") setAddress({ acceptance: view });
  draw(view);
}

/** @param {View} view */
function draw(view) {
  page.view = view;
  page.drawn++;
  for (const button of tabs.querySelectorAll("button"))
    button.setAttribute("aria-pressed", String(button.dataset.view === view));
  if (counting) return; // drawn when the answer is there
  if (page.sets.length) DRAWN[view](body);
  else body.replaceChildren(h("p.ui-soft", { role: "status" }, page.forced ? GIVEN : NOTHING));
  page.box.dataset.ready = view;
}

const NOTHING = "No run is chosen: select some in the library.";
const GIVEN = "Every chosen run wrote an answer that was given to it, so nothing says how much a method accepts.";

/** Fills a place with the acceptance of runs. */
/** @type {(box: HTMLElement, ids: string[], view: string) => Promise<void>} */
export async function drawAcceptance(box, ids, view) {
  app.pages.acceptance = page;
  page.box = box;
  body.replaceChildren(h("p.svp-empty", "Counting …"));
  box.replaceChildren(tabs, body);
  const asked = ++page.asked;
  page.drawn++;
  counting = true;
  Object.assign(page, { sets: [], forced: 0, charted: [], ids });
  page.view = names.find((name) => name === view) ?? "definitions";
  const count = async () => {
    page.data ??= await getJson("api/acceptance");
    return ids.length ? postJson("api/acceptance/runs", { ids }) : {};
  };
  const answer = await within(body, count, () => asked === page.asked);
  if (asked === page.asked) counting = false;
  if (!answer) return;
  Object.assign(page, answer);
  draw(page.view);
}

onTheme(() => page.box.isConnected && page.box.querySelector(".main-svg") && draw(page.view));
