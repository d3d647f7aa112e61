/* The prompt's form, one for Inspect and Compare: what stands in it, undo and redo, and the texts that were typed,
   which this browser keeps while they are typed, so that no other prompt takes their place. */

import { on } from "specviz/base/bus.js";
import { closest, h, rested } from "specviz/base/dom.js";
import { parse, stored } from "specviz/base/storage.js";
import { inLine } from "specviz/base/text.js";
import { app } from "specviz/shell/state.js";
import { computed, html, render, signal } from "specviz/ui/html.js";
import { Menu } from "specviz/ui/menu.js";
import { Hint } from "specviz/ui/tooltip.js";

const MOST = 20; // texts
const MOST_CHARACTERS = 1_000_000; // of all of them: a browser keeps no more than a few megabytes of a site
const STEPS = 60; // to undo
const FIELDS = ["instruction", "context", "question", "text"];
const REST_MS = 300;

/** A prompt: the form it is in, its fields, and the name it was given. */
/** @typedef {{ mode: string, fields: Record<string, string>, name?: string }} Typed */
/** @typedef {{ label: string, open: (opener: HTMLElement, prompt: () => Typed) => void }} Sender */

/** The texts of one's own, the latest first. @type {import("@preact/signals").Signal<Typed[]>} */
export const texts = signal(parse(stored.get("typed")).texts ?? []);
/** Which of them the form holds; -1: an example, or a run's prompt. */
const own = signal(-1);
/** What stood in the form, and which of it stands there now. @type {import("@preact/signals").Signal<Typed[]>} */
const past = signal([]);
const at = signal(-1);
/** Whether the form holds the prompt of the run that is open, as it was recorded. */
export const recorded = signal(false);
/** Whether this server is its user's own. */
const alone = signal(false);

let fresh = true; // what is typed next is another text than the last one
let waits = 0; // prompts that are on their way from the server
let given = ""; // the recorded prompt that came last, as JSON

/** @type {(name: string) => HTMLTextAreaElement | null} */
const area = (name) => document.querySelector(`#sv-${name} textarea`);
const mode = () => {
  const radio = document.querySelector("#sv-mode input:checked");
  return radio instanceof HTMLInputElement ? radio.value : "";
};

/** What stands in the form. @returns {Typed} */
export const current = () => ({
  mode: mode(),
  fields: Object.fromEntries(FIELDS.map((name) => [name, area(name)?.value ?? ""])),
});

/** The answer that is hoped for. */
export const reference = () => area("reference")?.value ?? "";

/** A text in a line: its name, or its first words. @param {Typed} typed */
const named = ({ mode, fields, name }) =>
  name || inLine((mode === "segments" ? fields.instruction || fields.context : fields.text) || "…").slice(0, 70);

/** Keeps a text as the latest, in the place of the one at ``k`` (-1: of none). */
/** @type {(text: Typed, k: number) => void} */
function store(text, k) {
  let room = MOST_CHARACTERS;
  const fits = (/** @type {Typed} */ one) => (room -= JSON.stringify(one).length) >= 0;
  const all = [text, ...texts.value.filter((_, n) => n !== k)].slice(0, MOST);
  texts.value = all.filter((one, n) => fits(one) || n === 0);
  own.value = 0;
  stored.set("typed", JSON.stringify({ texts: texts.value }));
}

/** What stands in the form is a step that can be undone. */
function note() {
  const now = current();
  recorded.value = !!app.held && app.held === app.shown && JSON.stringify(now) === given;
  if (JSON.stringify(now) === JSON.stringify(past.value[at.value])) return;
  past.value = [...past.value.slice(0, at.value + 1), now].slice(-STEPS);
  at.value = past.value.length - 1;
}

const keep = rested(() => {
  note();
  const now = current();
  if (!Object.values(now.fields).some((text) => text.trim())) return;
  const { name } = texts.value[own.value] ?? {};
  const same = own.value >= 0 && (name || !fresh); // a text that has a name stays itself, however it is changed
  fresh = false;
  store({ ...now, name: same ? name : undefined }, same ? own.value : -1);
}, REST_MS);

