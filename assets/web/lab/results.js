/* Page "Lab", the results: progress, charts, the runs behind every point. */

import { emit } from "specviz/base/bus.js";
import { h, plural } from "specviz/base/dom.js";
import { getJson } from "specviz/base/json.js";
import { plotly } from "specviz/base/plotly.js";
import { address, file, lab, list, note, number, post, recipe, refresh, when } from "specviz/lab/state.js";

const POLL_MS = 1200;

export function show(id) {
  clearTimeout(lab.timer);
  lab.id = id;
  lab.shown = null;
  lab.metrics = null;
  address();
  const place = lab.box.querySelector(".svl-results");
  for (const div of place.querySelectorAll(".svl-plot")) window.Plotly?.purge(div);
  place.replaceChildren();
  if (id) poll();
}

async function poll() {
  const id = lab.id;
  clearTimeout(lab.timer);
  try {
    const have = lab.shown?.charts ? lab.shown.rows : -1;
    const query = new URLSearchParams({ have, metrics: (lab.metrics || []).join(",") });
    const answer = await getJson(`api/lab/results/${encodeURIComponent(id)}?${query}`);
    if (id !== lab.id) return;
    const before = lab.shown;
    if (before?.tables && before.state !== answer.state && !answer.tables) {
      // what stands below the tables says the state
      lab.shown = { ...before, charts: null };
      return poll();
    }
    lab.shown = answer.charts ? answer : { ...before, ...answer };
    drawProgress();
    if (lab.shown.charts && (answer.charts || before.state !== answer.state)) await drawResults();
    const live = ["queued", "running"].includes(answer.state);
    if (live) lab.timer = setTimeout(poll, POLL_MS);
    else if (before && ["queued", "running"].includes(before.state)) {
      await refresh();
      emit("lab");
    }
  } catch (problem) {
    if (id === lab.id)
      lab.box
        .querySelector(".svl-results")
        .replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
  }
}

/** "12 of 40 runs · about 2 min left" */
function progressed({ progress, total }, done) {
  const what = progress?.trains ? `Training: ${progress.trains}, step ` : "";
  const all = progress?.trains ? progress.total.toLocaleString() : plural(total, "run");
  return `${what}${done.toLocaleString()} of ${all}${progress?.left ? ` · about ${progress.left} left` : ""}`;
}

function drawProgress() {
  const place = frame().querySelector(".svl-progress");
  const s = lab.shown;
  const live = ["queued", "running"].includes(s.state);
  place.hidden = !live;
  if (!live) return place.replaceChildren();
  const done = s.progress?.done || 0;
  const text =
    s.state === "queued"
      ? s.ahead > 0
        ? `Waiting: ${plural(s.ahead, "experiment")} before this one.`
        : "Starting."
      : progressed(s, done);
  if (!place.firstChild) {
    place.replaceChildren(
      h("progress", { max: 1, "aria-label": "Progress" }),
      h("span", { class: "svl-left", role: "status" }),
      h(
        "button",
        {
          type: "button",
          class: "svp-button svl-cancel",
          onclick: (event) => {
            event.target.disabled = true;
            post("cancel", { id: lab.id }).then(cancelled, (problem) => note(problem.message, true));
          },
        },
        "Cancel",
      ),
    );
  }
  place.querySelector("progress").max = s.progress?.total || s.total;
  place.querySelector("progress").value = done;
  place.querySelector(".svl-left").textContent = text;
}

async function cancelled() {
  await refresh();
  emit("lab");
  if (lab.shown?.state === "queued") show("");
  else poll();
}

function frame() {
  const place = lab.box.querySelector(".svl-results");
  if (!place.firstChild) {
    place.replaceChildren(
      h("div", { class: "svl-bar" }),
      h("div", { class: "svl-progress", hidden: true }),
      h("div", { class: "svl-charts" }),
      h("p", { class: "svl-caption" }),
      h("div", { class: "svl-below" }),
    );
  }
  return place;
}

function colors() {
  const style = getComputedStyle(document.body);
  return {
    ink: style.getPropertyValue("--svp-ink").trim(),
    soft: style.getPropertyValue("--svp-soft").trim(),
    face: style.getPropertyValue("--svp-face").trim(),
    line: style.getPropertyValue("--svp-line").trim(),
  };
}

