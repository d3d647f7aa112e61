/* Page "Lab", methods × prompts: which methods with which parameters, and the tables that come of it. */

import { h, must, plural } from "specviz/base/dom.js";
import { allowed, catalog, field, file, formulaList, goesOn, link, list, state, typed } from "specviz/lab/state.js";

const FIRST = ["pld", "pld+h", "adapld"];

const methods = () => catalog().methods.filter((m) => m.name !== "plain");

/** The lines chosen; at first methods that are there. */
function lines() {
  const usable = methods().filter((m) => !m.missing).map((m) => m.name);
  const usual = FIRST.filter((name) => usable.includes(name));
  return (state().lines ??= (usual.length ? usual : usable.slice(0, 2)).map((method) => ({ method, params: {} })));
}

/** The parameters that were typed. @param {LabFormLine} line */
const changed = ({ params }) => Object.entries(params).filter(([, value]) => value !== "");

/** What is asked of the server. */
export function body() {
  return {
    lines: lines().map((line) => ({ method: line.method, params: Object.fromEntries(changed(line)) })),
    repeats: state().repeats || null,
  };
}

/** The form as the results shown were asked for. @param {LabAbout} about */
export function restore(about) {
  const form = state();
  form.lines = about.lines.flatMap(({ method, params }) => {
    const known = methods().find((m) => m.name === method && !m.missing);
    if (!known) return [];
    const set = known.controls.filter(({ name, default: usual }) => name in params && params[name] !== usual);
    return [{ method, params: Object.fromEntries(set.map(({ name }) => [name, typed(params[name])])) }];
  });
  form.repeats = String(about.repeats);
  form.max_new_tokens = String(about.max_new_tokens);
  form.count = String(about.count);
  const { sets, batch } = catalog();
  form.prompts = about.prompts in sets && about.prompts !== batch.prompts ? about.prompts : "";
}

/** What is asked, in words. */
export function head() {
  return h(
    "header.svl-head",
    h("h2", "Methods × prompts"),
    h(
      "p.svl-question",
      "Every method on every prompt, as in the papers’ tables: a row per task, a column per method. " +
        "The runs are timed in turn and repeated, and every output is checked against plain decoding’s.",
    ),
  );
}

// --- the form ---

/** @typedef {{check: () => void, redraw: () => void}} Changes what is done when a value, or a line, has changed */

/** @type {(line: LabFormLine, method: MethodCard, again: boolean, changes: Changes) => HTMLElement | null} */
function parameters(line, method, again, { check, redraw }) {
  if (!method.controls.length) return null;
  const words = () => changed(line).map(([name, value]) => `${name} = ${value}`).join(", ") || "usual parameters";
  const summary = h("summary", words());
  const fields = method.controls.map((c) => {
    const box = h("input.svp-input", {
      "aria-label": `${method.name}: ${c.label}`,
      title: c.help,
      placeholder: typed(c.default),
      "data-param": c.name,
    });
    box.value = line.params[c.name] || "";
    box.addEventListener("input", () => {
      line.params[c.name] = box.value.trim();
      summary.textContent = words();
      check();
    });
    return field(c.label, box, allowed(c));
  });
  /** @param {number} taken @param {LabFormLine[]} put */
  const change = (taken, ...put) => {
    lines().splice(lines().indexOf(line) + 1 - taken, taken, ...put);
    redraw();
  };
  const another = link("Add it once more, with other parameters", () =>
    change(0, { method: method.name, params: { ...line.params }, open: true }),
  );
  const details = h(
    "details.svb-params",
    { open: line.open },
    summary,
    h("div.svl-form", fields),
    h("div.svb-more", another, again ? link("Remove", () => change(1)) : null),
  );
  details.addEventListener("toggle", () => {
    line.open = details.open;
  });
  return details;
}

/** The methods with their lines. @param {Changes} changes */
export function fields(changes) {
  const chosen = lines();
  const order = methods().map((m) => m.name);
  const rows = methods().map((m) => {
    const mine = chosen.filter((line) => line.method === m.name);
    const others = chosen.filter((line) => line.method !== m.name);
    const id = `svl-batch-${m.name}`;
    const box = h("input", { type: "checkbox", value: m.name, id, disabled: Boolean(m.missing) });
    box.checked = mine.length > 0;
    box.addEventListener("change", () => {
      const now = box.checked ? [...chosen, { method: m.name, params: {} }] : others;
      state().lines = now.sort((a, b) => order.indexOf(a.method) - order.indexOf(b.method));
      changes.redraw();
    });
    return h(
      "div.svb-method",
      { "data-method": m.name },
      h(
        "label.svl-check",
        { title: m.summary },
        box,
        h("span", m.name),
        m.lossless ? null : h("span.svf-badge.svf-lossy", "lossy"),
      ),
      h(
        "div.svb-lines",
        m.missing ? h("small", m.missing) : mine.map((line, n) => parameters(line, m, n > 0, changes)),
      ),
    );
  });
  const plain = h("input", { type: "checkbox", checked: true, disabled: true, id: "svl-batch-plain" });
  const base = h(
    "div.svb-method",
    h("label.svl-check", plain, h("span", "plain")),
    h("div.svb-lines", h("small", "The baseline: it always runs.")),
  );
  return h("fieldset.svb-methods", h("legend", "Methods"), base, rows);
}

