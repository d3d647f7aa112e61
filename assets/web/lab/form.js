/* Page "Lab", what is asked: a recipe, a sweep of one's own, or methods × prompts. */

import { emit } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { sentence } from "specviz/base/problem.js";
import * as batch from "specviz/lab/batch.js";
import { show } from "specviz/lab/results.js";
import {
  BATCH, OWN, SHORT, allowed, catalog, closing, dialog, field, lab, note, parameters, parts, post, recipe, refresh,
  state, suggested, typed,
} from "specviz/lab/state.js";
import { app } from "specviz/shell/state.js";

const OWN_PROMPTS = { prompts: "demo:code_edit,text_edit,summary", count: 6, max_new_tokens: 96 };

/** What is asked of the server; ``yes``: however long it takes. @param {{yes?: boolean}} [extra] */
function body(extra = {}) {
  const form = state();
  const prompts =
    form.prompts === "file"
      ? { file: lab.file || {} }
      : form.prompts === "trace" ? { trace: app.shown || "" } : form.prompts || undefined;
  const asked = {
    count: form.count || null,
    max_new_tokens: form.max_new_tokens || null,
    training_steps: form.training_steps || null,
    prompts,
    ...extra,
  };
  if (lab.choice === BATCH) return { ...asked, batch: batch.body() };
  if (lab.choice !== OWN) return { ...asked, recipe: lab.choice };
  const there = parameters();
  const vary = form.vary.filter((v) => v.param in there);
  const fixed = Object.entries(form.fixed).filter(
    ([name, value]) => value !== "" && name in there && !vary.some((v) => v.param === name),
  );
  return {
    ...asked,
    temperature: form.temperature === "" ? null : form.temperature,
    metrics: [form.metric],
    free: { methods: form.methods || [], fixed: Object.fromEntries(fixed), vary },
  };
}

/** A field for a number. @type {(key: NumberKey, label: string, usual: number, limits: object) => HTMLElement} */
function numberField(key, label, usual, limits) {
  const form = state();
  const attributes = { type: "number", min: 1, placeholder: String(usual), ...limits };
  const input = h("input", { class: "svp-input", id: `svl-${key}`, ...attributes });
  input.value = form[key];
  input.addEventListener("input", () => {
    form[key] = input.value;
    check();
  });
  return field(label, input);
}
/** @typedef {"count" | "max_new_tokens" | "repeats" | "training_steps" | "temperature"} NumberKey */

/** Names of a set's tasks. @param {string} set */
function tasks(set) {
  const [, names] = set.split(":");
  return names ? names.split(",").map((task) => catalog().tasks[task] || task).join(", ") : "all tasks";
}

/**
 * Which prompts, and how much of them.
 *
 * @param {{prompts: string, count: number, max_new_tokens: number, repeats?: number, training_steps?: number}} usual
 */
function promptFields({ prompts: set, count, max_new_tokens, repeats, training_steps }) {
  const s = state();
  const { sets } = catalog();
  const kind = set.split(":")[0];
  const options = [["", kind === "demo" ? `Held-out: ${tasks(set)}` : sets[kind] || set]];
  if (set !== "demo") options.push(["demo", "Held-out: all tasks"]);
  if (kind !== "examples") options.push(["examples", "Examples of the Inspect page"]);
  if (kind !== "turns") options.push(["turns", sets.turns]);
  options.push(["trace", "The prompt of the run in Inspect"], ["file", "A prompt file …"]);
  const select = h(
    "select.svp-select",
    { id: "svl-prompts" },
    options.map(([value, text]) => h("option", { value }, text)),
  );
  select.value = s.prompts;
  const picker = h("input.svl-file", {
    type: "file",
    id: "svl-file",
    accept: ".jsonl,.ndjson,.json,.txt,.md",
    hidden: s.prompts !== "file",
    "aria-label": "Prompt file",
  });
  picker.addEventListener("change", async () => {
    const file = picker.files?.[0];
    lab.file = file ? { name: file.name, text: await file.text() } : null;
    check();
  });
  select.addEventListener("change", () => {
    s.prompts = select.value;
    picker.hidden = s.prompts !== "file";
    check();
  });
  return [
    h("div.svl-field.svl-wide", h("label", { for: "svl-prompts" }, "Prompts"), select, picker),
    numberField("count", "How many", count, { max: 5000 }),
    numberField("max_new_tokens", "New tokens", max_new_tokens, { max: 4096 }),
    repeats ? numberField("repeats", "Repeats", repeats, { max: 100 }) : null,
    training_steps ? numberField("training_steps", "Training steps", training_steps, { max: 100000 }) : null,
  ];
}

