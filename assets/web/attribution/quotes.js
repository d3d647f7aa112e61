/* Page "Attribution": quotes that are known, scored as in PLD+'s table 10. */

import { area, checks, chosenSignals, starting } from "specviz/attribution/forms.js";
import { show, start } from "specviz/attribution/runs.js";
import { MODES, page, part, say, score3, titleOf } from "specviz/attribution/state.js";
import { coded, h, plural } from "specviz/base/dom.js";
import { getJson, postJson } from "specviz/base/json.js";
import { plotly } from "specviz/base/plotly.js";
import { stored } from "specviz/base/storage.js";

const SHOWN = [2, 5, 8]; // of PLD+'s table 10

const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "solid"];

const MARKS = ["circle", "square", "diamond", "triangle-up", "cross", "x"];

export function scoreForm() {
  const text = area(
    "text",
    "QuoteSum rows, one JSON object a line",
    6,
    "",
    '{"question": "…", "summary": "… [ 1 quoted words ] …", "title1": "…", "source1": "…"}',
  );
  const file = h("input", { type: "file", accept: ".jsonl,.json,.ndjson,.txt", "aria-label": "A QuoteSum file" });
  let name = "";
  file.addEventListener("change", async () => {
    if (!file.files.length) return;
    name = file.files[0].name;
    text.querySelector("textarea").value = await file.files[0].text();
  });
  const limit = h("input", {
    type: "number",
    class: "svp-input",
    min: 1,
    max: page.catalog.max_rows,
    value: 40,
    "aria-label": "Answers at most",
  });
  const go = h("button", { type: "submit", class: "svp-button sva-go", value: "text" }, "Score these rows");
  const demo = h(
    "button",
    {
      type: "submit",
      class: "svp-button",
      value: "demo",
      title: "Answers of the demo generator: their quotes are known by construction",
    },
    "Score the demo's quotes",
  );
  const bad = h("p", { class: "svp-note", role: "status" });
  const box = h(
    "form",
    { class: "sva-form", "aria-label": "Score known quotes", novalidate: true },
    h(
      "p",
      { class: "sva-soft" },
      "Every answer is given to each signal, and the tokens it links to a passage are compared with " +
        "the quoted ones: precision, recall and F1 per answer, then averaged (PLD+ table 10).",
    ),
    text,
    h("div", { class: "sva-row" }, file, h("label", { class: "sva-check" }, "at most ", limit, " answers")),
    h("div", { class: "sva-row" }, checks("quotes"), go, demo),
    bad,
  );
  box.addEventListener("submit", async (event) => {
    event.preventDefault();
    const asked = { signals: chosenSignals(box), limit: Number(limit.value) };
    if (event.submitter?.value !== "demo")
      Object.assign(asked, { text: text.querySelector("textarea").value, name: name || "pasted rows" });
    await starting(event.submitter || go, bad, async () => {
      stored.set("signals", asked.signals.join(","));
      page.scoring = { id: (await postJson("api/attribution/score", asked)).id, counted: "whole" };
      poll();
    });
  });
  return box;
}

async function poll() {
  const { scoring } = page;
  clearTimeout(page.timer);
  try {
    const told = await getJson(`api/attribution/scores/${scoring.id}?answers=true`);
    if (scoring !== page.scoring) return;
    scoring.told = told;
    drawScores();
    if (["queued", "running"].includes(told.state)) page.timer = setTimeout(poll, 700);
  } catch (problem) {
    part("scores").replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
  }
}

export function drawScores() {
  const { told, counted } = page.scoring;
  const going = ["queued", "running"].includes(told.state);
  const stop = () => postJson("api/attribution/stop", { id: told.id });
  const progress = going
    ? h(
        "div",
        { class: "sva-row" },
        h("progress", { max: told.total, value: told.done, "aria-label": "Scored" }),
        h("span", { role: "status" }, `${told.done} of ${plural(told.total, "answer")}`),
        h("button", { type: "button", class: "svp-button", onclick: stop }, "Stop"),
      )
    : null;
  const errors = [
    told.error && h("p", { class: "svp-note svp-error", role: "alert" }, told.error),
    ...told.notes.map((text) => h("p", { class: "sva-bad" }, coded(text))),
  ];
  const tabs = h(
    "div",
    { class: "sva-tabs", role: "radiogroup", "aria-label": "What counts as found" },
    Object.entries(MODES).map(([mode, label]) =>
      h(
        "button",
        {
          type: "button",
          class: "svp-button",
          role: "radio",
          "aria-checked": String(mode === counted),
          onclick: () => {
            page.scoring.counted = mode;
            drawScores();
          },
        },
        label,
      ),
    ),
  );
  const state = { done: "", stopped: " (stopped)", failed: " (failed)" }[told.state] ?? " so far";
  const box = part("scores");
  box.dataset.state = told.state;
  const chart =
    box.querySelector(".sva-chart") ||
    h("div", { class: "sva-chart", role: "img", "aria-label": "F1 by min_run; the same numbers are in the table" });
  box.replaceChildren(
    h("h3", {}, `${told.name}: ${plural(told.done, "answer")}${state}`),
    progress || "",
    ...errors.filter(Boolean),
    tabs,
    h("div", { class: "sva-pair" }, h("div", { class: "sva-scroll" }, sweepTable(told, counted)), chart),
    answersTable(told, counted),
  );
  drawChart(chart, told, counted);
}

