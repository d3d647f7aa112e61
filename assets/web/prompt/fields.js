/* The prompt's fields, the same wherever a prompt is typed: examples, texts of one's own, segments, a chat's messages
   or plain text, the reference and the file to draft from. */

import { on } from "specviz/base/bus.js";
import { rested } from "specviz/base/dom.js";
import { postJson, sentText, sentence } from "specviz/base/json.js";
import { plural } from "specviz/base/numbers.js";
import { inLine } from "specviz/base/text.js";
import {
  call, chooseExample, chooseTemplate, draft, edited, example, fault, name, offer, pending, pool, ready, recorded,
  redoable, restore, senders, sent, step, texts, turn, type, typeReference, undoable,
} from "specviz/prompt/draft.js";
import { MODES, firstWords, isEmpty, referenceOf } from "specviz/prompt/text.js";
import { method } from "specviz/shell/request.js";
import { app } from "specviz/shell/state.js";
import { computed, effect, html, signal, useLayoutEffect } from "specviz/ui/html.js";
import { Field } from "specviz/ui/field.js";
import { Menu } from "specviz/ui/menu.js";
import { Hint } from "specviz/ui/tooltip.js";

/** @typedef {FieldEvent<HTMLTextAreaElement>} Typing */

const INSTRUCTION = "What the model is to do, for example: Summarize this text in two sentences.";
const CONTEXT = "The text to work on. Put --- on a line of its own between passages.";
const TEXT = "Continued as it stands, without the model's chat template.";
const MESSAGES = "The chat's messages are kept: choose Chat to have them back.";
const TEMPLATE = "CASD's prompt for a dataset, put into Instruction: {context} and {question} say where they go.";
/** What is said of an empty prompt. */
export const NO_PROMPT = "The prompt is empty: type something, or choose an example.";
/** @type {Record<ChatMessage["role"], string>} */
const ROLES = { system: "System", user: "User", assistant: "Assistant" };

/** Forms that can be seen. */
let visible = 0;
const count = signal(/** @type {{ text: string, error: boolean }} */ ({ text: "", error: false }));

const ask = rested(async () => {
  const { prompt } = draft.value;
  if (!visible || pending.value) return;
  if (isEmpty(prompt)) return (count.value = { text: NO_PROMPT, error: edited() }); // a new form is no fault
  const answer = await postJson("api/inspect/count", sent()).catch(() => ({ text: "", error: false }));
  if (prompt === draft.value.prompt) count.value = answer;
}, 250);
effect(() => void [draft.value.prompt, pending.value, ask()]);
on("model", ask);

/** Whether this server is its user's own. */
const isAlone = () => !!app.rules && !app.rules.public && !app.rules.accounts;
const alone = signal(isAlone());
on("status", () => (alone.value = isAlone()));

/**
 * A text of the prompt.
 *
 * @param {{ id: string, label: string, value: string, change: (text: string) => unknown, rows: number,
 *   placeholder?: string, help?: string, code?: boolean, wrong?: string, tools?: import("preact").Drawn }} props
 */
function Area({ id, label, value, change, rows, placeholder, help, code, wrong, tools }) {
  return html`<div id=${id} class="sve-area ${code ? "sve-code" : ""}">
    <${Field} label=${label} help=${help} wrong=${wrong}>
      ${(/** @type {object} */ tied) => html`<textarea class="ui-input" rows=${rows} dir="auto" value=${value}
        placeholder=${placeholder} disabled=${!!pending.value} spellcheck=${false}
        onInput=${(/** @type {Typing} */ event) => change(event.currentTarget.value)} ...${tied} />${tools}`}
    </${Field}>
  </div>`;
}

/** The prompt whose messages are all shown. */
const unfolded = signal(/** @type {PromptSource | null} */ (null));

