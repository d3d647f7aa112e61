/* Page "Lab": whether what was measured here comes out as in the paper. */

import { h } from "specviz/base/dom.js";

/** How a comparison came out. */
const OUTCOMES = {
  "✓": "in the paper's order", "✗": "in another order", "≈": "undecided", "–": "not ruled: the paper has both orders",
};

/** A number stays on one line with its unit, its error and what it is compared with. @param {string} [text] */
export const unbroken = (text = "") =>
  text.replace(/(?<=\d) (?=%|±|(points|ms|nats|hours|tokens|rows|prompts)\b)|(?<=[±<>≈]) | (?=[<>≈] )/g, "\u00a0");

/** What stands first: the paper's claims in these results, and what was written of an example result. */
/** @type {(results: LabResults) => Child[]} */
export function verdictOf({ verdict, findings, about }) {
  if (!verdict && !about.compared) return [];
  const points = findings.map(({ mark, text, notes }) =>
    h("li", h("span", { role: "img", "aria-label": OUTCOMES[mark], title: OUTCOMES[mark] }, mark),
      h("span", unbroken(text), h("small.ui-soft", unbroken(notes)))));
  return [h("div.svl-found.svl-compared",
    h("p", h("b", "Here: "), verdict ? h("b", `${verdict}.`) : unbroken(about.compared)),
    points.length > 0 && [h("ul.svl-points", points), about.compared && h("p.ui-soft", unbroken(about.compared))])];
}
