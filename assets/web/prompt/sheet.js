/* The form of a run in a sheet over the page: the prompt, how it is drafted, and the button that runs it. */

import { emit, on } from "specviz/base/bus.js";
import { closest, h } from "specviz/base/dom.js";
import { fault, nothing } from "specviz/prompt/draft.js";
import { NO_PROMPT, PromptFields } from "specviz/prompt/fields.js";
import { methodForm } from "specviz/prompt/method.js";
import { run, starting } from "specviz/prompt/start.js";
import { offerModel } from "specviz/shell/made_with.js";
import * as request from "specviz/shell/request.js";
import { app } from "specviz/shell/state.js";
import { Held } from "specviz/ui/element.js";
import { Coded, effect, html, render, signal } from "specviz/ui/html.js";

const inUse = () => app.model.text.split(" · ")[0];
const model = signal(inUse());
on("status", () => (model.value = inUse()));

/** The sentence about what was refused, beside the button: its place may be scrolled out of sight. */
export const Fault = () =>
  html`<p class="svp-note ${fault.value ? "svp-error" : ""}" id="sv-run-note" role="alert">${fault.value?.text}</p>`;

/** Why nothing can run, that a lossy method may answer otherwise, and what to know of the model. */
function Caution() {
  const { reason, note } = request.catalog.value;
  return html`<div id="sv-caution">
    ${reason && html`<p class="svf-reason" role="status"><${Coded} text=${reason} /></p>`}
    ${request.lossy.value && html`<p class="svf-may-differ">${request.lossy.value}</p>`}
    ${note && html`<p class="svp-note svf-model"><${Coded} text=${note} /></p>`}
  </div>`;
}

/** Runs what the form has, or stops what goes on. @param {{ id?: string }} props */
export function RunButton({ id }) {
  const off = starting.value || !request.method.value || !!request.catalog.value.reason;
  return html`<button type="button" id=${id} class="ui-button ui-call svp-go" disabled=${off}
      data-needs=${nothing.value ? "prompt" : null} onClick=${run}>
      Run</button>
    <button type="button" class="ui-button svp-halt" onClick=${() => emit("stop")}>Stop</button>`;
}

/** @param {{ form: HTMLElement, offer: HTMLElement, close: () => void }} props */
const Panel = ({ form, offer, close }) => html`
  <header class="ui-row">
    <h2 tabindex="-1">Run a prompt</h2>
    <button type="button" class="sve-model ui-link" title="The model in use" disabled=${!app.picks}
      onClick=${(/** @type {FieldEvent<HTMLElement>} */ { currentTarget }) => emit("models", currentTarget)}>
      ${model.value}</button>
    <button type="button" class="ui-button ui-square" aria-label="Close" onClick=${close}>×</button>
  </header>
  <div class="sve-columns">
    <${PromptFields} seen=${request.editing.value} />
    <${Held} of=${[offer, form]} />
  </div>
  <div class="sve-foot ui-row">
    <${Caution} /><${Fault} />${nothing.value
      ? html`<span class="ui-soft">${NO_PROMPT}</span>`
      : html`<span class="ui-soft sve-keys"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span>`}<${RunButton} />
  </div>`;

/**
 * The form in a place of the page. It is closed at first; ``opener`` is where the focus goes back to.
 *
 * @param {HTMLElement} element
 * @param {{ opener?: () => HTMLElement | null }} [options]
 */
export function mount(element, { opener = () => null } = {}) {
  const about = { role: "dialog", "aria-label": "Prompt, method and settings" };
  const panel = h("section.sve-sheet.svp", { id: "sv-panel", ...about });
  const offer = h("p.svm-offer.ui-row.ui-soft", { hidden: true }); // of the run shown, where another model made it
  const form = methodForm();
  element.append(panel);

  const close = (back = true) => {
    if (!request.editing.value) return;
    request.editing.value = false;
    if (back) opener()?.focus();
  };
  /** Opens it; the first text has the focus. */
  const open = () => (request.editing.value = true);

  effect(() => {
    const on = request.editing.value;
    document.body.classList.toggle("sv-editing", on);
    panel.hidden = !on; // with all that is in it
    if (on && !panel.firstChild) render(html`<${Panel} form=${form} offer=${offer} close=${close} />`, panel);
    const first = () => [...panel.querySelectorAll("textarea")].find((area) => !area.closest("[hidden]"));
    if (on) requestAnimationFrame(() => first()?.focus({ preventScroll: true }));
  });
  on("started", () => close(false));
  const look = (/** @type {string} */ id) => !app.mine.has(id) && offerModel(offer, id);
  on("current", look);
  if (app.current) look(app.current); // it was drawn before
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && closest(event, "#sv-panel, #sv-bar")) run();
    if (event.key !== "Escape" || !closest(event, "#sv-panel, #sv-bar, body")) return;
    if (!closest(event, "dialog, [role=menu]")) close(); // a list in it is closed first
  });
  document.addEventListener("pointerdown", (event) => {
    if (!closest(event, "#sv-panel, #sv-bar, dialog")) close(false);
  });
  return { open, close };
}
