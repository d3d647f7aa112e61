/* The tabs, which are Gradio's: it tells which is shown, and is asked through its own event to show another. */

import { on } from "specviz/base/bus.js";
import { rested } from "specviz/base/dom.js";
import { address } from "specviz/shell/address.js";
import { app } from "specviz/shell/state.js";

/** @type {((tab: string) => void) | null} */
let ask = null;
let drawn = "inspect"; // Gradio's
const INSIST_MS = 400;
/** Asked of Gradio, which has not shown them yet. @type {string[]} */
const coming = [];

/** Shows a tab; the one that the address names is shown by the server. @param {string} tab */
export function goTo(tab) {
  app.tab = tab;
  if (tab !== (coming.at(-1) ?? drawn)) coming.push(tab);
  address();
  ask?.(tab);
  insist();
}

/** Asks again until the last tab is shown: Gradio forgets one while it turns to another. */
const insist = rested(() => {
  const tab = coming.at(-1);
  if (!tab || !ask) return;
  if (document.getElementById(`sv-${tab}`)?.checkVisibility()) {
    coming.length = 0;
    drawn = tab;
    return;
  }
  ask(tab);
  insist();
}, INSIST_MS);

/** Gradio's tabs are there: ``show`` asks for one. @param {(tab: string) => void} show */
export function tabsReady(show) {
  ask = show;
}

let opening = app.tab; // what the address names, on its way
on("tab", (tab) => {
  const begun = opening === "inspect";
  opening = "inspect";
  drawn = tab;
  if (!begun && tab === "inspect") return; // Gradio begins with its first tab
  if (coming.includes(tab)) coming.splice(0, coming.lastIndexOf(tab) + 1);
  else coming.length = 0; // the user's choice
  if (coming.length) return; // on the way to another one
  app.tab = tab;
  address();
});
