/* The library of runs: searched, sorted, tagged, renamed, kept, deleted. */

import { on } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { postJson } from "specviz/base/json.js";
import { open } from "specviz/shell/open.js";
import { place } from "specviz/shell/place.js";
import { KINDS, refreshRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";
import { goTo } from "specviz/shell/tabs.js";

const PAGE = 200; // rows drawn at a time

const size = (bytes) =>
  bytes === undefined
    ? ""
    : bytes < 1 << 20
      ? `${Math.max(1, Math.round(bytes / 1024))} KiB`
      : `${(bytes / (1 << 20)).toFixed(1)} MiB`;
const number = (value, digits) => (value === null || value === undefined ? "" : value.toFixed(digits));
const date = (run) => (run.created && !Number.isNaN(+new Date(run.created)) ? new Date(run.created) : null);
const ended = (run) => (run.kind === "live" ? run.state : run.stop || "");

// key, heading, class, what it is sorted by
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

/** What a search asks for: a test per word; method:, model: and tag: look in their place, "a b" is one word. */
function wanted(text) {
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
        `${run.title} ${run.method} ${run.model || ""} ${KINDS[run.kind]} ${(run.tags || []).join(" ")}`
          .toLowerCase()
          .includes(word),
      );
  }
  return (run) => tests.every((test) => test(run));
}

