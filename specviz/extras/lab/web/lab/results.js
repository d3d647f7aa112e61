/* Page "Lab", the results: progress, charts, the runs behind every point. */

import { emit } from "specviz/base/bus.js";
import { h, heads, replace } from "specviz/base/dom.js";
import { getJson, goesOn, sentence, within } from "specviz/base/json.js";
import { format, plural, when } from "specviz/base/numbers.js";
import { charts, clearCharts, theme } from "specviz/base/plotly.js";
import * as batch from "specviz/lab/batch.js";
import { otherJudges } from "specviz/lab/judges.js";
import { sheetTables } from "specviz/lab/sheets.js";
import {
  address, catalog, file, formulaList, lab, link, list, note, onDark, parts, post, recipe, refresh, tabled,
} from "specviz/lab/state.js";
import { verdictOf } from "specviz/lab/verdict.js";

const POLL_MS = 1200;
const EVERY = "Every number with its spread and its runs";
const REMOVES = "Delete these results and their runs";
const TABLED = new Set(["sheet", "cases"]); // shown as tables of their own
const MOST_CHARTS = 4; // above which the paper's stand behind a button
/** @type {Record<string, string>} */
const ENDED = {
  complete: "",
  cancelled: "cancelled: what was done is kept",
  "cut off": "cut off: what was done is kept",
  error: "ended on an error",
};

const bar = h("div.svl-bar.ui-row");
const meter = h("progress", { max: 1, "aria-label": "Progress" });
const left = h("span.svl-left", { role: "status" });
const stop = h("button.svp-button.svl-cancel", { onclick: cancel }, "Cancel");
const crew = h("ul.svl-crew.ui-row.ui-soft", { "aria-label": "Workers", hidden: true });
const progress = h("div.svl-progress.ui-row.ui-box", { hidden: true }, meter, left, stop, crew);
const grid = h("div.svl-charts.ui-tiles");
const sheets = h("div.svl-sheets.ui-stack");
const paperGrid = h("div.svl-charts.ui-tiles");
const paperName = h("summary");
const paperCharts = h("details.ui-fold", { hidden: true, ontoggle: drawPaperCharts }, paperName, paperGrid);
const caption = h("p.svl-caption");
const under = h("div.ui-stack");
/** Of the results shown, the panel of other verifiers: it stays as it is while the rest is drawn again. */
const drafts = h("div");
/** What is unfolded stays so while results are drawn again. */
const unfolded = { every: { value: false } };

/** Shows results, or none ("" for an id). @param {string} id */
export function show(id) {
  clearTimeout(lab.timer);
  lab.id = id;
  lab.shown = null;
  lab.metrics = null;
  stop.disabled = false;
  address();
  clearCharts(grid);
  clearCharts(paperGrid);
  paperCharts.open = unfolded.every.value = false;
  for (const part of [bar, sheets, caption, under, drafts, parts.results, parts.verdict]) part.replaceChildren();
  if (id) poll();
}

async function poll() {
  const { id, shown: before } = lab;
  clearTimeout(lab.timer);
  await within(parts.results, async () => {
    const have = before?.charts ? before.rows : -1;
    const query = new URLSearchParams({ have: String(have), metrics: (lab.metrics || []).join(",") });
    /** @type {LabProgress & Partial<LabResults>} */
    const answer = await getJson(`api/lab/results/${encodeURIComponent(id)}?${query}`);
    if (id !== lab.id) return;
    const last = lab.shown;
    if (last?.tables && last.state !== answer.state && !answer.tables) {
      // what stands below the tables says the state
      lab.shown = { ...last, charts: undefined };
      return poll();
    }
    lab.shown = answer.charts ? answer : { ...last, ...answer };
    drawProgress(lab.shown);
    if (answer.charts || last?.state !== answer.state) await drawResults();
    if (goesOn(answer.state)) lab.timer = setTimeout(poll, POLL_MS);
    else if (last && goesOn(last.state)) {
      await refresh();
      emit("lab");
    }
  }, () => id === lab.id);
}

/** "12 of 40 runs · about 2 min left" @param {LabProgress} results */
function progressed({ state, ahead, progress: now, total }) {
  if (state === "queued") return ahead > 0 ? `Waiting: ${plural(ahead, "experiment")} before this one.` : "Starting.";
  const what = now?.trains ? `Training: ${now.trains}, step ` : "";
  const units = now?.workers.length;
  const all = now?.trains ? now.total.toLocaleString() : plural(units ? now.total : total, units ? "prompt" : "run");
  return `${what}${(now?.done || 0).toLocaleString()} of ${all}${now?.left ? ` · about ${now.left} left` : ""}`;
}

