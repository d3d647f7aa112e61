/* The chosen runs' drafts under every verifier: one table. Text nodes only. */

import { drawing, headline, meanings, page, term } from "specviz/acceptance/state.js";
import { h, heads, rangeBar, scrolled, table } from "specviz/base/dom.js";
import { postJson, within } from "specviz/base/json.js";
import { grouped, plural, range } from "specviz/base/numbers.js";
import { visited } from "specviz/generated/terms.js";

/** @type {Record<string, string>} */
const MEANINGS = {
  "tokens per step": "Expected over each rule's own draws, the target's token included.",
  accepted: "Drafted tokens that one verdict accepts; all rules see the same draws.",
  "other tokens": "Share of the tokens that the target would not have written: Σ TV from p; of greedy runs, tokens " +
    "that are not its first choice. –\u00a0where a rule gives no distribution.",
  "steps that differ": "Steps in which the rule accepts other tokens than the run did.",
  undecided: "Steps whose verdict depends on probabilities that were not recorded.",
};

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
  if (!answer) return;
  headline.textContent = summary(answer);
  box.replaceChildren(...judgesTable(answer));
}

/** The sentence on them: the rule that writes most, against the lossless ones. @param {JudgesAnswer} answer */
function summary({ rules, runs }) {
  /** @param {JudgedRule} one */
  const length = (one) => one.tokens_per_step?.[0] ?? 0;
  /** @param {JudgedRule[]} some */
  const most = (some) => [...some].sort((a, b) => length(b) - length(a))[0];
  const [exact, lossy] = [true, false].map((kind) => most(rules.filter((one) => one.lossless === kind)));
  const of = plural(runs, "run");
  if (!exact || !lossy) return `The drafts of ${of} under every verifier.`;
  const lossless = `${range(exact.tokens_per_step)} tokens per step under the best lossless verifier`;
  if (length(lossy) <= length(exact)) return `The drafts of ${of}: ${lossless}; no lossy one accepts more.`;
  return `The drafts of ${of}: ${lossless}, ${range(lossy.tokens_per_step)} under ${lossy.title}, which is ` +
    `lossy (${other(lossy)} other tokens).`;
}

/** What rules that share a row have in common: lossless or not, and all numbers. @param {JudgedRule} rule */
function likeness(rule) {
  const { lossless, accepted, differs, open, tokens_per_step: tokens, other_share: share } = rule;
  return JSON.stringify([lossless, accepted, differs, open, range(tokens), other(rule), !share]);
}

/** Tokens that the target would not have written. @param {JudgedRule} rule */
function other({ lossless, other_share: share }) {
  if (lossless || (share && share[1] === 0)) return "0 %";
  return range(share && [100 * share[0], 100 * share[1]], 1, " %");
}

/** A table with a row per verdict, and what there is to say of it. @param {JudgesAnswer} answer */
export function judgesTable(answer) {
  const most = Math.max(...answer.rules.map((one) => one.tokens_per_step?.[1] ?? 0));
  const open = answer.rules.some((one) => one.open);
  const rows = grouped(answer.rules, likeness).map((rules) => {
    const [one] = rules;
    return h(
      "tr",
      { "data-verifier": rules.map(({ name }) => name).join(" ") },
      h("th", { scope: "row" }, rules.map(({ title, summary, source }, n) =>
        [n ? ", " : "", h("span", { title: `${summary} (${source})` }, title)])),
      h("td", one.lossless ? "= lossless" : "≈ lossy"),
      h("td.svp-num", range(one.tokens_per_step, 2)),
      h("td.svd-bar", one.tokens_per_step && rangeBar("svd-range", one.tokens_per_step, most)),
      h("td.svp-num", String(one.accepted)),
      h("td.svp-num", other(one)),
      h("td.svp-num", String(one.differs)),
      open && h("td.svp-num", String(one.open)),
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
  const names = Object.keys(MEANINGS).filter((name) => open || name !== "undecided");
  const [first, ...others] = names.map((name) => term(name, MEANINGS[name]));
  const head = [heads(["verifier", "output"], [first]), heads([""], others)];
  return [
    scrolled("The drafts under every verifier", table({ class: "svd-table svd-judges" }, head, rows)),
    ...(rest ? [h("p.ui-soft", rest)] : []),
    ...faults,
    meanings(Object.fromEntries(names.map((name) => [name, MEANINGS[name]]))),
    h("p.ui-soft.svd-visited", `${plural(steps, "step")} with a draft, by the p and q that the runs recorded. `,
      `${visited} `, h("code", "specviz run --again TRACE --verifier NAME")),
  ];
}
