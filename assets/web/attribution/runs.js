/* Page "Attribution", the run that is shown: its links, the signals that found them, the exports. */

import { choices } from "specviz/attribution/forms.js";
import { page, part, say, titleOf, visible } from "specviz/attribution/state.js";
import { coded, find, h, must, replace, rested } from "specviz/base/dom.js";
import { getJson, listen, postJson, sentence } from "specviz/base/json.js";
import { plural, short } from "specviz/base/numbers.js";
import { offerModel } from "specviz/shell/made_with.js";
import { setAddress } from "specviz/shell/address.js";
import { open } from "specviz/shell/open.js";
import { fillRuns, isGone, refreshRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";

/** @type {(id: string) => Promise<AttributedRun | WaitingRun>} */
const getRun = (id) => getJson(`api/attribution/runs/${encodeURIComponent(id)}`);

/** The catalog and the view: both are there once the page has its frame. */
const catalog = () => must(page.catalog, "catalog");
const view = () => must(page.view, "view");

/** Shows a run's attribution, beside those of other runs that wrote the same. @param {string} id */
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
  if (fresh) offerModel(part("made"), id);
  try {
    const doc = await getRun(id);
    if (ticket !== page.ticket) return;
    if (doc.state !== "done") {
      say(
        doc.state === "queued"
          ? `Waiting: ${plural(doc.ahead, "run")} before this one.`
          : "The answer is being written; its links are drawn when it is over.",
      );
      follow(id, () => load(id));
      view().host.hidden = true;
      return drawSignals();
    }
    say(doc.error, Boolean(doc.error));
    keep(doc);
    draw();
    /** @type {(one: {method: string, id: string}) => boolean} */
    const lacks = ({ method, id }) => !has(method) && !page.waiting.has(method) && !isGone(id);
    const more = doc.others.filter(lacks);
    const others = await Promise.all(more.map((one) => getRun(one.id).catch(() => null)));
    if (ticket !== page.ticket) return;
    for (const other of others) if (other?.views) keep(other);
    draw();
    page.box.dataset.ready = id;
  } catch (problem) {
    if (ticket !== page.ticket) return;
    say(sentence(problem), true);
    view().host.hidden = true;
    page.box.dataset.ready = id;
  }
}

/** @param {string} method */
const has = (method) => [...page.docs.values()].some((doc) => doc.method === method);

/** One run per method; the one that was opened stays. @param {AttributedRun} doc */
function keep(doc) {
  for (const [id, had] of page.docs) if (had.method === doc.method && id !== page.id) page.docs.delete(id);
  if (doc.id === page.id || !has(doc.method)) page.docs.set(doc.id, doc);
}

/** The run that was opened first, then the signals in their order. */
export function ordered() {
  const order = catalog().signals.map((one) => one.name);
  /** @type {(doc: AttributedRun) => number} */
  const rank = (doc) => (doc.id === page.id ? -1 : order.includes(doc.method) ? order.indexOf(doc.method) : 99);
  return [...page.docs.values()].sort((a, b) => rank(a) - rank(b));
}

/** The recorded answers about documents, as buttons. */
function drawDocuments() {
  const buttons = catalog().documents.map(({ id, title }) => {
    const pressed = { "aria-pressed": String(id === page.id), onclick: () => open(id) };
    return h("button.svp-button", pressed, title.charAt(0).toUpperCase() + title.slice(1));
  });
  part("documents").replaceChildren(...(buttons.length ? [h("span.ui-soft", "Answers about")] : []), ...buttons);
}

function draw() {
  if (!page.docs.size) return;
  const docs = ordered();
  view().host.hidden = false;
  const active = Math.max(0, docs.findIndex((doc) => doc.id === page.chosen));
  view().load(docs, { minRun: page.minRun, minBits: page.minBits, counted: page.counted, active });
  drawSignals();
  drawDocuments();
}

/** Calls done(event) when a run is over. One connection after another, as the runs are done: a browser has six. */
/** @type {(id: string, done: (event: Partial<LiveEvent>) => void) => void} */
function follow(id, done) {
  if (page.feeds.has(id)) return;
  page.feeds.set(id, done);
  if (page.feeds.size === 1) next();
}

function next() {
  const [first] = page.feeds;
  if (!first) return;
  const [id, done] = first;
  /** @param {Partial<LiveEvent>} event */
  const end = (event) => {
    source.close();
    if (source !== page.source) return;
    page.feeds.delete(id);
    next();
    done(event);
  };
  const source = (page.source = listen(id, -1, (event) => event.done && end(event), () => end({})));
}

function stopFeeds() {
  page.source?.close();
  page.source = null;
  page.feeds.clear();
  page.waiting.clear();
}

/** Runs that end with this page. @type {(asked: object) => Promise<StartedSignals>} */
export const start = async (asked) => postJson("api/attribution/start", { ...asked, session: await app.session() });

/** Runs of other signals over the answer that is shown. @param {string[]} names */
async function add(names) {
  try {
    await begun(await start({ trace: page.id, signals: names }));
  } catch (problem) {
    page.notes = [sentence(problem)];
    drawSignals();
  }
}