// --- the tables ---

/**
 * A button that opens runs; without any the text alone.
 *
 * @type {(runs: object[], text: Node, attributes: Attributes<HTMLButtonElement>) => Node}
 */
const opens = (runs, text, attributes) => runs.length ? h("button", { class: "svb-open", ...attributes }, text) : text;

/** @param {LabTable} table @param {LabTableLine} line @param {number} n */
function cell(table, line, n) {
  const c = line.cells[n],
    name = table.columns[n];
  const words = [
    `${line.name}, ${name}: ${c.text}${c.spread ? ` ± ${c.spread}` : ""}`,
    `mean of ${plural(c.count, "value")} from ${plural(c.prompts, "prompt")}`,
    c.best ? "best of its row" : "",
    c.failed ? `${plural(c.failed, "run")} failed` : "",
  ]
    .filter(Boolean)
    .join("; ");
  const number = h(c.best ? "strong" : "span", { title: words }, c.text);
  const onclick = () => list(`${name}, ${line.name}`, c.runs);
  return h(
    "td",
    { class: `svp-num${c.best ? " svb-best" : ""}` },
    opens(c.runs, number, { "aria-label": `${words}. Open its runs`, onclick }),
    c.spread ? h("small", ` ± ${c.spread}`) : null,
    c.partly ? h("small.svl-failed", ` (${c.partly})`) : null,
  );
}

/** @param {LabCheck} check */
function checked(check) {
  if (!check.checked) return h("td.svp-num", "–");
  const words = `${check.same}/${check.checked}${check.bugs ? `, ${check.bugs} differ` : ""}`;
  const sign = check.same === check.checked ? "✓ " : check.bugs ? "✗ " : "";
  const text = h(check.bugs ? "strong" : "span", { class: check.bugs ? "svl-failed" : null }, sign + words);
  const runs = check.runs.map((run) => ({
    ...run,
    word: `token ${run.at}, ${run.verdict}${run.repeat > 1 ? `, repeat ${run.repeat}` : ""}`,
  }));
  const onclick = () => list(`${check.name}: not plain decoding’s output`, runs);
  return h("td.svp-num", opens(runs, text, { "data-check": check.name, onclick }));
}

/** @param {LabBatchResults} results @param {LabTable} table */
function tableOf({ checks }, table) {
  const byName = new Map(checks.map((c) => [c.name, c]));
  const heads = table.columns.map((name) =>
    h(
      "th.svp-num",
      { scope: "col" },
      name,
      byName.get(name)?.lossy
        ? h("span.svb-lossy", { title: "Not lossless: the output may differ from plain decoding's" }, " † lossy")
        : null,
    ),
  );
  const rows = table.lines.map((line, n) =>
    h(
      "tr",
      { class: n && n === table.lines.length - 1 ? "svb-all" : null },
      h("th", { scope: "row" }, line.name),
      h("td.svp-num", line.prompts.toLocaleString()),
      table.columns.map((_, k) => cell(table, line, k)),
    ),
  );
  return h(
    "div.svl-scroll",
    h(
      "table.svp-grid.svl-table.svb-table",
      { "data-metric": table.metric },
      h("caption", { title: `${table.label} = ${table.formula}` }, table.title),
      h("thead", h("tr", h("th", { scope: "col" }, "task"), h("th.svp-num", { scope: "col" }, "prompts"), heads)),
      h("tbody", rows),
      h(
        "tfoot",
        h(
          "tr",
          h("th", { scope: "row" }, "same as plain"),
          h("td"),
          table.columns.map((name) => checked(must(byName.get(name)))),
        ),
      ),
    ),
  );
}

/** What stands in the place of charts and table. @param {LabBatchResults} s */
export function below(s) {
  if (!s.rows)
    return goesOn(s.state)
      ? [h("p.svp-empty", "The first numbers come when every method is through the first prompt.")]
      : [];
  return [
    s.warnings.map((text) => h("div.svp-note.svp-error.svb-warning", { role: "alert" }, text)),
    s.about.notes.map((text) => h("p.svp-note", text)),
    h("div.svb-tables", s.tables.map((table) => tableOf(s, table))),
    formulaList(s.formulas),
    h("ul.svb-remarks", s.remarks.map((text) => h("li", text))),
  ].flat();
}

/** Links to the tables as files. @param {string[] | null} metrics */
export function files(metrics) {
  const more = metrics ? `&metrics=${encodeURIComponent(metrics.join(","))}` : "";
  return [
    ["table", "Table: CSV"],
    ["tex", "LaTeX"],
    ["md", "Markdown"],
  ].map(([format, text]) => file(`${format}${more}`, text));
}

