/* What a draft model with another tokenizer wrote: its own tokens beside the target's that their text became. */

import { h } from "specviz/base/dom.js";
import { plural, probability } from "specviz/base/numbers.js";
import { Pieces } from "specviz/base/text.js";
import { STATES } from "specviz/inspect/drafting.js";

const LABEL = 16; // characters of a token

/** A stretch of text: the draft model's tokens, with its probabilities, and the nodes that carry the text. */
/** @typedef {{ own: string[], sure: (number | null)[], nodes: number[] }} Stretch */

/** Stretches of a step in which tokens of both sides begin and end together; one without nodes was left out. */
/** @type {(model: Model, step: number) => Stretch[]} */
export function stretches(model, step) {
  const table = model.trace.assistant;
  if (!table) return [];
  const rows = model.rows("assistant", step);
  /** @type {(values: any[]) => any[]} */
  const of = (values) => rows.map((row) => values[row]);
  const pieces = new Pieces({ id: of(table.token), hex: of(table.hex), special: [] });
  /** @type {Stretch[]} */
  const made = [];
  for (const row of rows) {
    const [first, last] = [table.first[row], table.last[row]];
    const before = made.at(-1);
    const joins = before && first > 0 && before.nodes.at(-1) === first;
    const stretch = joins ? before : { own: [], sure: [], nodes: [] };
    if (!joins) made.push(stretch);
    stretch.own.push(pieces.label(table.token[row], LABEL));
    stretch.sure.push(table.draft_prob[row]);
    for (let node = first; first > 0 && node <= last; node++)
      if (!stretch.nodes.includes(node)) stretch.nodes.push(node);
  }
  return made;
}

/** The step's stretches as a table; null where the draft model has the target's own vocabulary. */
/** @type {(owner: Inspector, view: StepView) => HTMLElement | null} */
export function assistantPart(owner, view) {
  const rows = stretches(owner.model, view.number);
  if (!rows.length) return null;
  const own = rows.reduce((sum, row) => sum + row.own.length, 0);
  const { pieces } = owner.model;
  const lines = rows.map(({ own, sure, nodes }) =>
    h(
      "tr",
      h("td", own.map((text, k) => [k ? " " : null, h("code.sv-token", text), h("small", ` ${probability(sure[k])}`)])),
      h("td", { "aria-hidden": "true" }, "→"),
      h(
        "td",
        nodes.length
          ? nodes.map((node, k) => {
              const { token, status } = view.nodes[node];
              const code = h("code", { class: `sv-token sv-state-${status}` }, pieces.label(token, LABEL));
              return [k ? " " : null, code, h("small", ` ${STATES[status]}`)];
            })
          : h("small", "left out"),
      ),
    ),
  );
  const head = h("tr", h("th", { scope: "col" }, "Draft model"), h("th"), h("th", { scope: "col" }, "Target"));
  return h(
    "div.sv-assistant",
    h("b", "Two vocabularies"),
    h("p", `${plural(own, "token")} of the draft model's own, and what their text is in the target's tokens`),
    h("table.ui-dense", h("thead", head), h("tbody", lines)),
  );
}
