/* The app's entry, above all rooms: what is drawn before Gradio is there, what other rooms are asked for, and what is
   fetched when there is time. */

import { on } from "specviz/base/bus.js";
import { h, must } from "specviz/base/dom.js";
import { expose } from "specviz/base/handle.js";
import { markOverrides } from "specviz/base/overrides.js";
import { stored } from "specviz/base/storage.js";
import { fromAddress, link } from "specviz/shell/address.js";
import { FIRST, early } from "specviz/shell/early.js";
import { open, openEarly } from "specviz/shell/open.js";
import { refreshRuns } from "specviz/shell/runs.js";
import { stage } from "specviz/shell/stage.js";
import { app, params } from "specviz/shell/state.js";
import { goTo } from "specviz/shell/tabs.js";
import { paint } from "specviz/shell/theme.js";

expose({
  app,
  open,
  link,
  goTo,
  refreshRuns,
  openRuns,
  get inspector() {
    return app.inspector;
  },
});
paint();
markOverrides();
const asked = early.id !== FIRST || location.search || location.hash.length > 1;
if (!asked && !stored.get("opening")) document.body.classList.add("sv-simple", "sv-awaits"); // the opening comes
/** The first tab stop leads past the editor. @param {Event} event */
function toSteps(event) {
  event.preventDefault();
  if (app.tab !== "inspect") goTo("inspect");
  app.inspector?.timeline.element.focus();
}
const skip = h("a.svp-skip", { href: "#", onclick: toSteps }, "To the steps");
document.body.prepend(h("nav", { "aria-label": "Skip" }, skip));
/** @param {...(Node | string)} inside */
const frame = (...inside) => h("div.svp-frame", { "aria-hidden": "true" }, inside);
document.body.append(
  frame(h("span.svp-name", h("b", "spec"), "viz")),
  h("div", { id: "sv-boot" }, stage),
);
on("inspector", async (inspector) => {
  const { WhatIf } = await import("specviz/whatif/page.js");
  const { LensView } = await import("specviz/whatif/lens.js");
  app.whatif = new WhatIf(inspector);
  app.lens = new LensView(inspector);
  const { JudgesTab } = await import("specviz/judges/page.js");
  new JudgesTab(inspector);
});
/** The drawer of runs is fetched when it is opened for the first time. @param {{ search?: string }} [options] */
async function openRuns(options) {
  (await import("specviz/runs/drawer.js")).openRuns(options);
}
on("library", (asked) => openRuns(asked ?? {}));
if (params.has("library")) openRuns();
on("models", async (opener) => (await import("specviz/models/page.js")).open(opener));
on("tool", async ({ name, element }) => (await import(`specviz/${name}/view.js`)).mount({ element }));
on("race", async () => (await import("specviz/opening/opening.js")).play());

/** The modules of the page with such a name. @param {RegExp} file */
function named(file) {
  const { imports } = JSON.parse(must(document.querySelector("script[type=importmap]")).textContent || "{}");
  return Object.keys(imports).filter((name) => file.test(name));
}

async function fetchEntries() {
  for (const name of named(/^specviz\/\w+\/entry\.js$/)) await import(name).catch(console.error);
}
/** @type {Promise<void> | null} */
let entries = null;
app.entries = () => (entries ??= fetchEntries());

/** Fetches what annexes add to rooms (``entry.js``), then the other pages' modules one after another while nothing else
 * is to be done, so that a tab opens at once.
 */
async function fetchPages() {
  await app.entries();
  for (const name of named(/^specviz\/\w+\/page\.js$/)) {
    await new Promise((idle) => (window.requestIdleCallback ?? setTimeout)(idle));
    await import(name).catch(() => {}); // told where the tab is opened
  }
}
openEarly(fromAddress()).then(async () => {
  const { begin } = await import("specviz/opening/opening.js");
  begin();
  fetchPages();
});
