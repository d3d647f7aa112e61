/* The recorded runs to choose from, and the button that folds the panel. */

import { emit, on } from "specviz/base/bus.js";
import { h, place } from "specviz/base/dom.js";
import { stored } from "specviz/base/storage.js";
import { open } from "specviz/shell/open.js";
import { fillRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";

const STEPPING = ["ArrowLeft", "ArrowRight", "[", "]"];

/** @param {Part} part */
export function mount({ element }) {
  const box = place(element, "chooser");
  const fold = h("button.svp-button", { "aria-controls": "sv-panel" });
  const wide = () => innerWidth >= 1100;
  let folded = stored.get("panel") ? stored.get("panel") === "folded" : !wide();
  if (!wide()) folded = true;
  function apply() {
    document.body.classList.toggle("sv-folded", folded);
    fold.setAttribute("aria-expanded", String(!folded));
    fold.textContent = folded ? "New run ▸" : "◂ Hide";
    fold.classList.toggle("svp-call", folded);
    fold.title = folded ? "Show the prompt and the method" : "Hide the prompt: more room for the views";
  }
  on("started", () => {
    if (wide()) return;
    folded = true; // on a small screen the views would be below the form
    apply();
    scrollTo({ top: 0 });
  });
  fold.addEventListener("click", () => {
    folded = !folded;
    stored.set("panel", folded ? "folded" : "open");
    apply();
  });
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
  const race = h("button.svp-button", { title: "Plain decoding against this run, in five seconds" }, "▶ Race");
  race.addEventListener("click", async () => (await import("specviz/opening/opening.js")).play());
  const edit = h("button.svp-button", { title: "The run's prompt, method and parameters in the editor" });
  edit.textContent = "Edit and run again";
  edit.addEventListener("click", () => {
    if (folded) fold.click();
    emit("again", app.current);
  });
  /** @type {() => Promise<void>} */
  const connect = async () => (await import("specviz/servers/page.js")).open(server);
  const server = h("button.svp-button", { "aria-haspopup": "dialog", hidden: true, onclick: connect });
  server.textContent = "Connect a server …";
  on("status", () => (server.hidden = !app.rules || Boolean(app.rules.public || app.rules.accounts)));
  box.append(fold, select, edit, race, server);
  apply();
  draw();
}