/** A chat: its messages, each with the role of who says it; of a chat that was opened the last one, which asks. */
/** @param {{ prefix: string }} props */
function Chat({ prefix }) {
  const { prompt: { messages }, source } = draft.value;
  const before = unfolded.value === source ? 0 : Math.min(source.prompt.messages.length, messages.length) - 1;
  const all = messages.length ? messages : [{ role: /** @type {const} */ ("user"), content: "" }];
  /** @type {(k: number, change: Partial<ChatMessage>) => unknown} */
  const change = (k, part) => type({ messages: all.map((one, n) => (n === k ? { ...one, ...part } : one)) });
  const add = () => {
    const role = all.at(-1)?.role === "user" ? "assistant" : "user";
    type({ messages: [...all, { role: /** @type {ChatMessage["role"]} */ (role), content: "" }] });
    requestAnimationFrame(() => {
      /** @type {HTMLElement | null} */ (document.querySelector(`#${prefix}-text > :last-child textarea`))?.focus();
    });
  };
  /** @type {(one: ChatMessage, k: number) => import("preact").Drawn} */
  const message = (one, k) => html`<li class="sve-message" data-role=${one.role} hidden=${k < before}>
    <div class="ui-line">
      <select class="ui-input" aria-label="Role of message ${k + 1}" disabled=${!!pending.value}
        onChange=${(/** @type {FieldEvent<HTMLSelectElement>} */ { currentTarget }) =>
          change(k, { role: /** @type {ChatMessage["role"]} */ (currentTarget.value) })}>
        ${Object.entries(ROLES).map(([role, label]) =>
          html`<option value=${role} selected=${role === one.role}>${label}</option>`)}</select>
      ${all.length > 1 && html`<button type="button" class="ui-button ui-square" aria-label="Remove message ${k + 1}"
        onClick=${() => type({ messages: all.filter((_, n) => n !== k) })}>×</button>`}
    </div>
    <textarea class="ui-input" rows="3" dir="auto" aria-label="Message ${k + 1}, ${ROLES[one.role]}"
      disabled=${!!pending.value} spellcheck=${false} value=${one.content}
      onInput=${(/** @type {Typing} */ event) => change(k, { content: event.currentTarget.value })} />
  </li>`;
  const words = `▸ Show the ${plural(before, "message")} before it: “${inLine(all[0].content).slice(0, 50)} …”`;
  return html`${before > 0 && html`<button type="button" class="ui-link sve-before" aria-expanded="false"
      onClick=${() => (unfolded.value = source)}>${words}</button>`}
    <ol id="${prefix}-text" class="sve-chat">${all.map(message)}</ol>
    <button type="button" class="ui-button sve-add" onClick=${add}>+ Add a message</button>`;
}

/** The form that the prompt is in, and its texts. @param {{ prefix: string }} props */
function Texts({ prefix }) {
  const { prompt } = draft.value;
  /** @type {(name: "instruction" | "context" | "question" | "text") => object} */
  const area = (name) => ({
    id: `${prefix}-${name}`, value: prompt[name], change: (/** @type {string} */ text) => type({ [name]: text }),
  });
  if (prompt.mode === "chat") return html`<${Chat} prefix=${prefix} />`;
  if (prompt.mode === "text")
    return html`<${Area} ...${area("text")} label="Text" rows="14" code
      help=${prompt.messages.length ? `${TEXT} ${MESSAGES}` : TEXT} />`;
  return html`
    <${Area} ...${area("instruction")} label="Instruction" rows="2" placeholder=${INSTRUCTION} />
    <${Area} ...${area("context")} label="Context" rows="9" placeholder=${CONTEXT} code />
    <${Area} ...${area("question")} label="Question" rows="1" />`;
}

/** The modes, one of which is chosen. @param {{ prefix: string }} props */
const Modes = ({ prefix }) => html`<fieldset id="${prefix}-mode" class="ui-seg sve-modes" disabled=${!!pending.value}>
  <legend class="svp-unseen">Form of the prompt</legend>
  ${Object.entries(MODES).map(([mode, label]) => html`<label>
    <input type="radio" name="${prefix}-mode" value=${mode} checked=${draft.value.prompt.mode === mode}
      onChange=${() => turn(/** @type {TypedPrompt["mode"]} */ (mode))} /><span>${label}</span></label>`)}
</fieldset>`;

/** The name while it is typed: texts are kept in the meantime. */
const naming = signal(/** @type {string | null} */ (null));

