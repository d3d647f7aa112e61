/* Page "Lab": the recorded runs of an experiment under every verifier, line by line. */

import { judgesTable, verdicts } from "specviz/acceptance/judges.js";
import { h } from "specviz/base/dom.js";
import { getJson, within } from "specviz/base/json.js";

/** Judges the runs of results that are over, while it is open. @param {string} id */
export function otherJudges(id) {
  const select = h("select.svp-select", { "aria-label": "Whose drafts are judged", onchange: draw });
  const table = h("div.ui-stack");
  const box = h("div.svl-judges.ui-stack", table);
  const details = h("details.svl-every.ui-fold", h("summary", "The same drafts under every verifier"), box);
  details.addEventListener("toggle", () => details.open && !ready && draw());
  let ready = false;
  let drawn = 0;

  async function draw() {
    const mine = ++drawn;
    const wanted = () => mine === drawn && details.open && details.isConnected;
    const progress = h("p.svp-empty", { role: "status" }, "Judging …");
    ready = false;
    table.replaceChildren(progress);
    /** @returns {Promise<LabJudgesAnswer | StillJudging>} */
    const ask = async () => {
      const series = new URLSearchParams({ series: select.value });
      const answer = await getJson(`api/lab/judged/${encodeURIComponent(id)}?${series}`);
      if (!select.options.length) offer(answer.lines);
      return answer;
    };
    const say = (/** @type {string} */ text) => (progress.textContent = text);
    const answer = await within(table, () => verdicts(ask, say, wanted), wanted);
    if (!answer) return;
    ready = true;
    table.replaceChildren(...judgesTable(answer));
  }

  /** The lines to choose from, which the server says also while it judges the first. @param {string[]} lines */
  function offer(lines) {
    select.append(...lines.map((name) => h("option", { value: name }, name)));
    if (lines.length > 1) box.prepend(h("label.svl-draw.ui-check.ui-soft", "Drafts of ", select));
  }
  return details;
}
