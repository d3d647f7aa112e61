/* Where a run is shown: a banner and the inspector. */

import { emit, on } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { postJson, sentence, traceUrl } from "specviz/base/json.js";
import { Inspector } from "specviz/inspect/inspector.js";
import { address, sharedLink } from "specviz/shell/address.js";
import { app } from "specviz/shell/state.js";
import { goTo } from "specviz/shell/tabs.js";
import { keepTry, strip } from "specviz/shell/tries.js";

const banner = h("div.svp-banner", { role: "status", hidden: true });
export const host = h("div.svp-host");
export const stage = h("div.svp-stage", banner, host);

/** A sentence about the run: over its lower corner, so that nothing moves; above an empty page. */
/** @param {string} text @param {"info" | "busy" | "error"} kind */
export function say(text, kind = "info") {
  banner.hidden = !text;
  banner.classList.toggle("svp-floating", !!app.shown);
  const was = banner.dataset.kind;
  banner.dataset.kind = kind;
  banner.setAttribute("role", kind === "error" ? "alert" : "status");
  const words = banner.querySelector(".svp-words");
  if (words && kind === "busy" && was === kind) {
    words.textContent = text; // in place: its sign goes on turning
    return;
  }
  const parts = [];
  if (kind === "busy") parts.push(h("span.svp-spin", { "aria-hidden": "true" }));
  if (text) parts.push(h("span.svp-words", text));
  if (text && kind !== "busy")
    parts.push(h("button.svp-x", { "aria-label": "Dismiss", onclick: () => say("") }, "×"));
  banner.replaceChildren(...parts);
}

/** Stops the run of this page that is shown, or else the last one started. */
export async function stop() {
  const id = app.mine.has(app.current) ? app.current : [...app.mine].pop();
  if (!id) return;
  say("Stopping after this step …", "busy");
  try {
    await postJson("api/runs/stop", { ids: [id] });
  } catch (problem) {
    say(sentence(problem), "error");
  }
}
on("stop", stop);

/** Draws a trace. @param {Trace} trace @param {At} at */
export function show(trace, at) {
  const id = trace.run.id;
  /** @param {string} format */
  const file = (format) => `${traceUrl(id)}/download?format=${format}`;
  /** @type {(format: string) => (state: At) => string} */
  const atStep = (format) => (state) => `${file(format)}&step=${state.step || 0}`;
  const downloads = {
    trace: file("trace"),
    html: atStep("html"),
    "Steps (CSV)": file("csv-steps"),
    "Tokens (CSV)": file("csv-tokens"),
  };
  const shares = () => app.shares.map((share) => share(id));
  const attribute = () => {
    app.attributed = id;
    goTo("attribution");
  };
  const actions = {
    link: sharedLink, attribute,
    get figure() {
      return shares().find((share) => share.figure)?.figure;
    },
    get downloads() {
      return Object.assign({}, downloads, ...shares().map((share) => share.downloads));
    },
  };
  if (!app.inspector) {
    app.inspector = new Inspector(host, { actions, strip, bar: true });
    app.inspector.on("step", address);
    app.inspector.on("pin", address);
    emit("inspector", app.inspector);
  }
  app.inspector.options.actions = actions;
  app.inspector.load(trace, at);
  app.shown = id;
  host.dataset.ready = id;
  if (!app.drawn) app.drawn = performance.now(); // ms since the navigation began: the first view
  host.hidden = false;
  keepTry(trace);
  address();
}