/** @param {StartedSignals} started */
function begun({ runs, notes }) {
  page.notes = notes;
  const shown = page.id;
  for (const { method, id } of runs) {
    page.waiting.set(method, id);
    follow(id, async (event) => {
      if (page.id !== shown) return;
      page.waiting.delete(method);
      try {
        const doc = event.started === false ? null : await getRun(id);
        if (doc?.views && page.id === shown) keep(doc);
        const error = event.error || (doc?.views && doc.error);
        if (error) page.notes.push(`${titleOf(method)}: ${error}`);
      } catch (problem) {
        page.notes.push(sentence(problem));
      }
      draw();
      refreshRuns();
    });
  }
  drawSignals();
}

/** A button per signal that is not there yet; those that cannot run say what makes their parts. */
export function drawSignals() {
  const { reason, signals } = catalog();
  const left = signals.filter((one) => !has(one.name));
  const can = left.filter((one) => !one.missing && !page.waiting.has(one.name));
  const none = reason || !page.docs.size;
  const box = part("signals");
  const busy = [...page.waiting.keys()].map((name) =>
    h("span.ui-check.ui-soft", { role: "status" }, h("i.svp-spin", { "aria-hidden": "true" }), titleOf(name)),
  );
  /** @type {(text: string, added: SignalCard[], attributes: Attributes<HTMLButtonElement>) => HTMLElement} */
  const adding = (text, added, attributes) => {
    const begin = () => add(added.map((signal) => signal.name));
    return h("button.svp-button", { disabled: Boolean(none), onclick: begin, ...attributes }, text);
  };
  /** @param {SignalCard} signal */
  const one = (signal) => {
    const { title, missing, tells } = signal;
    return adding(`+ ${short(title)}`, [signal], { title: missing || tells, disabled: Boolean(none || missing) });
  };
  const missing = left.filter((signal) => signal.missing);
  const waits = left.filter((signal) => !page.waiting.has(signal.name));
  replace(box, [
    (waits.length > 0 || busy.length > 0) && h("span.ui-soft", "Other signals on this answer"),
    waits.map(one),
    can.length > 1 && adding(`+ all ${can.length}`, can, { class: "svp-call" }),
    busy,
    waits.length > 0 && reason && h("span.ui-soft", coded(reason)),
    missing.map((signal) => h("p", h("b", `${short(signal.title)}: `), coded(signal.missing))),
    page.notes.map((text) => h("p.sva-bad", coded(text))),
  ]);
  box.hidden = !box.childElementCount;
}

/** What is shown as files: the entries of the menu. */
export function downloads() {
  const others = ordered().slice(1).map((doc) => doc.id).join(",");
  const chosen = page.chosen || page.id;
  /** @param {string} format */
  const address = (format) => {
    const key = format === "html" ? page.id : chosen;
    const numbers = { min_run: String(page.minRun), min_bits: String(page.minBits) };
    const asked = new URLSearchParams({ format, ...numbers, counted: page.counted });
    if (format === "html" && others) asked.set("others", others);
    return `api/attribution/runs/${encodeURIComponent(key)}/download?${asked}`;
  };
  /** @type {(format: string, label: string, about: string) => import("specviz/ui/menu.js").Item} */
  const entry = (format, label, about) => ({ label, about, href: address(format) });
  return [
    entry("html", "Web page (HTML)", "All signals; it works from disk, without a request."),
    entry("json", "JSON", "The spans shown, with character offsets."),
    entry("csv", "Table (CSV)", "The spans shown, with their rarity."),
    entry("markdown", "Markdown", "The answer with footnotes."),
  ];
}

/** The recorded runs, by kind. */
const drawChooser = () => fillRuns(find(page.box, ".sva-runs", HTMLSelectElement), page.id);

/** The list has changed: what was deleted is drawn no more. */
export function drawRuns() {
  drawChooser();
  const gone = [...page.docs.keys()].filter((id) => id !== page.id && isGone(id));
  for (const id of gone) page.docs.delete(id);
  if (gone.length) draw();
}

/** Opens the first of the runs that began; the others are its further signals. @param {StartedSignals} started */
export function show({ runs, notes }) {
  const [first, ...rest] = runs;
  page.chosen = "";
  page.id = first.id;
  page.docs = new Map();
  offerModel(part("made"), first.id);
  stopFeeds();
  follow(first.id, async (event) => {
    refreshRuns();
    if (page.id !== first.id) return;
    if (event.started === false) return say(event.error || "The run could not begin.", true);
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

/** Unfolds a form ("own", "quotes"), or folds it away. @param {string} name */
export function toggle(name) {
  page.panel = page.panel === name ? "" : name;
  if (page.panel) choices(page.panel);
  for (const one of ["own", "quotes"]) {
    part(one).hidden = page.panel !== one;
    find(page.box, `[data-opens="${one}"]`).setAttribute("aria-expanded", String(page.panel === one));
  }
}

/** Keeps the threshold in the address, a moment after the last change. */
export const address = rested(() => {
  if (app.tab !== "attribution") return;
  setAddress({ min_run: String(page.minRun), bits: page.minBits ? String(page.minBits) : null, counted: page.counted });
}, 150);
