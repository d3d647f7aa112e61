/* A run's page of a static site: its trace, read when the page opens, in the inspector. */

import { h, must } from "specviz/base/dom.js";
import { file } from "specviz/base/files.js";
import { sentence } from "specviz/base/json.js";
import { followSystem } from "specviz/base/system.js";

const asked = new URLSearchParams(location.search);
const key = asked.get("run") ?? "";
const site = /** @type {SiteRuns} */ (JSON.parse(must(document.getElementById("site")).textContent || ""));
const run = site.runs.find((one) => one.key === key);

/** @param {string} text */
const say = (text) => must(document.getElementById("inspector")).replaceChildren(h("p", { role: "alert" }, text));

/** Links to the list, and to the other runs of the same prompt. @param {SiteRun} shown */
function around(shown) {
  const others = site.runs.filter((one) => one.prompt === shown.prompt);
  /** @param {SiteRun} one */
  const link = (one) => {
    if (one === shown) return h("b", { "aria-current": "page" }, one.method);
    return h("a", { href: `run.html?run=${one.key}` }, one.method);
  };
  return h(
    "nav.st-nav",
    { "aria-label": "Runs" },
    h("a", { href: "index.html" }, `← ${site.title}`),
    others.length > 1 && h("span.st-same", "Same prompt: ", others.map((one) => [link(one), " "])),
  );
}

/** @param {SiteRun} shown */
async function open(shown) {
  document.title = `${shown.title} · specviz`;
  if (!asked.has("embed")) must(document.getElementById("around")).append(around(shown));
  try {
    must(document.getElementById("trace")).textContent = JSON.stringify(await file(`traces/${shown.key}.js`));
    await import("specviz/inspect/standalone.js");
  } catch (problem) {
    say(sentence(problem));
  }
}

followSystem();
if (run) open(run);
else say("There is no such run here: choose one from the list.");
