/* Page "Lab": whether what was measured here comes out as in the paper. */

import { h, heads } from "specviz/base/dom.js";
import { plural } from "specviz/base/numbers.js";
import { tabled } from "specviz/lab/state.js";

const SAME = "✓ same order";
const OTHER = "✗ other order";
const OPEN = "≈ undecided";

/** A number stays on one line with its unit, its error and what it is compared with. @param {string} [text] */
export const unbroken = (text = "") =>
  text.replace(/(?<=\d) (?=%|±|(points|ms|nats|hours|tokens|rows|prompts)\b)|(?<=[±<>≈]) | (?=[<>≈] )/g, "\u00a0");

/** @param {LabFinding} finding */
const mark = ({ alike, within_spread: open }) => (open ? OPEN : alike ? SAME : OTHER)[0];

/** A comparison: our numbers, the paper's, and whether both stand in one order. @param {LabFinding} finding */
const line = ({ subject, values, paper_values, source, alike, within_spread: open }) =>
  h(
    "tr",
    h("th", { scope: "row" }, subject),
    h("td.svl-here", unbroken(values)),
    h("td", unbroken(paper_values), h("small", ` ${source}`)),
    h(`td.${open ? "svl-open" : alike ? "svl-alike" : "svl-unlike"}`, open ? OPEN : alike ? SAME : OTHER),
  );

/** What stands first: the paper's claims in these results, and the sentence that was written of an example result. */
/** @type {(results: LabResults, open: { value: boolean }) => Child[]} */
export function verdictOf({ verdict, findings, about }, open) {
  if (!verdict && !about.compared) return [];
  const said = h("p", h("b", "Here: "), verdict ? h("b", `${verdict}. `) : unbroken(about.compared));
  const points = findings.map((one) =>
    h("li", h("span", { "aria-hidden": "true" }, mark(one)),
      h("span", unbroken(one.text), h("small.ui-soft", ` ${unbroken(one.spread)}`,
        mark(one) === OTHER[0] && unbroken(` The paper: ${one.paper_text}; ${one.source}.`)))),
  );
  const answer = h("div.svl-found.svl-compared", said, points.length > 0 && h("ul.svl-points", points));
  if (!findings.length) return [answer];
  const table = tabled({ class: "svl-claims" }, heads(["Compared", "Here", "The paper", ""]), findings.map(line));
  const details = h("details.ui-fold.svl-claim", { open: open.value },
    h("summary", plural(findings.length, "comparison").replace(/^1 /, "The "), " with the paper's numbers"),
    table, about.compared && h("p.svl-found", unbroken(about.compared)));
  details.addEventListener("toggle", () => (open.value = details.open));
  return [answer, details];
}
