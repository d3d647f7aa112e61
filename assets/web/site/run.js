/* A run's page of a static site: its trace, read when the page opens, in the inspector. */

import { must } from "specviz/base/dom.js";
import { file } from "specviz/base/files.js";
import { sentence } from "specviz/base/json.js";
import { followSystem } from "specviz/base/system.js";
import { around, askedKey, samePrompt, say, site } from "specviz/site/site.js";

const key = askedKey("run");
const NONE = "There is no such run here: choose one from the list.";

async function open() {
  const run = site.runs.find((one) => one.key === key); // a lesson's run is not in the list
  try {
    const trace = await file(`traces/${key}.js`);
    document.title = `${trace.run.title || "A run"} · specviz`;
    must(document.getElementById("trace")).textContent = JSON.stringify(trace);
    around(run, "run", run && samePrompt(run));
    await import("specviz/inspect/standalone.js");
  } catch (problem) {
    around(run, "run");
    say(run ? sentence(problem) : NONE);
  }
}

followSystem();
if (key) open();
else say(NONE);