function ownFields() {
  const s = state();
  const usable = catalog().methods.filter((m) => !m.missing);
  const usual = usable.find((m) => m.name === "pld+h") ?? usable[0];
  const chosen = (s.methods ??= usual ? [usual.name] : []);
  const methods = h(
    "fieldset.svl-methods.svl-wide",
    h("legend", "Methods"),
    usable.map((m) => {
      const box = h("input", { type: "checkbox", value: m.name, id: `svl-method-${m.name}` });
      box.checked = chosen.includes(m.name);
      box.addEventListener("change", () => {
        s.methods = usable.map((u) => u.name).filter((n) => (n === m.name ? box.checked : chosen.includes(n)));
        drawMain();
      });
      return h("label.svl-check", { title: m.summary }, box, m.name);
    }),
  );
  const known = parameters();
  const axes = s.vary.map((axis, n) => {
    if (axis.param && !(axis.param in known)) {
      axis.param = "";
      axis.values = "";
    }
    const select = h(
      "select.svp-select",
      { id: `svl-param-${n}` },
      h("option", { value: "" }, n ? "nothing more" : "nothing: compare the methods"),
      Object.values(known).map((c) => h("option", { value: c.name }, `${c.label} (${c.name})`)),
    );
    select.value = axis.param;
    const values = h("input.svp-input", {
      id: `svl-values-${n}`,
      placeholder: "1, 2, 4 or 0..1 step 0.1",
      "aria-label": "Values",
    });
    values.value = axis.values;
    values.disabled = !axis.param;
    values.addEventListener("input", () => {
      axis.values = values.value;
      check();
    });
    select.addEventListener("change", () => {
      axis.param = select.value;
      axis.values = axis.param ? suggested(known[axis.param]) : "";
      drawMain();
    });
    const control = known[axis.param];
    return h(
      "div.svl-field.svl-wide.svl-axis",
      h("label", { for: `svl-param-${n}` }, n ? "and" : "Vary"),
      select,
      values,
      control ? h("small", `${allowed(control)}. ${control.help}`) : null,
    );
  });
  const rest = Object.values(known).filter((c) => !s.vary.some((v) => v.param === c.name));
  const wasOpen = Boolean(parts.setup.querySelector(".svl-rest[open]"));
  const fixed = rest.length
    ? h(
        "details.svl-rest.svl-wide",
        { open: wasOpen },
        h("summary", "Other parameters"),
        h(
          "div.svl-form",
          rest.map((c) => {
            const box = h("input.svp-input", { placeholder: typed(c.default), "aria-label": c.label });
            box.value = s.fixed[c.name] || "";
            box.addEventListener("input", () => {
              s.fixed[c.name] = box.value;
              check();
            });
            return field(c.label, box, allowed(c));
          }),
        ),
      )
    : null;
  const metric = h(
    "select.svp-select",
    { id: "svl-metric" },
    catalog().metrics.filter((m) => !m.trained).map((m) => h("option", { value: m.key, title: m.help }, m.label)),
  );
  metric.value = s.metric;
  metric.addEventListener("change", () => {
    s.metric = metric.value;
    check();
    drawFormula();
  });
  const formula = h("small.svl-formula");
  const drawFormula = () => {
    formula.textContent = catalog().metrics.find((x) => x.key === s.metric)?.formula ?? "";
  };
  drawFormula();
  return [
    methods,
    axes,
    h("div.svl-field.svl-wide", h("label", { for: "svl-metric" }, "Measure"), metric, formula),
    numberField("temperature", "Temperature", 0, { min: 0, max: 2, step: 0.1 }),
    fixed,
  ];
}

