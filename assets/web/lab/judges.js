/* Page "Lab": the recorded runs of an experiment under every verifier, line by line. */

import { judgesTable, verdicts } from "specviz/acceptance/judges.js";
import { h } from "specviz/base/dom.js";
import { getJson, within } from "specviz/base/json.js";
import { lab } from "specviz/lab/state.js";

/** Judges the runs of results that are over when it is opened first. @param {string} id */
export function otherJudges(id) {
  const box = h("div.svl-judges");
  const details = h("details.svl-every", h("summary", "The same drafts under every verifier"), box);
  details.addEventListener("toggle", () => details.open && !box.children.length && draw(box, id, ""));
  return details;
}

/** @param {HTMLElement} box @param {string} id @param {string} series */
async function draw(box, id, series) {
  const shown = () => id === lab.id && box.isConnected;
  const progress = h("p.svp-empty", { role: "status" }, "Judging …");
  box.replaceChildren(progress);
  /** @returns {Promise<LabJudgesAnswer | StillJudging>} */
  const ask = () =>
    getJson(`api/acceptance/results/${encodeURIComponent(id)}?${new URLSearchParams({ series })}`);
  const say = (/** @type {string} */ text) => (progress.textContent = text);
  const answer = await within(box, () => verdicts(ask, say, shown), shown);
  if (!answer) return;
  const { lines, line } = answer;
  const options = lines.map((name) => h("option", { value: name }, name));
  const select = h("select.svp-select", { "aria-label": "Whose drafts are judged", value: line }, options);
  select.addEventListener("change", () => draw(box, id, select.value));
  box.replaceChildren(...(lines.length > 1 ? [h("label.svl-draw", "Drafts of ", select)] : []), ...judgesTable(answer));
}
