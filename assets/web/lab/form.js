/* Page "Lab", what is asked: a recipe, a sweep of one's own, or methods × prompts. */

import { emit } from "specviz/base/bus.js";
import { h, plural } from "specviz/base/dom.js";
import { labBatch } from "specviz/lab/batch.js";
import { show } from "specviz/lab/results.js";
import {
  BATCH,
  OWN,
  SHORT,
  allowed,
  file,
  lab,
  list,
  note,
  parameters,
  post,
  recipe,
  refresh,
  state,
  suggested,
} from "specviz/lab/state.js";
import { app } from "specviz/shell/state.js";

export function body(extra = {}) {
  const s = state();
  const asked = {
    count: s.count || null,
    max_new_tokens: s.max_new_tokens || null,
    training_steps: s.training_steps || null,
    ...extra,
  };
  if (s.prompts === "file") asked.prompts = { file: lab.file || {} };
  else if (s.prompts === "trace") asked.prompts = { trace: app.shown || "" };
  else if (s.prompts) asked.prompts = s.prompts;
  if (lab.choice === BATCH) return { ...asked, batch: lab.batch.body() };
  if (lab.choice !== OWN) return { ...asked, recipe: lab.choice };
  const fixed = Object.fromEntries(
    Object.entries(s.fixed).filter(
      ([name, value]) => value !== "" && name in parameters() && !s.vary.some((v) => v.param === name),
    ),
  );
  const vary = s.vary.filter((v) => v.param && v.param in parameters());
  return {
    ...asked,
    temperature: s.temperature === "" ? null : s.temperature,
    metrics: [s.metric],
    free: { methods: s.methods || [], fixed, vary },
  };
}

const field = (label, input, help) =>
  h("label", { class: "svl-field" }, h("span", {}, label), input, help ? h("small", {}, help) : null);

function input(key, attributes) {
  const s = state();
  const element = h("input", { class: "svp-input", id: `svl-${key}`, ...attributes });
  element.value = s[key];
  element.addEventListener("input", () => {
    s[key] = element.value;
    check();
  });
  return element;
}

function promptFields(r) {
  const s = state();
  const tasks = (name) => {
    const wanted = name.split(":")[1];
    return wanted
      ? wanted
          .split(",")
          .map((task) => lab.catalog.tasks[task] || task)
          .join(", ")
      : "all tasks";
  };
  const set = r ? r.prompts : "demo:code_edit,text_edit,summary";
  const kind = set.split(":")[0];
  const options = [["", kind === "demo" ? `Held-out: ${tasks(set)}` : lab.catalog.sets[kind] || set]];
  if (set !== "demo") options.push(["demo", "Held-out: all tasks"]);
  if (kind !== "examples") options.push(["examples", "Examples of the Inspect page"]);
  if (kind !== "turns") options.push(["turns", lab.catalog.sets.turns]);
  options.push(["trace", "The prompt of the run in Inspect"], ["file", "A prompt file …"]);
  const select = h(
    "select",
    { class: "svp-select", id: "svl-prompts" },
    options.map(([value, text]) => h("option", { value }, text)),
  );
  select.value = s.prompts;
  const picker = h("input", {
    type: "file",
    id: "svl-file",
    accept: ".jsonl,.ndjson,.json,.txt,.md",
    class: "svl-file",
    hidden: s.prompts !== "file",
    "aria-label": "Prompt file",
  });
  picker.addEventListener("change", async () => {
    const file = picker.files[0];
    lab.file = file ? { name: file.name, text: await file.text() } : null;
    check();
  });
  select.addEventListener("change", () => {
    s.prompts = select.value;
    picker.hidden = s.prompts !== "file";
    check();
  });
  return [
    h("div", { class: "svl-field svl-wide" }, h("label", { for: "svl-prompts" }, "Prompts"), select, picker),
    field("How many", input("count", { type: "number", min: 1, max: 5000, placeholder: r ? String(r.count) : "6" })),
    field(
      "New tokens",
      input("max_new_tokens", { type: "number", min: 1, max: 4096, placeholder: r ? String(r.max_new_tokens) : "96" }),
    ),
    r?.repeats
      ? field("Repeats", input("repeats", { type: "number", min: 1, max: 100, placeholder: String(r.repeats) }))
      : null,
    r?.training_steps
      ? field(
          "Training steps",
          input("training_steps", { type: "number", min: 1, max: 100000, placeholder: String(r.training_steps) }),
        )
      : null,
  ];
}

