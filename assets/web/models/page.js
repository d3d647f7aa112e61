/* The model picker: which models are here, which is in use, and another one in its place. */

import { on } from "specviz/base/bus.js";
import { coded, h, must } from "specviz/base/dom.js";
import { getJson, sentence, tell } from "specviz/base/json.js";
import { shortSize } from "specviz/base/numbers.js";
import { choose } from "specviz/shell/made_with.js";
import { app } from "specviz/shell/state.js";

const NAMED = ["bundled", "smollm2"]; // others are named by where they lie
/** @type {Record<string, string>} */
const WEIGHTS = { fp32: "fp32, as they are", int8: "int8, rounded", int4: "int4, rounded" };

/** @type {ModelList | null} */
let shown = null;
let loading = false;
/** @type {HTMLElement | null} */
let back = null;
let number = 0; // of the model that was in use when the picker was opened

const list = h("ul.svm-list", { "aria-label": "Models that are here" });
const busy = h("p.svm-busy", { role: "status", hidden: true });
const wrong = h("p.svp-note.svm-wrong", { role: "alert" });
const typed = h("input.svp-input", {
  id: "svm-typed",
  placeholder: "path, or org/name",
  maxlength: 400,
  autocomplete: "off",
  spellcheck: "false",
  autocapitalize: "off",
});
const other = h(
  "form.svm-other",
  { onsubmit: (event) => (event.preventDefault(), use(typed.value)) },
  h("label", { for: "svm-typed" }, "Another one: a model folder, a GGUF file or a hub id"),
  h("div.svm-row-typed", typed, h("button.svp-button", { type: "submit" }, "Load")),
);
const weights = h("select.svp-input", { id: "svm-weights", onchange: () => refresh() });
const rounded = h(
  "span",
  "Rounded ones are read faster and, once loaded, take less memory; what the model writes may differ.",
);
const kinds = h("div.svm-weights", { hidden: true }, h("label", { for: "svm-weights" }, "Weights"), weights, rounded);
const title = h("h2", { id: "svm-title", tabindex: -1, autofocus: true }, "Model");
const dialog = h("dialog.svp.svm", { "aria-labelledby": "svm-title" });
const close = h("button.svp-x.svm-close", { "aria-label": "Close", onclick: () => dialog.close() }, "×");
dialog.append(
  h(
    "div.svm-inside",
    h("div.svm-head", title, close),
    h("p.svm-about", "Runs started from now on use the model you choose; those that wait or go on keep theirs."),
    kinds,
    list,
    busy,
    wrong,
    other,
  ),
);

/** What is told of a model in a line. @param {ListedModel} model */
function facts({ parameters, size_bytes: size, memory_bytes: memory }) {
  const count = parameters && `${shortSize(parameters)} parameters`;
  return [count, size && `${bytes(size)} on disk`, memory && `about ${bytes(memory)} of memory`].filter(Boolean)
    .join(" · ");
}

/** Bytes as disks and memory are sold. @param {number} count */
const bytes = (count) => count >= 1e9 ? `${(count / 1e9).toFixed(1)} GB` : `${Math.max(1, Math.round(count / 1e6))} MB`;

/** @param {ListedModel} model */
function parts({ parts: names }) {
  if (names === null) return "Trained parts: known once it was opened";
  return names.length ? `Trained parts: ${names.join(", ")}` : "No trained parts yet";
}

/** @param {ListedModel} model */
function row(model) {
  const { name, kind, missing, notes } = model;
  const here = model.model === must(shown).used && app.model.state === "ready";
  const used = here && weights.value === must(shown).weights;
  const more = notes.filter((text) => text !== "the default");
  const place = !NAMED.includes(model.model) && model.model !== name && h("p.svm-place", model.model);
  const what = h(
    "div.svm-what",
    h("p", h("b", name), h("span", ` ${[kind, ...more].join(", ")}`)),
    place,
    missing ? h("p", coded(missing)) : [h("p", facts(model)), h("p", parts(model))],
  );
  const again = here ? `Use ${name} with ${weights.value} weights` : `Use ${name}`;
  const label = { "aria-label": again, disabled: loading || Boolean(missing), onclick: () => use(model.model) };
  const choice = used ? h("span.svm-used", "✓ In use") : h("button.svp-button", label, "Use");
  return h("li", { class: missing ? "svm-missing" : null, "aria-current": used ? "true" : null }, what, choice);
}

function draw() {
  const { coming } = app.model;
  loading = Boolean(coming) || app.model.state === "loading";
  busy.hidden = !loading;
  const text = coming ? coming.text : app.model.text;
  const share = /(\d+)%$/.exec(text)?.[1];
  const stays = coming && app.model.state === "ready" ? ` ${app.model.name} stays in use until it is ready.` : "";
  busy.replaceChildren(
    h("span.svp-spin", { "aria-hidden": "true" }),
    h("span", `${text}.${stays}`),
    share ? h("progress", { max: 100, value: share, "aria-hidden": "true" }) : "",
  );
  able();
}

/** Nothing else can be chosen while a model is looked at, or loads. */
function able() {
  for (const button of dialog.querySelectorAll("li:not(.svm-missing) button, form button")) {
    if (button instanceof HTMLButtonElement) button.disabled = loading;
  }
}

async function refresh() {
  const asked = weights.value;
  try {
    const found = await getJson(`api/models?weights=${asked}`);
    if (weights.value !== asked) return; // others were chosen meanwhile
    shown = found;
  } catch (problem) {
    return tell(wrong, sentence(problem), true);
  }
  drawWeights();
  draw();
  list.replaceChildren(...must(shown).models.map(row));
  const { refused } = must(shown);
  if (refused) tell(wrong, refused.text, true); // else what was said meanwhile stays
}

/** The weights that can be chosen here; at first those in use. */
function drawWeights() {
  const { choices, weights: used } = must(shown);
  kinds.hidden = choices.length < 2;
  const chosen = weights.value || used;
  weights.replaceChildren(...choices.map((one) => h("option", { value: one }, WEIGHTS[one] ?? one)));
  weights.value = chosen;
}

/** @param {string} model */
async function use(model) {
  if (loading || !model.trim()) return;
  loading = true;
  title.focus(); // the button goes off under it
  able();
  tell(wrong, "");
  busy.hidden = false;
  busy.replaceChildren(h("span.svp-spin", { "aria-hidden": "true" }), "Looking at it …");
  try {
    await choose(model, weights.value);
    draw();
  } catch (problem) {
    draw();
    tell(wrong, sentence(problem), true);
  }
}

/** Opens the picker; the focus goes back to ``opener``. @param {HTMLElement} opener */
export function open(opener) {
  back = opener;
  tell(wrong, "");
  if (!dialog.isConnected) document.body.append(dialog);
  if (!dialog.open) dialog.showModal();
  number = app.model.number;
  weights.replaceChildren(); // those in use
  if (!shown) list.replaceChildren(h("li", "Looking for models …"));
  return refresh();
}

dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close(); // beside it
});

on("status", () => {
  if (!dialog.open) return;
  const was = loading;
  draw();
  if (app.model.number !== number) {
    typed.value = "";
    dialog.close(); // the model is there
  } else if (was && !loading) refresh(); // it could not be loaded
});
dialog.addEventListener("close", () => back?.focus());
