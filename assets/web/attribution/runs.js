/* Page "Attribution", the run that is shown: its links, the signals that found them, the exports. */

import { choices } from "specviz/attribution/forms.js";
import { page, part, say, titleOf, visible } from "specviz/attribution/state.js";
import { coded, h, plural } from "specviz/base/dom.js";
import { getJson, postJson } from "specviz/base/json.js";
import { open } from "specviz/shell/open.js";
import { KINDS, refreshRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";

export async function load(id) {
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
export function ordered() {
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
export const start = async (asked) => postJson("api/attribution/start", { ...asked, session: await app.session() });

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
export function drawSignals() {
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

export function drawExports() {
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

export function drawChooser() {
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

/** Opens the first of the runs that were started; the others are its further signals. */
export function show({ runs, notes }) {
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

export function toggle(name) {
  page.panel = page.panel === name ? "" : name;
  if (page.panel) choices(page.panel);
  for (const one of ["own", "quotes"]) {
    part(one).hidden = page.panel !== one;
    page.box.querySelector(`[data-opens="${one}"]`).setAttribute("aria-expanded", String(page.panel === one));
  }
}

let later = 0;

export function address() {
  clearTimeout(later);
  later = setTimeout(() => {
    if (app.tab !== "attribution") return;
    const url = new URL(location.href);
    url.searchParams.set("min_run", String(page.minRun));
    url.searchParams.set("counted", page.counted);
    history.replaceState(history.state, "", url);
  }, 150);
}
