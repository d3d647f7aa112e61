/* A run's page of a static site: its trace, fetched as a script so that it opens from disk too, in the inspector. */

import { h, must } from "specviz/base/dom.js";
import { followSystem } from "specviz/base/system.js";

const asked = new URLSearchParams(location.search);
const key = asked.get("run") ?? "";
const site = /** @type {SiteRuns} */ (JSON.parse(must(document.getElementById("site")).textContent || ""));
const run = site.runs.find((one) => one.key === key);

/** The text of a page's script element, unpacked. @param {string} packed gzip in base64 */
async function unpacked(packed) {
  const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

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

followSystem();
if (!run) say("There is no such run here: choose one from the list.");
else {
  document.title = `${run.title} · specviz`;
  if (!asked.has("embed")) must(document.getElementById("around")).append(around(run));
  const script = h("script", { src: `traces/${run.key}.js` });
  Reflect.set(window, "specvizTrace", async (/** @type {string} */ packed) => {
    must(document.getElementById("trace")).textContent = await unpacked(packed);
    await import("specviz/inspect/standalone.js");
  });
  script.addEventListener("error", () => say("The run's file cannot be read: publish the site again."));
  document.head.append(script);
}
