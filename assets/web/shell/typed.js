/* What was typed into the editor: kept by this browser while it is typed, so that no other prompt takes its place. */

import { emit, on } from "specviz/base/bus.js";
import { rested } from "specviz/base/dom.js";
import { parse, stored } from "specviz/base/storage.js";
import { inLine } from "specviz/base/text.js";
import { signal } from "specviz/ui/html.js";

const MOST = 20; // texts
const FIELDS = ["instruction", "context", "question", "text"];
const REST_MS = 300;

/** A text of one's own: the form it is in, and its fields. */
/** @typedef {{ mode: string, fields: Record<string, string> }} Typed */

/** The latest first. @type {import("@preact/signals").Signal<Typed[]>} */
export const texts = signal(parse(stored.get("typed")).texts ?? []);

let fresh = true; // what is typed next is another text than the last one
let waits = 0; // prompts that are on their way from the server

/** @type {(name: string) => HTMLTextAreaElement | null} */
const area = (name) => document.querySelector(`#sv-${name} textarea`);
const mode = () => {
  const radio = document.querySelector("#sv-mode input:checked");
  return radio instanceof HTMLInputElement ? radio.value : "";
};

/** A text in a line. @param {Typed} typed */
export const named = ({ mode, fields }) =>
  inLine((mode === "segments" ? fields.instruction || fields.context : fields.text) || "…").slice(0, 70);

const keep = rested(() => {
  const fields = Object.fromEntries(FIELDS.map((name) => [name, area(name)?.value ?? ""]));
  if (!Object.values(fields).some((text) => text.trim())) return;
  const rest = fresh ? texts.value : texts.value.slice(1);
  fresh = false;
  texts.value = [{ mode: mode(), fields }, ...rest].slice(0, MOST);
  stored.set("typed", JSON.stringify({ texts: texts.value }));
}, REST_MS);

/** Keeps what is typed from now on. */
export function watch() {
  document.addEventListener("input", (event) => {
    if (event.isTrusted && event.target instanceof HTMLTextAreaElement && event.target.closest("#sv-panel")) keep();
  });
  on("filled", () => {
    fresh = true;
    waits = Math.max(0, waits - 1);
    document.body.classList.toggle("sv-filling", waits > 0);
  });
}

/** Another prompt is on its way into the editor. @param {string} id */
export function fill(id) {
  waits++;
  document.body.classList.add("sv-filling");
  document.body.dataset.prompt = id;
}

/** Puts a text back. @param {Typed} typed */
export function restore({ mode, fields }) {
  const radio = document.querySelector(`#sv-mode input[value="${CSS.escape(mode)}"]`);
  if (radio instanceof HTMLInputElement) radio.click();
  for (const [name, text] of Object.entries(fields)) {
    const one = area(name);
    if (!one || one.value === text) continue;
    one.value = text;
    one.dispatchEvent(new Event("input", { bubbles: true }));
  }
  fresh = true;
  emit("edit", true);
}
