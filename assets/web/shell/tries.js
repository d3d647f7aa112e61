/* What this page ran on one prompt, one row per run. */

import { emit } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { app } from "specviz/shell/state.js";

export const strip = h("div", { class: "svp-tries", hidden: true });
const tries = [];
const open = (id) => emit("open", id);

const TRIED = [
  ["quality_f1", "F1", 100, "%"],
  ["quality_rouge_l", "ROUGE-L", 100, "%"],
  ["quality_edit", "edit similarity", 100, "%"],
  ["tokens_per_step", "tokens/step", 1, ""],
  ["tokens_per_s", "tokens/s", 1, ""],
  ["speedup", "speedup", 1, "×"],
];

/** Remembers a finished run of this page, and draws the rows of its prompt. */
export function keepTry(trace) {
  const { run } = trace;
  const prompt = app.promptOf.get(run.id);
  if (prompt && run.complete && !tries.some((one) => one.id === run.id)) {
    const labels = Object.fromEntries((run.method.controls || []).map((c) => [c.name, c.label]));
    tries.push({
      id: run.id,
      prompt,
      method: run.method.title || run.method.name,
      params: run.method.params || {},
      labels,
      metrics: run.metrics || {},
    });
  }
  drawTries(prompt);
}

/** The method and the parameters by which runs differ (of the threshold δ always), and what came of them. */
function drawTries(prompt) {
  const ours = tries.filter((one) => one.prompt === prompt);
  strip.hidden = !prompt || ours.length < 2;
  if (strip.hidden) return;
  const names = [...new Set(ours.flatMap((one) => Object.keys(one.params)))];
  const differs = (name) => new Set(ours.map((one) => JSON.stringify(one.params[name]))).size > 1;
  const shown = names.filter((name) => name === "delta" || differs(name));
  const methods = new Set(ours.map((one) => one.method)).size > 1;
  const label = (name) => (name === "delta" ? "δ" : ours.find((one) => one.labels[name])?.labels[name] || name);
  const number = (value, scale, unit) =>
    typeof value === "number" ? `${(value * scale).toFixed(scale === 1 ? 2 : 1)}${unit}` : "–";
  const columns = TRIED.filter(([key]) => ours.some((one) => typeof one.metrics[key] === "number"));
  const setting = (value) =>
    value === undefined
      ? "–"
      : value === null
        ? "off"
        : value === true
          ? "on"
          : value === false
            ? "off"
            : String(value);
  const head = h(
    "tr",
    {},
    h("th", { scope: "col" }, "run"),
    methods ? h("th", { scope: "col" }, "method") : null,
    shown.map((name) => h("th", { scope: "col" }, label(name))),
    columns.map(([, name]) => h("th", { scope: "col" }, name)),
  );
  const rows = ours.map((one, k) =>
    h(
      "tr",
      { class: one.id === app.shown ? "svp-now" : null, onclick: () => open(one.id) },
      h(
        "td",
        {},
        h(
          "button",
          {
            type: "button",
            class: "svp-link",
            "aria-label": `Open run ${k + 1} of this prompt`,
            onclick: (event) => {
              event.stopPropagation();
              open(one.id);
            },
          },
          `${k + 1}`,
        ),
      ),
      methods ? h("td", {}, one.method) : null,
      shown.map((name) => h("td", {}, setting(one.params[name]))),
      columns.map(([key, , scale, unit]) => h("td", {}, number(one.metrics[key], scale, unit))),
    ),
  );
  strip.replaceChildren(
    h("table", { class: "svp-tried", "aria-label": "Runs of this prompt" }, h("thead", {}, head), h("tbody", {}, rows)),
  );
}
