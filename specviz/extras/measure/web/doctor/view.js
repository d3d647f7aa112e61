/* The view of the drafter doctor: which part, on which prompts; how far it is; findings, positions, controls. */

import { on } from "specviz/base/bus.js";
import { place } from "specviz/base/dom.js";
import { getJson, goesOn, poll, postJson, sentFile, sentence } from "specviz/base/json.js";
import { Choice, Field, Slider } from "specviz/ui/field.js";
import { batch, html, render, signal } from "specviz/ui/html.js";
import { Curve } from "specviz/doctor/curve.js";
import { Report } from "specviz/doctor/report.js";

const LOOK_MS = 600;
const FILE = "file";

const answer = signal(/** @type {DoctorAnswer | null} */ (null));
const asked = signal({ part: "", prompts: "examples", count: 12, max_new_tokens: 48, places: 240, temperature: 1,
  raw: false });
/** Files as they were chosen: the prompts, and a server's log. @type {{ prompts: File | null, server: File | null }} */
const files = { prompts: null, server: null };
const now = signal(/** @type {DoctorProgress | null} */ (null));
const wrong = signal("");
let newest = 0;
const busy = signal(false); // it was asked to begin, and has not answered yet

/** What there is to examine, and the examinations of this user. */
async function load() {
  try {
    const got = /** @type {DoctorAnswer} */ (await getJson("api/doctor"));
    const { parts, examinations } = got;
    const { part } = asked.value;
    batch(() => {
      answer.value = got;
      if (!parts.some(({ id }) => id === part)) asked.value = { ...asked.value, part: parts[0]?.id ?? "" };
    });
    if (!now.value && examinations.length) await show(examinations[0].id);
  } catch (problem) {
    wrong.value = sentence(problem);
  }
}

/** Shows an examination, and follows it until it is over. @param {string} id */
async function show(id) {
  wrong.value = "";
  const ticket = ++newest;
  const wanted = () => ticket === newest; // else another one is looked at
  /** @returns {Promise<DoctorProgress>} */
  const ask = () => getJson(`api/doctor/of/${encodeURIComponent(id)}`);
  try {
    await poll(ask, LOOK_MS, wanted, (one) => goesOn((now.value = one).state));
  } catch (problem) {
    if (wanted()) wrong.value = sentence(problem);
    return;
  }
  if (wanted()) answer.value = await getJson("api/doctor").catch(() => answer.value);
}

/** @param {Event} event */
async function start(event) {
  event.preventDefault();
  if (busy.value) return;
  busy.value = true;
  wrong.value = "";
  try {
    if (asked.value.prompts === FILE && !files.prompts) throw new Error("Choose a prompt file first.");
    const prompts = asked.value.prompts === FILE ? await sentFile(files.prompts) : asked.value.prompts;
    const card = await postJson("api/doctor/start", { ...asked.value, prompts, server: await sentFile(files.server) });
    show(card.id);
  } catch (problem) {
    wrong.value = sentence(problem);
  }
  busy.value = false;
}

const stop = () =>
  postJson("api/doctor/stop", { id: now.value?.id }).catch((problem) => (wrong.value = sentence(problem)));

/** A field that takes a file. */
/** @param {{ label: string, help: string, name: "prompts" | "server", accept: string }} props */
const Upload = ({ label, help, name, accept }) => html`<${Field} label=${label} help=${help}>
  ${(/** @type {object} */ tied) => html`<input type="file" accept=${accept} ...${tied}
    onChange=${(/** @type {FieldEvent} */ { currentTarget }) =>
      (files[name] = currentTarget.files?.[0] ?? null)} />`}
</${Field}>`;