/** @param {LabProgress} results */
function drawProgress(results) {
  frame();
  progress.hidden = !goesOn(results.state);
  if (progress.hidden) {
    stop.disabled = false;
    return;
  }
  meter.max = results.progress?.total || results.total;
  meter.value = results.progress?.done || 0;
  left.textContent = progressed(results);
  crew.replaceChildren(...crewOf(results));
  crew.hidden = !crew.children.length;
}

/** What each worker does, and why runs failed. @param {LabProgress} results */
function crewOf({ progress: now }) {
  const workers = (now?.workers ?? []).map(({ name, state, seconds, done, losses }) => {
    const said = [`${state}, ${Math.round(seconds)} s`, `${done} done`, losses && `lost ${plural(losses, "time")}`];
    return h("li", h("b", name), ` ${said.filter(Boolean).join(" · ")}`);
  });
  const failures = (now?.failures ?? []).map((reason) => h("li.svl-failed", reason));
  if (!now?.failed) return workers;
  return [...workers, h("li.svl-failed", `${plural(now.failed, "prompt")} failed:`), ...failures];
}

async function cancel() {
  stop.disabled = true;
  try {
    await post("cancel", { id: lab.id });
    await refresh();
  } catch (problem) {
    return note(sentence(problem), true);
  }
  emit("lab");
  if (lab.shown?.state === "queued") show("");
  else poll();
}

function frame() {
  if (parts.results.contains(grid)) return;
  parts.results.replaceChildren(bar, progress, grid, sheets, paperCharts, caption, under, drafts);
}

