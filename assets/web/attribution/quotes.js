/* Page "Attribution": quotes that are known, scored as in PLD+'s table 10. */

import { area, checks, chosenSignals, starting } from "specviz/attribution/forms.js";
import { show, start } from "specviz/attribution/runs.js";
import { MODES, page, part, say, titleOf } from "specviz/attribution/state.js";
import { coded, h, heads, must, replace, table } from "specviz/base/dom.js";
import { plural, short, thousandths } from "specviz/base/numbers.js";
import { alertNote, getJson, goesOn, poll, postJson, sentence, within } from "specviz/base/json.js";
import { charts, layout, lineLook } from "specviz/base/plotly.js";
import { stored } from "specviz/base/storage.js";

const SHOWN = [2, 5, 8]; // of PLD+'s table 10

const catalog = () => must(page.catalog, "catalog");

/** The threshold in the name of a row of the paper, null where it has none. @param {string} name */
function minRunOf(name) {
  const match = /min_run (\d+)/.exec(name);
  return match && Number(match[1]);
}

/** Which quotes to score, and by which signals. */
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
    const chosen = file.files?.[0];
    if (!chosen) return;
    name = chosen.name;
    text.field.value = await chosen.text();
  });
  const count = { type: "number", min: 1, max: catalog().max_rows, value: 40, "aria-label": "Answers at most" };
  const limit = h("input.svp-input", count);
  const go = h("button.svp-button.sva-go", { type: "submit", value: "text" }, "Score these rows");
  const title = "Answers of the demo generator: their quotes are known by construction";
  const demo = h("button.svp-button", { type: "submit", value: "demo", title }, "Score the demo's quotes");
  const bad = h("p.svp-note", { role: "status" });
  const box = h(
    "form.ui-stack",
    { "aria-label": "Score known quotes", novalidate: true },
    h(
      "p.ui-soft",
      "Every answer is given to each signal, and the tokens it links to a passage are compared with " +
        "the quoted ones: precision, recall and F1 per answer, then averaged (PLD+ table 10).",
    ),
    text.label,
    h("div.sva-row.ui-row", file, h("label.ui-check", "at most ", limit, " answers")),
    h("div.sva-row.ui-row", checks("quotes"), go, demo),
    bad,
  );
  box.addEventListener("submit", async (event) => {
    event.preventDefault();
    const signals = chosenSignals(box);
    const rows = event.submitter === demo ? {} : { text: text.field.value, name: name || "pasted rows" };
    const asked = { signals, limit: Number(limit.value), ...rows };
    await starting(event.submitter === demo ? demo : go, bad, async () => {
      stored.set("signals", signals.join(","));
      page.scoring = { id: (await postJson("api/attribution/score", asked)).id, counted: "whole" };
      follow(page.scoring);
    });
  });
  return box;
}

/** Draws a scoring until it is over. @param {NonNullable<typeof page.scoring>} scoring */
function follow(scoring) {
  /** @returns {Promise<Scores>} */
  const ask = () => getJson(`api/attribution/scores/${scoring.id}?answers=true`);
  const wanted = () => scoring === page.scoring;
  within(part("scores"), () => poll(ask, 700, wanted, (told) => {
    scoring.told = told;
    drawScores();
    return goesOn(told.state);
  }), wanted);
}

/** How far the scoring is, and its scores so far. */
export function drawScores() {
  const { scoring } = page;
  if (!scoring?.told) return;
  const { told, counted } = scoring;
  const going = goesOn(told.state);
  const stop = () => postJson("api/attribution/stop", { id: told.id });
  const progress = [
    h("progress", { max: told.total, value: told.done, "aria-label": "Scored" }),
    h("span", { role: "status" }, `${told.done} of ${plural(told.total, "answer")}`),
    h("button.svp-button", { onclick: stop }, "Stop"),
  ];
  /** @param {Scored} mode */
  const choose = (mode) => {
    scoring.counted = mode;
    drawScores();
  };
  const tabs = /** @type {Scored[]} */ (Object.keys(MODES)).map((mode) => {
    const state = { role: "radio", "aria-checked": String(mode === counted), onclick: () => choose(mode) };
    return h("button.svp-button", state, MODES[mode]);
  });
  const state = going ? " so far" : told.state === "done" ? "" : ` (${told.state})`;
  const box = part("scores");
  box.dataset.state = told.state;
  /** @type {HTMLElement} */
  const chart = box.querySelector(".sva-chart") ?? h("div.sva-chart");
  replace(box, [
    h("h3", `${told.name}: ${plural(told.done, "answer")}${state}`),
    going && h("div.sva-row.ui-row", progress),
    told.error && alertNote(told.error),
    told.notes.map((text) => h("p.sva-bad", coded(text))),
    h("div.sva-tabs", { role: "radiogroup", "aria-label": "What counts as found" }, tabs),
    h("div.ui-halves", h("div.sva-scroll", sweepTable(told, counted)), chart),
    answersTable(told, counted),
  ]);
  drawChart(chart, told, counted);
}

/** A cell or a head of precision, recall or F1; the last stands out. @param {number} k */
const numberClass = (k) => `svp-num${k % 3 === 2 ? " sva-f1" : ""}`;