/** @param {{ of: DoctorAnswer }} props */
function Form({ of }) {
  const { part, prompts, count, max_new_tokens: length, places, temperature, raw } = asked.value;
  /** @type {(name: string) => (value: string | number | boolean) => unknown} */
  const change = (name) => (value) => (asked.value = { ...asked.value, [name]: value });
  const parts = of.parts.map(({ id, title, own }) => ({
    value: id, label: title, group: own ? "Your own" : "Shipped",
  }));
  const sets = Object.entries({ ...of.sets, [FILE]: "A prompt file …" }).map(([value, label]) => ({ value, label }));
  return html`<form class="svdr-form ui-stack" onSubmit=${start}>
    <${Choice} label="Part" value=${part} options=${parts} change=${change("part")}
      help=${`What drafts for ${of.model}. Another model is chosen by a click on its name at the top.`} />
    <${Curve} curve=${of.parts.find(({ id }) => id === part)?.curve ?? null} />
    <${Choice} label="Prompts" value=${prompts} options=${sets} change=${change("prompts")}
      help="The target writes its own answers to them, and the part drafts along these." />
    ${prompts === FILE && html`<${Upload} label="Prompt file" name="prompts" accept=".jsonl,.ndjson,.json,.txt,.md"
      help="Plain text, or JSONL in Spec-Bench's form, among others." />`}
    <${Slider} label="How many" value=${count} low=${1} high=${48} change=${change("count")} />
    <details class="ui-fold">
      <summary>More</summary>
      <${Slider} label="New tokens" value=${length} low=${8} high=${512} change=${change("max_new_tokens")} />
      <${Slider} label="Places" value=${places} low=${20} high=${5000} step=${20} change=${change("places")}
        help="At which drafts are made, of all answers together: more make z larger." />
      <${Slider} label="Temperature" value=${temperature} low=${0.05} high=${2} step=${0.05}
        change=${change("temperature")} help="Of the target, for greedy against drawn drafts." />
      <label class="svdr-check ui-check"><input type="checkbox" checked=${raw}
        onChange=${(/** @type {FieldEvent} */ { currentTarget }) =>
          change("raw")(currentTarget.checked)} /> Send prompts without the chat template</label>
      <${Upload} label="Server's log" name="server" accept=".log,.txt,.json,.jsonl,.out"
        help="Optional: of a vLLM, llama.cpp or SGLang that drafts with this part. Its acceptance is compared." />
    </details>
    <button type="submit" class="ui-button ui-call" disabled=${busy.value || !part}>Examine</button>
  </form>`;
}

/** @param {{ one: DoctorProgress }} props */
function Progress({ one }) {
  const text = one.state === "queued" ? "Waits for its turn."
    : one.total ? `${one.done} of ${one.total}: ${one.words}` : "The target reads the prompts; runs go first.";
  return html`<div class="svdr-progress svp-part">
    <b>${one.title}</b>
    <progress max=${one.total || 1} value=${one.done} aria-label="Examining" />
    <span role="status">${text}</span>
    <button type="button" class="ui-button" onClick=${stop}>Stop</button>
  </div>`;
}

/** @param {DoctorCard} card */
const stateOf = ({ state, verdict }) => state === "done" ? verdict : state;

/** @param {{ cards: DoctorCard[] }} props */
const Earlier = ({ cards }) => html`<nav class="svdr-earlier ui-row" aria-label="Examinations">
  ${cards.map((card) => html`<button type="button" class="ui-button" key=${card.id}
    aria-current=${card.id === now.value?.id ? "true" : null} onClick=${() => show(card.id)}>
    ${card.title} beside ${card.model}: ${stateOf(card)}</button>`)}
</nav>`;

/** @param {{ one: DoctorProgress }} props */
function Outcome({ one }) {
  if (goesOn(one.state)) return html`<${Progress} one=${one} />`;
  if (one.report) return html`<${Report} id=${one.id} report=${one.report} />`;
  return html`<p class="svp-note ${one.error ? "svp-error" : ""}" role="status">
    ${one.error || `${one.title}: stopped before it was over.`}</p>`;
}

function Doctor() {
  const of = answer.value;
  if (!of) return html`<p class="svp-empty">${wrong.value || "Looking for parts …"}</p>`;
  const none = `${of.model} has no part that drafts by itself: train one (specviz train), or add a published head ` +
    "(specviz parts add).";
  return html`
    <section class="svdr-setup svp-part">
      <header class="svp-asked">
        <p class="ui-soft">Drafter doctor</p>
        <h2>Why is so little of it accepted?</h2>
        <p class="svp-question">A head or draft model drafts along the target's own answers, as it is and with one thing
          changed at a time. A change that helps names the fault.</p>
      </header>
      ${of.reason ? html`<p class="svp-note">${of.reason}</p>`
        : of.parts.length ? html`<${Form} of=${of} />` : html`<p class="svp-note">${none}</p>`}
      ${wrong.value && html`<p class="svp-note svp-error" role="alert">${wrong.value}</p>`}
      ${of.examinations.length > 1 && html`<${Earlier} cards=${of.examinations} />`}
    </section>
    ${now.value && html`<${Outcome} one=${now.value} />`}`;
}

/** Draws the view: nothing is looked for before that. @param {Pick<Part, "element">} part */
export function mount({ element }) {
  const box = place(element, "doctor");
  box.classList.add("svp-tool");
  box.replaceChildren();
  render(html`<${Doctor} />`, box);
  load().then(() => (box.dataset.ready = "true"));
  on("model", load);
}
