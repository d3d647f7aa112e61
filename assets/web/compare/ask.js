/* Page "Compare", what is asked: the prompt, the methods and their parameters, the buttons that start and stop. */

import { h, plural } from "specviz/base/dom.js";
import { field } from "specviz/base/field.js";
import { getJson } from "specviz/base/json.js";
import { MARKS, colored, going, page, part, post } from "specviz/compare/state.js";
import { app } from "specviz/shell/state.js";

const DEFAULTS = ["pld", "pld+h", "adapld"];
const MODES = { segments: "Segments", chat: "Chat", text: "Plain text" };
const FIELDS = {
  segments: [
    ["instruction", "Instruction", 2],
    ["context", "Context", 7],
    ["question", "Question", 1],
  ],
  chat: [["text", "Text", 9]],
  text: [["text", "Text", 9]],
};

function prompt() {
  if (page.form.choice === "trace") return { trace: app.shown };
  const { mode, values } = page.form;
  const example = page.data.examples.find((one) => one.id === page.form.choice);
  const asked = { mode, reference: values.reference || "" };
  for (const [name] of FIELDS[mode]) asked[name] = values[name] || "";
  const same =
    example &&
    example.prompt.mode === mode &&
    FIELDS[mode].every(([name]) => (example.prompt[name] || "") === asked[name]);
  if (same) asked.title = example.label;
  return asked;
}

function choosePrompt(choice) {
  const example = page.data.examples.find((one) => one.id === choice);
  page.form.choice = choice;
  if (example) Object.assign(page.form, { mode: example.prompt.mode, values: { ...example.prompt } });
  drawPrompt();
  drawGo();
}

