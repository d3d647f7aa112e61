/* Acceptance of runs, draft lengths: what other servers' policies would have drafted, and the runs in batches. */

import { h, heads, table } from "specviz/base/dom.js";
import { alertNote, postJson } from "specviz/base/json.js";
import { format, percentage, plural } from "specviz/base/numbers.js";
import { page, scrolled } from "specviz/acceptance/state.js";

/** @param {number | null} value @param {(value: number) => string} form */
const cell = (value, form) => h("td.svp-num", value === null ? "–" : form(value));

/** @param {number} value */
const times = (value) => `${value.toFixed(2)}×`;

/** @param {LengthSet} set */
function policies({ policies: rows }) {
  const lines = rows.map((one) =>
    h(
      "tr",
      h("th", { scope: "row", title: one.source }, one.policy, one.why && h("small", one.why)),
      cell(one.steps, format),
      cell(one.mean_length, (value) => value.toFixed(2)),
      cell(one.ms, (value) => format(Math.round(value))),
      cell(one.speedup, times),
      cell(one.regret, percentage),
    ),
  );
  const titles = heads(["policy"], ["steps", "mean length", "ms", "speedup", "regret"]);
  return scrolled("Policies", table({ class: "svd-table" }, titles, lines));
}

/** @param {LengthSet} set */
function batches({ batches: rows }) {
  const lines = rows.map((one) =>
    h(
      "tr",
      h("th", { scope: "row" }, String(one.batch), !one.measured && h("small", "beyond what was measured")),
      cell(one.tokens_per_s, format),
      cell(one.plain_tokens_per_s, format),
      cell(one.speedup, times),
    ),
  );
  const titles = heads(["batch"], ["tokens/s", "plain, tokens/s", "speedup"]);
  return scrolled("Batches", table({ class: "svd-table" }, titles, lines));
}

/** @param {HTMLElement} place */
export async function drawLengths(place) {
  const { asked, ids } = page;
  place.replaceChildren(h("p.svp-empty", "Replaying …"));
  try {
    /** @type {LengthsAnswer} */
    const { sets, measured } = await postJson("api/acceptance/lengths", { ids });
    if (asked !== page.asked || page.view !== "lengths") return;
    place.replaceChildren(
      h(
        "p.svd-lead",
        "Each policy writes the same text: where it drafts less than the run did, the rest of that draft is offered " +
          "to its next step. ",
        h("b", "Regret"),
        " = its milliseconds ÷ the oracle's − 1, by the runs' own times; the oracle knows what stands.",
      ),
      h("div.svd-groups", sets.map((set) =>
        h(
          "section.svd-group",
          h("h3", `${set.title}, ${plural(set.runs, "run")}`),
          set.why ? h("p.svd-soft", set.why) : policies(set),
          set.batches.length ? [h("p.svd-soft", BATCHES), batches(set)] : null,
        ))),
      measured ? "" : h("p.svd-soft", UNMEASURED),
    );
  } catch (problem) {
    if (asked === page.asked) place.replaceChildren(alertNote(problem));
  }
}

const BATCHES =
  "In a batch of runs like these, by a model: L(rows, batch, context) as measured here, drafted for one by one " +
  "(specviz load check says how far it is from batches that run).";
const UNMEASURED = "What these runs would be in a batch is known once specviz load measure has timed this model here.";
