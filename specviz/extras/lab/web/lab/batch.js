/* Page "Lab", methods × prompts: which methods with which parameters, and the tables that come of it. */

import { h, heads, must, titled } from "specviz/base/dom.js";
import { bound } from "specviz/base/field.js";
import { goesOn } from "specviz/base/json.js";
import { BASELINE } from "specviz/base/methods.js";
import { plural, short } from "specviz/base/numbers.js";
import { missingMethods } from "specviz/shell/methods.js";
import {
  allowed, catalog, field, file, formulaList, lineName, link, list, state, tabled, typed,
} from "specviz/lab/state.js";
import { cardOf, parted, ruleField } from "specviz/shell/verifiers.js";

const methods = () => catalog().methods.filter((m) => !m.baseline);

/** The lines chosen; at first methods that are there. */
function lines() {
  const usable = methods().filter((m) => !m.missing);
  const usual = usable.filter((m) => m.compared);
  return (state().lines ??= (usual.length ? usual : usable.slice(0, 2)).map((m) => ({ method: m.name, params: {} })));
}

/** The parameters that were typed. @param {LabFormLine} line */
const changed = ({ params }) =>
  Object.entries(params).flatMap(([name, value]) => (value.trim() ? [[name, value.trim()]] : []));

/** What is asked of the server. */
export function body() {
  return {
    lines: lines().map((line) => ({ method: line.method, params: Object.fromEntries(changed(line)) })),
    repeats: state().repeats || null,
    temperature: state().temperature === "" ? null : state().temperature,
  };
}

/** The form as the results shown were asked for. @param {LabAbout} about */
export function restore(about) {
  const form = state();
  form.lines = about.lines.flatMap(({ method, params }) => {
    const known = cardOf(catalog(), method);
    if (!known || known.missing || known.baseline) return [];
    const set = known.controls.filter(({ name, default: usual }) => name in params && params[name] !== usual);
    return [{ method, params: Object.fromEntries(set.map(({ name }) => [name, typed(params[name])])) }];
  });
  form.repeats = String(about.repeats);
  form.temperature = about.temperature ? String(about.temperature) : "";
  form.max_new_tokens = String(about.max_new_tokens);
  form.count = String(about.count);
  const { sets, batch } = catalog();
  form.prompts = about.prompts in sets && about.prompts !== batch.prompts ? about.prompts : "";
}

const QUESTION =
  "Every method on every prompt, as in the papers’ tables: a row per task, a column per method. " +
  "The runs are timed in turn and repeated, and every output is checked against plain decoding’s.";

/** What is asked, in words. */
export const head = () => titled("Methods × prompts", QUESTION);

// --- the form ---

/** @typedef {{check: () => void, redraw: () => void}} Changes what is done when a value, or a line, has changed */

/** @type {(line: LabFormLine, again: boolean, changes: Changes) => HTMLElement | null} */
function parameters(line, again, { check, redraw }) {
  const method = must(cardOf(catalog(), line.method), line.method);
  const prefix = `svl-line${lines().indexOf(line)}-`;
  const rule = ruleField(catalog(), line.method, () => !(Number(state().temperature) > 0), (name) => {
    line.method = name;
    const there = must(cardOf(catalog(), name), name).controls.map((one) => one.name);
    line.params = Object.fromEntries(Object.entries(line.params).filter(([param]) => there.includes(param)));
    redraw();
    document.getElementById(`${prefix}svf-verifier`)?.focus(); // the field was drawn anew
  }, prefix);
  if (!method.controls.length && !rule) return null;
  const { rule: judge } = parted(line.method);
  const said = () => changed(line).map(([name, value]) => `${name} = ${value}`).join(", ") || "usual parameters";
  const words = () => (judge ? `@${judge}: ${said()}` : said());
  const summary = h("summary", words());
  const told = () => {
    summary.textContent = words();
    check();
  };
  const fields = method.controls.map(({ name, label, help, default: usual }, k) => {
    const about = { "aria-label": `${method.name}: ${label}`, title: help, placeholder: typed(usual) };
    const box = h("input.svp-input", { ...about, "data-param": name });
    return field(label, bound(box, line.params, name, told), allowed(method.controls[k]));
  });
  /** @param {number} taken @param {LabFormLine[]} put */
  const change = (taken, ...put) => {
    lines().splice(lines().indexOf(line) + 1 - taken, taken, ...put);
    redraw();
  };
  const another = link("Add it once more, with other parameters or another verifier", () =>
    change(0, { method: line.method, params: { ...line.params }, open: true }),
  );
  return h(
    "details.svb-params.ui-fold",
    { open: line.open, ontoggle: ({ currentTarget }) => (line.open = currentTarget.open) },
    summary,
    rule?.row,
    h("div.svl-form.ui-row", fields),
    h("div.svb-more.ui-row.ui-soft", another, again ? link("Remove", () => change(1)) : null),
  );
}

