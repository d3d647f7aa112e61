/* Page "Compare", what is asked: the prompt, the methods and their parameters, the buttons that start and stop. */

import { h, must, plural } from "specviz/base/dom.js";
import { field } from "specviz/base/field.js";
import { getJson } from "specviz/base/json.js";
import { sentence } from "specviz/base/problem.js";
import { MARKS, colored, going, page, part, post } from "specviz/compare/state.js";
import { methodOption, missingMethods } from "specviz/shell/methods.js";
import { app } from "specviz/shell/state.js";

const DEFAULTS = ["pld", "pld+h", "adapld"];
const MODES = { segments: "Segments", chat: "Chat", text: "Plain text" };
/** @type {Record<PromptMode, [name: string, label: string, rows: number][]>} */
const FIELDS = {
  segments: [["instruction", "Instruction", 2], ["context", "Context", 7], ["question", "Question", 1]],
  chat: [["text", "Text", 9]],
  text: [["text", "Text", 9]],
};

/** The prompt as the server takes it. */
function prompt() {
  if (page.form.choice === "trace") return { trace: app.shown };
  const { mode, values } = page.form;
  const example = page.data.examples.find((one) => one.id === page.form.choice);
  /** @type {Record<string, string>} */
  const asked = { mode, reference: values.reference || "" };
  for (const [name] of FIELDS[mode]) asked[name] = values[name] || "";
  const same =
    example && example.prompt.mode === mode &&
    FIELDS[mode].every(([name]) => (example.prompt[name] || "") === asked[name]);
  if (same) asked.title = example.label;
  return asked;
}

/** @param {string} choice an example's id, "own" or "trace" */
export function choosePrompt(choice) {
  const example = page.data.examples.find((one) => one.id === choice);
  page.form.choice = choice;
  if (example) Object.assign(page.form, { mode: example.prompt.mode, values: { ...example.prompt } });
  drawPrompt();
  drawGo();
}

/** The prompt's form. */
export function drawPrompt() {
  const { form, data } = page;
  const select = h(
    "select.svp-select",
    { id: "svc-prompt" },
    h("optgroup", { label: "Examples" }, data.examples.map((one) => h("option", { value: one.id }, one.label))),
    h("option", { value: "own" }, "Your own prompt"),
    h("option", { value: "trace" }, "The run open on Inspect"),
  );
  select.value = form.choice;
  select.addEventListener("change", () => choosePrompt(select.value));
  /** @type {HTMLElement[]} */
  const parts = [h("label.svf-title", { for: "svc-prompt" }, "Prompt"), select];
  if (form.choice === "trace") {
    const run = app.inspector?.model?.run;
    parts.push(h("p.svc-help", run ? `“${run.title}”: its prompt, token by token.` : "No run is open on Inspect yet."));
  } else {
    const modes = /** @type {PromptMode[]} */ (Object.keys(MODES)).map((mode) => {
      const radio = h("input", { type: "radio", name: "svc-mode", value: mode });
      radio.checked = mode === form.mode;
      radio.addEventListener("change", () => {
        form.mode = mode;
        drawPrompt();
      });
      return h("label", radio, MODES[mode]);
    });
    parts.push(h("fieldset.svc-modes", h("legend.svc-unseen", "The prompt's form"), modes));
    for (const [name, label, rows] of FIELDS[form.mode]) {
      const id = `svc-${name}`;
      const area = h("textarea.svc-area", {
        id,
        rows,
        spellcheck: "false",
        placeholder: name === "context" ? "The text to work on. Put --- on a line of its own between passages." : null,
      });
      area.value = form.values[name] || "";
      area.addEventListener("input", () => {
        form.values[name] = area.value;
      });
      parts.push(h("label", { for: id }, label), area);
    }
    const note = data.examples.find((one) => one.id === form.choice)?.note;
    if (note) parts.push(h("p.svc-help", note));
  }
  part("prompt-form").replaceChildren(...parts);
}

const methods = () => must(page.catalog, "catalog").methods;
const usable = () => methods().filter((m) => !m.missing && m.name !== "plain");

/** @param {string} [name] the method's, else one that is not there yet */
function addLane(name) {
  const taken = page.wanted.map((one) => one.method);
  const method = usable().find((m) => m.name === name) || usable().find((m) => !taken.includes(m.name)) || usable()[0];
  if (method) page.wanted.push({ method: method.name, read: () => ({}), wrong: () => false, open: false });
}

/** A lane's letter. @param {number} n 0: plain decoding */
const letter = (n) => colored(h("b.sv-lane-mark", { "aria-hidden": "true" }, MARKS[n]), n);

function drawLanes() {
  const baseline = methods().find((m) => m.name === "plain");
  const cards = page.wanted.map((one, n) => laneCard(one, n));
  const add =
    page.wanted.length < page.data.most && usable().length
      ? h(
          "button.svp-button.svc-add",
          {
            onclick: () => {
              addLane();
              drawLanes();
              drawGo();
            },
          },
          "+ Add a method",
        )
      : null;
  part("lane-forms").replaceChildren(
    h(
      "div.svc-form-card.svc-base",
      letter(0),
      h("b", baseline ? baseline.title : "Plain decoding"),
      h("span.svc-help", "always runs: the baseline"),
    ),
    ...cards,
    add ?? "",
  );
}

