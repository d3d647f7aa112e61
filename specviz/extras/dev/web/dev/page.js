/* Page "Method": a file that is being written, as it was saved last. Its words enter through text nodes only. */

import { on } from "specviz/base/bus.js";
import { h, heads, place, table } from "specviz/base/dom.js";
import { alertNote, getJson, postJson, sentence, traceUrl } from "specviz/base/json.js";
import { format, plural } from "specviz/base/numbers.js";
import { Inspector } from "specviz/inspect/inspector.js";
import { onInspect } from "specviz/shell/open.js";
import { app } from "specviz/shell/state.js";

const AGAIN_MS = 2000; // after a question that failed

/** @type {DevNews | null} */
let news = null;
let asking = false;

const title = h("h2.svv-title");
const state = h("span.svv-state.ui-soft", { role: "status" });
const problem = h("div.svv-problem", { hidden: true });
const rules = h("ul.svv-rules");
const summary = h("p.svv-summary.ui-soft");
const steps = h("div.svv-steps", { tabindex: "0", role: "region", "aria-label": "Steps, the worst first" });
const prompt = h("select.svp-select", {
  "aria-label": "The prompt it is run on",
  onchange: ({ currentTarget }) => postJson("api/dev/prompt", { run: Number(currentTarget.value) }).catch(failed),
});
const ran = h("div", { role: "status" });
const stage = h("div.svv-stage");
/** @type {Inspector | null} */
let inspector = null;
let drawn = ""; // the run that is drawn

/** @param {string} name @param {Child[]} inside */
const section = (name, ...inside) => h("section.svv-part", { "aria-label": name }, h("h3", name), inside);

/** @param {unknown} error */
function failed(error) {
  state.textContent = "";
  problem.hidden = false;
  problem.replaceChildren(alertNote(error));
}

/** Python's own lines of what was raised, behind a click. @param {string} details */
const trace = (details) => details && h("details", h("summary", "Traceback"), h("pre.svv-trace.ui-pre", details));

// ---- what a save is worth ---------------------------------------------------------------------------------------

/** @param {DevNews} told */
function draw(told) {
  const { method, file } = told;
  title.replaceChildren(method ? method.title : "Your method", h("code.svv-file.ui-soft", { title: file }, file));
  const save = told.saves ? `save ${told.saves}` : "";
  state.textContent = [save, told.state && `${told.state} …`].filter(Boolean).join(" · ");
  problem.hidden = !told.problem;
  problem.replaceChildren();
  if (told.problem) {
    problem.append(alertNote(new Error(told.problem)));
    if (told.saves) problem.append(h("p.svp-note", "Below is the last save that could be used."));
    problem.append(trace(told.details ?? "") || "");
  }
  drawRules(told);
  drawSteps(told);
  drawRun(told);
}

/** @param {DevNews} told */
function drawRules({ rules: all }) {
  rules.replaceChildren(
    ...(all ?? []).map(({ rule, faults }) =>
      h(
        "li.ui-line",
        { class: faults.length ? "svv-broken" : "svv-kept" },
        h("b", { role: "img", "aria-label": faults.length ? "broken" : "kept" }, faults.length ? "✗" : "✓"),
        h(
          "div",
          rule,
          faults.map(({ words, prompt, details }) =>
            h("div.svv-fault.ui-soft", words, prompt === null ? "" : ` (prompt ${prompt + 1})`, trace(details)),
          ),
        ),
      ),
    ),
  );
  if (!all) rules.replaceChildren(h("li.svp-note", "Not checked yet."));
}

/** The step as what if shows it: the recorded tree, and this method's. @param {DevRow} row */
function whatIf(row) {
  const run = news?.runs?.[row.run];
  const name = news?.method?.name;
  if (!run || !name) return;
  onInspect(run.id, { step: row.step });
  app.whatif?.compare(run.id, name);
}

