/* Page "Attribution": what an answer was copied from. Chooses and starts; the view draws. */

import { Attribution } from "specviz/attribution/view.js";
import { on } from "specviz/base/bus.js";
import { h, plural } from "specviz/base/dom.js";
import { getJson, postJson } from "specviz/base/http.js";
import { plotly } from "specviz/base/plotly.js";
import { stored } from "specviz/base/storage.js";
import { open } from "specviz/shell/open.js";
import { KINDS, refreshRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";

const SHOWN = [2, 5, 8]; // of PLD+'s table 10
const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "solid"];
const MARKS = ["circle", "square", "diamond", "triangle-up", "cross", "x"];
const MODES = { whole: "whole quotations", drafted: "drafted tokens" };
const SAMPLE = {
  context:
    "The harbour museum opened in 1931 and holds two hundred model ships. Its oldest piece, a " +
    "brass compass, was given by the widow of a pilot.\n---\nEvery spring the ferry brings " +
    "about four thousand visitors to the island. Most of them stay for a single day.",
  question: "What can visitors of the island see?",
  answer:
    "About four thousand visitors come to the island, and the harbour " +
    "museum opened in 1931 and holds two hundred model ships. Its " +
    "oldest piece, a brass compass, was given by the widow of a pilot.",
};
const page = {
  box: null,
  view: null,
  catalog: null,
  id: "",
  docs: new Map(),
  waiting: new Map(),
  feeds: new Map(),
  notes: [],
  ticket: 0,
  scoring: null,
  kept: {},
  minRun: 2,
  counted: "whole",
  seen: false,
};

const part = (name) => page.box.querySelector(`.sva-${name}`);
const score3 = (value) => (value === null || value === undefined ? "–" : value.toFixed(3).replace(/^0/, ""));
const coded = (text) => text.split("`").map((piece, k) => (k % 2 ? h("code", {}, piece) : piece));
const titleOf = (method) => page.catalog?.signals.find((one) => one.name === method)?.title.split(":")[0] || method;
const visible = () => Boolean(page.box?.offsetWidth);

function say(text, kind = "") {
  const box = part("say");
  box.textContent = text;
  box.className = `sva-say svp-note${kind === "error" ? " svp-error" : ""}`;
  box.setAttribute("role", kind === "error" ? "alert" : "status");
}

// --- the run that is shown, and those that wrote the same ---

async function load(id) {
  if (!id || !visible()) return;
  const ticket = ++page.ticket;
  const fresh = id !== page.id;
  page.id = id;
  if (fresh) {
    page.docs = new Map();
    page.notes = [];
    stopFeeds();
  }
  drawChooser();
  try {
    const doc = await getJson(`api/attribution/runs/${encodeURIComponent(id)}`);
    if (ticket !== page.ticket) return;
    if (doc.state !== "done") {
      say(
        doc.state === "queued"
          ? `Waiting: ${plural(doc.ahead, "run")} before this one.`
          : "The answer is being written; its links are drawn when it is over.",
      );
      follow(id, () => load(id));
      page.view.host.hidden = true;
      return drawSignals();
    }
    say(doc.error, doc.error ? "error" : "");
    keep(doc);
    draw();
    const signals = new Set([...page.catalog.signals.map((one) => one.name), "pld"]);
    const more = doc.others.filter(
      (one) => signals.has(one.method) && !has(one.method) && !page.waiting.has(one.method),
    );
    const found = await Promise.all(
      more.map((one) => getJson(`api/attribution/runs/${encodeURIComponent(one.id)}`).catch(() => null)),
    );
    if (ticket !== page.ticket) return;
    for (const other of found) if (other?.views) keep(other);
    draw();
    page.box.dataset.ready = id;
  } catch (problem) {
    if (ticket !== page.ticket) return;
    say(problem.message, "error");
    page.view.host.hidden = true;
    page.box.dataset.ready = id;
  }
}

const has = (method) => [...page.docs.values()].some((doc) => doc.method === method);

/** One run per method; the one that was opened stays. */
function keep(doc) {
  for (const [id, had] of page.docs) if (had.method === doc.method && id !== page.id) page.docs.delete(id);
  if (doc.id === page.id || !has(doc.method)) page.docs.set(doc.id, doc);
}

/** The run that was opened first, then the signals in their order. */
function ordered() {
  const order = page.catalog.signals.map((one) => one.name);
  const rank = (doc) => (doc.id === page.id ? -1 : order.includes(doc.method) ? order.indexOf(doc.method) : 99);
  return [...page.docs.values()].sort((a, b) => rank(a) - rank(b));
}