/** @param {(QuoteScore | undefined)[]} scores at the thresholds shown; those that are not known stay empty */
const scoreCells = (scores) =>
  scores
    .flatMap((score) => (score ? [score.precision, score.recall, score.f1].map(thousandths) : ["", "", ""]))
    .map((text, k) => h("td", { class: numberClass(k) }, text));

/** Precision, recall and F1 by threshold, the paper's below. @type {(told: Scores, counted: Scored) => HTMLElement} */
function sweepTable(told, counted) {
  const { min_runs, paper } = catalog();
  const rows = told.rows
    .filter((row) => row.counted === counted)
    .map((row) => {
      const cells = scoreCells(SHOWN.map((n) => row.scores[min_runs.indexOf(n)]));
      return h("tr", h("th", { scope: "row" }, short(row.title)), cells, h("td.svp-num", String(row.examples)));
    });
  const published = paper.rows.map(([name, precision, recall, f1]) => {
    const at = minRunOf(name) ?? SHOWN[0];
    const own = scoreCells(SHOWN.map((n) => (n === at ? { precision, recall, f1, right_passage: null } : undefined)));
    return h("tr.sva-paper", h("th", { scope: "row" }, name.replace(/, min_run \d+/, "")), own, h("td"));
  });
  const groups = SHOWN.map((n) => h("th.sva-group", { scope: "colgroup", colspan: 3 }, `minimum length ${n}`));
  const letters = SHOWN.flatMap(() => ["P", "R", "F1"]);
  const both = { scope: "col", rowspan: 2 };
  const where = `${paper.where} (GPT-4 and Yi-6b have no minimum length)`;
  return h(
    "table.svp-grid.sva-sweep",
    h(
      "thead",
      h("tr", h("th", both, "signal"), groups, h("th.svp-num", both, "answers")),
      h("tr", letters.map((text, k) => h("th", { scope: "col", class: numberClass(k) }, text))),
    ),
    h("tbody", rows, h("tr.svp-kind", h("th", { colspan: 2 + 3 * SHOWN.length, scope: "colgroup" }, where)), published),
  );
}

/** F1 of every answer by every signal. @type {(told: Scores, counted: Scored) => HTMLElement} */
function answersTable(told, counted) {
  const k = catalog().min_runs.indexOf(2);
  const methods = [...new Set(told.rows.map((row) => row.method))];
  /** @type {(answer: ScoredAnswer, method: string) => number | undefined} */
  const value = (answer, method) => answer.f1[method]?.[counted][k];
  /** @param {ScoredAnswer} answer */
  const worst = (answer) => Math.min(...methods.map((method) => value(answer, method) ?? -1));
  const order = told.answers.map((answer, number) => ({ answer, number }));
  order.sort((a, b) => worst(a.answer) - worst(b.answer));
  const rows = order.map(({ answer, number }) => {
    const numbers = [String(answer.quotes), ...methods.map((method) => thousandths(value(answer, method)))];
    return h(
      "tr",
      { onclick: () => opening(told.id, number, methods) },
      h("td", h("button.svp-link", answer.question || answer.id)),
      numbers.map((text) => h("td.svp-num", text)),
    );
  });
  return h(
    "details.sva-answers.ui-fold",
    { open: told.state === "done" },
    h("summary", "Answer by answer, the worst first (F1 at minimum length 2)"),
    h("div.sva-scroll", table({ class: "ui-picked" }, heads(["question"], ["quotes", ...methods.map(titleOf)]), rows)),
  );
}

/** Attributes an answer of a scoring by all its signals. */
/** @type {(scoring: string, row: number, signals: string[]) => Promise<void>} */
async function opening(scoring, row, signals) {
  try {
    show(await start({ scoring, row, signals }));
  } catch (problem) {
    say(sentence(problem), true);
  }
}

/** F1 by threshold. @type {(box: HTMLElement, told: Scores, counted: Scored) => Promise<void>} */
async function drawChart(box, told, counted) {
  if (!told.rows.length || !box.offsetWidth) return;
  await charts(box, catalog().plotly, () => (box.isConnected ? f1Charts(told, counted) : null));
}

/** @type {(told: Scores, counted: Scored) => Chart[]} */
function f1Charts(told, counted) {
  const rows = told.rows.filter((row) => row.counted === counted);
  /** @type {object[]} */
  const lines = rows.map((row, k) => ({
    name: short(row.title),
    x: catalog().min_runs,
    y: row.scores.map((score) => score.f1),
    ...lineLook(k),
    hovertemplate: "minimum length %{x}: F1 %{y:.3f}<extra>%{fullData.name}</extra>",
  }));
  const published = catalog().paper.rows.filter(([name]) => minRunOf(name));
  lines.push({
    name: "PLD+ (h), paper",
    x: published.map(([name]) => minRunOf(name)),
    y: published.map(([, , , f1]) => f1),
    mode: "lines+markers",
    line: { color: "#8A8A8A", dash: "dash", width: 1.5 },
    marker: { size: 9, symbol: "circle-open" },
  });
  const look = layout("", "minimum length, tokens", "token F1", {
    height: 320,
    margin: { l: 50, r: 10, t: 14, b: 100 },
    xaxis: { dtick: 1 },
    yaxis: { range: [0, 1.03] },
    legend: { orientation: "h", y: -0.3, x: 0 },
  });
  return [{ label: "F1 by minimum length; the same numbers are in the table", data: lines, layout: look }];
}
