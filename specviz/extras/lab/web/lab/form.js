/* Page "Lab", what is asked: a recipe, a sweep of one's own, or methods × prompts. */

import { emit } from "specviz/base/bus.js";
import { h, titled } from "specviz/base/dom.js";
import { bound } from "specviz/base/field.js";
import { short } from "specviz/base/numbers.js";
import { sentence } from "specviz/base/json.js";
import * as batch from "specviz/lab/batch.js";
import { show } from "specviz/lab/results.js";
import {
  BATCH, OWN, allowed, catalog, closing, dialog, field, gallery, lab, note, parameters, parts, post, recipe,
  refresh, shortPaper, state, suggested, typed,
} from "specviz/lab/state.js";
import { app } from "specviz/shell/state.js";
import { joined, parted, rulesOf } from "specviz/shell/verifiers.js";

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
    length: form.length || null,
    workers: form.workers || null,
    on: form.workers ? form.on : "",
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
  const attributes = { id: `svl-${key}`, type: "number", min: 1, placeholder: String(usual), ...limits };
  return field(label, bound(h("input.svp-input", attributes), state(), key, check));
}
/** @typedef {"count" | "max_new_tokens" | "repeats" | "training_steps" | "temperature" | "workers"} NumberKey */

/** The verifiers that a method's drafts are judged by beside its own: a line each. */
/** @type {(method: MethodCard) => Child} */
function ruleChecks({ name: base, title }) {
  const s = state(), chosen = s.methods ?? [];
  const groups = rulesOf(catalog(), base, !(Number(s.temperature) > 0));
  const checks = groups.flatMap(({ rules }) => rules.map(({ rule, lossless, off }) => {
    const name = joined(base, rule.name), checked = chosen.includes(name);
    const words = `${rule.title}${lossless ? "" : " (lossy)"}${off ? " — temperature above 0" : ""}`;
    const disabled = off && !checked;
    const box = h("input", { type: "checkbox", id: `svl-method-${name}`, value: name, checked, disabled });
    box.addEventListener("change", () => {
      s.methods = box.checked ? [...chosen, name] : chosen.filter((one) => one !== name);
      drawMain();
    });
    return h("label.svl-check.ui-check", { title: rule.summary }, box, words);
  }));
  const of = chosen.filter((name) => parted(name).rule && parted(name).base === base).length;
  if (!checks.length) return null;
  const summary = h("summary", `${short(title)} under other verifiers`, of > 0 && ` (${of})`);
  const details = h("details.svl-rules.svl-wide.ui-fold", { open: lab.rules.has(base) || of > 0 }, summary, checks);
  details.addEventListener("toggle", () => lab.rules[details.open ? "add" : "delete"](base));
  return details;
}

/** How many workers do it, each with a model of its own, and of which kind. */
function workerFields() {
  const kinds = Object.entries(catalog().workers);
  if (!kinds.length) return [];
  const form = state();
  const options = kinds.map(([name, about]) => h("option", { value: name }, about));
  const select = bound(h("select.svp-select", { id: "svl-on" }, options), form, "on", check);
  const kind = h("div.svl-field.svl-kind.ui-above", h("label", { for: "svl-on" }, "which are"), select);
  kind.hidden = !form.workers;
  const number = numberField("workers", "Workers", 0, { min: 1, max: 64, placeholder: "none" });
  number.title = "Each opens the model itself. None: the app's own model does all runs, one after another.";
  number.addEventListener("input", () => (kind.hidden = !form.workers));
  return [number, kind];
}

/** How much of the drafts is verified: all, or what pays. */
function lengthField() {
  const options = [["", "fixed: all of a draft"], ["auto", "auto: what pays here"]];
  const choices = options.map(([value, text]) => h("option", { value }, text));
  const select = bound(h("select.svp-select", { id: "svl-length" }, choices), state(), "length", check);
  return h("div.svl-field.svl-kind.ui-above", h("label", { for: "svl-length" }, "Draft length"), select);
}

/** Names of a set's tasks. @param {string} set */
function tasks(set) {
  const [, names] = set.split(":");
  return names ? names.split(",").map((task) => catalog().tasks[task] || task).join(", ") : "all tasks";
}