export function drawPrompt() {
  const { form, data } = page;
  const select = h(
    "select",
    { class: "svp-select", id: "svc-prompt" },
    h(
      "optgroup",
      { label: "Examples" },
      data.examples.map((one) => h("option", { value: one.id }, one.label)),
    ),
    h("option", { value: "own" }, "Your own prompt"),
    h("option", { value: "trace" }, "The run open on Inspect"),
  );
  select.value = form.choice;
  select.addEventListener("change", () => choosePrompt(select.value));
  const parts = [h("label", { for: "svc-prompt", class: "svf-title" }, "Prompt"), select];
  if (form.choice === "trace") {
    const run = app.inspector?.model?.run;
    parts.push(
      h(
        "p",
        { class: "svc-help" },
        run ? `“${run.title}”: its prompt, token by token.` : "No run is open on Inspect yet.",
      ),
    );
  } else {
    const modes = Object.entries(MODES).map(([mode, label]) => {
      const radio = h("input", { type: "radio", name: "svc-mode", value: mode });
      radio.checked = mode === form.mode;
      radio.addEventListener("change", () => {
        form.mode = mode;
        drawPrompt();
      });
      return h("label", {}, radio, label);
    });
    parts.push(h("fieldset", { class: "svc-modes" }, h("legend", { class: "svc-unseen" }, "The prompt's form"), modes));
    for (const [name, label, rows] of FIELDS[form.mode]) {
      const id = `svc-${name}`;
      const area = h("textarea", {
        id,
        rows,
        class: "svc-area",
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
    if (note) parts.push(h("p", { class: "svc-help" }, note));
  }
  part("prompt-form").replaceChildren(...parts);
}

export function choicesReady() {
  const first = page.data.examples[0];
  if (first) Object.assign(page.form, { choice: first.id, mode: first.prompt.mode, values: { ...first.prompt } });
  drawPrompt();
}

function usable() {
  return page.catalog.methods.filter((m) => !m.missing && m.name !== "plain");
}

function addLane(name) {
  const taken = page.wanted.map((one) => one.method);
  const found = usable().find((m) => m.name === name) || usable().find((m) => !taken.includes(m.name)) || usable()[0];
  if (found) page.wanted.push({ method: found.name, read: () => ({}), open: false });
}

function drawLanes() {
  const { methods } = page.catalog;
  const baseline = methods.find((m) => m.name === "plain");
  const cards = page.wanted.map((one, n) => laneCard(one, n));
  const add =
    page.wanted.length < page.data.most && usable().length
      ? h(
          "button",
          {
            type: "button",
            class: "svp-button svc-add",
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
      "div",
      { class: "svc-form-card svc-base" },
      colored(h("b", { class: "sv-lane-mark", "aria-hidden": "true" }, MARKS[0]), 0),
      h("b", {}, baseline ? baseline.title : "Plain decoding"),
      h("span", { class: "svc-help" }, "always runs: the baseline"),
    ),
    ...cards,
    ...(add ? [add] : []),
  );
}

function laneCard(one, n) {
  const { methods } = page.catalog;
  const method = methods.find((m) => m.name === one.method);
  const kept = (page.kept[`${n} ${one.method}`] ??= {});
  const option = (m) =>
    h(
      "option",
      { value: m.name, disabled: Boolean(m.missing) },
      m.title + (m.lossless ? "" : " (lossy)") + (m.missing ? " — not available" : ""),
    );
  const can = methods.filter((m) => m.name !== "plain"),
    there = can.filter((m) => !m.missing),
    missing = can.filter((m) => m.missing);
  const lossy = there.filter((m) => !m.lossless);
  const select = h(
    "select",
    { class: "svp-select", id: `svc-method-${n}`, "aria-label": `Method of lane ${MARKS[n + 1]}` },
    h("optgroup", { label: "Lossless" }, there.filter((m) => m.lossless).map(option)),
    lossy.length ? h("optgroup", { label: "Lossy" }, lossy.map(option)) : null,
    missing.length ? h("optgroup", { label: "Not available here" }, missing.map(option)) : null,
  );
  select.value = one.method;
  select.addEventListener("change", () => {
    one.method = select.value;
    drawLanes();
    document.getElementById(`svc-method-${n}`).focus();
  });
  const rows = method.controls.map((control) =>
    field(
      { ...control, name: `lane${n}-${control.name}` },
      control.name in kept ? kept[control.name] : control.default,
      () => {
        kept[control.name] = rows.find((row) => row.name === `lane${n}-${control.name}`)?.read();
      },
    ),
  );
  one.read = () => Object.fromEntries(method.controls.map((control, k) => [control.name, rows[k].read()]));
  one.wrong = () => rows.some((row) => row.row.querySelector('[aria-invalid="true"]'));
  const details = rows.length
    ? h(
        "details",
        { open: one.open },
        h("summary", {}, "Parameters"),
        rows.map((row) => row.row),
      )
    : null;
  details?.addEventListener("toggle", () => {
    one.open = details.open;
  });
  return h(
    "div",
    { class: "svc-form-card" },
    h(
      "div",
      { class: "svc-form-head" },
      colored(h("b", { class: "sv-lane-mark", "aria-hidden": "true" }, MARKS[n + 1]), n + 1),
      select,
      h(
        "span",
        { class: `svf-badge ${method.lossless ? "svf-lossless" : "svf-lossy"}` },
        method.lossless ? "= lossless" : "≈ lossy",
      ),
      page.wanted.length > 1
        ? h(
            "button",
            {
              type: "button",
              class: "svp-x svc-remove",
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
    h("p", { class: "svc-help" }, method.summary),
    details,
  );
}

function drawSettings() {
  const shown = page.catalog.settings.filter((c) => c.name !== "compare");
  const make = (c) =>
    field({ ...c, name: `lanes-${c.name}` }, c.name in page.common ? page.common[c.name] : c.default, () => {
      page.common[c.name] = rows.find((row) => row.name === `lanes-${c.name}`)?.read();
    });
  const rows = shown.map(make);
  page.readSettings = () => Object.fromEntries(shown.map((c, k) => [c.name, rows[k].read()]));
  const length = rows.filter((row) => row.name === "lanes-max_new_tokens"),
    rest = rows.filter((row) => row.name !== "lanes-max_new_tokens");
  const missing = page.catalog.methods.filter((m) => m.missing);
  part("settings").replaceChildren(
    ...length.map((row) => row.row),
    rest.length
      ? h(
          "details",
          {},
          h("summary", {}, "Sampling"),
          rest.map((row) => row.row),
        )
      : "",
    missing.length
      ? h(
          "details",
          { class: "svf-missing" },
          h("summary", {}, `${missing.length} not available here`),
          missing.map((m) => h("p", {}, h("b", {}, m.title), `: ${m.missing}`)),
        )
      : "",
  );
}

export async function catalog() {
  page.catalog = await getJson("api/methods");
  page.wanted = page.wanted.filter((one) => page.catalog.methods.some((m) => m.name === one.method));
  if (!page.wanted.length) for (const method of DEFAULTS) if (usable().some((m) => m.name === method)) addLane(method);
  if (!page.wanted.length) addLane();
  drawLanes();
  drawSettings();
  drawGo();
}

export function drawGo() {
  const live = going() && page.lanes.some((lane) => lane.mine);
  const reason = page.catalog.reason;
  const run = part("run"),
    stop = part("stop");
  run.disabled = Boolean(reason) || live || !page.wanted.length;
  run.textContent = `Run ${plural(page.wanted.length + 1, "lane")}`;
  if (stop) stop.hidden = !live;
  part("reason").textContent = reason ? `${reason} Recorded runs can be compared all the same.` : "";
  part("reason").hidden = !reason;
}

export function note(text, error) {
  const place = part("note");
  place.textContent = text || "";
  place.classList.toggle("svp-error", Boolean(text && error));
  place.setAttribute("role", error ? "alert" : "status");
}

/** Starts what is asked; ``begin`` follows the lanes that come of it. */
export async function run(begin) {
  if (part("run").disabled) return;
  if (page.wanted.some((one) => one.wrong?.())) return note("A parameter is out of its range: it is marked red.", true);
  part("run").disabled = true;
  note("");
  try {
    const asked = {
      prompt: prompt(),
      lanes: page.wanted.map((one) => ({ method: one.method, params: one.read() })),
      settings: page.readSettings(),
      session: await app.session(),
    };
    const answer = await post("start", asked);
    begin(answer.lanes.map((lane) => ({ ...lane, mine: true })));
    page.box.querySelector(".svc-setup").open = false;
  } catch (problem) {
    note(problem.message, true);
  }
  drawGo();
}

export function stop() {
  page.stopping = true;
  post("stop", { ids: page.lanes.filter((lane) => lane.id).map((lane) => lane.id) }).catch((problem) =>
    note(problem.message, true),
  );
}
