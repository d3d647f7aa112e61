/* What the prompt's form holds, on every page that has it: kept by this browser while it is typed, with its steps to
   undo and the texts of one's own, so that nothing typed is lost. */

import { on } from "specviz/base/bus.js";
import { rested } from "specviz/base/dom.js";
import { getJson, sentence } from "specviz/base/json.js";
import { parse, stored } from "specviz/base/storage.js";
import { EMPTY, NO_SOURCE, isEmpty, payload, same, turned } from "specviz/prompt/text.js";
import { takeOver, touched } from "specviz/shell/request.js";
import { app } from "specviz/shell/state.js";
import { computed, signal } from "specviz/ui/html.js";

const MAX_KEPT = 20; // texts
const MAX_CHARACTERS = 1_000_000; // of all of them: a browser keeps no more than a few megabytes of a site
const MAX_STEPS = 60; // to undo
const REST_MS = 300;

/** @type {PromptDraft} */
const NOTHING = { prompt: EMPTY, source: NO_SOURCE, own: null };

/** @param {unknown} value @returns {PromptDraft | null} */
const draftOf = (value) =>
  value && typeof value === "object" && "prompt" in value ? Object.assign({}, NOTHING, value) : null;

const earlier = draftOf(parse(stored.get("draft")).draft);
/** @type {import("@preact/signals").Signal<PromptDraft>} */
export const draft = signal(earlier ?? NOTHING);
/** The file to draft from. @type {import("@preact/signals").Signal<SentFile | null>} */
export const pool = signal(null);
/** The run whose prompt is to be in the form, while it has not been read. */
export const pending = signal("");
/** @type {import("@preact/signals").Signal<KeptPrompt[]>} */
export const texts = signal(parse(stored.get("prompts")).texts ?? []);
/** @type {import("@preact/signals").Signal<PromptOffer>} */
export const offer = signal({ examples: [], templates: [] });
/** What is wrong with the form as it was sent last, or with what it was to hold. */
export const fault = signal(/** @type {FormFault | null} */ (null));
/** Buttons of annexes, for the owner of an app alone. @type {import("@preact/signals").Signal<PromptSender[]>} */
export const senders = signal([]);

/** The run shown. */
const shown = signal("");
/** Whether the form holds the prompt of the run that is shown, as it was recorded. */
export const recorded = computed(() => {
  const { prompt, source } = draft.value;
  if (pending.value) return pending.value === shown.value;
  return source.run !== "" && source.run === shown.value && same(prompt, source.prompt, true);
});
/** The example that stands in the form unchanged, in whichever form of the prompt. */
export const example = computed(() => {
  const { prompt } = draft.value;
  return offer.value.examples.find((one) => same(turned(one.prompt, prompt.mode), prompt));
});
/** Whether there is nothing to run. */
export const nothing = computed(() => !pending.value && isEmpty(draft.value.prompt));

/** Which of one's texts the form holds; -1: none. */
const own = signal(-1);
export const name = computed(() => texts.value[own.value]?.name ?? "");

/** What stood in the form, and which of it stands there now. @type {import("@preact/signals").Signal<PromptDraft[]>} */
const past = signal([]);
const at = signal(-1);
export const undoable = computed(() => at.value > 0);
export const redoable = computed(() => at.value + 1 < past.value.length);

let fresh = true; // what is typed next is another text than the last one

/** What stands in the form is a step that can be undone. */
function note() {
  const now = draft.value;
  if (JSON.stringify(now) === JSON.stringify(past.value[at.value])) return;
  past.value = [...past.value.slice(0, at.value + 1), now].slice(-MAX_STEPS);
  at.value = past.value.length - 1;
}

/** What stood there first can be come back to, but for a form that nobody has used. */
const begin = () => draft.value !== NOTHING && note();

/** Keeps a text as the latest, in the place of the one at ``k`` (-1: of none). */
/** @type {(text: KeptPrompt, k: number) => void} */
function store(text, k) {
  let room = MAX_CHARACTERS;
  const fits = (/** @type {KeptPrompt} */ kept) => (room -= JSON.stringify(kept).length) >= 0;
  const all = [text, ...texts.value.filter((_, n) => n !== k)].slice(0, MAX_KEPT);
  texts.value = all.filter((kept, n) => fits(kept) || n === 0);
  own.value = 0;
  stored.set("prompts", JSON.stringify({ texts: texts.value }));
}

/** Whether somebody typed what stands in the form. */
export const edited = () => {
  const { prompt, source, own: reference } = draft.value;
  return reference !== null || !same(prompt, source.prompt, true);
};

/** A page that is loaded again has the draft; one that is as it was read is read again. */
const keepDraft = () => stored.set("draft", edited() ? JSON.stringify({ draft: draft.value }) : "");

const keep = rested(() => {
  note();
  keepDraft();
  const { prompt } = draft.value;
  if (isEmpty(prompt) || !edited()) return;
  const named = texts.value[own.value]?.name ?? "";
  const goesOn = own.value >= 0 && (named || !fresh); // a text that has a name stays itself, however it is changed
  fresh = false;
  store({ prompt, name: goesOn ? named : "" }, goesOn ? own.value : -1);
}, REST_MS);