/** Which prompts, and how much of them. */
/** @param {Pick<LabExperiment, "prompts" | "count" | "max_new_tokens"> & Partial<LabExperiment>} usual */
function promptFields({ prompts: set, count, max_new_tokens, repeats, training_steps }) {
  const s = state();
  const { sets, samples } = catalog();
  const kind = set.split(":")[0];
  const options = [["", kind === "demo" ? `Held-out: ${tasks(set)}` : sets[kind] || set]];
  if (set !== "demo") options.push(["demo", "Held-out: all tasks"]);
  if (kind !== "examples") options.push(["examples", "Examples of the Inspect page"]);
  for (const name of ["turns", ...samples]) if (kind !== name) options.push([name, sets[name]]);
  options.push(["trace", "The prompt of the run in Inspect"], ["file", "A prompt file …"]);
  const picker = h("input", {
    type: "file",
    id: "svl-file",
    accept: ".jsonl,.ndjson,.json,.txt,.md",
    hidden: s.prompts !== "file",
    "aria-label": "Prompt file",
    onchange: async ({ currentTarget: { files } }) => {
      const file = files?.[0];
      lab.file = file ? { name: file.name, text: await file.text() } : null;
      check();
    },
  });
  const choices = options.map(([value, text]) => h("option", { value }, text));
  const select = bound(h("select.svp-select", { id: "svl-prompts" }, choices), s, "prompts", () => {
    picker.hidden = s.prompts !== "file";
    check();
  });
  return [
    h("div.svl-field.svl-wide.ui-above", h("label", { for: "svl-prompts" }, "Prompts"), select, picker),
    numberField("count", "How many", count, { max: 5000 }),
    numberField("max_new_tokens", "New tokens", max_new_tokens, { max: 4096 }),
    repeats ? numberField("repeats", "Repeats", repeats, { max: 100 }) : null,
    training_steps ? numberField("training_steps", "Training steps", training_steps, { max: 100000 }) : null,
  ];
}

/** The temperature; the verifiers that can be chosen depend on whether it is 0. */
function temperatureField() {
  const greedy = () => !(Number(state().temperature) > 0);
  const made = numberField("temperature", "Temperature", 0, { min: 0, max: 2, step: 0.1 });
  let before = greedy();
  made.addEventListener("change", () => {
    if (greedy() === before) return;
    before = greedy();
    drawMain();
  });
  return made;
}

function ownFields() {
  const s = state();
  const usable = catalog().methods.filter((m) => !m.missing);
  const usual = usable.find((m) => m.usual) ?? usable[0];
  const chosen = (s.methods ??= usual ? [usual.name] : []);
  const methods = h(
    "fieldset.svl-methods.svl-wide.ui-row",
    h("legend", "Methods"),
    usable.map(({ name, title, summary }) => {
      const tick = { value: name, checked: chosen.includes(name) };
      const box = h("input", { type: "checkbox", id: `svl-method-${name}`, ...tick });
      box.addEventListener("change", () => {
        const others = chosen.filter((m) => parted(m).base !== name);
        const place = (/** @type {string} */ m) => usable.findIndex((one) => one.name === parted(m).base);
        s.methods = (box.checked ? [...chosen, name] : others).sort((a, b) => place(a) - place(b));
        drawMain();
      });
      return h("label.svl-check.ui-check", { title: `${name}: ${summary}` }, box, short(title));
    }),
  );
  const rules = usable.filter(({ name }) => chosen.some((one) => parted(one).base === name)).map(ruleChecks);
  const there = parameters();
  const axes = s.vary.map((axis, n) => {
    if (!(axis.param in there)) Object.assign(axis, { param: "", values: "" });
    const params = Object.values(there).map((c) => h("option", { value: c.name }, `${c.label} (${c.name})`));
    const none = h("option", { value: "" }, n ? "nothing more" : "nothing: compare the methods");
    const select = bound(h("select.svp-select", { id: `svl-param-${n}` }, none, params), axis, "param", () => {
      axis.values = axis.param ? suggested(there[axis.param]) : "";
      drawMain();
    });
    const hint = { placeholder: "1, 2, 4 or 0..1 step 0.1", "aria-label": "Values", disabled: !axis.param };
    const control = there[axis.param];
    return h(
      "div.svl-field.svl-wide.ui-above",
      h("label", { for: `svl-param-${n}` }, n ? "and" : "Vary"),
      select,
      bound(h("input.svp-input", { id: `svl-values-${n}`, ...hint }), axis, "values", check),
      control && h("small", `${allowed(control)}. ${control.help}`),
    );
  });
  const rest = Object.values(there).filter((c) => !s.vary.some((v) => v.param === c.name));
  const open = Boolean(parts.setup.querySelector(".svl-rest[open]"));
  const others = rest.map((c) => {
    const box = h("input.svp-input", { placeholder: typed(c.default), "aria-label": c.label });
    return field(c.label, bound(box, s.fixed, c.name, check), allowed(c));
  });
  const measured = catalog().metrics.filter((m) => !m.trained);
  const metrics = measured.map((m) => h("option", { value: m.key, title: m.help }, m.label));
  const formula = h("small");
  const drawFormula = () => {
    formula.textContent = measured.find((m) => m.key === s.metric)?.formula ?? "";
  };
  const metric = bound(h("select.svp-select", { id: "svl-metric" }, metrics), s, "metric", () => {
    check();
    drawFormula();
  });
  drawFormula();
  return [
    methods,
    rules,
    axes,
    h("div.svl-field.svl-wide.ui-above", h("label", { for: "svl-metric" }, "Measure"), metric, formula),
    temperatureField(),
    rest.length > 0 &&
      h("details.svl-rest.ui-fold", { open }, h("summary", "Other parameters"), h("div.svl-form.ui-row", others)),
  ];
}

