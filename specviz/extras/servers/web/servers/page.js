/* "Connect a server …": the editor's prompt to a vLLM, a llama.cpp or their like; its acceptance while it answers. */

import { getJson, poll, postJson, sentence } from "specviz/base/json.js";
import { plural } from "specviz/base/numbers.js";
import { stored } from "specviz/base/storage.js";
import { onInspect, open as openRun } from "specviz/shell/open.js";
import { refreshRuns } from "specviz/shell/runs.js";
import { Field, Slider } from "specviz/ui/field.js";
import { batch, html, signal } from "specviz/ui/html.js";
import { Sheet, floating } from "specviz/ui/sheet.js";
import { Table } from "specviz/ui/table.js";

const LOOK_MS = 500;
const REMEMBERED = ["address", "folder"]; // by this browser; a key never is

const shown = signal(false);
const asked = signal({
  address: stored.get("server-address") || "", folder: stored.get("server-folder") || "", key: "",
  max_new_tokens: 128, temperature: 0,
});
const busy = signal(false); // it is being asked, and has not answered yet
const wrong = signal("");
const now = signal(/** @type {ServerConnection | null} */ (null));
const text = signal("");
/** @type {HTMLElement | null} */
let back = null;
/** The prompt in the form. @type {() => object} */
let current;

/** Sends the prompt, and follows what comes back. */
async function connect() {
  if (busy.value) return;
  batch(() => {
    busy.value = true;
    wrong.value = text.value = "";
    now.value = null;
  });
  for (const name of REMEMBERED) stored.set(`server-${name}`, String(Reflect.get(asked.value, name)));
  try {
    take(await postJson("api/servers/ask", { prompt: current(), ...asked.value }));
    follow();
  } catch (problem) {
    wrong.value = sentence(problem);
  }
  busy.value = false;
}

/** @param {ServerConnection} answer */
function take(answer) {
  const had = now.value?.traces.length ?? 0;
  batch(() => {
    text.value += answer.text;
    now.value = answer;
  });
  if (answer.traces.length === had) return;
  refreshRuns();
  const newest = answer.traces.at(-1);
  if (newest) openRun(newest); // behind the sheet
}

/** Asks for what has come, until it is over. */
async function follow() {
  const id = now.value?.id;
  /** @returns {Promise<ServerConnection>} */
  const ask = () => getJson(`api/servers/of/${id}?after=${text.value.length}`);
  const wanted = () => !!now.value && now.value.id === id && !now.value.done;
  const more = (/** @type {ServerConnection} */ answer) => (take(answer), !answer.done);
  await poll(ask, LOOK_MS, wanted, more).catch((problem) => (wrong.value = sentence(problem)));
}

const stop = () =>
  postJson("api/servers/stop", { id: now.value?.id }).catch((problem) => (wrong.value = sentence(problem)));
const again = () => batch(() => {
  now.value = null;
  wrong.value = "";
});
function close() {
  shown.value = false;
  back?.focus();
}
function inspect() {
  const newest = now.value?.traces.at(-1);
  close();
  if (newest) onInspect(newest);
}

/** A text field. */
/** @type {(props: { name: "address" | "folder" | "key", label: string, help: string, type?: string, hint?: string })
 *   => unknown} */
function Typed({ name, label, help, type = "text", hint = "" }) {
  const typed = (/** @type {FieldEvent} */ { currentTarget }) =>
    (asked.value = { ...asked.value, [name]: currentTarget.value });
  return html`<${Field} label=${label} help=${help}>
    ${(/** @type {object} */ tied) => html`<input class="ui-input sv-connect-line" type=${type} maxlength="1000"
      name="server-${name}" autocomplete="off" autocapitalize="off" spellcheck="false" value=${asked.value[name]}
      placeholder=${hint} onInput=${typed} ...${tied} />`}
  </${Field}>`;
}

