/* The library of runs: searched, sorted, tagged, renamed, kept, deleted. */

import { on } from "specviz/base/bus.js";
import { h, plural } from "specviz/base/dom.js";
import { postJson } from "specviz/base/json.js";
import { sentence } from "specviz/base/problem.js";
import { open } from "specviz/shell/open.js";
import { place } from "specviz/shell/place.js";
import { KINDS, refreshRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";
import { goTo } from "specviz/shell/tabs.js";

/** @typedef {{ids: string[], title?: string, add?: string[], drop?: string[], keep?: boolean}} RunChange */

const PAGE = 200; // rows drawn at a time

const size = (/** @type {number | undefined} */ bytes) =>
  bytes === undefined
    ? ""
    : bytes < 1 << 20 ? `${Math.max(1, Math.round(bytes / 1024))} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`;
/** @param {number | null | undefined} value @param {number} digits */
const number = (value, digits) => (value === null || value === undefined ? "" : value.toFixed(digits));
const date = (/** @type {RunRecord} */ { created }) =>
  created && !Number.isNaN(+new Date(created)) ? new Date(created) : null;
const ended = (/** @type {RunRecord} */ run) => (run.kind === "live" ? run.state : run.stop) || "";

/** @type {[key: string, heading: string, kind: string, by: (run: RunRecord) => string | number][]} what sorts them */
const COLUMNS = [
  ["title", "Run", "svr-title", (run) => run.title.toLowerCase()],
  ["method", "Method", "svr-method", (run) => (run.method || "").toLowerCase()],
  ["model", "Model", "svr-model", (run) => (run.model || "").toLowerCase()],
  ["tokens", "Tokens", "svp-num svr-tokens", (run) => run.tokens ?? -1],
  ["steps", "Steps", "svp-num svr-steps", (run) => run.steps ?? -1],
  ["per_step", "Tokens/step", "svp-num svr-per", (run) => run.tokens_per_step ?? -1],
  ["ended", "Ended", "svr-ended", ended],
  ["size", "Size", "svp-num svr-size", (run) => run.bytes ?? -1],
  ["when", "When", "svr-when", (run) => +(date(run) || 0)],
];

/**
 * What a search asks for: a test per word; method:, model: and tag: look in their place, "a b" is one word.
 *
 * @param {string} text
 * @returns {(run: RunRecord) => boolean}
 */
function wanted(text) {
  /** @type {((run: RunRecord) => boolean)[]} */
  const tests = [];
  for (const [, name, quoted, plain] of text.toLowerCase().matchAll(/(?:(method|model|tag):)?(?:"([^"]*)"?|(\S+))/g)) {
    const word = quoted ?? plain;
    if (name === "method")
      tests.push((run) => run.method_name === word || (run.method || "").toLowerCase().includes(word));
    else if (name === "model") tests.push((run) => (run.model || "").toLowerCase().includes(word));
    else if (name === "tag") tests.push((run) => (run.tags || []).some((tag) => tag.startsWith(word)));
    else if (word === "lossy" || word === "lossless")
      tests.push((run) => run.kind !== "live" && (run.lossless === false) === (word === "lossy"));
    else if (word === "kept") tests.push((run) => Boolean(run.keep));
    else
      tests.push((run) =>
        `${run.title} ${run.method} ${run.model || ""} ${KINDS[run.kind]} ${(run.tags || []).join(" ")}`.toLowerCase()
          .includes(word),
      );
  }
  return (run) => tests.every((test) => test(run));
}

/** @param {Part} part */
export function mount({ element }) {
  const box = place(element, "table");
  const search = h("input.svp-input.svp-search", {
    type: "search",
    placeholder: "Search: words, method:pld, model:demo, tag:good, lossy, kept",
    "aria-label": "Search the runs",
  });
  const room = h("span.svr-room");
  const problem = h("p.svr-problem", { role: "alert" });
  const tags = h("div.svr-tags");
  const bar = h("div.svr-bar", { role: "group", "aria-label": "Selected runs", hidden: true });
  const all = h("input", { type: "checkbox", "aria-label": "Select all runs that are shown" });
  const heads = COLUMNS.map(([key, text, kind]) =>
    h("th", { scope: "col", class: kind }, h("button.svr-sort", { onclick: () => sortBy(key) }, text)),
  );
  const body = h("tbody");
  const grid = h(
    "table.svp-grid",
    h("thead", h("tr", h("th.svr-check", all), heads, h("th", { "aria-label": "Actions" }))),
    body,
  );
  const empty = h("p.svp-empty");
  const more = h("button.svp-button", {
    hidden: true,
    onclick: () => {
      most += PAGE;
      draw();
    },
  });
  /** @type {Set<string>} */
  const chosen = new Set();
  /** @type {RunRecord[]} */
  let matching = [];
  let sorted = { key: "", up: false },
    most = PAGE,
    editing = false,
    said = "";

  /** Names from A, numbers from the highest; then the other way, and back to the order by kind. @param {string} key */
  function sortBy(key) {
    const first = ["title", "method", "model"].includes(key);
    if (sorted.key !== key) sorted = { key, up: first };
    else sorted = sorted.up === first ? { key, up: !first } : { key: "", up: false };
    draw();
  }

  /** @param {"change" | "delete"} what @param {RunChange} asked */
  async function act(what, asked) {
    try {
      /** @type {{done: string[]}} */
      const { done } = await postJson(`api/runs/${what}`, asked);
      said =
        done.length < asked.ids.length
          ? `${asked.ids.length - done.length} of ${asked.ids.length} ` +
            `runs are not yours, or are gone: they stay as they are.`
          : "";
      if (what === "delete") for (const id of done) chosen.delete(id);
    } catch (error) {
      said = sentence(error);
    }
    await refreshRuns();
    draw();
  }

  // --- one row ---

  /**
   * A field in place of what it changes; Enter and leaving it give its text to `done`, Escape does not.
   *
   * @param {HTMLInputElement} field
   * @param {(text: string) => void} done
   */
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
    const field = h("input.svp-input", { maxlength: 200, "aria-label": "Title" });
    field.value = run.title;
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

  /** @param {RunRecord} run */
  function row(run) {
    const go = () => {
      goTo("inspect");
      open(run.id);
    };
    const check = h("input", { type: "checkbox", "aria-label": `Select ${run.title}`, disabled: !run.mine });
    check.checked = chosen.has(run.id);
    check.addEventListener("change", () => {
      chosen[check.checked ? "add" : "delete"](run.id);
      said = "";
      drawBar();
    });
    const chips = h(
      "span.svr-chips",
      (run.tags || []).map((tag) =>
        h(
          "span.svr-tag",
          h("button", { title: `Only runs tagged ${tag}`, onclick: quiet(() => filterBy(tag)) }, tag),
          run.mine
            ? h(
                "button",
                {
                  "aria-label": `Remove the tag ${tag}`,
                  onclick: quiet(() => act("change", { ids: [run.id], drop: [tag] })),
                },
                "×",
              )
            : null,
        ),
      ),
    );
    const name = h("td.svr-title", h("button.svp-link", { onclick: quiet(go) }, run.title), chips);
    /** @type {(mark: string, label: string, fn: () => void, more?: object) => HTMLElement} */
    const button = (mark, label, fn, more) =>
      h(
        "button",
        { class: "svr-act", title: label, "aria-label": `${label}: ${run.title}`, onclick: quiet(fn), ...more },
        mark,
      );
    const acts = !run.mine
      ? []
      : [
          button(
            run.keep ? "★" : "☆",
            run.keep ? "Kept: it is not removed to make room" : "Keep: never remove it to make room",
            () => act("change", { ids: [run.id], keep: !run.keep }),
            { "aria-pressed": String(Boolean(run.keep)) },
          ),
          button("#", "Add a tag", () => addTag([run.id], chips)),
          button("✎", "Rename", () => rename(run, name)),
          button("×", "Delete", () => {
            chosen.clear();
            chosen.add(run.id);
            draw();
            askDelete();
          }),
        ];
    const when = date(run);
    const cells = [
      name,
      h("td.svr-method", run.method || "", run.lossless === false ? " (lossy)" : ""),
      h("td.svr-model", run.model || ""),
      h("td.svp-num.svr-tokens", number(run.tokens, 0)),
      h("td.svp-num.svr-steps", number(run.steps, 0)),
      h("td.svp-num.svr-per", number(run.tokens_per_step, 2)),
      h("td.svr-ended", ended(run)),
      h("td.svp-num.svr-size", size(run.bytes)),
      h("td.svr-when", when ? when.toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) : ""),
    ];
    return h(
      "tr",
      { class: run.id === app.current ? "svp-now" : null, "data-id": run.id, onclick: go },
      h("td.svr-check", { onclick: quiet(() => {}) }, check),
      cells,
      h("td.svr-acts", acts),
    );
  }

  // --- what is done with several ---

  const barButton = (/** @type {string} */ text, /** @type {() => void} */ fn, kind = "") =>
    h("button", { class: `svp-button ${kind}`, onclick: () => fn() }, text);

  function askDelete() {
    const ids = [...chosen];
    const first = app.runs.find((run) => run.id === ids[0]);
    const no = barButton("Cancel", drawBar);
    const what = ids.length === 1 && first ? `“${first.title}”` : `${ids.length} runs`;
    const yes = ids.length === 1 ? "Delete" : `Delete ${ids.length}`;
    bar.replaceChildren(
      h("span", `Delete ${what}? This cannot be undone.`),
      barButton(yes, () => act("delete", { ids }), "svr-danger"),
      no,
    );
    no.focus();
  }

  function drawBar() {
    const ids = [...chosen],
      runs = app.runs.filter((run) => chosen.has(run.id));
    bar.hidden = !ids.length;
    all.checked = ids.length > 0 && matching.every((run) => !run.mine || chosen.has(run.id));
    problem.textContent = said || app.room?.problem || "";
    if (!ids.length) return;
    const kept = runs.length > 0 && runs.every((run) => run.keep);
    bar.replaceChildren(
      h("span", `${plural(ids.length, "run")} selected`),
      barButton("Add tag", () => addTag(ids, bar)),
      barButton(kept ? "Do not keep" : "Keep", () => act("change", { ids, keep: !kept })),
      barButton("Delete", askDelete, "svr-danger"),
      barButton("Clear selection", () => {
        chosen.clear();
        draw();
      }),
    );
  }

  all.addEventListener("change", () => {
    for (const run of matching) if (run.mine) chosen[all.checked ? "add" : "delete"](run.id);
    draw();
  });

  function drawRoom() {
    if (!app.room) return;
    const { count, max_count, bytes, max_bytes } = app.room;
    const text = `${count} of ${max_count} runs, ${Math.ceil(bytes / (1 << 20))} of ${max_bytes >> 20} MiB`;
    room.replaceChildren(
      text,
      h(
        "i",
        { "aria-hidden": "true" },
        h("b", { style: `width: ${Math.min(100, 100 * Math.max(count / max_count, bytes / max_bytes))}%` }),
      ),
    );
    room.title = "When it is full, the runs that were not looked at for longest make room; kept runs (★) stay.";
  }

  function draw() {
    if (editing) return; // drawn when the field is left
    const mine = new Set(app.runs.filter((run) => run.mine).map((run) => run.id));
    for (const id of chosen) if (!mine.has(id)) chosen.delete(id);
    matching = app.runs.filter(wanted(search.value));
    const by = COLUMNS.find(([key]) => key === sorted.key);
    if (by) {
      const [, , , value] = by;
      const way = sorted.up ? 1 : -1;
      matching = [...matching].sort((a, b) => (value(a) < value(b) ? -way : value(a) > value(b) ? way : 0));
    }
    heads.forEach((head, k) =>
      COLUMNS[k][0] === sorted.key
        ? head.setAttribute("aria-sort", sorted.up ? "ascending" : "descending")
        : head.removeAttribute("aria-sort"),
    );
    const rows = [];
    let kind = "";
    for (const run of matching.slice(0, most)) {
      if (!by && run.kind !== kind) {
        kind = run.kind;
        rows.push(h("tr.svp-kind", h("th", { colspan: COLUMNS.length + 2, scope: "colgroup" }, KINDS[kind] || kind)));
      }
      rows.push(row(run));
    }
    body.replaceChildren(...rows);
    const used = [...new Set(app.runs.flatMap((run) => run.tags || []))].sort();
    const words = search.value.split(/\s+/);
    tags.replaceChildren(
      ...used.slice(0, 30)
        .map((tag) =>
          h(
            "span.svr-tag",
            { "data-on": words.includes(`tag:${tag}`) },
            h("button", { "aria-pressed": String(words.includes(`tag:${tag}`)), onclick: () => filterBy(tag) }, tag),
          ),
        ),
    );
    more.hidden = matching.length <= most;
    more.textContent = `Show ${Math.min(PAGE, matching.length - most)} more of ${matching.length}`;
    empty.textContent = matching.length
      ? ""
      : app.runs.length ? "No run matches." : "There is no recorded run yet: run a method on the Inspect page.";
    grid.hidden = !matching.length;
    drawBar();
    drawRoom();
  }

  search.addEventListener("input", () => {
    most = PAGE;
    draw();
  });
  on("runs", draw);
  on("current", draw);
  box.append(h("div.svr-head", search, room), tags, problem, bar, h("div.svr-scroll", grid), empty, more);
  draw();
}
