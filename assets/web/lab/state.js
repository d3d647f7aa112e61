/* Page "Lab": what it knows, and the small things its modules share. */

import { h, plural } from "specviz/base/dom.js";
import { getJson, postJson } from "specviz/base/json.js";
import { open as openRun } from "specviz/shell/open.js";
import { app } from "specviz/shell/state.js";
import { goTo } from "specviz/shell/tabs.js";

export const OWN = "own";
export const BATCH = "batch";

export const SHORT = { pldplus: "PLD+", adapld: "AdaPLD", casd: "CASD", glide: "GLIDE", ppd: "PPD" };

export const lab = {
  box: null,
  batch: null, // the form and the tables of methods × prompts
  catalog: null,
  choice: "",
  asked: {},
  shown: null,
  id: "",
  metrics: null,
  timer: 0,
  ticket: 0,
  estimate: null,
  check: 0,
  file: null,
};

export const post = (what, body) => postJson(`api/lab/${what}`, body);

export const recipe = (name = lab.choice) => lab.catalog.recipes.find((r) => r.name === name) || null;

export const number = (value, unit) => {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return `${(100 * value).toFixed(value && value < 0.1 ? 1 : 0)} %`;
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString() : String(Number(value.toPrecision(3)));
};

export const when = (text) => {
  const date = new Date(text);
  return Number.isNaN(+date) ? "" : date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
};

export function address() {
  const url = new URL(location.href);
  const value = lab.id || lab.choice;
  url.searchParams.delete("recipe"); // how other pages name what is to be chosen
  if (value && app.tab === "lab") url.searchParams.set("lab", value);
  else if (!value) url.searchParams.delete("lab");
  history.replaceState(history.state, "", url);
}

/** The form of one's own sweep, as the results shown were asked for. */
export function restore(about) {
  const text = (value) => (value === null ? "off" : value === true ? "yes" : value === false ? "no" : String(value));
  const s = state();
  s.methods = about.lines.map((line) => line.method);
  s.vary = [0, 1].map((n) =>
    about.axes[n]
      ? { param: about.axes[n].param, values: about.axes[n].values.map(text).join(", ") }
      : { param: "", values: "" },
  );
  s.fixed = Object.fromEntries(
    about.lines.flatMap((line) => Object.entries(line.params).map(([name, value]) => [name, text(value)])),
  );
  s.metric = about.metrics[0];
  s.temperature = about.temperature ? String(about.temperature) : "";
}

export const state = () =>
  (lab.asked[lab.choice] ??= {
    prompts: "",
    count: "",
    max_new_tokens: "",
    training_steps: "",
    methods: null,
    vary: [
      { param: "", values: "" },
      { param: "", values: "" },
    ],
    fixed: {},
    metric: "tokens_per_step",
    temperature: "",
    lines: null,
    repeats: "",
  });

/** Parameters of the chosen methods by name. */
export function parameters() {
  const found = {};
  for (const name of state().methods || []) {
    for (const control of lab.catalog.methods.find((m) => m.name === name)?.controls || [])
      found[control.name] ??= control;
  }
  return found;
}

export function suggested(control) {
  if (control.kind === "bool") return "no, yes";
  if (control.kind === "choice") return control.choices.join(", ");
  const low = control.low ?? 0,
    high = control.high ?? low + 100;
  if (control.kind === "float") return `${low}..${high} step ${Number(((high - low) / 5).toPrecision(2))}`;
  const middle = typeof control.default === "number" ? control.default : Math.min(high, low + 4);
  const tried = [Math.round(middle / 4), Math.round(middle / 2), middle, middle * 2, middle * 4];
  return [...new Set(tried.map((v) => Math.min(high, Math.max(low, v))))].join(", ");
}

export function allowed(control) {
  if (control.kind === "bool") return "yes or no";
  if (control.kind === "choice") return control.choices.join(", ");
  const range =
    control.low !== null && control.high !== null
      ? `${control.low} to ${control.high}`
      : control.low !== null
        ? `${control.low} or more`
        : "any";
  return `${control.kind === "int" ? "whole numbers, " : ""}${range}${control.optional ? ", or off" : ""}`;
}

export function note(text, error) {
  const place = lab.box.querySelector(".svl-note");
  if (!place) return;
  place.textContent = text;
  place.classList.toggle("svp-error", Boolean(text && error));
  place.setAttribute("role", error ? "alert" : "status");
}

export async function refresh() {
  lab.catalog = await getJson("api/lab");
  for (const r of lab.catalog.recipes) {
    r.own_metrics = Object.fromEntries(r.own.map((q) => [q.key, q.label]));
  }
}

export const file = (format, text) =>
  h(
    "a",
    {
      class: "svp-button",
      href: `api/lab/results/${encodeURIComponent(lab.id)}/download?format=${format}`,
      download: "",
    },
    text,
  );

/** Runs to open: the only one at once, else by name; `word` says more than the task. */
export function list(title, runs) {
  if (runs.length === 1 && !runs[0].word) return inspect(runs[0].trace);
  const box = lab.box.querySelector(".svl-dialog");
  const name = (run) =>
    run.trace
      ? h(
          "button",
          {
            type: "button",
            class: "svp-link",
            "data-trace": run.trace,
            onclick: () => {
              box.close();
              inspect(run.trace);
            },
          },
          run.prompt,
        )
      : h("span", {}, run.prompt);
  box.replaceChildren(
    h("h3", {}, `${plural(runs.length, "run")}: ${title}`),
    h(
      "ul",
      { class: "svl-runs" },
      runs.map((run) =>
        h("li", {}, name(run), h("span", {}, run.word || (lab.shown.names[run.category] ?? run.category))),
      ),
    ),
    h(
      "div",
      { class: "svl-row" },
      h("button", { type: "button", class: "svp-button", onclick: () => box.close() }, "Close"),
    ),
  );
  box.showModal();
}

function inspect(trace) {
  goTo("inspect");
  openRun(trace);
  scrollTo({ top: 0 });
}
