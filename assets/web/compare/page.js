/* Page "Compare": methods side by side on one prompt; its layout, and what it loads. Text nodes only. */

import { emit, on } from "specviz/base/bus.js";
import { h, place } from "specviz/base/dom.js";
import { getJson, sentence, within } from "specviz/base/json.js";
import { onTheme } from "specviz/base/plotly.js";
import { catalog, drawPrompt, note, run } from "specviz/compare/ask.js";
import { drawCharts } from "specviz/compare/charts.js";
import { changed } from "specviz/compare/frame.js";
import { begin, lens } from "specviz/compare/live.js";
import { drawOutputs } from "specviz/compare/outputs.js";
import { pause } from "specviz/compare/race.js";
import { drawExample, drawRecorded, example, openRuns } from "specviz/compare/recorded.js";
import { server } from "specviz/compare/server.js";
import { going, page, part } from "specviz/compare/state.js";
import { look, results, show, views } from "specviz/compare/views.js";
import { setAddress } from "specviz/shell/address.js";
import { refreshRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";

const OUTPUTS = "Pasted, written with drafting and without: do they differ by rounding, by design or by a bug?";
const WHAT =
  "Two to four methods draft for the same model on one prompt, beside plain decoding: see who needs how many " +
  "forwards, and where.";

function layout() {
  const opener = { hidden: true, onclick: () => openRuns(example()?.map((one) => one.id) ?? []) };
  const asked = [
    h("div.svc-lane-forms.ui-stack"),
    h("div.svc-settings.svp-form.ui-stack"),
  ];
  const go = [
    h("p.svf-reason.svc-reason", { role: "status", hidden: true }),
    h("p.svp-note.svc-note", { role: "status" }),
    h("span.svc-took.ui-soft"),
    h("button.svl-run.svc-run", { onclick: () => run(begin) }, "Run"),
  ];
  const recorded = h("details.svc-from-runs.ui-fold",
    h("summary", "Or compare recorded runs"),
    h("p.svc-help.ui-soft", "Of one prompt; no model is needed. ",
      h("button.svp-link", { onclick: () => emit("library") }, "Choose from all runs")),
    h("div.svc-recorded.ui-stack"));
  page.box.replaceChildren(
    h("div.svc-empty.ui-row", h("p", WHAT), h("button.svl-run.svc-example", opener)),
    h(
      "details.svc-setup",
      { open: true },
      h("summary.ui-row", h("h2", "Prompt and methods")),
      h(
        "div.svc-columns",
        h("div.svc-prompt-form.ui-stack", h("p.svm-offer.svc-made-with.ui-row.ui-soft", { hidden: true })),
        h("div.svc-beside.ui-stack", asked, recorded),
      ),
      h("div.svc-foot.ui-row", go),
    ),
    views(),
    outputs(),
  );
  show("race");
}

/** What a server wrote with drafting and without, pasted: judged by the model in use. */
function outputs() {
  const open = new URLSearchParams(location.search).has("outputs");
  const inside = h("div.svp-acceptance");
  const summary = h("summary.ui-row", h("h2", "Two outputs of a server"), h("span.svc-help.ui-soft", OUTPUTS));
  drawOutputs(inside);
  return h("details.svc-setup.svc-outputs", { open }, summary, inside);
}

/** The runs that an address names. @param {URLSearchParams} asked */
const lanesOf = (asked) => (asked.get("lanes") ?? "").split(",").filter(Boolean);

/** Shows what an address names. @type {(asked: URLSearchParams, lanes: string[], first?: boolean) => void} */
function turnTo(asked, lanes, first = false) {
  const runs = (asked.get("runs") ?? "").split(",").filter(Boolean);
  const named = asked.get("view");
  const view = named === "acceptance" || named === "difference" ? named : "race";
  const same = `${lanes}` === `${page.lanes.map((lane) => lane.id).filter(Boolean)}`;
  page.turning = true;
  if (!same && lanes.length) openRuns(lanes.slice(0, page.data.most + 1));
  else if (!same || (first && !lanes.length && view === "race")) begin([]);
  page.turning = false;
  if (view !== "race" && !lanes.length) {
    part("setup", HTMLDetailsElement).open = false;
    part("empty").hidden = true;
  }
  look(runs, view, asked.get("acceptance") ?? undefined);
}

async function load() {
  page.box.replaceChildren(h("p.svp-empty", "Looking for methods …"));
  const there = await within(page.box, async () => {
    page.data = await getJson("api/compare");
    layout();
    drawPrompt();
    await catalog();
    return true;
  });
  if (!there) return;
  if (!app.runs.length) await refreshRuns();
  drawRecorded();
  drawExample();
  on("runs", () => {
    if (!part("recorded").contains(document.activeElement)) drawRecorded(); // not under a hand
    drawExample();
  });
  on("model", () =>
    catalog()
      .catch((problem) => note(sentence(problem), true))
      .then(() => {
        if (page.lanes.length && !going()) lens(page.ticket);
      }),
  );
  on("lanes", openRuns);
  on("look", ({ ids, view, raced }) => turnTo(new URLSearchParams(location.search), raced ? ids : [], view === "race"));
  on("address", (asked) => {
    const lanes = lanesOf(asked);
    if (asked.get("tab") === "compare") turnTo(asked, lanes);
  });
  on("current", drawPrompt);
  turnTo(new URLSearchParams(location.search), lanesOf(new URLSearchParams(location.search)), true);
  page.box.dataset.ready = "yes";
}

/** Another comparison begins: its race is shown, unless an address says otherwise. @param {string[]} ids */
function begun(ids) {
  const setup = part("setup", HTMLDetailsElement);
  setup.open = !ids.length;
  if (ids.length && setup.getBoundingClientRect().top < 0) setup.scrollIntoView();
  if (page.turning) return;
  setAddress({ lanes: ids.join(",") || null, view: null, runs: null, acceptance: null });
  page.runs = [];
  show("race");
}

/** @param {Part} part */
export function mount({ element }) {
  app.pages.compare = page;
  page.host = { ...server, begun };
  page.box = place(element, "compare");
  let asked = false;
  let wide = 0;
  const seen = new ResizeObserver(() => {
    if (!page.box.offsetWidth) return pause();
    const width = results.offsetWidth; // none while another tab is shown
    if (!asked) {
      asked = true;
      load();
    } else if (page.framed && width && width !== wide) {
      changed();
      if (!part("charts").children.length) drawCharts();
    }
    wide = width || wide;
  });
  seen.observe(page.box);
  seen.observe(results);
  onTheme(() => {
    if (!page.framed) return;
    page.colors = null;
    changed();
    if (part("charts").children.length) drawCharts();
  });
}
