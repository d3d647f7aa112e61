/* A static site's list of runs: searched, filtered, by prompt or one by one. */

import { plural } from "specviz/base/numbers.js";
import { followSystem } from "specviz/base/system.js";
import { Choice, Field } from "specviz/ui/field.js";
import { html, render, useState } from "specviz/ui/html.js";
import { Table } from "specviz/ui/table.js";
import { main, site, to } from "specviz/site/site.js";

const ALL = "";
const BARS = "Bars: forwards of the target, the fewer the better; a full bar is a forward for each token. Not time.";
const TIP = "Emitted tokens ÷ verify steps.";

/** Runs with every word somewhere, and of what is chosen. @type {(asked: { [name: string]: string }) => SiteRun[]} */
export const found = ({ text, method, model, category, tag }) => {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return site.runs.filter((run) => {
    const whole = [run.title, run.method, run.model, run.category, ...run.tags].join(" ").toLowerCase();
    return (
      words.every((word) => whole.includes(word)) &&
      (!method || run.method === method) &&
      (!model || run.model === model) &&
      (!category || run.category === category) &&
      (!tag || run.tags.includes(tag))
    );
  });
};

/** @param {number | null} value */
const decimal = (value) => (value === null ? "–" : value.toFixed(2));

/** What a list may be narrowed to, most runs first; none where there is one alone. */
/** @param {(run: SiteRun) => string[]} of */
function options(of) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const value of site.runs.flatMap(of).filter(Boolean)) counts.set(value, (counts.get(value) ?? 0) + 1);
  if (counts.size < 2) return [];
  const most = [...counts].sort((a, b) => b[1] - a[1]);
  return [{ value: ALL, label: "all" }, ...most.map(([value, count]) => ({ value, label: `${value} (${count})` }))];
}

const FILTERS = /** @type {const} */ ([
  ["method", "Method", options((run) => [run.method])],
  ["model", "Model", options((run) => [run.model])],
  ["category", "Category", options((run) => [run.category])],
  ["tag", "Tag", options((run) => run.tags)],
]);

/** Runs of one prompt beside one another: bars as long as their forwards, a full one being a forward per token. */
/** @param {{ runs: SiteRun[] }} props */
function Prompt({ runs }) {
  const sorted = [...runs].sort((a, b) => a.steps - b.steps);
  const most = Math.max(1, ...runs.map((run) => Math.max(run.tokens, run.steps)));
  const outcome = site.outcomes[runs[0].prompt];
  return html`<section class="st-prompt">
    <h2>${runs[0].title}</h2>
    ${outcome && html`<p>${outcome} <a href=${to("compare", { prompt: runs[0].prompt })}>Compare</a></p>`}
    <ol>${sorted.map((run) => html`<li key=${run.key}>
      <a href=${to("run", { run: run.key })}>${run.method}</a>
      <span class="st-bar ui-bar" aria-hidden="true" title=${BARS}>
        <i style=${{ width: `${(100 * run.steps) / most}%` }} /></span>
      <span>${plural(run.steps, "forward")} · ${decimal(run.per_step)} tokens per step${run.answer && html` ·${" "}
        <a href=${to("attribution", { answer: run.answer, run: run.key })}
          aria-label=${`sources of ${run.method}`}>sources</a>`}</span>
    </li>`)}</ol>
  </section>`;
}

/** @type {import("specviz/ui/table.js").Column<SiteRun>[]} */
const ALL_COLUMNS = [
  { head: "Run", cell: (run) => html`<a href=${to("run", { run: run.key })}>${run.title}</a>` },
  { head: "Method", cell: (run) => run.method },
  { head: "Model", cell: (run) => run.model },
  { head: "Tokens", number: true, cell: (run) => run.tokens.toLocaleString("en") },
  { head: "Steps", number: true, cell: (run) => run.steps.toLocaleString("en") },
  { head: "Tokens per step", number: true, tip: TIP, cell: (run) => decimal(run.per_step) },
  { head: "Tags", cell: (run) => run.tags.join(", ") },
];
const COLUMNS = ALL_COLUMNS.filter(({ head }) => head !== "Tags" || site.runs.some((run) => run.tags.length));

function Site() {
  const [asked, ask] = useState({ text: "", method: ALL, model: ALL, category: ALL, tag: ALL });
  const [by, setBy] = useState(Object.keys(site.outcomes).length ? "prompt" : "run");
  const runs = found(asked);
  /** @type {Map<string, SiteRun[]>} */
  const groups = new Map();
  for (const run of runs) groups.set(run.prompt, [...(groups.get(run.prompt) ?? []), run]);
  const typed = (/** @type {FieldEvent} */ { currentTarget }) => ask({ ...asked, text: currentTarget.value });
  const shown = by === "prompt" ? [...groups].map(([key, group]) => html`<${Prompt} key=${key} runs=${group} />`)
    : html`<${Table} label="Runs" columns=${COLUMNS} rows=${runs} />`;
  return html`
    <h1>${site.title}</h1>
    ${site.lessons.length > 0 && html`<p><a href="lessons.html">${plural(site.lessons.length, "lesson")}</a> show how
      speculative decoding works, on recorded runs.</p>`}
    <div class="st-form ui-row">
      <${Field} label="Search">${(/** @type {object} */ tied) => html`
        <input class="ui-input" type="search" value=${asked.text} onInput=${typed} ...${tied} />`}</${Field}>
      ${FILTERS.filter(([, , list]) => list.length).map(([name, label, list]) => html`<${Choice} key=${name}
        label=${label} value=${asked[name]} options=${list}
        change=${(/** @type {string} */ value) => ask({ ...asked, [name]: value })} />`)}
      <${Choice} label="Show" value=${by} change=${setBy}
        options=${[{ value: "prompt", label: "by prompt" }, { value: "run", label: "run by run" }]} />
    </div>
    ${by === "prompt" && runs.length > 0 && html`<p class="st-legend">${BARS}</p>`}
    <p role="status">${plural(runs.length, "run")}${by === "prompt" ? ` of ${plural(groups.size, "prompt")}` : ""}</p>
    ${runs.length ? shown : html`<p>No run has all of these: take a filter back.</p>`}`;
}

followSystem();
render(html`<${Site} />`, main);
