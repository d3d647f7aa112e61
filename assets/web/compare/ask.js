/* Page "Compare", what is asked: the prompt, the methods and their parameters, the buttons that start and stop. */

import { append, h, must } from "specviz/base/dom.js";
import { bound, fields, valuesOf } from "specviz/base/field.js";
import { getJson, sentence, tell } from "specviz/base/json.js";
import { plural } from "specviz/base/numbers.js";
import { inLine, safe } from "specviz/base/text.js";
import { MARKS, going, page, part, post, tint } from "specviz/compare/state.js";
import { offerModel } from "specviz/shell/made_with.js";
import { badge, methodGroups, missingMethods, trained } from "specviz/shell/methods.js";
import { app } from "specviz/shell/state.js";

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
  const asked = { mode };
  for (const [name] of FIELDS[mode]) asked[name] = values[name] || "";
  const same =
    example && example.prompt.mode === mode &&
    FIELDS[mode].every(([name]) => (example.prompt[name] || "") === asked[name]);
  if (same) Object.assign(asked, { title: example.label, reference: example.prompt.reference || "" }); // no other's
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
    { id: "svc-prompt", value: form.choice, onchange: ({ currentTarget }) => choosePrompt(currentTarget.value) },
    h("optgroup", { label: "Examples" }, data.examples.map((one) => h("option", { value: one.id }, one.label))),
    h("option", { value: "own" }, "Your own prompt"),
    h("option", { value: "trace" }, "The run open on Inspect"),
  );
  const place = part("prompt-form");
  place.replaceChildren(h("label.svf-title", { for: "svc-prompt" }, "Prompt"), select);
  if (form.choice !== "trace") return append(place, texts());
  const run = app.inspector?.model?.run;
  const made = h("p.svm-offer", { hidden: true });
  const what = run ? `“${inLine(run.title)}”: its prompt, token by token.` : "No run is open on Inspect yet.";
  place.append(h("p.svc-help", what));
  if (run) place.append(h("pre.svc-recorded-prompt", { tabindex: 0, "aria-label": "Prompt" }, promptText()));
  place.append(made);
  if (run) offerModel(made, run.id);
}

/** The prompt of the run that is open on Inspect, without what its chat template adds. */
function promptText() {
  const { model } = must(app.inspector);
  const ids = model.trace.tokens.id.slice(0, model.promptLength);
  const said = ids.filter((_, at) => model.trace.tokens.segment[at] !== "template");
  return safe(model.pieces.cells(said).map(({ text }) => text).join(""));
}

/** How the prompt is made up, and its texts. */
function texts() {
  const { form, data } = page;
  const modes = /** @type {PromptMode[]} */ (Object.keys(MODES)).map((mode) => {
    const choose = () => {
      form.mode = mode;
      drawPrompt();
    };
    const input = { type: "radio", name: "svc-mode", value: mode, checked: mode === form.mode, onchange: choose };
    return h("label", h("input", input), MODES[mode]);
  });
  const areas = FIELDS[form.mode].map(([name, label, rows]) => {
    const id = `svc-${name}`;
    const placeholder = name === "context" && "The text to work on. Put --- on a line of its own between passages.";
    const area = h("textarea.svc-area", { id, rows, spellcheck: "false", placeholder });
    return [h("label", { for: id }, label), bound(area, form.values, name)];
  });
  const note = data.examples.find((one) => one.id === form.choice)?.note;
  return [
    h("fieldset.svc-modes", h("legend.svp-unseen", "The prompt's form"), modes),
    areas,
    note && h("p.svc-help", note),
  ];
}

const methods = () => must(page.catalog, "catalog").methods;
const usable = () => methods().filter((m) => !m.missing && !m.baseline);

