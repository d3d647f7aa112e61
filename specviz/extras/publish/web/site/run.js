/* A run's page of a static site: its trace, read when the page opens, in the inspector. */

import { must } from "specviz/base/dom.js";
import { file } from "specviz/site/files.js";
import { sentence } from "specviz/base/json.js";
import { followSystem } from "specviz/base/system.js";
import { JudgesPanel } from "specviz/judges/panel.js";
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
    const { inspector, raceAgainst } = await import("specviz/opening/standalone.js");
    const plain = site.runs.find((one) => one.plain && one.prompt === run?.prompt);
    raceAgainst(async () => plain ? file(`traces/${plain.key}.js`) : null);
    if (run?.judged) verifiers(inspector);
  } catch (problem) {
    around(run, "run");
    say(run ? sentence(problem) : NONE);
  }
}

/** The tab "Rules"; what it shows is read when it is opened. @param {Inspector} inspector */
function verifiers(inspector) {
  const panel = new JudgesPanel(inspector);
  panel.say("Judging …");
  const read = async () => {
    try {
      const { rules = [], steps = [] } = /** @type {JudgedRun} */ (await file(`judged/${key}.js`));
      panel.show(rules, steps);
    } catch (problem) {
      panel.say(sentence(problem));
    }
  };
  inspector.tabs.add({ name: "judges", label: "Rules", element: panel.element, open: read });
}

followSystem();
if (key) open();
else say(NONE);
