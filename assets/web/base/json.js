/* Asking the server: JSON in, JSON out; and what went wrong, in a sentence on the page. */

import { h } from "specviz/base/dom.js";

/** What is said where nothing comes back. */
export const SILENT = "The server does not answer: is it still running?";

/** What a route answers (``response``: fetched already). Throws an Error with the server's sentence and ``status``. */
/** @type {(url: string, response?: Promise<Response>) => Promise<any>} */
export async function getJson(url, response) {
  const answer = await (response || fetch(url)).catch(() => {
    throw new Error(SILENT);
  });
  const payload = await answer.json().catch(() => null);
  if (!answer.ok || payload === null)
    throw Object.assign(new Error(payload?.error || `The server answered with an error (${answer.status}).`), {
      status: answer.status,
      place: payload?.place ?? "",
    });
  return payload;
}

/** Whether work of the server goes on. @param {string} state */
export const goesOn = (state) => state === "queued" || state === "running";

/**
 * Asks every ``ms`` for as long as ``take`` says of the answer that more is to come; an answer that is not ``wanted``
 * any more is dropped, and ends it.
 *
 * @type {<T>(ask: () => Promise<T>, ms: number, wanted: () => boolean, take: (answer: T) => boolean) => Promise<void>}
 */
export async function poll(ask, ms, wanted, take) {
  while (wanted()) {
    const answer = await ask();
    if (!wanted() || !take(answer)) return;
    await new Promise((later) => setTimeout(later, ms));
  }
}

/** What a route answers to a body. @type {(url: string, body: unknown) => Promise<any>} */
export const postJson = (url, body) =>
  getJson(
    url,
    fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
  );

/** The decoder of a file's text: UTF-8 or, as PowerShell writes it, UTF-16. */
/** @type {(bytes: Uint8Array, fatal: boolean) => TextDecoder} */
function decoderOf([first, second], fatal) {
  const mark = `${first} ${second}`; // of the order of bytes
  return new TextDecoder(mark === "255 254" ? "utf-16le" : mark === "254 255" ? "utf-16be" : "utf-8", { fatal });
}

/** A chosen file as routes take it: its name and its text. */
/** @param {File | null} file @returns {Promise<SentFile | null>} */
export async function sentFile(file) {
  if (!file) return null;
  const bytes = new Uint8Array(await file.arrayBuffer());
  return { name: file.name, text: decoderOf(bytes, false).decode(bytes) };
}

/** The same of a file that has to be text; throws with a sentence where it is none. @param {File} file */
export async function sentText(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  try {
    return { name: file.name, text: decoderOf(bytes, true).decode(bytes) };
  } catch {
    throw new Error(`The file ${file.name} is not text in UTF-8: save it as such and try again.`);
  }
}

/** Where a run's trace is. @param {string} id */
export const traceUrl = (id) => `api/traces/${encodeURIComponent(id)}`;

/** The events of a run that goes on, from behind the one numbered ``after``; ``closed``: the server says it is over. */
/** @type {(id: string, after: number, received: (event: LiveEvent) => void, closed: () => void) => EventSource} */
export function listen(id, after, received, closed) {
  const source = new EventSource(`api/live/${encodeURIComponent(id)}?after=${after}`);
  source.onmessage = (message) => received(JSON.parse(message.data));
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) closed();
  };
  return source;
}

/** The sentence of what was thrown. @param {unknown} problem */
export const sentence = (problem) => (problem instanceof Error ? problem.message : String(problem));

/** The same as a note on the page. @param {unknown} problem */
export const alertNote = (problem) => h("p.svp-note.svp-error", { role: "alert" }, sentence(problem));

/** What ``work`` comes to; where it fails, ``place`` says why. Nothing once it is not ``wanted`` any more. */
/** @type {<T>(place: Element, work: () => Promise<T>, wanted?: () => boolean) => Promise<T | undefined>} */
export async function within(place, work, wanted = () => true) {
  try {
    const answer = await work();
    return wanted() ? answer : undefined;
  } catch (problem) {
    if (wanted()) place.replaceChildren(alertNote(problem));
  }
}

/** Writes a sentence into its place. @type {(place: HTMLElement, text: string, error?: boolean) => void} */
export function tell(place, text, error = false) {
  place.textContent = text;
  place.classList.toggle("svp-error", Boolean(text && error));
  place.setAttribute("role", error ? "alert" : "status");
}
