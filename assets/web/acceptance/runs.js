/* Page "Acceptance", which runs are counted: chosen one by one, by prompt, or all of a kind. */

import { h } from "specviz/base/dom.js";
import { plural } from "specviz/base/numbers.js";
import { page } from "specviz/acceptance/state.js";
import { KINDS } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";

/** Runs that are over and wrote something. */
const able = () => app.runs.filter((run) => run.kind !== "live" && (run.tokens ?? 0) > 0);

/** The runs that are counted: those chosen by hand, else all that are there. */
export const chosen = () =>
  able()
    .filter((run) => page.chosen === null || page.chosen.has(run.id))
    .map((run) => run.id);

/** The list of runs, by kind. @param {HTMLElement} place @param {() => void} changed */
export function drawRuns(place, changed) {
  const runs = able();
  if (!runs.length) return place.replaceChildren(h("p.svd-soft", "There is no recorded run yet: make one on Inspect."));
  const picked = new Set(chosen());
  /** @param {RunRecord[]} some @param {boolean} on */
  const pick = (some, on) => {
    page.chosen = new Set(chosen());
    for (const { id } of some) page.chosen[on ? "add" : "delete"](id);
    drawRuns(place, changed);
    changed();
  };
  const kinds = [...new Set(runs.map((run) => run.kind))];
  place.replaceChildren(
    h(
      "div.svd-all",
      h("b", `${picked.size} of ${plural(runs.length, "run")}`),
      h("button.svp-link", { onclick: () => pick(runs, true) }, "all"),
      h("button.svp-link", { onclick: () => pick(runs, false) }, "none"),
    ),
    ...kinds.map((kind) => {
      const own = runs.filter((run) => run.kind === kind);
      return h(
        "fieldset.svd-kind",
        h("legend", KINDS[kind] || kind),
        own.map((run) =>
          h(
            "label",
            h("input", {
              type: "checkbox",
              value: run.id,
              checked: picked.has(run.id),
              onchange: ({ currentTarget }) => pick([run], currentTarget.checked),
            }),
            h("span", run.title),
            h("small", run.method),
          ),
        ),
      );
    }),
  );
}