/** What one does with a prompt: choose another, name it, undo, send it to a server of one's own. */
/** @param {{ prefix: string }} props */
function Beside({ prefix }) {
  const chosen = example.value?.id ?? "";
  const own = () => texts.value.map((one, k) => ({ label: one.name || firstWords(one.prompt), act: () => restore(k) }));
  /** @type {(by: -1 | 1, label: string, tip: string, can: boolean) => import("preact").Drawn} */
  const turnBack = (by, label, tip, can) => html`<${Hint} is="button" type="button" class="ui-button ui-square"
    aria-label=${tip} tip=${tip} disabled=${!can} onClick=${() => step(by)}>${label}</${Hint}>`;
  const choose = (/** @type {FieldEvent<HTMLSelectElement>} */ { currentTarget }) => chooseExample(currentTarget.value);
  return html`<div class="sve-beside ui-row">
    <select id="${prefix}-example" class="ui-input" aria-label="Example" onChange=${choose}>
      <option value="" disabled selected=${!chosen}>Examples …</option>
      ${offer.value.examples.map(({ id, label }) =>
        html`<option value=${id} selected=${id === chosen}>${label}</option>`)}</select>
    <input class="ui-input svp-naming" aria-label="Name of this prompt" placeholder="Name this prompt" maxlength="70"
      value=${naming.value ?? name.value} onBlur=${() => (naming.value = null)}
      onInput=${(/** @type {FieldEvent} */ { currentTarget }) => (naming.value = currentTarget.value)}
      onChange=${(/** @type {FieldEvent} */ { currentTarget }) => call(currentTarget.value)} />
    ${turnBack(-1, "↶", "Undo", undoable.value)}${turnBack(1, "↷", "Redo", redoable.value)}
    <${Menu} label="Your texts" class="svp-earlier" items=${own} disabled=${!texts.value.length} />
    ${alone.value && senders.value.map((one) => html`<button type="button" class="ui-button svp-connect"
      aria-haspopup="dialog" onClick=${(/** @type {FieldEvent<HTMLElement>} */ event) =>
        one.open(event.currentTarget, sent)}>${one.label}</button>`)}
  </div>`;
}

/** @type {[kind: AnswerForm["kind"] | "", label: string][]} */
const GRAMMARS = [["", "Any text"], ["json schema", "JSON of a schema"], ["regex", "A regular expression"]];
const FILTER = "Drafted tokens that the form forbids are left out before they are verified; else they are marked.";

/** The form that the answer must have. @param {{ prefix: string }} props */
function AnswerFields({ prefix }) {
  const { grammar } = draft.value.prompt;
  const wrong = fault.value?.place === "grammar" ? fault.value.text : "";
  const now = grammar ?? { kind: /** @type {const} */ ("regex"), text: "", filter: false };
  /** @param {Partial<AnswerForm>} part */
  const change = (part) => type({ grammar: { ...now, ...part } });
  const choose = (/** @type {FieldEvent<HTMLSelectElement>} */ { currentTarget: { value } }) =>
    value ? change({ kind: /** @type {AnswerForm["kind"]} */ (value) }) : type({ grammar: null });
  const example = now.kind === "regex" ? "[0-9]{4}-[0-9]{2}" : '{"type": "object", "properties": …}';
  return html`<details id="${prefix}-answer" class="ui-fold" open=${!!grammar || !!wrong}>
    <summary>Form of the answer <span class="ui-soft">${grammar?.text.trim()
      ? GRAMMARS.find(([kind]) => kind === now.kind)?.[1] : "any text, or only JSON, or what a pattern allows"}</span>
    </summary>
    <${Field} label="Form">
      ${(/** @type {object} */ tied) => html`<select class="ui-input" onChange=${choose} ...${tied}>
        ${GRAMMARS.map(([kind, label]) =>
          html`<option value=${kind} selected=${kind === (grammar?.kind ?? "")}>${label}</option>`)}</select>`}
    </${Field}>
    ${grammar && html`
      <${Area} id="${prefix}-grammar" label=${now.kind === "regex" ? "Regular expression" : "JSON Schema"} code
        rows=${now.kind === "regex" ? 2 : 6} value=${now.text} placeholder=${example} wrong=${wrong}
        change=${(/** @type {string} */ text) => change({ text })} />
      <label class="ui-check" title=${FILTER}><input type="checkbox" checked=${now.filter}
        onChange=${(/** @type {FieldEvent} */ { currentTarget }) => change({ filter: currentTarget.checked })} />
        Leave out drafted tokens that it forbids</label>`}
  </details>`;
}