function draw() {
  if (!page.docs.size) return;
  const docs = ordered();
  page.view.host.hidden = false;
  const had = page.chosen && docs.findIndex((doc) => doc.id === page.chosen);
  page.view.load(docs, { minRun: page.minRun, counted: page.counted, active: Math.max(0, had || 0) });
  drawSignals();
  drawExports();
}

/** Calls done(event) when a run is over. One connection after another, as the runs are done: a browser has six. */
function follow(id, done) {
  if (page.feeds.has(id)) return;
  page.feeds.set(id, done);
  if (page.feeds.size === 1) listen();
}

function listen() {
  const [id, done] = page.feeds.entries().next().value || [];
  if (!id) return;
  const source = (page.source = new EventSource(`api/live/${encodeURIComponent(id)}?after=-1`));
  const end = (event) => {
    source.close();
    if (source !== page.source) return;
    page.feeds.delete(id);
    listen();
    done(event);
  };
  source.onmessage = (message) => {
    const event = JSON.parse(message.data);
    if (event.done) end(event);
  };
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) end({});
  };
}

function stopFeeds() {
  page.source?.close();
  page.source = null;
  page.feeds.clear();
  page.waiting.clear();
}

/** Runs that end with this page. */
const start = async (asked) => postJson("api/attribution/start", { ...asked, session: await app.session() });

/** Runs of other signals over the answer that is shown. */
async function add(names) {
  try {
    await begun(await start({ trace: page.id, signals: names }));
  } catch (problem) {
    page.notes = [problem.message];
    drawSignals();
  }
}

function begun({ runs, notes }) {
  page.notes = notes;
  const shown = page.id;
  for (const { method, id } of runs) {
    page.waiting.set(method, id);
    follow(id, async (event) => {
      if (page.id !== shown) return;
      page.waiting.delete(method);
      try {
        const doc = event.started === false ? null : await getJson(`api/attribution/runs/${encodeURIComponent(id)}`);
        if (doc?.views && page.id === shown) keep(doc);
        if (event.error || doc?.error) page.notes.push(`${titleOf(method)}: ${event.error || doc.error}`);
      } catch (problem) {
        page.notes.push(problem.message);
      }
      draw();
      refreshRuns();
    });
  }
  drawSignals();
}

/** A button per signal that is not there yet; those that cannot run say what makes their parts. */
function drawSignals() {
  const { catalog } = page;
  const left = catalog.signals.filter((one) => !has(one.name));
  const can = left.filter((one) => !one.missing && !page.waiting.has(one.name));
  const none = catalog.reason || !page.docs.size;
  const box = part("signals");
  const busy = [...page.waiting.keys()].map((name) =>
    h(
      "span",
      { class: "sva-busy", role: "status" },
      h("i", { class: "svp-spin", "aria-hidden": "true" }),
      titleOf(name),
    ),
  );
  const one = (signal) =>
    h(
      "button",
      {
        type: "button",
        class: "svp-button",
        title: signal.missing || signal.tells,
        disabled: Boolean(none || signal.missing),
        onclick: () => add([signal.name]),
      },
      `+ ${signal.title.split(":")[0]}`,
    );
  const all =
    can.length > 1
      ? h(
          "button",
          {
            type: "button",
            class: "svp-button svp-call",
            disabled: Boolean(none),
            onclick: () => add(can.map((signal) => signal.name)),
          },
          `+ all ${can.length}`,
        )
      : null;
  const missing = left.filter((signal) => signal.missing);
  const notes = [
    ...missing.map((signal) => h("p", {}, h("b", {}, `${signal.title.split(":")[0]}: `), coded(signal.missing))),
    ...page.notes.map((text) => h("p", { class: "sva-bad" }, coded(text))),
  ];
  const waits = left.filter((signal) => !page.waiting.has(signal.name));
  box.replaceChildren(
    ...(waits.length || busy.length ? [h("span", { class: "sva-label" }, "Other signals on this answer")] : []),
    ...waits.map(one),
    all || "",
    ...busy,
    catalog.reason && waits.length ? h("span", { class: "sva-soft" }, coded(catalog.reason)) : "",
    ...notes,
  );
  box.hidden = !box.childElementCount;
}

