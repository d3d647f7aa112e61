/* The library of runs: searched, sorted, tagged, renamed, kept, deleted. */

import { on } from "specviz/base/bus.js";
import { h, replace, table } from "specviz/base/dom.js";
import { postJson, sentence } from "specviz/base/json.js";
import { mean, plural, short, times, when } from "specviz/base/numbers.js";
import { ENDS } from "specviz/base/terms.js";
import { safe } from "specviz/base/text.js";
import { FIRST } from "specviz/shell/early.js";
import { open } from "specviz/shell/open.js";
import { KINDS, isGone, leave, refreshRuns, variant } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";

/** What is made of selected runs. @typedef {"race" | "acceptance" | "difference"} Look */
/** @typedef {{ids: string[], title?: string, add?: string[], drop?: string[], keep?: boolean}} RunChange */

const PAGE = 200; // rows drawn at a time
const UNDO_MS = 10000; // within which what was deleted can be taken back
const JSON_TYPE = { type: "application/json" };
const NO_RUNS = "There is no recorded run yet: write a prompt and press Run.";

const MOST_LANES = 5; // that Compare shows
const PROMPT = "Select runs of one prompt";
const MIB = 1 << 20;

/** @param {number} bytes */
const size = (bytes) =>
  bytes < MIB ? `${Math.max(1, Math.round(bytes / 1024))} KiB` : `${(bytes / MIB).toFixed(1)} MiB`;
/** @type {(value: number | null | undefined, text: (value: number) => string) => string} */
const told = (value, text) => (value === null || value === undefined ? "" : text(value));
/** @param {RunRecord} run */
const ended = (run) => (run.kind === "live" ? run.state : ENDS[run.stop ?? ""] ?? run.stop) || "";
/** @param {number} count */
const whole = (count) => count.toFixed(0);

/**
 * A column: its classes, its text, and what sorts it (text from A on, numbers from the highest).
 *
 * @typedef {{ key: string, head: string, kind: string, text: (run: RunRecord) => string,
 *   by: (run: RunRecord) => string | number }} Column
 */
/** @type {(key: string, head: string, text: (run: RunRecord) => string) => Column} */
const words = (key, head, text) => ({ key, head, kind: `svr-${key}`, text, by: (run) => text(run).toLowerCase() });
/** @type {(key: string, head: string, by: (run: RunRecord) => number | null | undefined,
 *   text: (value: number) => string) => Column} */
const numbers = (key, head, by, text) => ({
  key, head, kind: `svp-num svr-${key}`, text: (run) => told(by(run), text), by: (run) => by(run) ?? -1,
});
/** @type {Column[]} */
const COLUMNS = [
  words("title", "Run", (run) => safe(run.title)),
  words("method", "Method", (run) => short(run.method || "") + variant(run)),
  words("model", "Model", (run) => run.model || ""),
  numbers("tokens", "Tokens", (run) => run.tokens, whole),
  numbers("steps", "Steps", (run) => run.steps, whole),
  numbers("per", "Tokens/step", (run) => run.tokens_per_step, mean),
  numbers("speedup", "Speedup", (run) => run.speedup, times),
  words("ended", "Ended", ended),
  numbers("size", "Size", (run) => run.bytes, size),
  { ...words("when", "When", (run) => when(run.created, "short")), by: (run) => +new Date(run.created) || 0 },
];

/**
 * What a search asks for: a test per word, and the words that any text may hold; method:, model: and tag: look in their
 * place, "a b" is one word.
 *
 * @param {string} text @returns {{ test: (run: RunRecord) => boolean, words: string[] }}
 */