function ownFields() {
  const s = state();
  const usable = lab.catalog.methods.filter((m) => !m.missing);
  s.methods ??= usable.length ? [(usable.find((m) => m.name === "pld+h") || usable[0]).name] : [];
  const methods = h(
    "fieldset",
    { class: "svl-methods svl-wide" },
    h("legend", {}, "Methods"),
    usable.map((m) => {
      const box = h("input", { type: "checkbox", value: m.name, id: `svl-method-${m.name}` });
      box.checked = s.methods.includes(m.name);
      box.addEventListener("change", () => {
        s.methods = usable.map((u) => u.name).filter((n) => (n === m.name ? box.checked : s.methods.includes(n)));
        drawMain();
      });
      return h("label", { class: "svl-check", title: m.summary }, box, m.name);
    }),
  );
  const known = parameters();
  const axes = s.vary.map((axis, n) => {
    if (axis.param && !(axis.param in known)) {
      axis.param = "";
      axis.values = "";
    }
    const select = h(
      "select",
      { class: "svp-select", id: `svl-param-${n}` },
      h("option", { value: "" }, n ? "nothing more" : "nothing: compare the methods"),
      Object.values(known).map((c) => h("option", { value: c.name }, `${c.label} (${c.name})`)),
    );
    select.value = axis.param;
    const values = h("input", {
      class: "svp-input",
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
      "div",
      { class: "svl-field svl-wide svl-axis" },
      h("label", { for: `svl-param-${n}` }, n ? "and" : "Vary"),
      select,
      values,
      control ? h("small", {}, `${allowed(control)}. ${control.help}`) : null,
    );
  });
  const rest = Object.values(known).filter((c) => !s.vary.some((v) => v.param === c.name));
  const wasOpen = lab.box.querySelector(".svl-rest")?.open;
  const fixed = rest.length
    ? h(
        "details",
        { class: "svl-rest svl-wide", open: wasOpen },
        h("summary", {}, "Other parameters"),
        h(
          "div",
          { class: "svl-form" },
          rest.map((c) => {
            const box = h("input", {
              class: "svp-input",
              placeholder:
                c.default === null ? "off" : c.kind === "bool" ? (c.default ? "yes" : "no") : String(c.default),
              "aria-label": c.label,
            });
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
    "select",
    { class: "svp-select", id: "svl-metric" },
    lab.catalog.metrics.filter((m) => !m.trained).map((m) => h("option", { value: m.key, title: m.help }, m.label)),
  );
  metric.value = s.metric;
  metric.addEventListener("change", () => {
    s.metric = metric.value;
    check();
    drawFormula();
  });
  const formula = h("small", { class: "svl-formula" });
  const drawFormula = () => {
    const m = lab.catalog.metrics.find((x) => x.key === s.metric);
    formula.textContent = m ? m.formula : "";
  };
  drawFormula();
  return [
    methods,
    axes,
    h("div", { class: "svl-field svl-wide" }, h("label", { for: "svl-metric" }, "Measure"), metric, formula),
    field("Temperature", input("temperature", { type: "number", min: 0, max: 2, step: 0.1, placeholder: "0" })),
    fixed,
  ];
}

function head(r) {
  if (!r) {
    return h(
      "header",
      { class: "svl-head" },
      h("h2", {}, "Your own sweep"),
      h(
        "p",
        { class: "svl-question" },
        "Choose methods, up to two parameters to vary, the prompts " +
          "and what to measure. Two parameters make a heat map.",
      ),
    );
  }
  const metrics = r.metrics.map(
    (key) => lab.catalog.metrics.find((m) => m.key === key)?.label || r.own_metrics?.[key] || key,
  );
  const fact = (name, ...value) => [h("dt", {}, name), h("dd", {}, ...value)];
  const values = (axis) =>
    h(
      "span",
      { class: "svl-values" },
      axis.values.map((v) => h("span", {}, v)),
    );
  return h(
    "header",
    { class: "svl-head" },
    h("p", { class: "svl-cite", title: lab.catalog.papers[r.paper] }, `${SHORT[r.paper]}, ${r.figure}`),
    h("h2", {}, r.title),
    h("p", { class: "svl-question" }, r.question),
    h(
      "dl",
      { class: "svl-facts" },
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

export function drawMain() {
  const r = recipe();
  const had = document.activeElement?.id;
  const many = lab.choice === BATCH;
  const form = r
    ? promptFields(r).slice(r.alone ? 3 : 0)
    : many
      ? [...lab.batch.fields(), ...promptFields(lab.catalog.batch)]
      : [...ownFields(), ...promptFields(null)];
  lab.box
    .querySelector(".svl-setup")
    .replaceChildren(
      many ? lab.batch.head() : head(r),
      h("div", { class: "svl-form" }, form),
      h(
        "div",
        { class: "svl-go" },
        h("button", { type: "button", class: "svl-run", id: "svl-run", onclick: () => start(false) }, "Run"),
        h("span", { class: "svl-estimate", role: "status" }),
      ),
      h("p", { class: "svp-note svl-note", role: "status" }),
    );
  if (had?.startsWith("svl-")) document.getElementById(had)?.focus();
  check();
}

/** The estimate, or why it cannot be run, a moment after the last change. */
function check() {
  clearTimeout(lab.check);
  const ticket = ++lab.ticket;
  const place = lab.box.querySelector(".svl-estimate"),
    run = document.getElementById("svl-run");
  const r = recipe();
  if (lab.catalog.reason || r?.missing.length) {
    run.disabled = true;
    place.textContent = lab.catalog.reason || `Not available here: ${r.missing.join(", ")}.`;
    return;
  }
  run.disabled = false;
  if (state().prompts === "file" && !lab.file) {
    place.textContent = "Choose a prompt file.";
    run.disabled = true;
    return note("");
  }
  lab.check = setTimeout(async () => {
    try {
      const found = await post("estimate", body());
      if (ticket !== lab.ticket) return;
      place.textContent = found.text;
      note(found.notes.join(" "));
    } catch (problem) {
      if (ticket !== lab.ticket) return;
      place.textContent = "";
      note(problem.message, true);
    }
  }, 250);
}

async function start(yes) {
  const run = document.getElementById("svl-run");
  if (run.disabled) return;
  run.disabled = true;
  try {
    const answer = await post("start", body(yes ? { yes: true } : {}));
    if (answer.asks) return ask(answer.asks);
    note("");
    await refresh();
    show(answer.id);
    emit("lab");
  } catch (problem) {
    note(problem.message, true);
  } finally {
    run.disabled = false;
  }
}

function ask(question) {
  const box = lab.box.querySelector(".svl-dialog");
  box.replaceChildren(
    h("p", {}, question),
    h(
      "div",
      { class: "svl-row" },
      h(
        "button",
        {
          type: "button",
          class: "svl-run",
          onclick: () => {
            box.close();
            start(true);
          },
        },
        "Start it",
      ),
      h("button", { type: "button", class: "svp-button", onclick: () => box.close() }, "Not now"),
    ),
  );
  box.showModal();
}

lab.batch = labBatch({ lab, state, check, redraw: drawMain, field, allowed, plural, list, link: file });
