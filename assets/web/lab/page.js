/* Page "Lab": what there is to run, what is asked, progress, charts and the runs behind every point. */

import { on } from "specviz/base/bus.js";
import { h, plural } from "specviz/base/dom.js";
import { getJson, postJson } from "specviz/base/http.js";
import { plotly } from "specviz/base/plotly.js";
import { labBatch } from "specviz/lab/batch.js";
import { open as openRun } from "specviz/shell/open.js";
import { app } from "specviz/shell/state.js";
import { goTo } from "specviz/shell/tabs.js";

const OWN = "own",
  BATCH = "batch";
const POLL_MS = 1200;
const SHORT = { pldplus: "PLD+", adapld: "AdaPLD", casd: "CASD", glide: "GLIDE", ppd: "PPD" };
const lab = {
  box: null,
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

const post = (what, body) => postJson(`api/lab/${what}`, body);
const recipe = (name = lab.choice) => lab.catalog.recipes.find((r) => r.name === name) || null;
const number = (value, unit) => {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return `${(100 * value).toFixed(value && value < 0.1 ? 1 : 0)} %`;
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString() : String(Number(value.toPrecision(3)));
};
const when = (text) => {
  const date = new Date(text);
  return Number.isNaN(+date) ? "" : date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
};

function address() {
  const url = new URL(location.href);
  const value = lab.id || lab.choice;
  url.searchParams.delete("recipe"); // how other pages name what is to be chosen
  if (value && app.tab === "lab") url.searchParams.set("lab", value);
  else if (!value) url.searchParams.delete("lab");
  history.replaceState(history.state, "", url);
}

// --- the list of experiments ---

function side() {
  const item = (name, tag, title, more) =>
    h(
      "button",
      {
        type: "button",
        class: "svl-item",
        "data-name": name,
        "aria-current": name === lab.choice ? "true" : null,
        onclick: () => choose(name),
        title: more || null,
      },
      tag ? h("span", { class: "svl-tag" }, tag) : null,
      h("span", { class: "svl-name" }, title),
    );
  const groups = Object.entries(lab.catalog.papers)
    .filter(([key]) => key)
    .map(([key, title]) => [
      h("h3", { title }, SHORT[key] || title),
      lab.catalog.recipes.filter((r) => r.paper === key).map((r) => item(r.name, r.figure, r.title, r.question)),
    ]);
  const results = lab.catalog.results.map((about) =>
    h(
      "button",
      {
        type: "button",
        class: "svl-item svl-result",
        "data-result": about.id,
        "aria-current": about.id === lab.id ? "true" : null,
        onclick: () => reopen(about),
      },
      h(
        "span",
        { class: "svl-name" },
        about.figure ? `${SHORT[about.paper] || ""} ${about.figure}: ${about.title}` : about.title,
      ),
      h(
        "span",
        { class: "svl-when" },
        [when(about.created), about.state === "complete" ? "" : about.state].filter(Boolean).join(" · "),
      ),
    ),
  );
  const open = lab.box.querySelector(".svl-earlier")?.open ?? false;
  return [
    item(OWN, "", "Your own sweep", "A method, one or two parameters, values, prompts and a metric"),
    item(BATCH, "", "Methods × prompts", "Batch mode: a table of tasks and methods, as in the papers"),
    results.length
      ? h("details", { class: "svl-earlier", open }, h("summary", {}, `Results (${results.length})`), results)
      : null,
    groups,
  ];
}

function drawSide() {
  const list = lab.box.querySelector(".svl-list");
  const top = list.scrollTop;
  list.replaceChildren(...side().flat(Infinity).filter(Boolean));
  list.scrollTop = top;
  const chosen = recipe();
  lab.box.querySelector(".svl-side > summary").textContent = chosen
    ? `${SHORT[chosen.paper]} ${chosen.figure}: ${chosen.title}`
    : lab.choice === BATCH
      ? "Methods × prompts"
      : "Your own sweep";
}

function choose(name) {
  lab.choice = name;
  const latest = lab.catalog.results.find((about) => about.name === name);
  if (!recipe(name) && latest && !lab.asked[name]) return reopen(latest);
  show(latest ? latest.id : "");
  if (innerWidth < 900) lab.box.querySelector(".svl-side").open = false;
  draw();
}

/** The form of one's own sweep, as the results shown were asked for. */
function restore(about) {
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

async function reopen(about) {
  lab.choice = recipe(about.name) || about.name === BATCH ? about.name : OWN;
  if (!recipe()) {
    try {
      const found = (await getJson(`api/lab/results/${encodeURIComponent(about.id)}`)).about;
      if (lab.choice === BATCH) batch.restore(found);
      else restore(found);
    } catch {
      /* told where the results are shown */
    }
  }
  if (innerWidth < 900) lab.box.querySelector(".svl-side").open = false;
  show(about.id);
  draw();
}

// --- what is asked ---

const state = () =>
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

function body(extra = {}) {
  const s = state();
  const asked = {
    count: s.count || null,
    max_new_tokens: s.max_new_tokens || null,
    training_steps: s.training_steps || null,
    ...extra,
  };
  if (s.prompts === "file") asked.prompts = { file: lab.file || {} };
  else if (s.prompts === "trace") asked.prompts = { trace: app.shown || "" };
  else if (s.prompts) asked.prompts = s.prompts;
  if (lab.choice === BATCH) return { ...asked, batch: batch.body() };
  if (lab.choice !== OWN) return { ...asked, recipe: lab.choice };
  const fixed = Object.fromEntries(
    Object.entries(s.fixed).filter(
      ([name, value]) => value !== "" && name in parameters() && !s.vary.some((v) => v.param === name),
    ),
  );
  const vary = s.vary.filter((v) => v.param && v.param in parameters());
  return {
    ...asked,
    temperature: s.temperature === "" ? null : s.temperature,
    metrics: [s.metric],
    free: { methods: s.methods || [], fixed, vary },
  };
}

/** Parameters of the chosen methods by name. */
function parameters() {
  const found = {};
  for (const name of state().methods || []) {
    for (const control of lab.catalog.methods.find((m) => m.name === name)?.controls || [])
      found[control.name] ??= control;
  }
  return found;
}

function suggested(control) {
  if (control.kind === "bool") return "no, yes";
  if (control.kind === "choice") return control.choices.join(", ");
  const low = control.low ?? 0,
    high = control.high ?? low + 100;
  if (control.kind === "float") return `${low}..${high} step ${Number(((high - low) / 5).toPrecision(2))}`;
  const middle = typeof control.default === "number" ? control.default : Math.min(high, low + 4);
  const tried = [Math.round(middle / 4), Math.round(middle / 2), middle, middle * 2, middle * 4];
  return [...new Set(tried.map((v) => Math.min(high, Math.max(low, v))))].join(", ");
}

function allowed(control) {
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

const field = (label, input, help) =>
  h("label", { class: "svl-field" }, h("span", {}, label), input, help ? h("small", {}, help) : null);

function input(key, attributes) {
  const s = state();
  const element = h("input", { class: "svp-input", id: `svl-${key}`, ...attributes });
  element.value = s[key];
  element.addEventListener("input", () => {
    s[key] = element.value;
    check();
  });
  return element;
}

function promptFields(r) {
  const s = state();
  const tasks = (name) => {
    const wanted = name.split(":")[1];
    return wanted
      ? wanted
          .split(",")
          .map((task) => lab.catalog.tasks[task] || task)
          .join(", ")
      : "all tasks";
  };
  const set = r ? r.prompts : "demo:code_edit,text_edit,summary";
  const kind = set.split(":")[0];
  const options = [["", kind === "demo" ? `Held-out: ${tasks(set)}` : lab.catalog.sets[kind] || set]];
  if (set !== "demo") options.push(["demo", "Held-out: all tasks"]);
  if (kind !== "examples") options.push(["examples", "Examples of the Inspect page"]);
  if (kind !== "turns") options.push(["turns", lab.catalog.sets.turns]);
  options.push(["trace", "The prompt of the run in Inspect"], ["file", "A prompt file …"]);
  const select = h(
    "select",
    { class: "svp-select", id: "svl-prompts" },
    options.map(([value, text]) => h("option", { value }, text)),
  );
  select.value = s.prompts;
  const picker = h("input", {
    type: "file",
    id: "svl-file",
    accept: ".jsonl,.ndjson,.json,.txt,.md",
    class: "svl-file",
    hidden: s.prompts !== "file",
    "aria-label": "Prompt file",
  });
  picker.addEventListener("change", async () => {
    const file = picker.files[0];
    lab.file = file ? { name: file.name, text: await file.text() } : null;
    check();
  });
  select.addEventListener("change", () => {
    s.prompts = select.value;
    picker.hidden = s.prompts !== "file";
    check();
  });
  return [
    h("div", { class: "svl-field svl-wide" }, h("label", { for: "svl-prompts" }, "Prompts"), select, picker),
    field("How many", input("count", { type: "number", min: 1, max: 5000, placeholder: r ? String(r.count) : "6" })),
    field(
      "New tokens",
      input("max_new_tokens", { type: "number", min: 1, max: 4096, placeholder: r ? String(r.max_new_tokens) : "96" }),
    ),
    r?.repeats
      ? field("Repeats", input("repeats", { type: "number", min: 1, max: 100, placeholder: String(r.repeats) }))
      : null,
    r?.training_steps
      ? field(
          "Training steps",
          input("training_steps", { type: "number", min: 1, max: 100000, placeholder: String(r.training_steps) }),
        )
      : null,
  ];
}

function ownFields() {
  const s = state();
  const usable = lab.catalog.methods.filter((m) => !m.missing);
  s.methods ??= usable.length ? [(usable.find((m) => m.name === "pld+h") || usable[0]).name] : [];
  const methods = h(
    "fieldset",
    { class: "svl-methods svl-wide" },
    h("legend", {}, "Methods"),
    usable.map((m) => {
      const box = h("input", { type: "checkbox", value: m.name, id: `svl-method-${m.name}` });
      box.checked = s.methods.includes(m.name);
      box.addEventListener("change", () => {
        s.methods = usable.map((u) => u.name).filter((n) => (n === m.name ? box.checked : s.methods.includes(n)));
        drawMain();
      });
      return h("label", { class: "svl-check", title: m.summary }, box, m.name);
    }),
  );
  const known = parameters();
  const axes = s.vary.map((axis, n) => {
    if (axis.param && !(axis.param in known)) {
      axis.param = "";
      axis.values = "";
    }
    const select = h(
      "select",
      { class: "svp-select", id: `svl-param-${n}` },
      h("option", { value: "" }, n ? "nothing more" : "nothing: compare the methods"),
      Object.values(known).map((c) => h("option", { value: c.name }, `${c.label} (${c.name})`)),
    );
    select.value = axis.param;
    const values = h("input", {
      class: "svp-input",
      id: `svl-values-${n}`,
      placeholder: "1, 2, 4 or 0..1 step 0.1",
      "aria-label": "Values",
    });
    values.value = axis.values;
    values.disabled = !axis.param;
    values.addEventListener("input", () => {
      axis.values = values.value;
      check();
    });
    select.addEventListener("change", () => {
      axis.param = select.value;
      axis.values = axis.param ? suggested(known[axis.param]) : "";
      drawMain();
    });
    const control = known[axis.param];
    return h(
      "div",
      { class: "svl-field svl-wide svl-axis" },
      h("label", { for: `svl-param-${n}` }, n ? "and" : "Vary"),
      select,
      values,
      control ? h("small", {}, `${allowed(control)}. ${control.help}`) : null,
    );
  });
  const rest = Object.values(known).filter((c) => !s.vary.some((v) => v.param === c.name));
  const wasOpen = lab.box.querySelector(".svl-rest")?.open;
  const fixed = rest.length
    ? h(
        "details",
        { class: "svl-rest svl-wide", open: wasOpen },
        h("summary", {}, "Other parameters"),
        h(
          "div",
          { class: "svl-form" },
          rest.map((c) => {
            const box = h("input", {
              class: "svp-input",
              placeholder:
                c.default === null ? "off" : c.kind === "bool" ? (c.default ? "yes" : "no") : String(c.default),
              "aria-label": c.label,
            });
            box.value = s.fixed[c.name] || "";
            box.addEventListener("input", () => {
              s.fixed[c.name] = box.value;
              check();
            });
            return field(c.label, box, allowed(c));
          }),
        ),
      )
    : null;
  const metric = h(
    "select",
    { class: "svp-select", id: "svl-metric" },
    lab.catalog.metrics.filter((m) => !m.trained).map((m) => h("option", { value: m.key, title: m.help }, m.label)),
  );
  metric.value = s.metric;
  metric.addEventListener("change", () => {
    s.metric = metric.value;
    check();
    drawFormula();
  });
  const formula = h("small", { class: "svl-formula" });
  const drawFormula = () => {
    const m = lab.catalog.metrics.find((x) => x.key === s.metric);
    formula.textContent = m ? m.formula : "";
  };
  drawFormula();
  return [
    methods,
    axes,
    h("div", { class: "svl-field svl-wide" }, h("label", { for: "svl-metric" }, "Measure"), metric, formula),
    field("Temperature", input("temperature", { type: "number", min: 0, max: 2, step: 0.1, placeholder: "0" })),
    fixed,
  ];
}

// --- the main part ---

function head(r) {
  if (!r) {
    return h(
      "header",
      { class: "svl-head" },
      h("h2", {}, "Your own sweep"),
      h(
        "p",
        { class: "svl-question" },
        "Choose methods, up to two parameters to vary, the prompts " +
          "and what to measure. Two parameters make a heat map.",
      ),
    );
  }
  const metrics = r.metrics.map(
    (key) => lab.catalog.metrics.find((m) => m.key === key)?.label || r.own_metrics?.[key] || key,
  );
  const fact = (name, ...value) => [h("dt", {}, name), h("dd", {}, ...value)];
  const values = (axis) =>
    h(
      "span",
      { class: "svl-values" },
      axis.values.map((v) => h("span", {}, v)),
    );
  return h(
    "header",
    { class: "svl-head" },
    h("p", { class: "svl-cite", title: lab.catalog.papers[r.paper] }, `${SHORT[r.paper]}, ${r.figure}`),
    h("h2", {}, r.title),
    h("p", { class: "svl-question" }, r.question),
    h(
      "dl",
      { class: "svl-facts" },
      r.axes.map((axis) => fact("Varies", `${axis.label} `, values(axis))),
      r.alone ? null : fact("Lines", r.lines.map((l) => l.label).join(" · ")),
      r.training_steps
        ? fact("Trains", `${r.parts} for these lines, alike but for what is compared; kept for the next time`)
        : null,
      fact("Measures", metrics.join(" · ")),
      r.temperature ? fact("Temperature", String(r.temperature)) : null,
      fact("The paper found", r.finding),
      fact("Its numbers", r.papers.length ? `drawn from ${r.papers.join(", ")}` : "none printed; ours are drawn alone"),
      r.note ? fact("Note", r.note) : null,
    ),
  );
}

function drawMain() {
  const r = recipe();
  const had = document.activeElement?.id;
  const many = lab.choice === BATCH;
  const form = r
    ? promptFields(r).slice(r.alone ? 3 : 0)
    : many
      ? [...batch.fields(), ...promptFields(lab.catalog.batch)]
      : [...ownFields(), ...promptFields(null)];
  lab.box
    .querySelector(".svl-setup")
    .replaceChildren(
      many ? batch.head() : head(r),
      h("div", { class: "svl-form" }, form),
      h(
        "div",
        { class: "svl-go" },
        h("button", { type: "button", class: "svl-run", id: "svl-run", onclick: () => start(false) }, "Run"),
        h("span", { class: "svl-estimate", role: "status" }),
      ),
      h("p", { class: "svp-note svl-note", role: "status" }),
    );
  if (had?.startsWith("svl-")) document.getElementById(had)?.focus();
  check();
}

function note(text, error) {
  const place = lab.box.querySelector(".svl-note");
  if (!place) return;
  place.textContent = text;
  place.classList.toggle("svp-error", Boolean(text && error));
  place.setAttribute("role", error ? "alert" : "status");
}

/** The estimate, or why it cannot be run, a moment after the last change. */
function check() {
  clearTimeout(lab.check);
  const ticket = ++lab.ticket;
  const place = lab.box.querySelector(".svl-estimate"),
    run = document.getElementById("svl-run");
  const r = recipe();
  if (lab.catalog.reason || r?.missing.length) {
    run.disabled = true;
    place.textContent = lab.catalog.reason || `Not available here: ${r.missing.join(", ")}.`;
    return;
  }
  run.disabled = false;
  if (state().prompts === "file" && !lab.file) {
    place.textContent = "Choose a prompt file.";
    run.disabled = true;
    return note("");
  }
  lab.check = setTimeout(async () => {
    try {
      const found = await post("estimate", body());
      if (ticket !== lab.ticket) return;
      place.textContent = found.text;
      note(found.notes.join(" "));
    } catch (problem) {
      if (ticket !== lab.ticket) return;
      place.textContent = "";
      note(problem.message, true);
    }
  }, 250);
}

async function start(yes) {
  const run = document.getElementById("svl-run");
  if (run.disabled) return;
  run.disabled = true;
  try {
    const answer = await post("start", body(yes ? { yes: true } : {}));
    if (answer.asks) return ask(answer.asks);
    note("");
    await refresh();
    show(answer.id);
    drawSide();
  } catch (problem) {
    note(problem.message, true);
  } finally {
    run.disabled = false;
  }
}

function ask(question) {
  const box = lab.box.querySelector(".svl-dialog");
  box.replaceChildren(
    h("p", {}, question),
    h(
      "div",
      { class: "svl-row" },
      h(
        "button",
        {
          type: "button",
          class: "svl-run",
          onclick: () => {
            box.close();
            start(true);
          },
        },
        "Start it",
      ),
      h("button", { type: "button", class: "svp-button", onclick: () => box.close() }, "Not now"),
    ),
  );
  box.showModal();
}

async function refresh() {
  lab.catalog = await getJson("api/lab");
  for (const r of lab.catalog.recipes) {
    r.own_metrics = Object.fromEntries(r.own.map((q) => [q.key, q.label]));
  }
}

// --- results ---

function show(id) {
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
      drawSide();
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
  drawSide();
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

async function drawResults() {
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
  place.querySelector(".svl-below").replaceChildren(...(s.tables ? batch.below(s) : below(s)));
  place.dataset.rows = s.rows;
  place.dataset.state = s.state;
}

const file = (format, text) =>
  h(
    "a",
    {
      class: "svp-button",
      href: `api/lab/results/${encodeURIComponent(lab.id)}/download?format=${format}`,
      download: "",
    },
    text,
  );

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
    ...(s.rows && s.tables ? batch.files(lab.metrics) : []),
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
    drawSide();
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

/** Runs to open: the only one at once, else by name; `word` says more than the task. */
function list(title, runs) {
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

// --- start ---

const batch = labBatch({ lab, state, check, redraw: drawMain, field, allowed, plural, list, link: file });

function draw() {
  drawSide();
  drawMain();
  address();
}

export async function mount({ element }) {
  app.pages.lab = lab;
  lab.box = element.querySelector(".svp-lab");
  lab.box.replaceChildren(h("p", { class: "svp-empty" }, "Looking for experiments …"));
  try {
    await refresh();
  } catch (problem) {
    lab.box.replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
    return;
  }
  lab.box.replaceChildren(
    h(
      "details",
      { class: "svl-side", open: innerWidth >= 900 },
      h("summary", {}),
      h("nav", { class: "svl-list", "aria-label": "Experiments" }),
    ),
    h("section", { class: "svl-main" }, h("div", { class: "svl-setup" }), h("div", { class: "svl-results" })),
    h("dialog", { class: "svl-dialog" }),
  );
  const address_ = new URLSearchParams(location.search);
  const wanted = address_.get("recipe") || address_.get("lab") || "";
  if ([OWN, BATCH].includes(wanted) || recipe(wanted)) choose(wanted);
  else if (wanted) {
    try {
      const { about } = await getJson(`api/lab/results/${encodeURIComponent(wanted)}?have=-1`);
      reopen(about);
    } catch (problem) {
      choose(lab.catalog.recipes[0].name);
      note(problem.message, true);
    }
  } else choose(lab.catalog.recipes[0].name);
  lab.box.querySelector(".svl-item[aria-current]")?.scrollIntoView({ block: "nearest" });
  on("model", async () => {
    await refresh();
    draw();
  });
  new MutationObserver(() => {
    if (lab.shown?.charts) drawResults();
  }).observe(document.body, { attributeFilter: ["class"] });
}