function dressed(figure, paper) {
  const { ink, soft, face, line } = colors();
  const layout = {
    ...figure.layout,
    font: { ...figure.layout.font, color: paper ? soft : ink },
    hoverlabel: { ...figure.layout.hoverlabel, bgcolor: face, bordercolor: line, font: { color: ink, size: 12.5 } },
  };
  return { data: figure.data, layout };
}

const OPTIONS = { displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] };

export async function drawResults() {
  const s = lab.shown,
    id = lab.id;
  const Plotly = s.charts.length ? await plotly(lab.catalog.plotly) : window.Plotly; // tables need none
  if (id !== lab.id || s !== lab.shown) return;
  const place = frame();
  drawBar(place.querySelector(".svl-bar"));
  const grid = place.querySelector(".svl-charts");
  while (grid.children.length < s.charts.length) {
    // all of them first: each is drawn as wide as it stays
    const plot = h("div", { class: "svl-plot" });
    grid.append(h("figure", { class: "svl-card" }, plot));
    new ResizeObserver(() => {
      if (plot.data && plot.offsetWidth) Plotly.Plots.resize(plot);
    }).observe(plot);
  }
  while (grid.children.length > s.charts.length) {
    Plotly.purge(grid.lastChild.firstChild);
    grid.lastChild.remove();
  }
  s.charts.forEach((chart, n) => {
    const card = grid.children[n];
    card.classList.toggle("svl-paper", chart.paper);
    const plot = card.firstChild;
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", `${chart.title}; the same numbers are in the table below`);
    const { data, layout } = dressed(JSON.parse(chart.figure), chart.paper);
    Plotly.react(plot, data, layout, OPTIONS);
    if (!plot.dataset.told) {
      plot.dataset.told = "yes";
      plot.on("plotly_click", (event) => {
        const index = event.points.map((p) => p.customdata).find((c) => Number.isInteger(c));
        if (index !== undefined) behind(lab.shown.points[index]);
      });
    }
  });
  grid.classList.toggle("svl-empty", !s.rows || !s.charts.length);
  place.querySelector(".svl-caption").textContent = s.rows ? s.caption : "";
  place.querySelector(".svl-below").replaceChildren(...(s.tables ? lab.batch.below(s) : below(s)));
  place.dataset.rows = s.rows;
  place.dataset.state = s.state;
}

function drawBar(bar) {
  const s = lab.shown,
    about = s.about;
  const states = {
    complete: "",
    cancelled: "cancelled: what was done is kept",
    "cut off": "cut off: what was done is kept",
    error: "ended on an error",
  };
  const words = [
    when(about.created),
    about.model.name,
    about.cases ? plural(about.cases, "prompt") : "",
    states[s.state] ?? s.state,
  ]
    .filter(Boolean)
    .join(" · ");
  const measured = lab.catalog.metrics.filter((m) => s.measured.includes(m.key) && !(s.tables && m.parts));
  const select = h(
    "select",
    { class: "svp-select", "aria-label": s.tables ? "What the cells show" : "What is drawn" },
    h("option", { value: "" }, "As planned"),
    measured.map((m) => h("option", { value: m.key, title: m.help }, m.label)),
  );
  select.value = (lab.metrics || [""])[0];
  select.addEventListener("change", () => {
    lab.metrics = select.value ? [select.value] : null;
    lab.shown = { ...lab.shown, charts: null };
    poll();
  });
  const live = ["queued", "running"].includes(s.state);
  bar.replaceChildren(
    h("div", { class: "svl-about" }, h("b", {}, recipe() ? "Results" : about.title), h("span", {}, words)),
    measured.length ? h("label", { class: "svl-draw" }, s.tables ? "Cells show " : "Draw ", select) : "",
    ...(s.rows && s.tables ? lab.batch.files(lab.metrics) : []),
    s.rows ? file("csv", s.tables ? "Runs: CSV" : "CSV") : "",
    s.rows ? file("json", "JSON") : "",
    live
      ? ""
      : h(
          "button",
          { type: "button", class: "svp-button", onclick: remove, title: "Delete these results and their runs" },
          "Delete",
        ),
  );
}

async function remove() {
  try {
    await post("remove", { id: lab.id });
    await refresh();
    show("");
    emit("lab");
  } catch (problem) {
    note(problem.message, true);
  }
}

const named = (point) => {
  const x = lab.shown.names[point.x] ?? point.x,
    axes = lab.shown.about.axes;
  const along = axes.find((a) => a.param === lab.shown.about.x);
  const place = point.level ? "" : along ? `${along.label} = ${x}` : x;
  const second = point.y ? `${axes[1].label} = ${point.y}` : "";
  return [point.series === point.x ? "" : point.series, place, second].filter(Boolean).join(" · ");
};