/** What few prompts need: a template, the reference, the file to draft from. @param {{ prefix: string }} props */
function More({ prefix }) {
  const { text } = referenceOf(draft.value);
  const template = (/** @type {FieldEvent<HTMLSelectElement>} */ { currentTarget }) => {
    chooseTemplate(currentTarget.value);
    currentTarget.value = "";
  };
  return html`<details id="${prefix}-more" class="ui-fold">
    <summary>Template and reference <span class="ui-soft">a dataset's wording; the answer you hope for</span></summary>
    <${Field} label="Prompt template" help=${TEMPLATE}>
      ${(/** @type {object} */ tied) => html`<select class="ui-input" onChange=${template} ...${tied}>
        <option value="">Choose …</option>
        ${offer.value.templates.map((one) => html`<option value=${one.name}>${one.title}</option>`)}</select>`}
    </${Field}>
    <${Area} id="${prefix}-reference" label="Reference" rows="2" value=${text} change=${typeReference}
      help="The answer you hope for: quality is measured against it." />
  </details>`;
}

const chosenFile = signal("");

/** The file to draft from, for methods that take one. @param {{ prefix: string }} props */
function Pool({ prefix }) {
  const file = pool.value;
  const wrong = fault.value?.place === "pool" ? fault.value.text : chosenFile.value;
  const take = async (/** @type {FieldEvent} */ { currentTarget }) => {
    const [chosen = null] = currentTarget.files ?? [];
    try {
      pool.value = chosen && (await sentText(chosen));
      chosenFile.value = "";
    } catch (problem) {
      pool.value = null;
      chosenFile.value = sentence(problem);
    }
    currentTarget.value = ""; // the same file can be chosen again
  };
  return html`<div id="${prefix}-pool-field" class="sve-pool">
    <${Field} label="Pool" wrong=${wrong}
      help="A text file (UTF-8) to draft from instead of the context. Choose it again when the page was reloaded.">
      ${(/** @type {object} */ tied) => html`
        ${file && html`<span class="sve-file">${file.name}: ${file.text.length.toLocaleString("en")} characters</span>
          <button type="button" id="${prefix}-pool-clear" class="ui-button"
            onClick=${() => (pool.value = null)}>Remove</button>`}
        <input type="file" class="sve-choose" accept=".txt,.md,text/*" onChange=${take} ...${tied} />`}
    </${Field}>
  </div>`;
}

/** Whether one of the methods asked for drafts from a file; Compare's are its lanes. */
const pooled = computed(() => !!method.value?.pooled);

/** How long the prompt is, or what is wrong with it. @param {{ prefix: string }} props */
function Count({ prefix }) {
  const refused = fault.value?.place === "prompt" ? fault.value.text : "";
  const { text, error } = count.value;
  const wrong = error || !!refused;
  return html`<p id="${prefix}-prompt-note" class="svp-note ${wrong ? "svp-error" : ""}"
    role=${wrong ? "alert" : "status"}>${refused || text}</p>`;
}

/** Whose the prompt is, and which reference it is measured by. @param {{ prefix: string }} props */
function Notes({ prefix }) {
  const { words } = referenceOf(draft.value);
  const { note } = draft.value.source;
  return html`<div class="sve-notes">
    ${recorded.value && html`<p class="svp-note svp-recorded">
      The prompt of the run that is open in Inspect, token by token. Change it, or type your own over it.</p>`}
    ${note && html`<p class="svp-note">${note}</p>`}
    ${words && html`<p id="${prefix}-reference-note" class="svp-note">${words}</p>`}
  </div>`;
}

/**
 * The whole prompt. ``prefix`` of the elements' ids, as several pages have it; ``seen``: nothing is asked of the server
 * before; ``file``: whether one of several methods drafts from a file.
 *
 * @param {{ prefix?: string, seen?: boolean, file?: boolean }} props
 */
export function PromptFields({ prefix = "sv", seen = true, file = pooled.value }) {
  useLayoutEffect(() => {
    if (!seen) return;
    visible++;
    ready();
    ask();
    return () => void visible--;
  }, [pending.value, seen]);
  return html`<div id="${prefix}-prompt-part" class="sve-prompt ${pending.value ? "sve-waits" : ""}">
    <${Beside} prefix=${prefix} />
    <div class="ui-row"><${Modes} prefix=${prefix} /><${Count} prefix=${prefix} /></div>
    <${Texts} prefix=${prefix} />
    <${Notes} prefix=${prefix} />
    ${file && html`<${Pool} prefix=${prefix} />`}
    <${AnswerFields} prefix=${prefix} />
    <${More} prefix=${prefix} />
  </div>`;
}
