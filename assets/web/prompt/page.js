/* The page "Inspect": its bar, the form of a run, the run. It takes over what was drawn before Gradio was there. */

import { on } from "specviz/base/bus.js";
import { h, place } from "specviz/base/dom.js";
import { getJson, postJson, sentence, tell } from "specviz/base/json.js";
import { hold } from "specviz/prompt/draft.js";
import { fault } from "specviz/prompt/draft.js";
import { Fault, RunButton, mount as mountSheet } from "specviz/prompt/sheet.js";
import { chooser } from "specviz/shell/chooser.js";
import { open } from "specviz/shell/open.js";
import * as request from "specviz/shell/request.js";
import { refreshRuns } from "specviz/shell/runs.js";
import { stage } from "specviz/shell/stage.js";
import { app } from "specviz/shell/state.js";
import { paint } from "specviz/shell/theme.js";
import { html, render } from "specviz/ui/html.js";

/** Our style sheets come after Gradio's, whose resets would win otherwise; copies first, so that nothing flickers. */
function lastWord() {
  for (const old of document.querySelectorAll('link[rel="stylesheet"][href^="web/"]')) {
    const copy = old.cloneNode();
    copy.addEventListener("load", () => old.remove());
    document.head.append(copy);
  }
}

/** Opens a file of a run: Gradio takes it, and the server puts it among this user's runs. @param {File} file */
async function openFile(file) {
  const body = new FormData();
  body.append("files", file);
  const [path] = await getJson("gradio_api/upload", fetch("gradio_api/upload", { method: "POST", body }));
  const { id } = await postJson("api/inspect/open", { path });
  await open(id);
  refreshRuns();
}

/** The button that opens a file, and what went wrong with it. @param {HTMLElement} note */
function opener(note) {
  const input = h("input", { type: "file", hidden: true, "aria-label": "Open a run's file" });
  input.addEventListener("change", async () => {
    const [file] = input.files ?? [];
    if (!file) return;
    tell(note, "");
    await openFile(file).catch((problem) => tell(note, sentence(problem), true));
    input.value = ""; // the same file can be chosen again
  });
  on("current", () => tell(note, ""));
  on("file", () => input.click());
  return [input, h("button.ui-button", { id: "sv-open", type: "button", onclick: () => input.click() }, "Open …")];
}

/** The form follows the run shown; a gallery's run that nobody asked for leaves the method as it was chosen. */
function follow() {
  const look = (/** @type {string} */ id) => {
    const listed = app.runs.find((run) => run.id === id);
    const unasked = !app.held && !app.early;
    if (unasked && !listed) return; // the list will say what it is
    hold(id, !unasked || listed?.kind !== "gallery");
  };
  on("current", look);
  on("runs", () => !app.held && app.current && look(app.current));
  if (app.current) look(app.current);
}

/** @param {Part} part */
export function mount({ element }) {
  const note = h("p.svp-note", { id: "sv-file-note", role: "status" });
  const run = h("span.ui-line");
  const reason = h("div.svp-note");
  render(html`<${RunButton} id="sv-run" />`, run);
  render(html`<${Refused} />`, reason);
  const sheetPlace = h("div", { id: "sv-editor" });
  const bar = h("div.ui-row", { id: "sv-bar" }, chooser(), run, opener(note));
  place(element, "inspect").append(bar, reason, note, sheetPlace, stage);
  mountSheet(sheetPlace, { opener: () => bar.querySelector(".svp-edit") });
  if (app.inspector) {
    app.inspector.unseen = true; // an element that is moved is scrolled back
    requestAnimationFrame(() => app.inspector?.resized());
  }
  for (const old of document.querySelectorAll("#sv-boot, .svp-frame")) old.remove();
  document.body.classList.add("sv-mounted");
  paint();
  lastWord();
  if (app.rules) request.known(); // else the first word on the model, still to come, asks
  follow();
  refreshRuns();
}

/** While the form is closed: why nothing runs; that the model still loads is said beside its name. */
function Refused() {
  const { reason, state } = request.catalog.value;
  if (request.editing.value || state === "loading") return null;
  return html`${reason && html`<p class="svf-reason" role="status">${reason}</p>`}${fault.value && html`<${Fault} />`}`;
}