/** A lane's method and parameters. @type {(one: WantedLane, n: number) => HTMLElement} */
function laneCard(one, n) {
  const method = must(methods().find((m) => m.name === one.method), one.method);
  const kept = (page.kept[`${n} ${one.method}`] ??= {});
  /** @type {(label: string, some: MethodCard[]) => Child} */
  const group = (label, some) => some.length > 0 && h("optgroup", { label }, some.map((m) => methodOption(m)));
  const select = h(
    "select.svp-select",
    { id: `svc-method-${n}`, "aria-label": `Method of lane ${MARKS[n + 1]}` },
    group("Lossless", usable().filter((m) => m.lossless)),
    group("Lossy", usable().filter((m) => !m.lossless)),
    group("Not available here", methods().filter((m) => m.missing && m.name !== "plain")),
  );
  select.value = one.method;
  select.addEventListener("change", () => {
    one.method = select.value;
    drawLanes();
    document.getElementById(`svc-method-${n}`)?.focus();
  });
  const { rows, read } = fields(method.controls, `lane${n}-`, kept);
  one.read = read;
  one.wrong = () => rows.some((row) => row.row.querySelector('[aria-invalid="true"]'));
  const details = rows.length
    ? h("details", { open: one.open }, h("summary", "Parameters"), rows.map((row) => row.row))
    : null;
  details?.addEventListener("toggle", () => {
    one.open = details.open;
  });
  return h(
    "div.svc-form-card",
    h(
      "div.svc-form-head",
      letter(n + 1),
      select,
      h(
        "span",
        { class: `svf-badge ${method.lossless ? "svf-lossless" : "svf-lossy"}` },
        method.lossless ? "= lossless" : "≈ lossy",
      ),
      page.wanted.length > 1
        ? h(
            "button.svp-x.svc-remove",
            {
              "aria-label": `Remove lane ${MARKS[n + 1]}`,
              title: "Remove",
              onclick: () => {
                page.wanted.splice(n, 1);
                drawLanes();
                drawGo();
              },
            },
            "×",
          )
        : null,
    ),
    h("p.svc-help", method.summary),
    details,
  );
}

/**
 * A row per control, its name after ``prefix``; what is typed stays in ``kept``.
 *
 * @param {Control[]} controls
 * @param {string} prefix
 * @param {Record<string, Setting>} kept
 */
function fields(controls, prefix, kept) {
  const rows = controls.map((control, k) => {
    const { name } = control;
    /** @returns {void} */
    const keep = () => {
      kept[name] = rows[k].read();
    };
    return field({ ...control, name: prefix + name }, name in kept ? kept[name] : control.default, keep);
  });
  /** @returns {Record<string, Setting>} */
  const read = () => Object.fromEntries(controls.map((control, k) => [control.name, rows[k].read()]));
  return { rows, read };
}

function drawSettings() {
  const settings = must(page.catalog, "catalog").settings.filter((c) => c.name !== "compare");
  const { rows, read } = fields(settings, "lanes-", page.common);
  page.readSettings = read;
  const length = rows.filter((row) => row.name === "lanes-max_new_tokens"),
    rest = rows.filter((row) => row.name !== "lanes-max_new_tokens");
  const missing = methods().filter((m) => m.missing);
  part("settings").replaceChildren(
    ...length.map((row) => row.row),
    rest.length ? h("details", h("summary", "Sampling"), rest.map((row) => row.row)) : "",
    missingMethods(missing),
  );
}

/** What can run, asked for again; the first lanes where none is chosen. */
export async function catalog() {
  page.catalog = await getJson("api/methods");
  page.wanted = page.wanted.filter((one) => methods().some((m) => m.name === one.method));
  if (!page.wanted.length) for (const method of DEFAULTS) if (usable().some((m) => m.name === method)) addLane(method);
  if (!page.wanted.length) addLane();
  drawLanes();
  drawSettings();
  drawGo();
}

/** The buttons that start and stop. */
export function drawGo() {
  const live = going() && page.lanes.some((lane) => lane.mine);
  const reason = page.catalog?.reason;
  const run = part("run", HTMLButtonElement);
  run.disabled = Boolean(reason) || live || !page.wanted.length;
  run.textContent = `Run ${plural(page.wanted.length + 1, "lane")}`;
  if (page.framed) part("stop").hidden = !live;
  part("reason").textContent = reason ? `${reason} Recorded runs can be compared all the same.` : "";
  part("reason").hidden = !reason;
}

/** A sentence beside the button. @param {string} text */
export function note(text, error = false) {
  const place = part("note");
  place.textContent = text;
  place.classList.toggle("svp-error", Boolean(text && error));
  place.setAttribute("role", error ? "alert" : "status");
}

/** Starts what is asked; ``begin`` follows the lanes. @param {(lanes: Partial<CompareLane>[]) => void} begin */
export async function run(begin) {
  const button = part("run", HTMLButtonElement);
  if (button.disabled) return;
  if (page.wanted.some((one) => one.wrong())) return note("A parameter is out of its range: it is marked red.", true);
  button.disabled = true;
  note("");
  try {
    const asked = {
      prompt: prompt(),
      lanes: page.wanted.map((one) => ({ method: one.method, params: one.read() })),
      settings: page.readSettings(),
      session: await app.session(),
    };
    /** @type {StartedLanes} */
    const { lanes } = await post("start", asked);
    begin(lanes.map((lane) => ({ ...lane, mine: true })));
    part("setup", HTMLDetailsElement).open = false;
  } catch (problem) {
    note(sentence(problem), true);
  }
  drawGo();
}

/** Stops all lanes of this page. */
export function stop() {
  page.stopping = true;
  post("stop", { ids: page.lanes.filter((lane) => lane.id).map((lane) => lane.id) }).catch((problem) =>
    note(sentence(problem), true),
  );
}
