/* The entry of a trace's page in a notebook's frame: what is selected goes to the notebook, and comes from there. */

import { inspector } from "specviz/inspect/standalone.js";
import { ofPosition } from "specviz/inspect/selection.js";

/** What the notebook knows of it. @type {Partial<WidgetTraits>} */
let told = {};
let held = true; // until the notebook has said where to begin, and while its wish is carried out

/** @returns {WidgetTraits} */
function selected() {
  const { position = -1, node = null } = inspector.selection.peek() ?? {};
  return { step: inspector.number, token: position < 0 ? null : position, node };
}

function tell() {
  const now = selected();
  if (held || (now.step === told.step && now.token === told.token && now.node === told.node)) return;
  told = now;
  parent.postMessage({ specviz: { selected: now } }, "*");
}

/** @param {Partial<WidgetTraits> & { dark?: boolean }} asked */
function follow({ step, token, node, dark }) {
  held = true;
  if (typeof dark === "boolean")
    for (const one of [document.documentElement, document.body]) one.classList.toggle("dark", dark);
  const now = selected();
  if (typeof step === "number" && step !== now.step) inspector.setStep(step);
  const { model, number } = inspector;
  if (typeof node === "number" && node !== now.node && node < model.step(number).nodes.length)
    inspector.selectNode(node);
  else if (typeof token === "number" && token !== now.token && token < model.tokenCount) {
    const at = model.stepOf(token);
    if (at >= 0) inspector.setStep(at);
    inspector.select(ofPosition(model, token));
    inspector.reveal(token);
  } else if ((node === null || token === null) && inspector.selection.peek()) inspector.deselect();
  held = false;
  tell();
}

inspector.on("step", tell);
inspector.selection.subscribe(tell);
addEventListener("message", ({ source, data }) => {
  if (source === parent && data?.specviz) follow(data.specviz);
});
parent.postMessage({ specviz: { ready: true } }, "*");