function wanted(text) {
  /** @type {((run: RunRecord) => boolean)[]} */
  const tests = [];
  /** @type {string[]} */
  const words = [];
  for (const [, name, quoted, plain] of text.toLowerCase().matchAll(/(?:(method|model|tag):)?(?:"([^"]*)"?|(\S+))/g)) {
    const word = quoted ?? plain;
    /** @param {...string | undefined} texts */
    const within = (...texts) => texts.join(" ").toLowerCase().includes(word);
    if (name === "method") tests.push((run) => run.method_name === word || within(run.method));
    else if (name === "model") tests.push((run) => within(run.model));
    else if (name === "tag") tests.push((run) => (run.tags || []).some((tag) => tag.startsWith(word)));
    else if (word === "lossy" || word === "lossless")
      tests.push((run) => run.kind !== "live" && !run.forced && (run.lossless === false) === (word === "lossy"));
    else if (word === "kept") tests.push((run) => Boolean(run.keep));
    else if (word) {
      words.push(word);
      /** @param {RunRecord} run */
      const listed = (run) => within(run.title, run.method, run.model, KINDS[run.kind], ...(run.tags || []));
      tests.push((run) => listed(run) || Boolean(app.runSearch?.holds(run.id, word)));
    }
  }
  return { test: (run) => tests.every((test) => test(run)), words };
}

/**
 * Fills a place with the library; ``look`` shows what selected runs have to say (``raced``: as lanes of one prompt),
 * ``show`` a run.
 *
 * @type {(box: HTMLElement, acts: { look: (what: Look, ids: string[], raced: boolean) => void,
 *   show: (id: string, at?: At) => void }) => void}
 */