/** Somebody types. @param {Partial<TypedPrompt>} change */
export function type(change) {
  touched.add("prompt");
  if (at.value < 0) note();
  fault.value = null;
  draft.value = { ...draft.value, prompt: { ...draft.value.prompt, ...change } };
  keep();
}

/** Somebody types the answer that is hoped for. @param {string} text */
export function typeReference(text) {
  touched.add("prompt");
  draft.value = { ...draft.value, own: text };
  keep();
}

/** Another form, with what was typed where it is empty. @param {TypedPrompt["mode"]} mode */
export const turn = (mode) => type(turned(draft.value.prompt, mode));

/** Puts another prompt into the form; what stood there can be undone. */
/** @type {(prompt: TypedPrompt, source: PromptSource) => void} */
function fill(prompt, source) {
  begin();
  pending.value = "";
  fault.value = null;
  draft.value = { prompt, source, own: null };
  fresh = true;
  own.value = -1;
  note();
  keepDraft();
}

/** An empty form, for a prompt of one's own; what somebody typed stays. */
export function empty() {
  if (pending.value || !edited()) fill(EMPTY, NO_SOURCE);
}

/** Somebody chooses an example. @param {string} id */
export function chooseExample(id) {
  touched.add("prompt");
  fillExample(id);
}

/** @param {string} id */
function fillExample(id) {
  const found = offer.value.examples.find((one) => one.id === id);
  if (found) fill(found.prompt, { run: "", whose: "the example's", prompt: found.prompt, note: found.note });
}

/** A dataset's template, as the instruction of segments. @param {string} name */
export function chooseTemplate(name) {
  const found = offer.value.templates.find((one) => one.name === name);
  if (!found) return;
  touched.add("prompt");
  note();
  draft.value = { ...draft.value, prompt: { ...draft.value.prompt, mode: "segments", instruction: found.text } };
  fresh = true;
  keep();
}

/** Puts a text of one's own back. @param {number} k */
export function restore(k) {
  touched.add("prompt");
  fill(texts.value[k].prompt, NO_SOURCE);
  own.value = k;
  keepDraft();
}

/** Undoes or does again. @param {-1 | 1} by */
export function step(by) {
  note(); // what was typed just now
  const to = past.value[at.value + by];
  if (!to) return;
  at.value += by;
  draft.value = to;
  own.value = texts.value.findIndex(({ prompt }) => same(prompt, to.prompt, true));
  keepDraft();
}

/** Gives what stands in the form a name. @param {string} name */
export function call(name) {
  note();
  store({ prompt: draft.value.prompt, name: name.trim() }, own.value);
}

/** What the form offers, for the model in use. */
async function askOffer() {
  offer.value = await getJson("api/inspect/form");
  const { prompt } = draft.value;
  if (!pending.value && draft.value === NOTHING && isEmpty(prompt)) fillExample(offer.value.examples[0]?.id ?? "");
}
/** @type {Promise<unknown> | null} */
let offered = null;

/** The prompt of the run that the form is to hold, and what it offers, once they were asked for. */
export async function ready() {
  const id = pending.value;
  try {
    offered ??= askOffer();
    await offered;
    if (!id) return;
    /** @type {{ prompt: TypedPrompt, note: string }} */
    const answer = await getJson(`api/inspect/prompt?run=${encodeURIComponent(id)}`);
    if (pending.value !== id) return;
    const like = offer.value.examples.find((one) => same(one.prompt, answer.prompt));
    const prompt = like ? { ...answer.prompt, reference: like.prompt.reference } : answer.prompt;
    fill(prompt, { run: id, whose: like ? "the example's" : "the run's", prompt, note: answer.note });
  } catch (problem) {
    offered = null;
    if (pending.value === id) pending.value = "";
    fault.value = { place: "prompt", text: sentence(problem) };
  }
}

/** The form's prompt as the server takes it. @param {boolean} [pooled] whether the method drafts from a file */
export const sent = (pooled = false) => payload(draft.value, offer.value.examples, pooled ? pool.value : null);

let restored = earlier !== null; // a draft that was kept stays when the page is loaded again

/** The form follows the run that is shown; so do settings, and where it is ``taken`` method and parameters; what was
    changed by hand while the run was on its way stays. */
/** @param {string} id @param {boolean} taken */
export function hold(id, taken) {
  shown.value = id;
  if (app.held === id) return; // it was started from what stands in the form
  app.held = id;
  if (restored) {
    restored = false;
    return;
  }
  const run = app.inspector?.model?.run;
  if (run?.id === id) takeOver(run, taken && !touched.has("method"), !touched.has("settings"));
  if (touched.has("prompt")) return;
  begin();
  pending.value = id;
}
on("model", () => {
  if (offered) offered = askOffer().catch(() => {});
});