/** @param {DevNews} told */
function drawSteps({ rows, runs = [], won = 0, lost = 0, base, steps: count = 0, ms = 0, against, ...told }) {
  if (!rows) return summary.replaceChildren("No step was drafted yet.");
  const { now, before, against: other } = told.tokens_per_step ?? { now: null };
  summary.replaceChildren(
    h("b", format(now)),
    " tokens per step",
    before === undefined ? "" : ` · last save ${format(before)}`,
    other === undefined ? "" : ` · ${against} ${format(other)}`,
    " · ",
    h("b", `${won} won, ${lost} lost`),
    ` against ${base} · ${plural(count, "step")} of ${plural(runs.length, "run")} in ${format(ms)} ms`,
    told.scored ? ". It learns or accepts in its own way, so the model scored every draft." : "",
  );
  /** @param {number | null} value */
  const cell = (value) => h("td.svp-num", value === null ? "–" : String(value));
  const lines = rows.map((row) => {
    const { change, accepted, why } = row;
    const sign = change === null ? "" : change > 0 ? `+${change}` : String(change);
    const name = `${runs[row.run]?.title ?? `Run ${row.run + 1}`}, step ${row.step + 1}`;
    const go = { "aria-description": "Show both drafts on the page Inspect", onclick: () => whatIf(row) };
    return h(
      "tr",
      { class: accepted === null ? "svv-raised" : change && change < 0 ? "svv-lost" : null },
      h("th", { scope: "row" }, h("button.svp-link.svv-step", go, name)),
      cell(row.recorded),
      against ? cell(row.against) : null,
      cell(row.before),
      h("td.svp-num", accepted === null ? "error" : String(accepted)),
      h("td.svp-num", sign),
      h("td.svv-why", why, trace(row.details)),
    );
  });
  const numbers = ["recorded", ...(against ? [against] : []), "last save", "now", "±"];
  const head = [...heads(["step"], numbers), h("th", { scope: "col" }, "why")];
  steps.replaceChildren(table({ class: "svv-table" }, head, lines));
}

/** @param {DevNews} told */
function drawRun({ ran: run, failed: why, runs = [] }) {
  const names = runs.map((one, k) => h("option", { value: String(k) }, one.title));
  const listed = [...prompt.options].map((option) => option.textContent);
  if (listed.join("\n") !== runs.map((one) => one.title).join("\n")) prompt.replaceChildren(...names);
  if (run) prompt.value = String(run.on);
  if (why) ran.replaceChildren(h("span.svp-error", why));
  if (!run) return;
  const go = () => onInspect(run.id, { step: inspector?.number ?? 0 });
  if (!why) ran.replaceChildren(h("button.svp-button", { onclick: go }, "Open in Inspect"));
  if (run.id !== drawn) show(run.id);
}

/** The run of this save in an inspector of its own, at the step that was shown before. @param {string} id */
async function show(id) {
  drawn = id;
  try {
    /** @type {Trace} */
    const told = await getJson(traceUrl(id));
    if (id !== drawn) return;
    const step = inspector?.number ?? 0;
    inspector ??= new Inspector(stage, { actions: false, present: false, drawer: false });
    inspector.load(told, { step });
    stage.dataset.ready = id;
  } catch (error) {
    if (id === drawn) ran.replaceChildren(h("span.svp-error", sentence(error)));
  }
}

// ---- news -------------------------------------------------------------------------------------------------------

/** Asks for the news for as long as the page is looked at. */
async function follow() {
  if (asking) return;
  asking = true;
  while (app.tab === "dev") {
    try {
      /** @type {DevNews} */
      const told = await getJson(`api/dev?after=${news?.number ?? -1}`);
      if (told.number !== news?.number) draw(told);
      news = told;
    } catch (error) {
      failed(error);
      news = null; // all of it is drawn again, in place of this
      await new Promise((again) => setTimeout(again, AGAIN_MS));
    }
  }
  asking = false;
}

/** @param {Part} part */
export function mount({ element }) {
  place(element, "dev").append(
    h("header.svv-head.ui-row", title, state),
    problem,
    h(
      "div.svv-parts.ui-halves",
      section("Contract", rules),
      section("Recorded runs, drafted anew", summary, steps),
      section("What it drafts", h("div.svv-run.ui-row", h("label", "Run at every save on ", prompt), ran), stage),
    ),
  );
  on("tab", follow);
  follow();
}
