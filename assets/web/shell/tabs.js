/* The tabs, which are Gradio's: it tells which is shown, and is asked through its own event to show another. */

import { on } from "specviz/base/bus.js";
import { address } from "specviz/shell/address.js";
import { app } from "specviz/shell/state.js";

/** @type {((tab: string) => void) | null} */
let ask = null;

/** Shows a tab; the one that the address names is shown by the server. @param {string} tab */
export function goTo(tab) {
  app.tab = tab;
  address();
  ask?.(tab);
}

/** Gradio's tabs are there: ``show`` asks for one. @param {(tab: string) => void} show */
export function tabsReady(show) {
  ask = show;
}

let opening = app.tab; // what the address names, on its way
on("tab", (tab) => {
  const begun = opening === "inspect";
  opening = "inspect";
  if (!begun && tab === "inspect") return; // Gradio begins with its first tab
  app.tab = tab;
  address();
});