/** Writes a prompt into the form. @param {Typed} typed */
function write({ mode, fields }) {
  const radio = document.querySelector(`#sv-mode input[value="${CSS.escape(mode)}"]`);
  if (radio instanceof HTMLInputElement) radio.click();
  for (const [name, text] of Object.entries(fields)) {
    const one = area(name);
    if (!one || one.value === text) continue;
    one.value = text;
    one.dispatchEvent(new Event("input", { bubbles: true }));
  }
  fresh = true;
}

/** Puts a text back. @param {number} k */
function restore(k) {
  note();
  write(texts.value[k]);
  own.value = k;
  note();
}

/** Undoes or does again. @param {-1 | 1} by */
function step(by) {
  note(); // what was typed just now
  const to = past.value[at.value + by];
  if (!to) return;
  at.value += by;
  write(to);
  own.value = texts.value.findIndex(({ mode, fields }) => JSON.stringify({ mode, fields }) === JSON.stringify(to));
  recorded.value = JSON.stringify(to) === given;
}

/** Gives what stands in the form a name. @param {string} name */
function call(name) {
  note();
  store({ ...current(), name: name.trim() || undefined }, own.value);
}

const back = computed(() => at.value > 0);
const again = computed(() => at.value + 1 < past.value.length);

/** Buttons of annexes that send the prompt elsewhere, for the owner of an app alone; ``open`` is given the button, and
 * what the form holds. @type {import("@preact/signals").Signal<Sender[]>}
 */
export const senders = signal([]);

/** What one does with a prompt: undo, name, choose another, send it to a server of one's own. */
function Beside() {
  const items = () => texts.value.map((one, k) => ({ label: named(one), act: () => restore(k) }));
  const name = (/** @type {FieldEvent} */ { currentTarget }) => call(currentTarget.value);
  /** @type {(by: -1 | 1, label: string, tip: string, can: boolean) => import("preact").Drawn} */
  const turn = (by, label, tip, can) => html`<${Hint} is="button" type="button" class="ui-button svp-turn"
    aria-label=${tip} tip=${tip} disabled=${!can} onClick=${() => step(by)}>${label}</${Hint}>`;
  return html`
    ${turn(-1, "↶", "Undo", back.value)}${turn(1, "↷", "Redo", again.value)}
    <input class="svp-input svp-naming" aria-label="Name of this prompt" placeholder="Name this prompt" maxlength="70"
      value=${texts.value[own.value]?.name ?? ""} onChange=${name} />
    ${texts.value.length > 0 && html`<${Menu} label="Your texts" class="svp-earlier" items=${items} />`}
    ${alone.value && senders.value.map((one) => html`<button type="button" class="ui-button svp-connect"
      aria-haspopup="dialog" onClick=${(/** @type {FieldEvent<HTMLElement>} */ event) =>
        one.open(event.currentTarget, current)}>${one.label}</button>`)}
    ${recorded.value &&
    html`<span class="svp-recorded ui-soft">prompt of the run that is open, token by token</span>`}`;
}

/** Moves the form to where it is used now. @param {Element | null} place */
export function moveForm(place) {
  const form = document.getElementById("sv-prompt-part");
  if (form && place && form.parentElement !== place) place.prepend(form);
}

/** Keeps what is typed from now on. */
export function watch() {
  const beside = h("div.svp.ui-row");
  document.getElementById("sv-prompt-part")?.prepend(beside);
  render(html`<${Beside} />`, beside);
  const learn = () => (alone.value = !!app.rules && !app.rules.public && !app.rules.accounts);
  on("status", learn);
  learn(); // the first answer may have come before
  document.addEventListener("input", (event) => {
    if (event.isTrusted && event.target instanceof HTMLTextAreaElement && closest(event, "#sv-prompt-part")) keep();
  });
  on("current", note);
  on("filled", (by) => {
    fresh = true;
    waits = Math.max(0, waits - (by === "example" ? 0 : 1));
    document.body.classList.toggle("sv-filling", waits > 0);
    requestAnimationFrame(() => { // the fields are written in the same turn
      if (by === "run") given = JSON.stringify(current());
      own.value = -1;
      note();
    });
  });
}

/** Another prompt is on its way into the editor. @param {string} id */
export function fill(id) {
  waits++;
  document.body.classList.add("sv-filling");
  document.body.dataset.prompt = id;
}