function sweepTable(told, counted) {
  const { catalog } = page;
  const places = SHOWN.map((n) => catalog.min_runs.indexOf(n));
  const cells = (scores) =>
    places.flatMap((k) =>
      ["precision", "recall", "f1"].map((key) =>
        h("td", { class: `svp-num${key === "f1" ? " sva-f1" : ""}` }, score3(scores[k][key])),
      ),
    );
  const rows = told.rows
    .filter((row) => row.counted === counted)
    .map((row) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, row.title.split(":")[0]),
        cells(row.scores),
        h("td", { class: "svp-num" }, String(row.examples)),
      ),
    );
  const paper = catalog.paper.rows.map(([name, p, r, f]) => {
    const n = /min_run (\d+)/.exec(name);
    const at = n ? SHOWN.indexOf(Number(n[1])) : 0;
    const own = SHOWN.flatMap((_, k) => (k === at ? [p, r, f] : [null, null, null])).map((value, k) =>
      h("td", { class: `svp-num${k % 3 === 2 ? " sva-f1" : ""}` }, value === null ? "" : score3(value)),
    );
    return h(
      "tr",
      { class: "sva-paper" },
      h("th", { scope: "row" }, name.replace(/, min_run \d+/, "")),
      own,
      h("td", {}),
    );
  });
  const heads = SHOWN.map((n) => h("th", { scope: "colgroup", colspan: 3, class: "sva-group" }, `min_run ${n}`));
  const sub = SHOWN.flatMap(() =>
    ["P", "R", "F1"].map((text) => h("th", { scope: "col", class: `svp-num${text === "F1" ? " sva-f1" : ""}` }, text)),
  );
  return h(
    "table",
    { class: "svp-grid sva-sweep" },
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col", rowspan: 2 }, "signal"),
        heads,
        h("th", { scope: "col", rowspan: 2, class: "svp-num" }, "answers"),
      ),
      h("tr", {}, sub),
    ),
    h(
      "tbody",
      {},
      rows,
      h(
        "tr",
        { class: "svp-kind" },
        h(
          "th",
          { colspan: 2 + 3 * SHOWN.length, scope: "colgroup" },
          `${catalog.paper.where} (GPT-4 and Yi-6b have no min_run)`,
        ),
      ),
      paper,
    ),
  );
}

function answersTable(told, counted) {
  const k = page.catalog.min_runs.indexOf(2);
  const methods = [...new Set(told.rows.map((row) => row.method))];
  const value = (answer, method) => answer.f1[method]?.[counted][k];
  const worst = (answer) => Math.min(...methods.map((method) => value(answer, method) ?? -1));
  const rows = told.answers
    .map((answer, number) => ({ answer, number }))
    .sort((a, b) => worst(a.answer) - worst(b.answer));
  const go = (number) => opening(told.id, number, methods);
  return h(
    "details",
    { class: "sva-answers", open: told.state === "done" },
    h("summary", {}, "Answer by answer, the worst first (F1 at min_run 2)"),
    h(
      "div",
      { class: "sva-scroll" },
      h(
        "table",
        { class: "svp-grid" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "question"),
            h("th", { scope: "col", class: "svp-num" }, "quotes"),
            methods.map((method) => h("th", { scope: "col", class: "svp-num" }, titleOf(method))),
          ),
        ),
        h(
          "tbody",
          {},
          rows.map(({ answer, number }) =>
            h(
              "tr",
              { onclick: () => go(number) },
              h(
                "td",
                {},
                h(
                  "button",
                  {
                    type: "button",
                    class: "svp-link",
                    onclick: (event) => {
                      event.stopPropagation();
                      go(number);
                    },
                  },
                  answer.question || answer.id,
                ),
              ),
              h("td", { class: "svp-num" }, String(answer.quotes)),
              methods.map((method) => h("td", { class: "svp-num" }, score3(value(answer, method)))),
            ),
          ),
        ),
      ),
    ),
  );
}

async function opening(scoring, row, signals) {
  try {
    show(await start({ scoring, row, signals }));
  } catch (problem) {
    say(problem.message, "error");
  }
}

async function drawChart(box, told, counted) {
  if (!told.rows.length || !box.offsetWidth) return;
  let Plotly;
  try {
    Plotly = await plotly(page.catalog.plotly);
  } catch (problem) {
    box.textContent = problem.message;
    return;
  }
  if (!box.isConnected) return;
  const style = getComputedStyle(document.body),
    color = (name) => style.getPropertyValue(`--svp-${name}`).trim();
  const lines = told.rows
    .filter((row) => row.counted === counted)
    .map((row, k) => ({
      name: row.title.split(":")[0],
      x: page.catalog.min_runs,
      y: row.scores.map((score) => score.f1),
      mode: "lines+markers",
      line: { color: COLORS[k % 6], dash: DASHES[k % 6], width: 2 },
      marker: { size: 6, symbol: MARKS[k % 6] },
      hovertemplate: "min_run %{x}: F1 %{y:.3f}<extra>%{fullData.name}</extra>",
    }));
  const paper = page.catalog.paper.rows.flatMap(([name, , , f]) => {
    const n = /min_run (\d+)/.exec(name);
    return n ? [[Number(n[1]), f]] : [];
  });
  lines.push({
    name: "PLD+ (h), paper",
    x: paper.map(([n]) => n),
    y: paper.map(([, f]) => f),
    mode: "lines+markers",
    line: { color: "#8A8A8A", dash: "dash", width: 1.5 },
    marker: { size: 9, symbol: "circle-open" },
  });
  const axis = { gridcolor: "rgba(128,128,128,.25)", zeroline: false };
  Plotly.react(
    box,
    lines,
    {
      height: 320,
      margin: { l: 50, r: 10, t: 14, b: 100 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: color("ink") },
      xaxis: { ...axis, title: { text: "min_run, tokens" }, dtick: 1 },
      yaxis: { ...axis, title: { text: "token F1" }, range: [0, 1.03] },
      legend: { orientation: "h", y: -0.3, x: 0 },
    },
    { displaylogo: false, displayModeBar: false, responsive: true },
  );
}