const SWEEP =
  "Choose methods, up to two parameters to vary, the prompts and what to measure. Two parameters make a heat map.";

/** What is asked, in words, and its facts: by the paper, or by oneself. @param {LabRecipe | null} r */
function head(r) {
  if (!r) return { title: titled("Your own sweep", SWEEP), facts: null };
  const metrics = r.metrics.map((key) => [...catalog().metrics, ...r.own].find((m) => m.key === key)?.label || key);
  /** @param {LabAxis} axis */
  const values = (axis) => h("span.svl-values", axis.values.map((value) => h("span", typed(value))));
  const papers = r.papers.length ? `drawn from ${r.papers.join(", ")}` : "none printed; ours are drawn alone";
  const trains = `${r.parts} for these lines, alike but for what is compared; kept for the next time`;
  /** What is said of it; nothing of what is empty. @type {[name: string, value: Child][]} */
  const facts = [
    ...r.axes.map((axis) => /** @type {[string, Child]} */ (["Varies", [`${axis.label} `, values(axis)]])),
    ["Lines", !r.promptless && r.lines.map((line) => line.label).join(" · ")],
    ["Trains", r.parts && trains],
    ["Measures", metrics.join(" · ")],
    ["Temperature", r.temperature > 0 && String(r.temperature)],
    ["Its numbers", papers],
    ["Note", r.note],
  ];
  const cite = h("p.ui-soft", { title: gallery().papers[r.paper]?.title }, `${shortPaper(r.paper)}, ${r.figure}`);
  const list = h("dl.svl-facts", facts.map(([name, value]) => value && [h("dt", name), h("dd", value)]));
  const found = r.finding && h("p.svl-found", h("b", "The paper found: "), r.finding);
  const answer = h("div.svl-answer", found, parts.verdict);
  return { title: titled(r.title, r.question, cite, answer), facts: list };
}

/** Draws what is chosen and its form. */
export function drawMain() {
  const r = recipe();
  const had = document.activeElement?.id;
  const many = lab.choice === BATCH;
  const form = r
    ? promptFields(r).slice(r.promptless ? 3 : 0)
    : many
      ? [batch.fields({ check, redraw: drawMain }), ...promptFields(catalog().batch), temperatureField()]
      : [...ownFields(), ...promptFields(OWN_PROMPTS)];
  // what comes with results keeps its settings behind one button
  const { title, facts } = many ? { title: batch.head(), facts: null } : head(r);
  const open = lab.unfolded.get(lab.choice) ?? (!r || !lab.id);
  const settings = h(
    "details.svl-settings.ui-fold",
    { open },
    h("summary", r ? "What is measured, and run it here" : "Settings"),
    facts,
    h("div.svl-form.ui-row", form, r?.promptless ? null : lengthField(), workerFields()),
    h("div.svl-go.ui-row", parts.run, parts.estimate),
    parts.note,
  );
  settings.addEventListener("toggle", () => {
    lab.unfolded.set(lab.choice, settings.open);
    if (settings.open) check();
  });
  parts.setup.replaceChildren(title, settings);
  note("");
  if (had?.startsWith("svl-")) document.getElementById(had)?.focus();
  if (open) check();
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
  dialog(h("p", question), h("div.ui-line", closing("Start it", () => start(true), "svl-run"), closing("Not now")));

parts.run.addEventListener("click", () => start());
