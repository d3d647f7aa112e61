/* The model picker: which models are here, which is in use, and another one in its place. */

import { on } from "specviz/base/bus.js";
import { getJson, sentence } from "specviz/base/json.js";
import { plural, shortSize } from "specviz/base/numbers.js";
import { choose } from "specviz/shell/made_with.js";
import { app } from "specviz/shell/state.js";
import { Coded, computed, html, signal } from "specviz/ui/html.js";
import { Sheet, floating } from "specviz/ui/sheet.js";

const NAMED = ["bundled", "smollm2"]; // others are named by where they lie
const OWN = "fp32"; // a model's weights as they are

const shown = signal(false);
const list = signal(/** @type {ModelList | null} */ (null));
/** The weights chosen; "": those in use. */
const weights = signal("");
const typed = signal("");
const wrong = signal("");
/** Whether a model is being looked at, before it loads. */
const looks = signal(false);
const now = signal(app.model);
/** Nothing else can be chosen while a model is looked at, or loads. */
const loading = computed(() => looks.value || !!now.value.coming || now.value.state === "loading");
/** @type {HTMLElement | null} */
let back = null;
let number = 0; // of the model that was in use when the picker was opened
let mine = false; // the choice made last, here and not by somebody else
let drawn = false;

/** Bytes as disks and memory are sold. @param {number} count */
const bytes = (count) => count >= 1e9 ? `${(count / 1e9).toFixed(1)} GB` : `${Math.max(1, Math.round(count / 1e6))} MB`;

/** What is told of a model in a line. @param {ListedModel} model */
function facts({ parameters, size_bytes: size, memory_bytes: memory }) {
  const count = parameters && `${shortSize(parameters)} parameters`;
  return [count, size && `${bytes(size)} on disk`, memory && `about ${bytes(memory)} of memory`].filter(Boolean)
    .join(" · ");
}

/** @param {ListedModel} model */
function Parts({ parts: names }) {
  if (!names?.length) return html`<p>${names ? "No trained parts yet" : "Trained parts: known once it was opened"}</p>`;
  return html`<details class="ui-fold"><summary>${plural(names.length, "trained part")}</summary>
    <ul>${names.map((name) => html`<li>${name}</li>`)}</ul></details>`;
}

/** @param {{ one: ListedModel, of: ModelList }} props */
function Row({ one, of }) {
  const { name, kind, missing, model, notes } = one;
  const here = model === of.used && now.value.state === "ready";
  const used = here && weights.value === of.weights;
  const more = notes.filter((text) => text !== "the default");
  return html`<li class="ui-line ${missing ? "svm-missing" : ""}" aria-current=${used ? "true" : null}>
    <div class="svm-what ui-soft">
      <p><b>${name}</b> ${[kind, ...more].join(", ")}</p>
      ${!NAMED.includes(model) && model !== name && html`<p class="svm-place">${model}</p>`}
      ${missing ? html`<p><${Coded} text=${missing} /></p>` : html`<p>${facts(one)}</p><${Parts} ...${one} />`}
      ${used && of.pending && html`<p class="ui-soft">Meanwhile runs go on as they are: ${of.pending}.</p>`}
    </div>
    ${used ? html`<span class="svm-used">✓ In use</span>` : html`<button type="button" class="svp-button"
      aria-label="Use ${name}${here ? ` with ${weights.value} weights` : ""}" disabled=${loading.value || !!missing}
      onClick=${() => use(model)}>Use</button>`}
  </li>`;
}

/** How far a model is that loads. */
function Busy() {
  const { coming, name, state, text } = now.value;
  const said = looks.value ? "Looking at it …" : coming ? coming.text : text;
  const share = /(\d+)%$/.exec(said)?.[1];
  const stays = coming && state === "ready" ? ` ${name} stays in use until it is ready.` : "";
  return html`<p class="svm-busy ui-row" role="status" hidden=${!loading.value}>
    <span class="svp-spin" aria-hidden="true" />
    <span>${said}${looks.value ? "" : `.${stays}`}</span>
    ${share && html`<progress max="100" value=${share} aria-hidden="true" />`}
  </p>`;
}

function Picker() {
  const of = list.value;
  /** @type {(event: FieldEvent<HTMLSelectElement>) => unknown} */
  const weigh = ({ currentTarget }) => ((weights.value = currentTarget.value), refresh());
  const type = (/** @type {FieldEvent} */ { currentTarget }) => (typed.value = currentTarget.value);
  const load = (/** @type {Event} */ event) => (event.preventDefault(), use(typed.value));
  return html`<${Sheet} title="Model" open=${shown.value} close=${close} class="svm">
    <p class="ui-soft">Runs started from now on use the model you choose; those that wait or go on keep theirs.</p>
    ${of && of.choices.length > 1 && html`<div class="svm-weights ui-row ui-soft">
      <label for="svm-weights">Weights</label>
      <select class="svp-select" id="svm-weights" value=${weights.value} onChange=${weigh}>
        ${of.choices.map((one) => html`<option value=${one} selected=${one === weights.value}>
          ${one === OWN ? "fp32, as in the file" : `${one}, rounded`}</option>`)}</select>
      <span>Rounded ones are read faster and, once loaded, take less memory; what the model writes may differ.</span>
    </div>`}
    <ul class="svm-list ui-stack" aria-label="Models that are here">${of
      ? of.models.map((one) => html`<${Row} key=${one.model} one=${one} of=${of} />`)
      : html`<li>Looking for models …</li>`}</ul>
    <${Busy} />
    <p class="svp-note svm-wrong ${wrong.value && "svp-error"}" role="alert">${wrong.value}</p>
    <form class="svm-other ui-above" onSubmit=${load}>
      <label for="svm-typed">Another one: a model folder, a GGUF file or a hub id</label>
      <div class="ui-line">
        <input class="svp-input" id="svm-typed" placeholder="path, or org/name" maxlength="400" autocomplete="off"
          spellcheck="false" autocapitalize="off" value=${typed.value} onInput=${type} />
        <button type="submit" class="svp-button" disabled=${loading.value}>Load</button>
      </div>
    </form>
  </${Sheet}>`;
}

async function refresh() {
  const asked = weights.value;
  try {
    /** @type {ModelList} */
    const found = await getJson(`api/models?weights=${asked}`);
    if (weights.value !== asked) return; // others were chosen meanwhile
    list.value = found;
    weights.value ||= found.weights;
    if (mine && found.refused) wrong.value = found.refused.text; // else what was said meanwhile stays
  } catch (problem) {
    wrong.value = sentence(problem);
  }
}

/** @param {string} model */
async function use(model) {
  if (loading.value || !model.trim()) return;
  looks.value = mine = true;
  wrong.value = "";
  /** @type {HTMLElement | null} */ (document.querySelector(".svm h2"))?.focus(); // the button goes off under it
  await choose(model, weights.value).catch((problem) => (wrong.value = sentence(problem)));
  looks.value = false;
}

function close() {
  shown.value = false;
  back?.focus();
}

/** Opens the picker; the focus goes back to ``opener``. @param {HTMLElement} opener */
export function open(opener) {
  back = opener;
  wrong.value = weights.value = "";
  now.value = app.model;
  number = app.model.number;
  if (!drawn) floating(html`<${Picker} />`);
  drawn = shown.value = true;
  return refresh();
}

on("status", () => {
  if (!shown.value) return;
  const was = loading.value;
  now.value = app.model;
  if (app.model.number !== number) {
    typed.value = "";
    mine = false;
    close(); // the model is there
  } else if (was && !loading.value) refresh(); // it could not be loaded
});
