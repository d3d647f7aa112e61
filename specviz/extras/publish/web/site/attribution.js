/* Attribution on a static site: an answer beside its sources, by every run that wrote it. */

import { Attribution } from "specviz/attribution/view.js";
import { file } from "specviz/site/files.js";
import { expose } from "specviz/base/handle.js";
import { sentence } from "specviz/base/json.js";
import { followSystem } from "specviz/base/system.js";
import { inLine } from "specviz/base/text.js";
import { around, askedKey, main, say, site } from "specviz/site/site.js";

const key = askedKey("answer");
const runs = site.runs.filter((run) => run.answer === key);

async function open() {
  const run = runs.find((one) => one.key === askedKey("run")) ?? runs[0];
  around(run, "attribution");
  document.title = `Attribution: ${run.title} · specviz`;
  try {
    /** @type {{ signals: SignalDocument[] }} */
    const { signals } = await file(`answers/${key}.js`);
    const active = signals.findIndex((one) => inLine(one.views.words.run.method_title.split(":")[0]) === run.method);
    const attribution = new Attribution(main);
    attribution.load(signals, { active: Math.max(0, active) });
    expose({ attribution });
  } catch (problem) {
    say(sentence(problem));
  }
}

followSystem();
if (key && runs.length) open();
else {
  around(undefined, "attribution");
  say("There is no such answer here: choose a run from the list.");
}
