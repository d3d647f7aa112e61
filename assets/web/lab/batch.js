/* Page "Lab", methods × prompts: which methods with which parameters, and the tables that come of it. */

import { h } from "specviz/base/dom.js";

const FIRST = ["pld", "pld+h", "adapld"];

/** `kit`: what the page gives: lab, state, check, redraw, field, allowed, plural, list, link. */
export function labBatch(kit) {
  const { lab } = kit;
  const methods = () => lab.catalog.methods.filter((m) => m.name !== "plain");
  const setting = (value) => (value === null ? "off" : value === true ? "yes" : value === false ? "no" : String(value));

  function lines() {
    const s = kit.state();
    const usable = methods()
      .filter((m) => !m.missing)
      .map((m) => m.name);
    s.lines ??= (
      FIRST.some((name) => usable.includes(name)) ? FIRST.filter((name) => usable.includes(name)) : usable.slice(0, 2)
    ).map((method) => ({ method, params: {} }));
    return s.lines;
  }

  /** What is asked of the server. */
  function body() {
    const given = (params) => Object.fromEntries(Object.entries(params).filter(([, value]) => value !== ""));
    return {
      lines: lines().map((line) => ({ method: line.method, params: given(line.params) })),
      repeats: kit.state().repeats || null,
    };
  }

  /** The form as the results shown were asked for. */
  function restore(about) {
    const s = kit.state();
    s.lines = about.lines
      .filter((line) => line.method !== "plain")
      .map((line) => {
        const known = new Map((methods().find((m) => m.name === line.method)?.controls || []).map((c) => [c.name, c]));
        const params = Object.entries(line.params).filter(
          ([name, value]) => known.has(name) && value !== known.get(name).default,
        );
        return {
          method: line.method,
          params: Object.fromEntries(params.map(([name, value]) => [name, setting(value)])),
        };
      })
      .filter((line) => methods().some((m) => m.name === line.method && !m.missing));
    s.repeats = String(about.repeats);
    s.max_new_tokens = String(about.max_new_tokens);
    s.count = String(about.count);
    s.prompts =
      about.prompts in lab.catalog.sets ? (about.prompts === lab.catalog.batch.prompts ? "" : about.prompts) : "";
  }

  function head() {
    return h(
      "header",
      { class: "svl-head" },
      h("h2", {}, "Methods × prompts"),
      h(
        "p",
        { class: "svl-question" },
        "Every method on every prompt, as in the papers’ tables: a row per task, a column per method. " +
          "The runs are timed in turn and repeated, and every output is checked against plain decoding’s.",
      ),
    );
  }

  // --- the form ---

  function parameters(line, m, twin) {
    if (!m.controls.length) return null;
    const changed = () =>
      Object.entries(line.params)
        .filter(([, value]) => value !== "")
        .map(([name, value]) => `${name} = ${value}`)
        .join(", ");
    const summary = h("summary", {}, changed() || "usual parameters");
    const fields = m.controls.map((c) => {
      const box = h("input", {
        class: "svp-input",
        "aria-label": `${m.name}: ${c.label}`,
        title: c.help,
        placeholder: setting(c.default),
        "data-param": c.name,
      });
      box.value = line.params[c.name] || "";
      box.addEventListener("input", () => {
        line.params[c.name] = box.value.trim();
        summary.textContent = changed() || "usual parameters";
        kit.check();
      });
      return kit.field(c.label, box, kit.allowed(c));
    });
    const another = h(
      "button",
      {
        type: "button",
        class: "svp-link",
        onclick: () => {
          const all = lines();
          all.splice(all.indexOf(line) + 1, 0, { method: m.name, params: { ...line.params }, open: true });
          kit.redraw();
        },
      },
      "Add it once more, with other parameters",
    );
    const remove = twin
      ? h(
          "button",
          {
            type: "button",
            class: "svp-link",
            onclick: () => {
              lines().splice(lines().indexOf(line), 1);
              kit.redraw();
            },
          },
          "Remove",
        )
      : null;
    const details = h(
      "details",
      { class: "svb-params", open: line.open },
      summary,
      h("div", { class: "svl-form" }, fields),
      h("div", { class: "svb-more" }, another, remove),
    );
    details.addEventListener("toggle", () => {
      line.open = details.open;
    });
    return details;
  }

  function fields() {
    const chosen = lines();
    const rows = methods().map((m) => {
      const mine = chosen.filter((line) => line.method === m.name);
      const box = h("input", {
        type: "checkbox",
        value: m.name,
        id: `svl-batch-${m.name}`,
        disabled: Boolean(m.missing),
      });
      box.checked = mine.length > 0;
      box.addEventListener("change", () => {
        kit.state().lines = box.checked
          ? [...chosen, { method: m.name, params: {} }]
          : chosen.filter((line) => line.method !== m.name);
        const order = methods().map((x) => x.name);
        kit.state().lines.sort((a, b) => order.indexOf(a.method) - order.indexOf(b.method));
        kit.redraw();
      });
      return h(
        "div",
        { class: "svb-method", "data-method": m.name },
        h(
          "label",
          { class: "svl-check", title: m.summary },
          box,
          h("span", {}, m.name),
          m.lossless ? null : h("span", { class: "svf-badge svf-lossy" }, "lossy"),
        ),
        h(
          "div",
          { class: "svb-lines" },
          m.missing ? h("small", {}, m.missing) : mine.map((line, n) => parameters(line, m, n > 0)),
        ),
      );
    });
    const plain = h("input", { type: "checkbox", checked: true, disabled: true, id: "svl-batch-plain" });
    plain.checked = true;
    const base = h(
      "div",
      { class: "svb-method" },
      h("label", { class: "svl-check" }, plain, h("span", {}, "plain")),
      h("div", { class: "svb-lines" }, h("small", {}, "The baseline: it always runs.")),
    );
    return [h("fieldset", { class: "svb-methods" }, h("legend", {}, "Methods"), base, rows)];
  }

  // --- the tables ---

  function cell(table, line, n) {
    const c = line.cells[n],
      name = table.columns[n];
    const words = [
      `${line.name}, ${name}: ${c.text}${c.spread ? ` ± ${c.spread}` : ""}`,
      `mean of ${kit.plural(c.count, "value")} from ${kit.plural(c.prompts, "prompt")}`,
      c.best ? "best of its row" : "",
      c.failed ? `${kit.plural(c.failed, "run")} failed` : "",
    ]
      .filter(Boolean)
      .join("; ");
    const number = h(c.best ? "strong" : "span", {}, c.text);
    const open = () => kit.list(`${name}, ${line.name}`, c.runs);
    return h(
      "td",
      { class: `svp-num${c.best ? " svb-best" : ""}` },
      c.runs.length
        ? h(
            "button",
            { type: "button", class: "svb-open", "aria-label": `${words}. Open its runs`, title: words, onclick: open },
            number,
          )
        : h("span", { title: words }, number),
      c.spread ? h("small", {}, ` ± ${c.spread}`) : null,
      c.partly ? h("small", { class: "svl-failed" }, ` (${c.partly})`) : null,
    );
  }

  function checked(check) {
    if (!check.checked) return h("td", { class: "svp-num" }, "–");
    const words = check.bugs
      ? `${check.same}/${check.checked}, ${check.bugs} differ`
      : `${check.same}/${check.checked}`;
    const sign = check.same === check.checked ? "✓ " : check.bugs ? "✗ " : "";
    const text = h(check.bugs ? "strong" : "span", { class: check.bugs ? "svl-failed" : null }, sign + words);
    const open = () =>
      kit.list(
        `${check.name}: not plain decoding’s output`,
        check.runs.map((run) => ({
          ...run,
          word: `token ${run.at}, ${run.verdict}${run.repeat > 1 ? `, repeat ${run.repeat}` : ""}`,
        })),
      );
    return h(
      "td",
      { class: "svp-num" },
      check.runs.length
        ? h("button", { type: "button", class: "svb-open", "data-check": check.name, onclick: open }, text)
        : text,
    );
  }

  function tableOf(s, table) {
    const lossy = new Set(s.checks.filter((c) => c.lossy).map((c) => c.name));
    const heads = table.columns.map((name) =>
      h(
        "th",
        { scope: "col", class: "svp-num" },
        name,
        lossy.has(name)
          ? h(
              "span",
              { class: "svb-lossy", title: "Not lossless: the output may differ from plain decoding's" },
              " † lossy",
            )
          : null,
      ),
    );
    const byName = new Map(s.checks.map((c) => [c.name, c]));
    const rows = table.lines.map((line, n) =>
      h(
        "tr",
        { class: n && n === table.lines.length - 1 ? "svb-all" : null },
        h("th", { scope: "row" }, line.name),
        h("td", { class: "svp-num" }, line.prompts.toLocaleString()),
        table.columns.map((_, k) => cell(table, line, k)),
      ),
    );
    return h(
      "div",
      { class: "svl-scroll" },
      h(
        "table",
        { class: "svp-grid svl-table svb-table", "data-metric": table.metric },
        h("caption", { title: `${table.label} = ${table.formula}` }, table.title),
        h(
          "thead",
          {},
          h("tr", {}, h("th", { scope: "col" }, "task"), h("th", { scope: "col", class: "svp-num" }, "prompts"), heads),
        ),
        h("tbody", {}, rows),
        h(
          "tfoot",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "row" }, "same as plain"),
            h("td", {}),
            table.columns.map((name) => checked(byName.get(name))),
          ),
        ),
      ),
    );
  }

  /** What stands in the place of charts and table. */
  function below(s) {
    if (!s.rows)
      return ["queued", "running"].includes(s.state)
        ? [h("p", { class: "svp-empty" }, "The first numbers come when every method is through the first prompt.")]
        : [];
    return [
      s.warnings.map((text) => h("div", { class: "svp-note svp-error svb-warning", role: "alert" }, text)),
      s.about.notes.map((text) => h("p", { class: "svp-note" }, text)),
      h(
        "div",
        { class: "svb-tables" },
        s.tables.map((table) => tableOf(s, table)),
      ),
      h(
        "dl",
        { class: "svl-formulas" },
        s.formulas.map((f) => [h("dt", {}, f.label), h("dd", {}, `= ${f.formula}. `, h("span", {}, f.help))]),
      ),
      h(
        "ul",
        { class: "svb-remarks" },
        s.remarks.map((text) => h("li", {}, text)),
      ),
    ].flat();
  }

  /** Links to the tables as files. */
  function files(metrics) {
    const more = metrics ? `&metrics=${encodeURIComponent(metrics.join(","))}` : "";
    return [
      ["table", "Table: CSV"],
      ["tex", "LaTeX"],
      ["md", "Markdown"],
    ].map(([format, text]) => kit.link(`${format}${more}`, text));
  }

  return { body, restore, head, fields, below, files };
}