/** A figure's text with its colours for the page. @param {string} figure */
const toned = (figure) => document.body.classList.contains("dark")
  ? figure.replace(/#[0-9a-f]{6}\b/gi, onDark) : figure;

/** Black or white, whichever can be read better on a colour. @param {string} color "#rrggbb" */
function inkOn(color) {
  const [r, g, b] = [1, 3, 5].map((at) => (parseInt(color.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "black" : "white";
}

/** The server's figures in the page's colours. @param {LabResults["charts"]} figures @returns {Chart[]} */
function dressed(figures) {
  const { ink, soft, hoverlabel } = theme();
  return figures.map(({ title, paper, figure }) => {
    const { data, layout } = JSON.parse(toned(figure));
    for (const trace of data) {
      const { type, error_y: whisker, marker: { color = "" } = {} } = trace;
      if (type !== "bar") continue;
      if (whisker) { // they lie on the bars; null would be one of no height
        const array = whisker.array.map((/** @type {number | null} */ error) => error ?? NaN);
        Object.assign(whisker, { color: ink, thickness: 1.5, array });
      }
      trace.insidetextfont = { color: Array.isArray(color) ? color.map(inkOn) : inkOn(color) };
    }
    return {
      label: `${title}; the same numbers stand under “${EVERY}”`,
      kind: paper ? "svl-paper" : "",
      data,
      layout: {
        ...layout,
        font: { ...layout.font, color: paper ? soft : ink },
        hoverlabel: { ...layout.hoverlabel, ...hoverlabel },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink },
      },
      config: {
        displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
      },
    };
  });
}

/** Whether all that is drawn has come. @param {LabProgress & Partial<LabResults> | null} results */
const whole = (results) => (results?.charts ? /** @type {LabResults} */ (results) : null);

/** @param {LabResults} results @returns {LabBatchResults | null} */
const asBatch = (results) => (results.tables ? /** @type {LabBatchResults} */ (results) : null);

/** Draws what came: charts or tables, and what stands below them. */
export async function drawResults() {
  const s = whole(lab.shown);
  if (!s) return;
  frame();
  drawBar(s);
  const shown = ownCharts(s);
  if (!shown.length) clearCharts(grid); // tables need no library
  else charts(grid, catalog().plotly, () => (s === lab.shown ? dressed(shown) : null), clicked);
  grid.classList.toggle("svl-empty", !s.rows || !shown.length);
  const printed = s.charts.length - shown.length;
  paperCharts.hidden = !s.rows || !printed;
  paperName.textContent = `The paper's own numbers, drawn (${plural(printed, "chart")})`;
  drawPaperCharts();
  const drawSheets = () => sheets.replaceChildren(...sheetTables(s.rows ? s.sheets : [], opener, drawSheets));
  drawSheets();
  parts.verdict.replaceChildren();
  replace(parts.verdict, s.rows && !asBatch(s) ? verdictOf(s) : []);
  caption.textContent = s.rows ? s.caption : "";
  const many = asBatch(s);
  const rest = many ? batch.below(many, many.profiles.map(profileTable)) : below(s);
  under.replaceChildren(...rest);
  const recorded = many ? many.rows > 0 : s.points.some((point) => point.runs.length);
  if (!drafts.children.length && recorded && !goesOn(s.state)) drafts.append(otherJudges(lab.id));
  parts.results.dataset.rows = String(s.rows);
  parts.results.dataset.state = s.state;
}

/** The charts that stand in sight: all where these are few, else ours. @param {LabResults} results */
const ownCharts = ({ charts: all }) => (all.length > MOST_CHARTS ? all.filter(({ paper }) => !paper) : all);

/** The other charts, once they are asked for. */
function drawPaperCharts() {
  const s = whole(lab.shown);
  if (!s || !paperCharts.open) return;
  const rest = s.charts.filter((chart) => !ownCharts(s).includes(chart));
  charts(paperGrid, catalog().plotly, () => (s === lab.shown ? dressed(rest) : null), clicked);
}

/** @param {PlotPoint[]} points */
function clicked(points) {
  const index = points.map((p) => p.customdata).find((c) => Number.isInteger(c));
  const point = whole(lab.shown)?.points[Number(index)];
  if (point) behind(point);
}

/** What opens the runs of a point, if there are any. @param {number} index */
function opener(index) {
  const point = whole(lab.shown)?.points[index];
  return point?.runs.length ? () => behind(point) : null;
}

/** What a busy machine did to the times of a recorded result. @param {Recorded} recorded */
const roughly = ({ load, machine }) =>
  `‡ times and speedups are rough: other work kept the machine busy (load ${format(load)}, ` +
  `${plural(machine.cores, "core")})`;

/** @param {LabResults} results */
function drawBar({ about, state, measured, tables, rows }) {
  const turns = (about.turns ?? 0) > about.cases ? ` in ${plural(about.turns ?? 0, "turn")}` : "";
  const prompts = about.cases > 0 && plural(about.cases, "prompt") + turns;
  const origin = about.shipped ? "example result" : when(about.created);
  const words = [origin, about.model.name, prompts, ENDED[state] ?? state].filter(Boolean).join(" · ");
  const metrics = catalog().metrics.filter((m) => measured.includes(m.key) && !(tables && m.parts));
  const select = h(
    "select.svp-select",
    { "aria-label": tables ? "What the cells show" : "What is drawn", value: lab.metrics?.[0] ?? "" },
    h("option", { value: "" }, "As planned"),
    metrics.map((m) => h("option", { value: m.key, title: m.help }, m.label)),
  );
  select.addEventListener("change", () => {
    lab.metrics = select.value ? [select.value] : null;
    if (lab.shown) lab.shown = { ...lab.shown, charts: undefined };
    poll();
  });
  replace(bar, [
    h(
      "div.svl-about.ui-row",
      h("b", recipe() ? "Results" : about.title),
      h("span.ui-soft", { class: about.shipped && "svl-shipped" }, words),
    ),
    metrics.length > 0 && h("label.svl-draw.ui-check.ui-soft", tables ? "Cells show " : "Draw ", select),
    rows > 0 && batch.files(lab.metrics),
    rows > 0 && h("span.svl-files", file("csv", "Runs: CSV"), file("parquet", "Parquet"), file("json", "JSON")),
    about.recorded?.rough && h("span.svl-rough", roughly(about.recorded)),
    !goesOn(state) && !about.shipped && h("button.svp-button", { onclick: remove, title: REMOVES }, "Delete"),
  ]);
}

async function remove() {
  try {
    await post("remove", { id: lab.id });
    await refresh();
    show("");
    emit("lab");
  } catch (problem) {
    note(sentence(problem), true);
  }
}

/** What a place on an axis is called. @param {string} x */
const placeName = (x) => lab.shown?.names?.[x] ?? x;

/** The runs behind a point: the only one at once, else a list. @param {LabPoint} point */
function behind({ series, x, y, level, runs, failed }) {
  if (!runs.length) return note(failed ? "All runs behind this point failed." : "No runs are behind this point.", true);
  const { axes = [], x: along = "" } = lab.shown?.about ?? {};
  const axis = axes.find((one) => one.param === along);
  const place = level ? "" : axis ? `${axis.label} = ${placeName(x)}` : placeName(x);
  const second = y ? `${axes[1].label} = ${y}` : "";
  list([series === x ? "" : series, place, second].filter(Boolean).join(" · "), runs);
}

/** A profile's places as rows; heads and shares as the server gives them. @param {LabProfile} table */
function profileTable({ title, heads: names, words, rows }) {
  const answers = lab.shown?.about.chart === "cases";
  const from = words === 1 || new Set(rows.map((row) => row[0])).size > 1 ? 0 : 1; // one name for all is in the caption
  /** @param {string[]} row */
  const line = (row) => row.map((text, k) => {
    const long = text.length > 48 || (answers && k === words - 1);
    return h("td", { class: k >= words ? "svp-num" : long && "svl-long" }, text);
  }).slice(from);
  const lines = rows.map((row) => h("tr", line(row)));
  const attributes = { class: answers ? "svl-answers" : "" };
  return tabled(attributes, heads(names.slice(from, words), names.slice(words)), lines, h("caption", title));
}

/** The columns of text of a table of points: a head, and a point's cell. @param {LabResults} results */
function placeColumns({ about, points }) {
  const first = about.x !== "line";
  const axis = about.axes.find((one) => one.param === about.x);
  const several = !first || new Set(points.map((p) => p.series)).size > 1;
  /** @type {[shown: boolean, head: string, cell: (point: LabPoint) => string][]} */
  const columns = [
    [several, "", (p) => p.series || placeName(p.x)],
    [first, axis ? axis.label : about.groups ?? "task", (p) => (p.level ? "level" : placeName(p.x))],
    [points.some((p) => p.y), about.axes[1]?.label ?? "", (p) => p.y],
  ];
  return columns.filter(([shown]) => shown);
}

/** @param {LabResults} results */
function pointTable(results) {
  const { columns, points } = results;
  const places = placeColumns(results);
  const labels = columns.map(({ label, unit }) => {
    if (unit === "share") return `${label} (%)`;
    const said = !unit || label.toLowerCase().includes(unit.replace("/", " per "));
    return said ? label : `${label} (${unit})`;
  });
  const rows = points.map((point) => {
    const numbers = columns.map(({ key }) => {
      const { n, se, text } = point.values[key] ?? {};
      const title = n && text ? `quartiles ${text.low} to ${text.high}; ${plural(n, "run")}` : null;
      const spread = se ? h("small", ` ± ${text?.se}`) : null;
      return h("td.svp-num", { title }, text?.value ?? "–", spread);
    });
    const { runs, count, failed } = point;
    const open = runs.length ? link(plural(runs.length, "run"), () => behind(point)) : String(count || "");
    const lost = failed > 0 && h("small.svl-failed", ` ${failed} failed`);
    return h("tr", places.map(([, , cell]) => h("td", cell(point))), numbers, h("td.svp-num", open, lost));
  });
  // lines that could not be run say what would fill them; tables of lines × tasks have them in their own rows
  const missing = TABLED.has(results.about.chart) ? [] : Object.entries(results.about.absent ?? {});
  const wide = { colspan: String(places.length + columns.length) };
  const empty = missing.map(([name, why]) => h("tr", h("th", { scope: "row" }, name), h("td", wide, why)));
  return tabled({}, heads(places.map(([, head]) => head), [...labels, "runs"]), [...rows, ...empty]);
}

/** The numbers that are drawn, as tables. @param {HTMLElement[]} tables */
function folded(tables) {
  const details = h("details.svl-every.ui-fold", { open: unfolded.every.value }, h("summary", EVERY), tables);
  details.addEventListener("toggle", () => (unfolded.every.value = details.open));
  return details;
}

/** What stands below the charts. @param {LabResults} results */
function below(results) {
  const { rows, about, columns, points, profiles, formulas, failed, errors } = results;
  if (!rows) return [];
  const tables = profiles.map(profileTable);
  const places = columns.length || points.some((p) => p.runs.length) ? [pointTable(results)] : [];
  const answers = about.chart === "cases" ? tables : [];
  const numbers = answers.length ? places : [...places, ...tables];
  return [
    failed ? h("div.svp-note.svp-error", `${plural(failed, "run")} failed. `, errors.join(" ")) : "",
    ...about.notes.map((text) => h("p.svp-note", text)),
    ...answers,
    numbers.length ? folded(numbers) : "",
    formulaList(formulas),
  ].filter((part) => part !== "");
}
