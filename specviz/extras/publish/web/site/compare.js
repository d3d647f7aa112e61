/* Compare on a static site: the recorded runs of one prompt, as the app compares them. */

import { h } from "specviz/base/dom.js";
import { file } from "specviz/site/files.js";
import { sentence } from "specviz/base/json.js";
import { onTheme } from "specviz/base/plotly.js";
import { followSystem } from "specviz/base/system.js";
import { drawCharts } from "specviz/compare/charts.js";
import { changed } from "specviz/compare/frame.js";
import { begin } from "specviz/compare/live.js";
import { page } from "specviz/compare/state.js";
import { around, asked, askedKey, link, main, say, site, to } from "specviz/site/site.js";

const key = askedKey("prompt");
const runs = site.runs.filter((run) => run.prompt === key);

/** @param {SiteComparison} all @param {number} number */
function host(all, number) {
  /** What the server answers in the app. @type {(what: string) => unknown} */
  const answers = (what) => {
    const { stretches, claim } = all.sets[number];
    if (what === "stretches") return { stretches };
    if (what === "claim") return claim;
    const name = /** @type {"numbers" | "lens"} */ (what);
    return Object.fromEntries(Object.entries(all.runs).map(([run, one]) => [run, one[name]]));
  };
  const nothing = () => {};
  page.host = {
    trace: (id) => file(`traces/${id}.js`),
    ask: async (what) => answers(what),
    inspect: (id, step) => location.assign(`${to("run", { run: id })}#step=${step}`),
    begun: nothing,
    changed: nothing,
    over: nothing,
    adopt: async () => false,
    stop: nothing,
    repeat: null,
    figure: () => "",
  };
}

/** Links to the other sets of runs, where not all stand in one. @param {SiteComparison} all @param {number} number */
function sets(all, number) {
  if (all.sets.length < 2) return null;
  /** @param {string} one */
  const method = (one) => runs.find((run) => run.key === one)?.method ?? "?";
  return h(
    "span.ui-row",
    "Compared: ",
    all.sets.map((set, at) =>
      link(set.runs.map(method).join(", "), to("compare", { prompt: key, set: at + 1 }), at === number)),
  );
}

async function open() {
  try {
    /** @type {SiteComparison} */
    const all = await file(`prompts/${key}.js`);
    const number = Math.max(0, Math.min(all.sets.length, Number(asked.get("set")) || 1) - 1);
    around(runs[0], "compare", sets(all, number));
    document.title = `Compare: ${runs[0].title} · specviz`;
    page.box = main;
    page.data = { most: 0, metrics: all.metrics, plotly: "plotly.js" };
    main.replaceChildren(h("div.svc-empty.ui-row", { hidden: true }), h("div.svc-results"));
    host(all, number);
    begin(all.sets[number].runs.map((id) => ({ id })));
  } catch (problem) {
    around(runs[0], "compare");
    return say(sentence(problem));
  }
  let wide = main.offsetWidth;
  new ResizeObserver(() => {
    if (main.offsetWidth !== wide && page.framed) changed();
    wide = main.offsetWidth;
  }).observe(main);
  onTheme(() => {
    page.colors = null;
    changed();
    drawCharts();
  });
}

followSystem();
if (runs.length > 1) open();
else {
  around(undefined, "compare");
  say("There are no such runs here to compare: choose a prompt with several from the list.");
}
