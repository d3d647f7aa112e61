/* The run bar: the run that is shown, its prompt, the method of the next run, and what one does with the run. */

import { emit, on } from "specviz/base/bus.js";
import { closest, h, place } from "specviz/base/dom.js";
import { Actions } from "specviz/inspect/actions.js";
import { methodGroups } from "specviz/shell/methods.js";
import { open } from "specviz/shell/open.js";
import * as request from "specviz/shell/request.js";
import { fillRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";
import { moveForm, watch } from "specviz/shell/typed.js";
import { parted } from "specviz/shell/verifiers.js";
import { effect, html, render, signal } from "specviz/ui/html.js";
import { Held } from "specviz/ui/element.js";
import { Hint } from "specviz/ui/tooltip.js";

const STEPPING = ["ArrowLeft", "ArrowRight", "[", "]"];

/** Whether the editor is open. */
const editing = signal(false);
/** Grows when another run is shown. */
const turned = signal(0);

/** The recorded runs to choose from. */
function runsSelect() {
  const select = h("select.svp-select", { "aria-label": "Recorded run" });
  select.addEventListener("change", () => open(select.value));
  // sideways keys step through the run shown; up and down choose another one
  select.addEventListener("keydown", (event) => {
    if (!STEPPING.includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const { key, shiftKey } = event;
    app.inspector?.root.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey, cancelable: true }));
  });
  const draw = () => fillRuns(select, app.current);
  on("runs", draw);
  on("current", draw);
  draw();
  return select;
}

/** The methods to choose from; the next run's is chosen. */
function methodSelect() {
  const select = h("select.svp-select", { id: "svf-method", "aria-label": "Method" });
  select.addEventListener("change", () => request.choose(select.value));
  effect(() => {
    const card = request.method.value;
    const { base, rule } = parted(card?.name ?? "");
    const methods = request.catalog.value.methods.map((one) =>
      rule && card && one.name === base ? { ...one, title: card.title, lossless: card.lossless } : one,
    );
    select.replaceChildren(...methodGroups(methods).filter((one) => one !== false));
    select.value = base;
    select.title = request.method.value?.summary ?? "";
  });
  return select;
}

/** Plain decoding beside the run, for its speedup. */
function Versus() {
  request.renewed.value;
  if (!request.comparable.value) return null;
  /** @type {(event: FieldEvent) => void} */
  const flip = ({ currentTarget }) => {
    request.settings.compare = currentTarget.checked;
    emit("compare");
  };
  const tip = "Runs plain decoding on the same prompt afterwards: its text beside the output, and the speedup.";
  return html`<${Hint} is="label" class="svp-versus ui-line ui-soft" tabindex="-1" tip=${tip}>
    <input type="checkbox" id="svf-compare" checked=${request.settings.compare !== false} onChange=${flip} />
    vs plain</${Hint}>`;
}

/** How many parameters are not at their default; a click leads to them. */
function Parameters() {
  const count = request.changed.value;
  const show = () => {
    editing.value = true;
    const seen = () => document.querySelector("#sv-form .svf-params summary")?.scrollIntoView({ block: "nearest" });
    requestAnimationFrame(seen);
  };
  return html`<${Hint} is="button" type="button" class="ui-button svp-parameters" tip="Parameters and settings"
    aria-label="Parameters, ${count} changed" onClick=${show}>⚙${count > 0 && html`<b>${count}</b>`}</${Hint}>`;
}

/** The run's own actions, once it is drawn. */
function Shared() {
  turned.value;
  return app.inspector ? html`<${Actions} inspector=${app.inspector} />` : null;
}

/** @param {{ runs: HTMLElement, methods: HTMLElement }} props */
function RunBar({ runs, methods }) {
  const edited = editing.value;
  const about = edited ? "Back to the run" : "The prompt, its parameters and settings";
  return html`
    <${Held} class="svp-run" of=${runs} />
    <${Hint} is="button" type="button" class="ui-button ui-square svp-library" aria-label="All runs"
      tip="All runs: search, tags, several to compare" onClick=${() => emit("library")}>☰</${Hint}>
    <${Hint} is="button" type="button" class="ui-button svp-edit" aria-controls="sv-panel" tip=${about}
      aria-expanded=${String(edited)} onClick=${() => (editing.value = !edited)}>✎ <span>Prompt</span></${Hint}>
    <${Held} class="svp-methods" of=${methods} />
    <${Parameters} /><${Versus} />
    <${Hint} is="button" type="button" class="ui-button svp-race" onClick=${() => emit("race")}
      aria-label="Race" tip="Plain decoding against this run, in five seconds">▶ <span>Race</span></${Hint}>
    <${Shared} />`;
}

/** Opens and closes the editor: over the views, below the bar. */
function followEditing() {
  effect(() => {
    const on = editing.value;
    document.body.classList.toggle("sv-editing", on);
    const panel = document.getElementById("sv-panel");
    if (on) moveForm(panel);
    if (on) requestAnimationFrame(() => /** @type {HTMLElement | null} */ (panel?.querySelector(
      "#sv-segments:not([hidden]) textarea, #sv-free textarea"))?.focus({ preventScroll: true }));
  });
  on("started", () => (editing.value = false));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !editing.value || !closest(event, "#sv-panel, #sv-bar, body")) return;
    if (closest(event, "#sv-example, dialog, [role=menu]")) return; // its list is closed first
    editing.value = false;
    /** @type {HTMLElement | null} */ (document.querySelector(".svp-edit"))?.focus();
  });
  document.addEventListener("pointerdown", (event) => {
    if (editing.value && !closest(event, "#sv-panel, #sv-bar, .svp-frame, [role=listbox], dialog, #sv-run-note"))
      editing.value = false;
  });
}

/** @param {Part} part */
export function mount({ element }) {
  watch();
  on("current", () => turned.value++);
  on("inspector", () => turned.value++);
  render(html`<${RunBar} runs=${runsSelect()} methods=${methodSelect()} />`, place(element, "chooser"));
  const panel = document.getElementById("sv-panel");
  for (const [name, value] of Object.entries({ role: "dialog", "aria-label": "Prompt, parameters and settings" }))
    panel?.setAttribute(name, value);
  followEditing();
}