export function mount({ element }) {
  const box = place(element, "table");
  const search = h("input", {
    type: "search",
    class: "svp-input svp-search",
    placeholder: "Search: words, method:pld, model:demo, tag:good, lossy, kept",
    "aria-label": "Search the runs",
  });
  const room = h("span", { class: "svr-room" });
  const problem = h("p", { class: "svr-problem", role: "alert" });
  const tags = h("div", { class: "svr-tags" });
  const bar = h("div", { class: "svr-bar", role: "group", "aria-label": "Selected runs", hidden: true });
  const all = h("input", { type: "checkbox", "aria-label": "Select all runs that are shown" });
  const heads = COLUMNS.map(([key, text, kind]) =>
    h(
      "th",
      { scope: "col", class: kind },
      h("button", { type: "button", class: "svr-sort", onclick: () => sortBy(key) }, text),
    ),
  );
  const body = h("tbody");
  const grid = h(
    "table",
    { class: "svp-grid" },
    h("thead", {}, h("tr", {}, h("th", { class: "svr-check" }, all), heads, h("th", { "aria-label": "Actions" }))),
    body,
  );
  const empty = h("p", { class: "svp-empty" });
  const more = h("button", {
    type: "button",
    class: "svp-button",
    hidden: true,
    onclick: () => {
      most += PAGE;
      draw();
    },
  });
  const chosen = new Set();
  let sorted = { key: "", up: false },
    most = PAGE,
    editing = false,
    found = [],
    said = "";

  function sortBy(key) {
    // down, up, and back to the order by kind
    if (sorted.key !== key) sorted = { key, up: key === "title" || key === "method" || key === "model" };
    else if (sorted.up === (key === "title" || key === "method" || key === "model")) sorted = { key, up: !sorted.up };
    else sorted = { key: "", up: false };
    draw();
  }

  async function act(what, asked) {
    try {
      const { done } = await postJson(`api/runs/${what}`, asked);
      said =
        done.length < asked.ids.length
          ? `${asked.ids.length - done.length} of ${asked.ids.length} ` +
            `runs are not yours, or are gone: they stay as they are.`
          : "";
      if (what === "delete") for (const id of done) chosen.delete(id);
    } catch (error) {
      said = error.message;
    }
    await refreshRuns();
    draw();
  }

  // --- one row ---

  /** A field in place of what it changes; Enter and leaving it give its text to `done`, Escape does not. */
  function edit(field, done) {
    editing = true;
    let over = false;
    const end = (text) => {
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

  function rename(run, cell) {
    const field = h("input", { class: "svp-input", maxlength: 200, "aria-label": "Title" });
    field.value = run.title;
    cell.replaceChildren(field);
    edit(field, (title) => (title && title !== run.title ? act("change", { ids: [run.id], title }) : draw()));
  }

  function addTag(ids, at) {
    const field = h("input", {
      class: "svp-input svr-newtag",
      maxlength: 30,
      placeholder: "tag",
      "aria-label": "New tag",
    });
    at.append(field);
    edit(field, (text) => (text ? act("change", { ids, add: text.split(/[\s,]+/).filter(Boolean) }) : draw()));
  }

  function filterBy(tag) {
    const word = `tag:${tag}`;
    const words = search.value.split(/\s+/).filter(Boolean);
    search.value = (words.includes(word) ? words.filter((w) => w !== word) : [...words, word]).join(" ");
    most = PAGE;
    draw();
  }

  const quiet = (fn) => (event) => {
    event.stopPropagation();
    fn(event);
  };

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
      "span",
      { class: "svr-chips" },
      (run.tags || []).map((tag) =>
        h(
          "span",
          { class: "svr-tag" },
          h("button", { type: "button", title: `Only runs tagged ${tag}`, onclick: quiet(() => filterBy(tag)) }, tag),
          run.mine
            ? h(
                "button",
                {
                  type: "button",
                  "aria-label": `Remove the tag ${tag}`,
                  onclick: quiet(() => act("change", { ids: [run.id], drop: [tag] })),
                },
                "×",
              )
            : null,
        ),
      ),
    );
    const name = h(
      "td",
      { class: "svr-title" },
      h("button", { type: "button", class: "svp-link", onclick: quiet(go) }, run.title),
      chips,
    );
    const button = (mark, label, fn, more) =>
      h(
        "button",
        {
          type: "button",
          class: "svr-act",
          title: label,
          "aria-label": `${label}: ${run.title}`,
          onclick: quiet(fn),
          ...more,
        },
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
      h("td", { class: "svr-method" }, run.method || "", run.lossless === false ? " (lossy)" : ""),
      h("td", { class: "svr-model" }, run.model || ""),
      h("td", { class: "svp-num svr-tokens" }, number(run.tokens, 0)),
      h("td", { class: "svp-num svr-steps" }, number(run.steps, 0)),
      h("td", { class: "svp-num svr-per" }, number(run.tokens_per_step, 2)),
      h("td", { class: "svr-ended" }, ended(run)),
      h("td", { class: "svp-num svr-size" }, size(run.bytes)),
      h("td", { class: "svr-when" }, when ? when.toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) : ""),
    ];
    return h(
      "tr",
      { class: run.id === app.current ? "svp-now" : null, "data-id": run.id, onclick: go },
      h("td", { class: "svr-check", onclick: (event) => event.stopPropagation() }, check),
      cells,
      h("td", { class: "svr-acts" }, acts),
    );
  }

  // --- what is done with several ---

  function askDelete() {
    const ids = [...chosen];
    const first = app.runs.find((run) => run.id === ids[0]);
    const no = h(
      "button",
      {
        type: "button",
        class: "svp-button",
        onclick: () => {
          drawBar();
        },
      },
      "Cancel",
    );
    bar.replaceChildren(
      h(
        "span",
        {},
        ids.length === 1 && first
          ? `Delete “${first.title}”? This cannot be undone.`
          : `Delete ${ids.length} runs? This cannot be undone.`,
      ),
      h(
        "button",
        { type: "button", class: "svp-button svr-danger", onclick: () => act("delete", { ids }) },
        ids.length === 1 ? "Delete" : `Delete ${ids.length}`,
      ),
      no,
    );
    no.focus();
  }

  function drawBar() {
    const ids = [...chosen],
      runs = app.runs.filter((run) => chosen.has(run.id));
    bar.hidden = !ids.length;
    all.checked = ids.length > 0 && found.every((run) => !run.mine || chosen.has(run.id));
    problem.textContent = said || app.room?.problem || "";
    if (!ids.length) return;
    const kept = runs.length > 0 && runs.every((run) => run.keep);
    const button = (text, fn, kind = "") =>
      h("button", { type: "button", class: `svp-button ${kind}`, onclick: fn }, text);
    bar.replaceChildren(
      h("span", {}, ids.length === 1 ? "1 run selected" : `${ids.length} runs selected`),
      button("Add tag", () => addTag(ids, bar)),
      button(kept ? "Do not keep" : "Keep", () => act("change", { ids, keep: !kept })),
      button("Delete", askDelete, "svr-danger"),
      button("Clear selection", () => {
        chosen.clear();
        draw();
      }),
    );
  }

  all.addEventListener("change", () => {
    for (const run of found) if (run.mine) chosen[all.checked ? "add" : "delete"](run.id);
    draw();
  });

  function drawRoom() {
    const { count, max_count, bytes, max_bytes } = app.room || {};
    if (max_count === undefined) return;
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
    found = app.runs.filter(wanted(search.value));
    const by = COLUMNS.find(([key]) => key === sorted.key);
    if (by) {
      const value = by[3],
        way = sorted.up ? 1 : -1;
      found = [...found].sort((a, b) => (value(a) < value(b) ? -way : value(a) > value(b) ? way : 0));
    }
    heads.forEach((head, k) =>
      COLUMNS[k][0] === sorted.key
        ? head.setAttribute("aria-sort", sorted.up ? "ascending" : "descending")
        : head.removeAttribute("aria-sort"),
    );
    const rows = [];
    let kind = "";
    for (const run of found.slice(0, most)) {
      if (!by && run.kind !== kind) {
        kind = run.kind;
        rows.push(
          h(
            "tr",
            { class: "svp-kind" },
            h("th", { colspan: COLUMNS.length + 2, scope: "colgroup" }, KINDS[kind] || kind),
          ),
        );
      }
      rows.push(row(run));
    }
    body.replaceChildren(...rows);
    const used = [...new Set(app.runs.flatMap((run) => run.tags || []))].sort();
    const words = search.value.split(/\s+/);
    tags.replaceChildren(
      ...used
        .slice(0, 30)
        .map((tag) =>
          h(
            "span",
            { class: "svr-tag", "data-on": words.includes(`tag:${tag}`) },
            h(
              "button",
              { type: "button", "aria-pressed": String(words.includes(`tag:${tag}`)), onclick: () => filterBy(tag) },
              tag,
            ),
          ),
        ),
    );
    more.hidden = found.length <= most;
    more.textContent = `Show ${Math.min(PAGE, found.length - most)} more of ${found.length}`;
    empty.textContent = found.length
      ? ""
      : app.runs.length
        ? "No run matches."
        : "There is no recorded run yet: run a method on the Inspect page.";
    grid.hidden = !found.length;
    drawBar();
    drawRoom();
  }

  search.addEventListener("input", () => {
    most = PAGE;
    draw();
  });
  on("runs", draw);
  on("current", draw);
  box.append(
    h("div", { class: "svr-head" }, search, room),
    tags,
    problem,
    bar,
    h("div", { class: "svr-scroll" }, grid),
    empty,
    more,
  );
  draw();
}