/** @param {string} [name] the method's, else one that is not there yet */
function addLane(name) {
  const taken = page.wanted.map((one) => one.method);
  const method = usable().find((m) => m.name === name) || usable().find((m) => !taken.includes(m.name)) || usable()[0];
  if (method) page.wanted.push({ method: method.name, read: () => ({}), wrong: () => false, open: false });
}

/** A lane's letter. @param {number} n 0: plain decoding */
const letter = (n) => h("b.sv-lane-mark", { "aria-hidden": "true", style: tint(n) }, MARKS[n]);

/** Draws lanes and button after ``change``. @type {(change: () => void) => () => void} */
const changing = (change) => () => {
  change();
  drawLanes();
  drawGo();
};

function drawLanes() {
  const baseline = methods().find((m) => m.baseline);
  const more = page.wanted.length < page.data.most && usable().length > 0;
  const place = part("lane-forms");
  place.replaceChildren(
    h(
      "div.svc-form-card.svc-base",
      letter(0),
      h("b", baseline ? baseline.title : "Plain decoding"),
      h("span.svc-help", "always runs: the baseline"),
    ),
    ...page.wanted.map((one, n) => laneCard(one, n)),
  );
  if (more) place.append(h("button.svp-button.svc-add", { onclick: changing(() => addLane()) }, "+ Add a method"));
}

/** A lane's method and parameters. @type {(one: WantedLane, n: number) => HTMLElement} */
function laneCard(one, n) {
  const method = must(methods().find((m) => m.name === one.method), one.method);
  const kept = (page.kept[`${n} ${one.method}`] ??= {});
  const lane = `lane ${MARKS[n + 1]}`;
  const select = h(
    "select.svp-select",
    { id: `svc-method-${n}`, "aria-label": `Method of ${lane}`, value: one.method },
    methodGroups(methods().filter((m) => !m.baseline)),
  );
  select.addEventListener("change", () => {
    one.method = select.value;
    drawLanes();
    document.getElementById(`svc-method-${n}`)?.focus();
  });
  const remove = changing(() => page.wanted.splice(n, 1));
  const rows = fields(method.controls, kept, undefined, `lane${n}-`);
  one.read = () => valuesOf(rows);
  one.wrong = () => rows.some(({ row }) => row.querySelector('[aria-invalid="true"]'));
  const details = h("details", { open: one.open }, h("summary", "Parameters"), rows.map(({ row }) => row));
  details.addEventListener("toggle", () => {
    one.open = details.open;
  });
  return h(
    "div.svc-form-card",
    h(
      "div.svc-form-head",
      letter(n + 1),
      select,
      badge(method),
      page.wanted.length > 1 &&
        h("button.svp-x.svc-remove", { "aria-label": `Remove ${lane}`, title: "Remove", onclick: remove }, "×"),
    ),
    h("p.svc-help", method.summary, trained(method.trained) && h("b", ` ${trained(method.trained)}.`)),
    rows.length > 0 && details,
  );
}

function drawSettings() {
  const settings = must(page.catalog, "catalog").settings.filter((c) => c.name !== "compare");
  const rows = fields(settings, page.common, undefined, "lanes-");
  page.readSettings = () => valuesOf(rows);
  const length = rows.filter(({ name }) => name === "max_new_tokens").map(({ row }) => row);
  const rest = rows.filter(({ name }) => name !== "max_new_tokens").map(({ row }) => row);
  const sampling = rest.length ? h("details", h("summary", "Sampling"), rest) : "";
  part("settings").replaceChildren(...length, sampling, missingMethods(methods()));
}

/** What can run, asked for again; the first lanes where none is chosen. */
export async function catalog() {
  page.catalog = await getJson("api/methods");
  page.wanted = page.wanted.filter((one) => methods().some((m) => m.name === one.method));
  if (!page.wanted.length) for (const m of usable().filter((one) => one.compared)) addLane(m.name);
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

/** A sentence beside the button. @type {(text: string, error?: boolean) => void} */
export const note = (text, error) => tell(part("note"), text, error);

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