function drawExports() {
  const others = ordered()
    .slice(1)
    .map((doc) => doc.id)
    .join(",");
  const chosen = page.chosen || page.id;
  const address = (format) => {
    const key = format === "html" ? page.id : chosen;
    const asked = new URLSearchParams({ format, min_run: page.minRun, counted: page.counted });
    if (format === "html" && others) asked.set("others", others);
    return `api/attribution/runs/${encodeURIComponent(key)}/download?${asked}`;
  };
  const link = (format, text, title) =>
    h("a", { class: "svp-button", href: address(format), download: "", title, "data-format": format }, text);
  part("exports").replaceChildren(
    link("html", "HTML", "One page with all signals that works from disk, without a request"),
    link("json", "JSON", "The spans shown, with character offsets"),
    link("markdown", "Markdown", "The answer with footnotes"),
  );
}

function drawChooser() {
  const select = part("runs");
  const groups = new Map();
  for (const run of app.runs) {
    if (!groups.has(run.kind)) groups.set(run.kind, []);
    groups.get(run.kind).push(h("option", { value: run.id }, [run.title, run.method].filter(Boolean).join(" · ")));
  }
  const parts = [...groups].map(([kind, options]) => h("optgroup", { label: KINDS[kind] || kind }, options));
  if (!app.runs.some((run) => run.id === page.id))
    parts.unshift(
      h("option", { value: page.id, disabled: true }, page.id ? "A run from a link" : "No recorded run yet"),
    );
  select.replaceChildren(...parts);
  select.value = page.id;
}

// --- an answer of one's own ---

function chosenSignals(box) {
  return [...box.querySelectorAll(".sva-checks input:checked")].map((input) => input.value);
}

function checks(group) {
  const { catalog } = page;
  const usual = (stored.get("signals") || "pld+h").split(",");
  return h(
    "fieldset",
    { class: "sva-checks" },
    h("legend", {}, "Signals"),
    catalog.signals.map((signal) => {
      const input = h("input", {
        type: "checkbox",
        name: `sva-${group}`,
        value: signal.name,
        disabled: Boolean(signal.missing),
      });
      input.checked = !signal.missing && usual.includes(signal.name);
      return h(
        "label",
        { class: "sva-check", title: signal.missing || signal.tells },
        input,
        ` ${signal.title.split(":")[0]}`,
        signal.missing ? h("small", {}, " not available") : null,
      );
    }),
  );
}

/** The signals of a form as they were last chosen. */
const choices = (name) => part(name).querySelector(".sva-checks").replaceWith(checks(name));

const area = (name, label, rows, value, hint) =>
  h(
    "label",
    { class: "sva-field" },
    h("span", {}, label),
    h("textarea", { name, rows, placeholder: hint || null, spellcheck: "false" }, value || ""),
  );

function answerForm() {
  const write = h("input", { type: "checkbox", name: "write" });
  const answer = area("answer", "Answer", 5, SAMPLE.answer, "The text to attribute, as it stands.");
  const text = answer.querySelector("textarea");
  write.addEventListener("change", () => {
    text.disabled = write.checked;
  });
  const go = h("button", { type: "submit", class: "svp-button sva-go" }, "Attribute");
  const bad = h("p", { class: "svp-note", role: "status" });
  const box = h(
    "form",
    { class: "sva-form", "aria-label": "An answer of your own" },
    h(
      "div",
      { class: "sva-two" },
      area("context", "Sources", 9, SAMPLE.context, "The passages. Put --- on a line of its own between two."),
      h(
        "div",
        { class: "sva-stack" },
        area("question", "Question", 1, SAMPLE.question),
        answer,
        h("label", { class: "sva-check" }, write, " The model writes the answer instead"),
      ),
    ),
    h("div", { class: "sva-row" }, checks("own"), go),
    bad,
  );
  box.addEventListener("submit", async (event) => {
    event.preventDefault();
    const value = (name) => box.elements[name].value;
    const signals = chosenSignals(box);
    const asked = {
      signals,
      form: {
        instruction: "Answer the question with quotes from the passages.",
        context: value("context"),
        question: value("question"),
      },
    };
    if (write.checked) asked.max_new_tokens = 256;
    else asked.answer = value("answer");
    await starting(go, bad, async () => {
      stored.set("signals", signals.join(","));
      const found = await start(asked);
      if (write.checked && signals.length > 1) page.then = { id: found.runs[0].id, signals: signals.slice(1) };
      show(found);
    });
  });
  return box;
}

async function starting(button, bad, work) {
  button.disabled = true;
  bad.textContent = "";
  bad.className = "svp-note";
  try {
    await work();
  } catch (problem) {
    bad.textContent = problem.message;
    bad.className = "svp-note svp-error";
    bad.setAttribute("role", "alert");
  }
  button.disabled = false;
}

