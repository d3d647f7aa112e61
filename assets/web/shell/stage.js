/* Where a run is shown: a banner and the inspector. */

import { emit, on } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { postJson } from "specviz/base/json.js";
import { Inspector } from "specviz/inspect/inspector.js";
import { address, link } from "specviz/shell/address.js";
import { app } from "specviz/shell/state.js";
import { goTo } from "specviz/shell/tabs.js";
import { keepTry, strip } from "specviz/shell/tries.js";

const banner = h("div", { class: "svp-banner", role: "status", hidden: true });
export const host = h("div", { class: "svp-host" });
export const stage = h("div", { class: "svp-stage" }, banner, host);
let bannerHad = "";

/** A sentence above the run; ``kind`` is info, busy or error. */
export function say(text, kind = "info") {
  banner.hidden = !text;
  banner.dataset.kind = kind;
  banner.setAttribute("role", kind === "error" ? "alert" : "status");
  const mine = kind === "busy" && app.mine.has(app.current);
  const words = banner.querySelector(".svp-words");
  if (words && kind === "busy" && bannerHad === `${kind} ${mine}`) {
    words.textContent = text; // in place: the button next to it may be under a finger
    return;
  }
  bannerHad = `${kind} ${mine}`;
  const parts = [];
  if (kind === "busy") parts.push(h("span", { class: "svp-spin", "aria-hidden": "true" }));
  if (text) parts.push(h("span", { class: "svp-words" }, text));
  if (mine) parts.push(h("button", { type: "button", class: "svp-stop", onclick: stop }, "Stop"));
  if (text && kind !== "busy")
    parts.push(h("button", { type: "button", class: "svp-x", "aria-label": "Dismiss", onclick: () => say("") }, "×"));
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
    say(problem.message, "error");
  }
}
on("stop", stop);

/** Draws a trace; ``at`` is {step, pins}. */
export function show(trace, at) {
  const id = trace.run.id;
  const link_ = (format) => `api/traces/${encodeURIComponent(id)}/download?format=${format}`;
  const downloads = {
    trace: link_("trace"),
    html: (state) => `${link_("html")}&step=${state.step || 0}`,
    "Steps (CSV)": link_("csv-steps"),
    "Tokens (CSV)": link_("csv-tokens"),
  };
  const attribute = () => goTo("attribution");
  if (!app.inspector) {
    app.inspector = new Inspector(host, { live: true, actions: { link, downloads, attribute }, strip });
    app.inspector.on("step", address);
    app.inspector.on("pin", address);
    emit("inspector", app.inspector);
  }
  app.inspector.options.actions = { link, downloads, attribute };
  app.inspector.load(trace, at || {});
  app.shown = id;
  host.dataset.ready = id;
  if (!app.drawn) app.drawn = performance.now(); // ms since the navigation began: the first view
  host.hidden = false;
  keepTry(trace);
  address();
}
