/* The run bar: the run that is shown, its prompt, the method of the next run, and what one does with the run. */

import { emit, on } from "specviz/base/bus.js";
import { framed, h, must } from "specviz/base/dom.js";
import { short } from "specviz/base/numbers.js";
import { Actions } from "specviz/inspect/actions.js";
import { open } from "specviz/shell/open.js";
import * as request from "specviz/shell/request.js";
import { fillRuns, fitRun } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";
import { html, render, signal } from "specviz/ui/html.js";
import { Held } from "specviz/ui/element.js";
import { Hint } from "specviz/ui/tooltip.js";

const STEPPING = ["ArrowLeft", "ArrowRight", "[", "]"];

const ABOUT = "The prompt, its method and settings";

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
  const pen = must(h("canvas").getContext("2d"));
  const fit = () => {
    const { fontSize, fontFamily } = getComputedStyle(select);
    pen.font = `${fontSize} ${fontFamily}`;
    fitRun(select, (text) => pen.measureText(text).width);
  };
  const draw = () => {
    fillRuns(select, app.current);
    fit();
  };
  new ResizeObserver(framed(fit)).observe(select);
  on("runs", draw);
  on("current", draw);
  draw();
  return select;
}

/** The method of the next run, and how many of its parameters are not at their default; a click leads to the form. */
function Method() {
  const card = request.method.value;
  const count = request.changed.value;
  const about = `Method of the next run, its parameters and settings${count ? `: ${count} changed` : ""}`;
  if (!card) return null;
  return html`<${Hint} is="button" type="button" class="ui-button svp-methods" tip=${about} aria-label="${
    short(card.title)}: ${about}" onClick=${() => (request.editing.value = true)}>
    <span>${short(card.title)}</span>${count > 0 && html`<b data-count=${count} />`}
    <i aria-hidden="true">▾</i></${Hint}>`;
}

/** The run's own actions, once it is drawn. */
function Shared() {
  turned.value;
  return app.inspector ? html`<${Actions} inspector=${app.inspector} />` : null;
}

/** @param {{ runs: HTMLElement }} props */
function RunBar({ runs }) {
  const { editing } = request;
  return html`
    <${Held} class="svp-run" of=${runs} />
    <${Hint} is="button" type="button" class="ui-button ui-square svp-library" aria-label="All runs"
      tip="All runs: search, tags, several to compare" onClick=${() => emit("library")}>☰</${Hint}>
    <${Hint} is="button" type="button" class="ui-button svp-edit" aria-controls="sv-panel" tip=${ABOUT}
      aria-expanded=${String(editing.value)} onClick=${() => (editing.value = !editing.value)}>
      ✎ <span>Prompt</span></${Hint}>
    <${Method} />
    <${Hint} is="button" type="button" class="ui-button svp-race" onClick=${() => emit("race")}
      aria-label="Race" tip="Plain decoding against this run, in five seconds">▶ <span>Race</span></${Hint}>
    <${Shared} />`;
}

/** The bar's parts that are about a run, in their place. */
export function chooser() {
  on("current", () => turned.value++);
  on("inspector", () => turned.value++);
  const place = h("div.svp-chooser", { id: "sv-chooser" });
  render(html`<${RunBar} runs=${runsSelect()} />`, place);
  return place;
}