function Form() {
  const { address, folder, max_new_tokens: length, temperature } = asked.value;
  const watches = !address.trim() && folder.trim();
  /** @type {(name: string) => (value: number) => unknown} */
  const change = (name) => (value) => (asked.value = { ...asked.value, [name]: value });
  const send = (/** @type {Event} */ event) => {
    event.preventDefault();
    connect();
  };
  return html`<form onSubmit=${send}>
    <p>Your prompt is sent to a server that drafts, from the computer that specviz runs on; its run arrives among
      yours.</p>
    <${Typed} name="address" label="Address" hint="http://127.0.0.1:8000" help="vLLM, llama.cpp's server, or another one
      that speaks OpenAI's API." />
    <${Typed} name="folder" label="Recorder's folder" help="Optional: the one that SPECVIZ_RECORD names for a vLLM with
      specviz's recorder. Every draft and verdict comes from there; without an address it is watched, whoever asks." />
    <${Typed} name="key" label="API key" type="password" help="Only where the server asks for one; it is not kept." />
    ${address.trim() && html`
      <${Slider} label="New tokens" value=${length} low=${1} high=${4096} change=${change("max_new_tokens")} />
      <${Slider} label="Temperature" value=${temperature} low=${0} high=${2} step=${0.05}
        change=${change("temperature")} />`}
    ${wrong.value && html`<p class="sv-connect-wrong svp-error" role="alert">${wrong.value}</p>`}
    <button type="submit" class="ui-button ui-call" disabled=${busy.value || !(address.trim() || watches)}>
      ${busy.value ? "Asking …" : watches ? "Watch the folder" : "Send the prompt"}</button>
  </form>`;
}

/** The numbers of `specviz watch`. @param {{ seen: ServerAcceptance }} props */
function Numbers({ seen }) {
  /** @type {(value: number | null, digits: number) => string} */
  const said = (value, digits) => (value === null ? "–" : value.toFixed(digits));
  const rows = [
    { name: "Mean acceptance length", value: said(seen.mean_length, 2), how: "1 + accepted ÷ drafts" },
    { name: "Acceptance rate", value: seen.rate === null ? "–" : `${(100 * seen.rate).toFixed(1)} %`,
      how: `${seen.accepted} of ${plural(seen.drafted, "drafted token")}` },
    { name: "Tokens per second", value: said(seen.per_second, 1), how: plural(seen.tokens, "token") },
  ];
  /** @typedef {typeof rows[number]} Row */
  /** @type {import("specviz/ui/table.js").Column<Row>[]} */
  const columns = [
    { head: "Number", cell: ({ name }) => name },
    { head: "Value", cell: ({ value }) => value, number: true },
    { head: "Of", cell: ({ how }) => how },
  ];
  return html`<${Table} label="The server's acceptance" columns=${columns} rows=${rows} />
    <ol class="sv-connect-places" aria-label="Acceptance by position, of all drafts">
      ${seen.by_position.map((share, k) => html`<li><span>position ${k + 1}</span>
        <i class="ui-bar" aria-hidden="true"><b style="width:${100 * share}%" /></i>
        <span>${Math.round(100 * share)} %</span></li>`)}
    </ol>`;
}

/** @param {{ one: ServerConnection }} props */
function Progress({ one }) {
  const state = one.done ? "over" : "goes on";
  return html`<div data-done=${String(one.done)}>
    <p role="status">${one.server}: ${state}. ${one.done && one.traces.length > 0 &&
      `${plural(one.traces.length, "run")} arrived.`}</p>
    ${one.problem && html`<p class="sv-connect-wrong svp-error" role="alert">${one.problem}</p>`}
    ${wrong.value && html`<p class="sv-connect-wrong svp-error" role="alert">${wrong.value}</p>`}
    ${one.note && html`<p>${one.note}</p>`}
    <${Numbers} seen=${one.acceptance} />
    ${text.value && html`<pre class="sv-connect-text ui-pre" tabindex="0" aria-label="The answer so far" dir="auto"
      >${text.value}</pre>`}
    <div class="ui-line">
      ${!one.done && html`<button type="button" class="ui-button" onClick=${stop}>Stop</button>`}
      ${one.traces.length > 0 && html`<button type="button" class="ui-button ui-call" onClick=${inspect}>
        Show the run</button>`}
      ${one.done && html`<button type="button" class="ui-button" onClick=${again}>Ask again …</button>`}
    </div>
  </div>`;
}

const Connect = () => html`<${Sheet} title="Connect a server" open=${shown.value} close=${close} class="sv-connect">
  ${now.value ? html`<${Progress} one=${now.value} />` : html`<${Form} />`}
</${Sheet}>`;

/** Opens the sheet for what ``prompt`` gives when it is sent; the focus goes back to ``opener``. */
/** @param {HTMLElement} opener @param {typeof current} prompt */
export function open(opener, prompt) {
  back = opener;
  current = prompt;
  if (!document.querySelector(".sv-connect")) floating(html`<${Connect} />`);
  shown.value = true;
}
