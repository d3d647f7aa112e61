/* Page "Compare", the oracle: what each method's ranking cost, beside its lane and in the ruler. */

import { h } from "specviz/base/dom.js";
import { BASELINE } from "specviz/base/methods.js";
import { page } from "specviz/compare/state.js";

const HIGH = 2.5;

/** The words beside a lane, empty; they explain themselves. @param {CompareLane} lane */
export function words(lane) {
  const element = h("span.svc-oracle.ui-soft", { tabindex: "0" });
  page.tip?.add(element, () => {
    const oracle = page.numbers[lane.id]?.oracle;
    const metric = page.data.metrics.find((one) => one.key === "ranking_cost");
    if (!oracle || !metric) return [];
    if ("why" in oracle) return [oracle.why];
    const needs = `The oracle needs ${oracle.needs} of the ${oracle.recorded} steps.`;
    return [h("b", metric.label), h("div", `= ${metric.formula}`), h("div", needs), h("div.ui-soft", metric.help)];
  });
  return element;
}

/** What the ranking of a lane's method cost. @type {(element: HTMLElement, lane: CompareLane) => void} */
export function tell(element, lane) {
  const oracle = page.numbers[lane.id]?.oracle;
  const none = lane.method === BASELINE || !oracle;
  element.hidden = none;
  if (!none) element.textContent = "why" in oracle ? "ranks no candidates" : oracle.words;
}

/** The oracle's forwards as blocks at the foot of a lane; ``place``: output position → x. */
/** @type {(pen: Pen, oracle: OracleReport | undefined, place: (at: number) => number, y: number) => void} */
export function drawForwards(pen, oracle, place, y) {
  if (!oracle || "why" in oracle) return;
  let from = 0;
  for (const end of oracle.ends) {
    pen.fillRect(place(from) + 1, y, Math.max(1, place(end) - place(from) - 2), HIGH);
    from = end;
  }
}
