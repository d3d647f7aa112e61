/* The chosen runs' drafts under every verifier: one table. Text nodes only. */

import { drawing, page } from "specviz/acceptance/state.js";
import { h, heads, rangeBar, scrolled, table } from "specviz/base/dom.js";
import { postJson, within } from "specviz/base/json.js";
import { plural, range } from "specviz/base/numbers.js";
import { visited } from "specviz/generated/terms.js";

const WORDS =
  "The recorded drafts, judged by the p and q that the runs hold: no model is asked. Tokens per step are expected " +
  "over each rule's own draws, the target's token included. Accepted is one verdict, by the same draws for all. " +
  "Other tokens are those that the target would have written otherwise (Σ TV from p; greedy: not its first choice); " +
  "– where a rule does not say.";

/** @param {StillJudging} answer */
export const soFar = ({ done, of }) =>
  `Judging: ${done.toLocaleString("en")} of ${plural(of, "step")}. A run that is decoded comes first.`;

/** The verdicts of the server, asked again while it judges; null where they are not wanted any more. */
/** @type {<T extends object>(ask: () => Promise<T | StillJudging>, say: (text: string) => unknown,
 *   wanted: () => boolean) => Promise<T | null>} */
export async function verdicts(ask, say, wanted) {
  for (;;) {
    const answer = await ask();
    if (!wanted()) return null;
    if (!("state" in answer && answer.state === "judging")) return /** @type {any} */ (answer);
    say(soFar(/** @type {StillJudging} */ (answer)));
  }
}

/** @param {HTMLElement} box */
export async function drawJudges(box) {
  const wanted = drawing();
  const progress = h("p.svp-empty", { role: "status" }, "Judging …");
  box.replaceChildren(progress);
  /** @returns {Promise<JudgesAnswer | StillJudging>} */
  const ask = () => postJson("api/acceptance/judge", { ids: page.ids });
  const say = (/** @type {string} */ text) => (progress.textContent = text);
  const answer = await within(box, () => verdicts(ask, say, wanted), wanted);
  if (answer) box.replaceChildren(...judgesTable(answer));
}

/** A table with a row per verifier, and what there is to say of it. @param {JudgesAnswer} answer */
export function judgesTable(answer) {
  const most = Math.max(...answer.rules.map((one) => one.tokens_per_step?.[1] ?? 0));
  const rows = answer.rules.map((one) => {
    const share = one.other_share;
    return h(
      "tr",
      { "data-verifier": one.name },
      h("th", { scope: "row", title: `${one.summary} (${one.source})` }, one.title),
      h("td", one.lossless ? "= lossless" : "≈ lossy"),
      h("td.svp-num", range(one.tokens_per_step, 2)),
      h("td", one.tokens_per_step && rangeBar("svd-range", one.tokens_per_step, most)),
      h("td.svp-num", String(one.accepted)),
      h("td.svp-num", one.lossless ? "0" : range(share && [100 * share[0], 100 * share[1]], 1, " %")),
      h("td.svp-num", String(one.differs)),
      h("td.svp-num", String(one.open)),
    );
  });
  const steps = answer.rules[0]?.steps ?? 0;
  const ranges = answer.rules.flatMap(({ tokens_per_step: tokens, other_share: share }) => [tokens, share]);
  const rest = ranges.some((pair) => pair && pair[1] - pair[0] > 0.005)
    ? "Only the top probabilities were recorded, so some numbers are ranges. " +
      "Runs of specviz run --first-choices N hold more."
    : "";
  const faults = answer.faults.map((words) => h("p.ui-soft", words));
  if (!answer.runs) return faults;
  const head = [
    heads(["verifier", "output"], ["tokens per step"]),
    heads([""], ["accepted", "other tokens", "steps that differ", "open"]),
  ];
  return [
    h("p.ui-soft", `${plural(answer.runs, "run")}, ${plural(steps, "step")} with a draft. ${WORDS}`),
    h("p.ui-soft.svd-visited", `${visited} `, h("code", "specviz run --again TRACE --verifier NAME")),
    scrolled("The drafts under every verifier", table({ class: "svd-table svd-judges" }, head, rows)),
    ...(rest ? [h("p.ui-soft", rest)] : []),
    ...faults,
  ];
}