/** The runs behind a point: the only one at once, else a list. */
function behind(point) {
  if (!point.runs.length)
    return note(point.failed ? "All runs behind this point failed." : "No runs are behind this point.", true);
  list(named(point), point.runs);
}

/** A profile's places as rows; heads and shares as the server gives them. */
function profileTable(table) {
  const named = new Set(table.rows.map((row) => row[0])).size > 1;
  const cells = (row, tag) =>
    row.slice(named ? 0 : 1).map((cell, n) => {
      const column = n + (named ? 0 : 1),
        text = column < 2;
      return h(
        tag,
        { class: text ? null : "svp-num", scope: tag === "th" ? "col" : null },
        typeof cell === "number" ? number(cell, column < 2 + table.measured ? table.unit : "") : (cell ?? "–"),
      );
    });
  return h(
    "div",
    { class: "svl-scroll" },
    h(
      "table",
      { class: "svp-grid svl-table" },
      h("caption", {}, table.label),
      h("thead", {}, h("tr", {}, cells(table.heads, "th"))),
      h(
        "tbody",
        {},
        table.rows.map((row) => h("tr", {}, cells(row, "td"))),
      ),
    ),
  );
}

function below(s) {
  if (!s.rows) return [];
  const about = s.about;
  const along = about.axes.find((a) => a.param === about.x);
  const first = about.x !== "line";
  const second = s.points.some((p) => p.y);
  const several = new Set(s.points.map((p) => p.series)).size > 1 || !first;
  const heads = [
    several ? "" : null,
    first ? (along ? along.label : "task") : null,
    second ? about.axes[1].label : null,
    ...s.columns.map((c) => c.label),
    "runs",
  ].filter((t) => t !== null);
  const unit = (c) =>
    c.unit && c.unit !== "share" && !c.label.toLowerCase().includes(c.unit.replace("/", " per ")) ? ` (${c.unit})` : "";
  const rows = s.points.map((point) => {
    const text = [
      several ? point.series || lab.shown.names[point.x] || point.x : null,
      first ? (point.level ? "level" : (lab.shown.names[point.x] ?? point.x)) : null,
      second ? point.y : null,
    ].filter((t) => t !== null);
    const numbers = s.columns.map((c) => {
      const v = point.values[c.key];
      return h(
        "td",
        {
          class: "svp-num",
          title: v?.n ? `quartiles ${number(v.low, c.unit)} to ${number(v.high, c.unit)}; ${v.n} runs` : null,
        },
        number(v?.mean, c.unit),
        v?.se ? h("small", {}, ` ± ${number(v.se, c.unit)}`) : null,
      );
    });
    const open = point.runs.length
      ? h(
          "button",
          { type: "button", class: "svp-link", onclick: () => behind(point) },
          plural(point.runs.length, "run"),
        )
      : String(point.count || "");
    return h(
      "tr",
      {},
      text.map((t) => h("td", {}, t)),
      numbers,
      h(
        "td",
        { class: "svp-num" },
        open,
        point.failed ? h("small", { class: "svl-failed" }, ` ${point.failed} failed`) : null,
      ),
    );
  });
  const fixedHeads = heads.length - 1 - s.columns.length;
  return [
    s.failed
      ? h("div", { class: "svp-note svp-error" }, `${plural(s.failed, "run")} failed. `, s.errors.join(" "))
      : "",
    ...about.notes.map((text) => h("p", { class: "svp-note" }, text)),
    s.columns.length || s.points.some((p) => p.runs.length)
      ? h(
          "div",
          { class: "svl-scroll" },
          h(
            "table",
            { class: "svp-grid svl-table" },
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                heads.map((text, n) =>
                  h(
                    "th",
                    { scope: "col", class: n >= fixedHeads ? "svp-num" : null },
                    text,
                    n >= fixedHeads && n < heads.length - 1 ? unit(s.columns[n - fixedHeads]) : "",
                  ),
                ),
              ),
            ),
            h("tbody", {}, rows),
          ),
        )
      : "",
    ...s.profiles.map(profileTable),
    h(
      "dl",
      { class: "svl-formulas" },
      s.formulas.map((f) => [h("dt", {}, f.label), h("dd", {}, `= ${f.formula}. `, h("span", {}, f.help))]),
    ),
  ].filter((part) => part !== "");
}