export function drawLibrary(box, { look, show }) {
  const search = h("input.svp-input.svp-search", {
    type: "search",
    placeholder: "Search: words, method:pld, tag:good, kept",
    "aria-label": "Search the runs",
  });
  const room = h("span.svr-room.ui-soft");
  const problem = h("p.svp-note.svp-error.svr-problem", { role: "alert" });
  const tags = h("div.svr-tags.ui-row");
  const bar = h("div.svr-bar.ui-row.ui-box", { role: "group", "aria-label": "Selected runs", hidden: true });
  const all = h("input", { type: "checkbox", "aria-label": "Select all runs that are shown" });
  const heads = COLUMNS.map(({ key, head, kind }) =>
    h("th", { scope: "col", class: kind }, h("button.svp-bare.svr-sort", { onclick: () => sortBy(key) }, head)),
  );
  const grid = table({ class: "ui-picked" }, [h("th.svr-check", all), heads], []);
  const [body] = grid.tBodies;
  const empty = h("p.svp-empty");
  const note = h("p.svp-note", { role: "status" });
  const further = () => {
    most += PAGE;
    draw();
  };
  const more = h("button.svp-button", { hidden: true, onclick: further });
  /** @type {Set<string>} */
  const chosen = new Set();
  /** @type {RunRecord[]} */
  let matching = [];
  let sorted = { key: "", up: false };
  let most = PAGE;
  let editing = false;
  let said = "";

  /** Names from A, numbers from the highest; then the other way, and back to the order by kind. @param {string} key */
  function sortBy(key) {
    const first = ["title", "method", "model"].includes(key);
    if (sorted.key !== key) sorted = { key, up: first };
    else sorted = sorted.up === first ? { key, up: !first } : { key: "", up: false };
    draw();
  }

  /** Returns those of the runs that were changed. @param {"change" | "delete"} what @param {RunChange} asked */
  async function act(what, asked) {
    /** @type {string[]} */
    let done = [];
    try {
      ({ done } = await postJson(`api/runs/${what}`, asked));
      const left = asked.ids.length - done.length;
      said = left ? `${left} of ${asked.ids.length} runs are not yours, or are gone: they stay as they are.` : "";
      if (what === "delete") for (const id of done) chosen.delete(id);
    } catch (error) {
      said = sentence(error);
    }
    await refreshRuns();
    draw();
    return done;
  }

  // --- one row ---

  /** A field in place of what it changes; Enter and leaving it give its text to `done`, Escape does not. */
  /** @param {HTMLInputElement} field @param {(text: string) => void} done */
  function edit(field, done) {
    editing = true;
    let over = false;
    const end = (/** @type {string | null} */ text) => {
      if (over) return;
      over = true;
      editing = false;
      if (text === null) draw();
      else done(text);
    };
    field.addEventListener("click", (event) => event.stopPropagation());
    field.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") end(field.value.trim());
      else if (event.key === "Escape") end(null);
    });
    field.addEventListener("blur", () => end(field.value.trim() || null));
    field.focus();
    field.select();
  }

  /** @param {RunRecord} run @param {HTMLElement} cell */
  function rename(run, cell) {
    const field = h("input.svp-input", { maxlength: 200, "aria-label": "Title", value: run.title });
    cell.replaceChildren(field);
    edit(field, (title) => (title && title !== run.title ? act("change", { ids: [run.id], title }) : draw()));
  }

  /** @param {string[]} ids @param {HTMLElement} at */
  function addTag(ids, at) {
    const field = h("input.svp-input.svr-newtag", { maxlength: 30, placeholder: "tag", "aria-label": "New tag" });
    at.append(field);
    edit(field, (text) => (text ? act("change", { ids, add: text.split(/[\s,]+/).filter(Boolean) }) : draw()));
  }

  /** @param {string} tag */
  function filterBy(tag) {
    const word = `tag:${tag}`;
    const words = search.value.split(/\s+/).filter(Boolean);
    search.value = (words.includes(word) ? words.filter((w) => w !== word) : [...words, word]).join(" ");
    most = PAGE;
    draw();
  }

  const quiet = (/** @type {() => void} */ fn) => (/** @type {Event} */ event) => {
    event.stopPropagation();
    fn();
  };

  /** A tag: shows its runs alone; one's own can be taken away. @type {(run: RunRecord, tag: string) => Child} */
  function tagOf(run, tag) {
    const only = { title: `Only runs tagged ${tag}`, onclick: quiet(() => filterBy(tag)) };
    const drop = quiet(() => act("change", { ids: [run.id], drop: [tag] }));
    const remove = h("button", { "aria-label": `Remove the tag ${tag}`, onclick: drop }, "×");
    return h("span.svr-tag", h("button", only, tag), run.mine && remove);
  }

  /** @param {RunRecord} run */
  function row(run) {
    const { id, title, keep } = run;
    const go = () => show(id);
    const check = h("input", {
      type: "checkbox",
      "aria-label": `Select ${title}`,
      disabled: run.kind === "live",
      checked: chosen.has(id),
      onchange: ({ currentTarget }) => {
        chosen[currentTarget.checked ? "add" : "delete"](id);
        said = "";
        drawBar();
      },
    });
    const chips = h("span.svr-chips.ui-row", (run.tags || []).map((tag) => tagOf(run, tag)));
    /** @type {(mark: string, label: string, fn: () => void, more?: object) => HTMLElement} */
    const button = (mark, label, fn, more) => {
      const told = { title: label, "aria-label": `${label}: ${title}`, ...more };
      return h("button.svr-act", { ...told, onclick: quiet(fn) }, mark);
    };
    const kept = keep ? "Kept: it is not removed to make room" : "Keep: never remove it to make room";
    const change = () => act("change", { ids: [id], keep: !keep });
    const removeIt = () => {
      chosen.clear();
      chosen.add(id);
      remove();
    };
    const acts = run.mine && [
      button(keep ? "★ Kept" : "Keep", kept, change, { "aria-pressed": String(Boolean(keep)) }),
      button("Tag", "Add a tag", () => addTag([id], chips)),
      button("Rename", "Rename", () => rename(run, name)),
      button("Delete", "Delete", removeIt),
    ];
    const link = h("button.svp-link", { title }, title);
    /** @type {HTMLElement} */
    const name = h("td.svr-title", h("span.svr-name", link, chips, acts && h("span.svr-acts", acts)));
    return h(
      "tr",
      { class: id === app.current && "svp-now", "data-id": id, onclick: go },
      h("td.svr-check", { onclick: quiet(() => {}) }, check),
      name,
      COLUMNS.slice(1).map(({ kind, text }) => h("td", { class: kind, title: text(run) }, text(run))),
    );
  }

  // --- what is done with several ---

  const barButton = (/** @type {string} */ text, /** @type {() => void} */ fn, kind = "") =>
    h("button", { class: `svp-button ${kind}`, onclick: () => fn() }, text);

  // what was deleted leaves the list at once and the server a little later, so that it can be taken back
  const gone = h("div.svr-bar.svr-gone.ui-row.ui-box", { role: "status", hidden: true });
  /** @type {Set<string>} */
  const leaving = new Set();
  let timer = 0;

  /** What leaves is deleted now; ``last``: the page goes, too. @param {boolean} [last] */
  async function deleteNow(last) {
    clearTimeout(timer);
    const ids = [...leaving];
    if (!ids.length) return;
    gone.hidden = true;
    if (last) return navigator.sendBeacon("api/runs/delete", new Blob([JSON.stringify({ ids })], JSON_TYPE));
    leaving.clear();
    const done = await act("delete", { ids });
    leave(ids.filter((id) => !done.includes(id)), true); // the others stay away, however old the list is
    if (isGone(app.current)) open(FIRST);
  }

  function remove() {
    const ids = app.runs.filter((run) => run.mine && chosen.has(run.id)).map((run) => run.id);
    const first = app.runs.find((run) => run.id === ids[0]);
    deleteNow(); // what was deleted before
    for (const id of ids) leaving.add(id);
    chosen.clear();
    const undo = () => {
      clearTimeout(timer);
      leaving.clear();
      gone.hidden = true;
      leave(ids, true);
    };
    const back = barButton("Undo", undo);
    const what = ids.length === 1 && first ? `“${first.title}”` : plural(ids.length, "run");
    gone.replaceChildren(h("span", `Deleted ${what}.`), back);
    gone.hidden = false;
    timer = setTimeout(deleteNow, UNDO_MS);
    leave(ids);
    back.focus();
  }
  addEventListener("pagehide", () => deleteNow(true));

  function drawBar() {
    const ids = [...chosen];
    const runs = app.runs.filter((run) => chosen.has(run.id));
    bar.hidden = !ids.length;
    all.checked = ids.length > 0 && matching.every((run) => run.kind === "live" || chosen.has(run.id));
    problem.textContent = said || app.room?.problem || "";
    if (!ids.length) return;
    const mine = runs.filter((run) => run.mine).map((run) => run.id);
    const kept = runs.length > 0 && runs.every((run) => run.keep || !run.mine);
    const one = new Set(runs.map((run) => run.prompt)).size === 1;
    const few = (/** @type {number} */ most) => ids.length < 2 || ids.length > most;
    /** What can be looked at, or why it cannot. */
    /** @type {(what: Look, text: string, why: string | false) => HTMLElement} */
    const looking = (what, text, why) => {
      const button = barButton(text, () => look(what, ids, one && !few(MOST_LANES)));
      button.disabled = Boolean(why);
      button.title = why || "";
      return button;
    };
    replace(bar, [
      h("span", `${plural(ids.length, "run")} selected`),
      looking("race", "Compare", few(MOST_LANES) ? `Select 2 to ${MOST_LANES} runs` : !one && PROMPT),
      looking("acceptance", "Acceptance", runs.every((run) => run.forced) && "Nothing is decided over a given answer"),
      looking("difference", "Difference", few(2) ? "Select two runs" : !one && PROMPT),
      mine.length > 0 && [
        h("i.svr-between"),
        barButton("Add tag", () => addTag(mine, bar)),
        barButton(kept ? "Do not keep" : "Keep", () => act("change", { ids: mine, keep: !kept })),
        barButton(mine.length < ids.length ? `Delete ${mine.length} of yours` : "Delete", remove, "svr-danger"),
      ],
      barButton("Clear selection", () => {
        chosen.clear();
        draw();
      }),
    ]);
  }

  all.addEventListener("change", () => {
    for (const run of matching) if (run.kind !== "live") chosen[all.checked ? "add" : "delete"](run.id);
    draw();
  });

  function drawRoom() {
    if (!app.room) return;
    const { count, others, max_count, bytes, max_bytes } = app.room;
    const mib = `${Math.ceil(bytes / (1 << 20))} of ${max_bytes >> 20} MiB`;
    const own = count > others ? `${plural(count - others, "run")} of yours` : "No run of yours yet";
    const text = `${own}${others ? ` · ${others} not listed` : ""} · room: ${count} of ${max_count} runs, ${mib}`;
    const share = Math.min(100, 100 * Math.max(count / max_count, bytes / max_bytes));
    room.replaceChildren(text, h("i.ui-bar", { "aria-hidden": "true" }, h("b", { style: `width: ${share}%` })));
    room.title = "When it is full, the runs that were not looked at for longest make room; kept runs (★) stay. " +
      "Runs behind results of other pages, and other users', take room without being listed.";
  }

  function draw() {
    if (editing) return; // drawn when the field is left
    const there = new Set(app.runs.filter((run) => run.kind !== "live").map((run) => run.id));
    for (const id of chosen) if (!there.has(id)) chosen.delete(id);
    const { test, words } = wanted(search.value);
    matching = app.runs.filter(test);
    const by = COLUMNS.find(({ key }) => key === sorted.key)?.by;
    const way = sorted.up ? 1 : -1;
    if (by) matching = [...matching].sort((a, b) => (by(a) < by(b) ? -way : by(a) > by(b) ? way : 0));
    heads.forEach((head, k) => {
      const order = COLUMNS[k].key === sorted.key && (sorted.up ? "ascending" : "descending");
      head.ariaSort = order || null;
    });
    const rows = [];
    let kind = "", title = "";
    for (const run of matching.slice(0, most)) {
      if (!by && run.kind !== kind) {
        kind = run.kind;
        rows.push(h("tr.svp-kind", h("th", { colspan: COLUMNS.length + 1, scope: "colgroup" }, KINDS[kind] || kind)));
      }
      rows.push(row(run));
      if (title === run.title) rows.at(-2)?.classList.add("svr-joined"); // the eye finds where another prompt begins
      title = run.title;
      const places = words.length ? app.runSearch?.places(run.id, (at) => show(run.id, at)) : null;
      if (places) rows.push(h("tr.svr-places", h("td"), h("td", { colspan: COLUMNS.length }, places)));
    }
    const same = rows.length === body.rows.length && rows.every((one, k) => one.isEqualNode(body.rows[k]));
    if (!same) body.replaceChildren(...rows);
    else for (const one of body.rows) for (const box of one.getElementsByTagName("input")) {
      box.checked = chosen.has(one.dataset.id ?? ""); // and what is being pressed stays
    }
    const used = [...new Set(app.runs.flatMap((run) => run.tags || []))].sort();
    const typed = search.value.split(/\s+/);
    const chips = used.slice(0, 30).map((tag) => {
      const on = typed.includes(`tag:${tag}`);
      const button = h("button", { "aria-pressed": String(on), onclick: () => filterBy(tag) }, tag);
      return h("span.svr-tag", { "data-on": on }, button);
    });
    tags.replaceChildren(...chips);
    more.hidden = matching.length <= most;
    more.textContent = `Show ${Math.min(PAGE, matching.length - most)} more of ${matching.length}`;
    if (matching.length) empty.textContent = "";
    else empty.textContent = app.runs.length ? "No run matches." : NO_RUNS;
    note.textContent = (words.length && app.runSearch?.note()) || "";
    grid.hidden = !matching.length;
    drawBar();
    drawRoom();
  }

  function seek() {
    most = PAGE;
    app.runSearch?.ask(wanted(search.value).words, draw);
    draw();
  }
  search.addEventListener("input", seek);
  on("runs", draw);
  on("current", draw);
  box.append(h("div.ui-row", search, room), tags, problem, note, gone, bar, h("div.ui-scroll", grid), empty, more);
  draw();
  app.entries().then(() => {
    if (!app.runSearch) return;
    search.placeholder = app.runSearch.hint;
    seek();
  });
}