/** The methods with their lines. @param {Changes} changes */
export function fields(changes) {
  const chosen = lines();
  const order = methods().map((m) => m.name);
  const rows = methods().filter((m) => !m.missing).map((m) => {
    const mine = chosen.filter((line) => parted(line.method).base === m.name);
    const others = chosen.filter((line) => !mine.includes(line));
    const tick = { value: m.name, checked: mine.length > 0 };
    const box = h("input", { type: "checkbox", id: `svl-batch-${m.name}`, ...tick });
    box.addEventListener("change", () => {
      const now = box.checked ? [...chosen, { method: m.name, params: {} }] : others;
      const place = (/** @type {LabFormLine} */ line) => order.indexOf(parted(line.method).base);
      state().lines = now.sort((a, b) => place(a) - place(b));
      changes.redraw();
    });
    const fields = mine.map((line, n) => parameters(line, n > 0, changes));
    const lossy = !m.lossless && h("span.svf-badge.svf-lossy", "lossy");
    return h(
      "div.svb-method",
      { "data-method": m.name },
      h("label.svl-check.ui-check", { title: `${m.name}: ${m.summary}` }, box, h("span", short(m.title)), lossy),
      h("div.svb-lines", fields),
    );
  });
  const plain = h("input", { type: "checkbox", checked: true, disabled: true, id: "svl-batch-plain" });
  const base = h(
    "div.svb-method",
    h("label.svl-check.ui-check", plain, h("span", lineName(BASELINE))),
    h("div.svb-lines", h("small", "The baseline: it always runs.")),
  );
  return h("fieldset.svb-methods", h("legend", "Methods"), base, rows, missingMethods(methods()));
}

// --- the tables ---

const TURNED = "A row per method, a column per category, as Spec-Bench and EAGLE print them";

/** A button that opens runs; without any the text alone. */
/** @type {(runs: object[], text: Node, attributes: Attributes<HTMLButtonElement>) => Node} */
const opens = (runs, text, attributes) => runs.length ? h("button.svp-bare.svb-open", { ...attributes }, text) : text;

/** @param {Pick<LabTable, "columns" | "counts" | "pooled">} table @param {LabTableLine} line @param {number} n */
function cell(table, line, n) {
  const { text, spread, count, prompts, disturbed, best, failed, partly, runs } = line.cells[n];
  const name = lineName(table.columns[n]);
  const thing = table.counts.slice(0, -1);
  const [values, from] = [plural(count, "value"), plural(prompts, thing)];
  const words = [
    `${line.name}, ${name}: ${text}${spread && `, quartiles ${spread}`}`,
    table.pooled ? `all steps of ${from} together` : `mean of ${values} from ${from}`,
    disturbed && `disturbed on ${plural(disturbed, thing)}`,
    best && "best of its row",
    failed && `${plural(failed, "run")} failed`,
  ]
    .filter(Boolean)
    .join("; ");
  const number = h(best ? "strong" : "span", { title: words }, text);
  const onclick = () => list(`${name}, ${line.name}`, runs);
  return h(
    "td.svp-num",
    { class: best && "svb-best" },
    opens(runs, number, { "aria-label": `${words}. Open its runs`, onclick }),
    disturbed > 0 && h("sup", { title: "Disturbed: the notes below say how" }, "‡"),
    spread && h("small", ` ${spread}`),
    partly && h("small.svl-failed", ` (${partly})`),
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
  const onclick = () => list(`${lineName(check.name)}: not plain decoding’s output`, runs);
  return h("td.svp-num", opens(runs, text, { "data-check": check.name, onclick }));
}

/** @param {LabBatchResults} results @param {LabTable} asked */
function tableOf({ checks }, { columns, lines, metric, label, formula, title, counts, pooled }) {
  const checkOf = (/** @type {string} */ name) => must(checks.find((check) => check.name === name));
  const lossy = { title: "Not lossless: the output may differ from plain decoding's" };
  const mark = () => h("span.svb-lossy", lossy, " † lossy");
  const methods = columns.map((name) => [lineName(name), checkOf(name).lossy && mark()]);
  const rows = lines.map((line, n) =>
    h(
      "tr",
      { class: n > 0 && n === lines.length - 1 && "svb-all" },
      h("th", { scope: "row" }, line.name),
      h("td.svp-num", line.prompts.toLocaleString()),
      columns.map((_, k) => cell({ columns, counts, pooled }, line, k)),
    ),
  );
  const same = [h("th", { scope: "row" }, "same as plain"), h("td"), columns.map((name) => checked(checkOf(name)))];
  return tabled(
    { class: "svb-table", "data-metric": metric },
    heads(["task"], [counts, ...methods]),
    rows,
    h("caption", { title: `${label} = ${formula}` }, title),
    h("tfoot", h("tr", same)),
  );
}

/** What stands in the place of charts and table; ``turned``: the tables in the field's form. */
/** @param {LabBatchResults} s @param {HTMLElement[]} turned */
export function below(s, turned) {
  if (!s.rows)
    return goesOn(s.state)
      ? [h("p.svp-empty", "The first numbers come when every method is through the first prompt.")]
      : [];
  return [
    s.warnings.map((text) => h("div.svp-note.svp-error.svb-warning", { role: "alert" }, text)),
    s.about.notes.map((text) => h("p.svp-note", text)),
    h("div.svb-tables.ui-row", s.tables.map((table) => tableOf(s, table))),
    turned.length
      ? h("details.svl-every.ui-fold", h("summary", TURNED), h("div.svb-tables.ui-row", turned), turnedFiles())
      : [],
    formulaList(s.formulas),
    h("ul.svb-remarks.ui-soft", s.remarks.map((text) => h("li", text))),
  ].flat();
}

const turnedFiles = () =>
  h(
    "p",
    [["tex", "LaTeX"], ["md", "Markdown"], ["table", "CSV"]].map(([kind, text]) => file(`${kind}&table=field`, text)),
  );

/** Links to the tables as files. @param {string[] | null} metrics */
export function files(metrics) {
  const more = metrics ? `&metrics=${encodeURIComponent(metrics.join(","))}` : "";
  return [
    ["table", "Table: CSV"],
    ["tex", "LaTeX"],
    ["md", "Markdown"],
  ].map(([format, text]) => file(`${format}${more}`, text));
}