/** Opens the first of the runs that were started; the others are its further signals. */
function show({ runs, notes }) {
  const [first, ...rest] = runs;
  page.chosen = "";
  page.id = first.id;
  page.docs = new Map();
  stopFeeds();
  follow(first.id, async (event) => {
    refreshRuns();
    if (page.id !== first.id) return;
    if (event.started === false) return say(event.error || "The run could not begin.", "error");
    await load(first.id);
    if (page.then?.id === first.id) add(page.then.signals);
    page.then = null;
  });
  begun({ runs: rest, notes });
  say("Attributing …");
  page.opening = first.id;
  open(first.id);
  toggle("");
  part("head").scrollIntoView({ block: "start" });
}

// --- known quotes ---

function scoreForm() {
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

function drawScores() {
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

// --- the page ---

function toggle(name) {
  page.panel = page.panel === name ? "" : name;
  if (page.panel) choices(page.panel);
  for (const one of ["own", "quotes"]) {
    part(one).hidden = page.panel !== one;
    page.box.querySelector(`[data-opens="${one}"]`).setAttribute("aria-expanded", String(page.panel === one));
  }
}

function frame() {
  const opens = (name, text) =>
    h(
      "button",
      {
        type: "button",
        class: "svp-button",
        "data-opens": name,
        "aria-expanded": "false",
        onclick: () => toggle(name),
      },
      text,
    );
  const host = h("div", { class: "sva-host" });
  page.box.replaceChildren(
    h(
      "div",
      { class: "sva-head" },
      h("select", {
        class: "svp-select sva-runs",
        "aria-label": "Run to attribute",
        onchange: (event) => {
          page.chosen = "";
          open(event.target.value);
        },
      }),
      opens("own", "Attribute a text"),
      opens("quotes", "Score quotes"),
      h("span", { class: "sva-exports", role: "group", "aria-label": "Export" }),
    ),
    h("section", { class: "sva-own sva-card", hidden: true }),
    h("section", { class: "sva-quotes sva-card", hidden: true }),
    h("p", { class: "sva-say svp-note", role: "status" }),
    h("div", { class: "sva-signals", hidden: true }),
    host,
  );
  part("own").append(answerForm());
  part("quotes").append(scoreForm(), h("div", { class: "sva-scores" }));
  page.view = new Attribution(host);
  page.view.on("change", ({ minRun, counted, active }) => {
    Object.assign(page, { minRun, counted, chosen: ordered()[active]?.id });
    drawExports();
    address();
  });
}

let later = 0;
function address() {
  clearTimeout(later);
  later = setTimeout(() => {
    if (app.tab !== "attribution") return;
    const url = new URL(location.href);
    url.searchParams.set("min_run", String(page.minRun));
    url.searchParams.set("counted", page.counted);
    history.replaceState(history.state, "", url);
  }, 150);
}

async function begin() {
  const asked = new URLSearchParams(location.search);
  const n = Number.parseInt(asked.get("min_run") || "", 10);
  if (n >= 1 && n <= 10000) page.minRun = n;
  if (asked.get("counted") in MODES) page.counted = asked.get("counted");
  try {
    page.catalog = await getJson("api/attribution");
  } catch (problem) {
    page.box.replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
    return;
  }
  frame();
  if (app.current) load(app.current);
  else {
    toggle("own");
    page.box.dataset.ready = "none";
  }
}

/** What can be chosen, again: the model has loaded, or went. */
async function again() {
  if (!page.catalog) return;
  try {
    page.catalog = await getJson("api/attribution");
  } catch {
    return;
  }
  for (const name of ["own", "quotes"]) choices(name);
  drawSignals();
}

export function mount({ element }) {
  app.pages.attribution = page;
  page.box = element.querySelector(".svp-attribution");
  page.box.replaceChildren(h("p", { class: "svp-empty" }, "Looking for links …"));
  let was = false;
  new ResizeObserver(() => {
    const now = visible();
    if (now && !page.seen) begin();
    else if (now && !was && page.view && !page.opening && !(app.current === page.id && page.docs.has(page.id)))
      load(app.current);
    page.seen ||= now;
    was = now;
  }).observe(page.box);
  on("current", (id) => {
    if (id === page.opening) page.opening = "";
    else if (page.view && id !== page.id) load(id);
  });
  on("runs", () => {
    if (page.view) drawChooser();
  });
  on("model", again);
  new MutationObserver(() => {
    if (page.scoring?.told) drawScores();
  }).observe(document.body, { attributeFilter: ["class"] });
}
