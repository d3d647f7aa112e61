/* A prompt as it is typed: whether two are the same, what it is called, which reference it is measured by. Pure. */

import { inLine } from "specviz/base/text.js";

/** @type {Record<TypedPrompt["mode"], string>} */
export const MODES = { segments: "Segments", chat: "Chat", text: "Plain text" };

/** @type {TypedPrompt} */
export const EMPTY = {
  mode: "segments", instruction: "", context: "", question: "", text: "", messages: [], reference: "",
};
/** @type {PromptSource} */
export const NO_SOURCE = { run: "", whose: "", prompt: EMPTY, note: "" };

/** Texts that the prompt is made of. @param {TypedPrompt} prompt */
function texts({ mode, instruction, context, question, text, messages }) {
  if (mode === "segments") return [instruction, context, question];
  if (mode === "text") return [text];
  return messages.filter((one) => one.content.trim()).flatMap(({ role, content }) => [role, content]);
}

/** @param {TypedPrompt} prompt */
export const isEmpty = (prompt) =>
  !(prompt.mode === "chat" ? prompt.messages.map((one) => one.content) : texts(prompt)).some((text) => text.trim());

/** Whether two prompts are the same; blanks around their parts count only where they are compared ``exactly``. */
/** @type {(one: TypedPrompt, other: TypedPrompt, exactly?: boolean) => boolean} */
export function same(one, other, exactly = false) {
  /** @param {TypedPrompt} prompt */
  const key = (prompt) => JSON.stringify(texts(prompt).map((text) => (exactly ? text : text.trim())));
  return one.mode === other.mode && key(one) === key(other);
}

/** A prompt in a line: its first words. @param {TypedPrompt} prompt */
export function firstWords(prompt) {
  const { mode, instruction, question, context, text, messages } = prompt;
  const words = mode === "segments" ? instruction || question || context : text;
  return inLine((mode === "chat" ? messages.at(-1)?.content : words) || "…").slice(0, 70);
}

/**
 * The reference that a draft is measured by, whose it is, and a sentence about it. One that belongs to an example or a
 * run is dropped with its prompt, and is back with it, in whichever form that is; one that was typed stays.
 *
 * @param {PromptDraft} draft
 */
export function referenceOf({ prompt, source, own }) {
  if (own !== null) {
    const of = own.trim() ? "your own" : "";
    return { text: own, of, words: of && "Quality is measured against your own reference." };
  }
  const { whose, prompt: { reference } } = source;
  if (!reference.trim()) return { text: "", of: "", words: "" };
  if (same(prompt, turned(source.prompt, prompt.mode)))
    return { text: reference, of: whose, words: `Quality is measured against ${whose} reference.` };
  const words = `The prompt is not ${whose} any more, nor is its reference used: quality is not measured.`;
  return { text: "", of: "", words };
}

/** A draft as the server takes it; ``examples``: one that is unchanged gives the run its name. */
/** @type {(draft: PromptDraft, examples: PromptOffer["examples"], pool: SentFile | null) => object} */
export function payload(draft, examples, pool) {
  const { mode, instruction, context, question, text, messages } = draft.prompt;
  const { text: reference, of } = referenceOf(draft);
  const title = examples.find((one) => same(one.prompt, draft.prompt))?.label ?? "";
  const parts = mode === "segments" ? { instruction, context, question } : mode === "chat" ? { messages } : { text };
  const { grammar } = draft.prompt;
  const kept = grammar?.text.trim() ? { grammar } : {};
  return { title, mode, ...parts, reference: reference.trim(), reference_of: of, pool, ...kept };
}

/** The prompt in another form; what was typed goes along where that form is empty. */
/** @type {(prompt: TypedPrompt, mode: TypedPrompt["mode"]) => TypedPrompt} */
export function turned(prompt, mode) {
  const next = { ...prompt, mode };
  if (!isEmpty(next) || isEmpty(prompt)) return next;
  const whole = texts(prompt).filter((part) => part.trim()).join("\n\n");
  const said = prompt.mode === "chat" ? prompt.messages.map((one) => one.content).join("\n\n") : whole;
  if (mode === "chat") return { ...next, messages: [{ role: "user", content: said }] };
  return mode === "text" ? { ...next, text: said } : { ...next, context: said };
}
