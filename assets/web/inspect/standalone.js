/* The entry of a trace's own page: restores #step=12&pins=40,41 and keeps the address up to date. */

import { must, rested } from "specviz/base/dom.js";
import { expose } from "specviz/base/handle.js";
import { markOverrides } from "specviz/base/overrides.js";
import { followSystem } from "specviz/base/system.js";
import { Inspector } from "specviz/inspect/inspector.js";

const host = must(document.getElementById("inspector"));
const start = Number(host.dataset.step);

function view() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const pins = (asked.get("pins") || "").split(",").filter(Boolean).map(Number);
  return { step: asked.has("step") ? Number(asked.get("step")) : start, pins };
}

const keep = rested(() => {
  try {
    history.replaceState(null, "", inspector.address());
  } catch {
    // a frame without an address of its own
  }
}, 200);

followSystem();
markOverrides();
const link = location.protocol !== "about:" || undefined; // a notebook's frame has no address
export const inspector = new Inspector(host, { autofocus: true, actions: { link } });
inspector.load(JSON.parse(must(document.getElementById("trace")).textContent || ""), view());
inspector.on("step", keep).on("pin", keep);
addEventListener("hashchange", () => {
  const { step, pins } = view();
  inspector.setStep(step);
  inspector.setPins(pins, false);
});
expose({ inspector });