/** What is asked, in words: by the paper, or by oneself. @param {LabRecipe | null} r */
function head(r) {
  if (!r) {
    return h(
      "header.svl-head",
      h("h2", "Your own sweep"),
      h(
        "p.svl-question",
        "Choose methods, up to two parameters to vary, the prompts " +
          "and what to measure. Two parameters make a heat map.",
      ),
    );
  }
  const metrics = r.metrics.map((key) => [...catalog().metrics, ...r.own].find((m) => m.key === key)?.label || key);
  /** @type {(name: string, ...value: Child[]) => Child[]} */
  const fact = (name, ...value) => [h("dt", name), h("dd", ...value)];
  const values = (/** @type {LabAxis} */ axis) =>
    h("span.svl-values", axis.values.map((v) => h("span", typed(v))));
  return h(
    "header.svl-head",
    h("p.svl-cite", { title: catalog().papers[r.paper] }, `${SHORT[r.paper]}, ${r.figure}`),
    h("h2", r.title),
    h("p.svl-question", r.question),
    h(
      "dl.svl-facts",
      r.axes.map((axis) => fact("Varies", `${axis.label} `, values(axis))),
      r.alone ? null : fact("Lines", r.lines.map((l) => l.label).join(" · ")),
      r.training_steps
        ? fact("Trains", `${r.parts} for these lines, alike but for what is compared; kept for the next time`)
        : null,
      fact("Measures", metrics.join(" · ")),
      r.temperature ? fact("Temperature", String(r.temperature)) : null,
      fact("The paper found", r.finding),
      fact("Its numbers", r.papers.length ? `drawn from ${r.papers.join(", ")}` : "none printed; ours are drawn alone"),
      r.note ? fact("Note", r.note) : null,
    ),
  );
}

/** Draws what is chosen and its form. */
export function drawMain() {
  const r = recipe();
  const had = document.activeElement?.id;
  const many = lab.choice === BATCH;
  const form = r
    ? promptFields(r).slice(r.alone ? 3 : 0)
    : many
      ? [batch.fields({ check, redraw: drawMain }), ...promptFields(catalog().batch)]
      : [...ownFields(), ...promptFields(OWN_PROMPTS)];
  parts.setup.replaceChildren(
    many ? batch.head() : head(r),
    h("div.svl-form", form),
    h("div.svl-go", parts.run, parts.estimate),
    parts.note,
  );
  note("");
  if (had?.startsWith("svl-")) document.getElementById(had)?.focus();
  check();
}

/** The estimate, or why it cannot be run, a moment after the last change. */
function check() {
  clearTimeout(lab.check);
  const ticket = ++lab.ticket;
  const missing = recipe()?.missing ?? [];
  const why =
    catalog().reason || (missing.length ? `Not available here: ${missing.join(", ")}.` : "") ||
    (state().prompts === "file" && !lab.file ? "Choose a prompt file." : "");
  parts.run.disabled = Boolean(why);
  if (why) {
    parts.estimate.textContent = why;
    return note("");
  }
  lab.check = setTimeout(async () => {
    try {
      /** @type {{text: string, notes: string[]}} */
      const { text, notes } = await post("estimate", body());
      if (ticket !== lab.ticket) return;
      parts.estimate.textContent = text;
      note(notes.join(" "));
    } catch (problem) {
      if (ticket !== lab.ticket) return;
      parts.estimate.textContent = "";
      note(sentence(problem), true);
    }
  }, 250);
}

async function start(yes = false) {
  if (parts.run.disabled) return;
  parts.run.disabled = true;
  try {
    /** @type {{id: string, asks?: string}} */
    const { id, asks } = await post("start", body(yes ? { yes } : {}));
    if (asks) return ask(asks);
    note("");
    await refresh();
    show(id);
    emit("lab");
  } catch (problem) {
    note(sentence(problem), true);
  } finally {
    parts.run.disabled = false;
  }
}

/** @param {string} question */
const ask = (question) =>
  dialog(h("p", question), h("div.svl-row", closing("Start it", () => start(true), "svl-run"), closing("Not now")));

parts.run.addEventListener("click", () => start());
