/* Why nothing of a draft was accepted, from what was recorded of the step. No DOM. */

import { plural } from "specviz/base/numbers.js";

/** In a sentence or two. @type {(inspector: Pick<Inspector, "model" | "where">, view: StepView) => string} */
export function why(inspector, view) {
  const { pieces } = inspector.model;
  const { candidates, best, chosen, refused, bonus } = view;
  const wrote = bonus >= 0 ? `the model wrote “${pieces.label(bonus, 20)}”` : "the answer was over";
  const instead = refused.length ? ` instead of “${pieces.label(refused[0].token, 20)}”` : "";
  if (!candidates.length) return `The draft began otherwise: ${wrote}${instead}.`;
  if (best && chosen && best.would > chosen.would) {
    const place = inspector.where(inspector.model.placeOf(best), true);
    const lost = `${place} would have had ${plural(best.would, "token")} accepted`;
    return `The ranking chose badly: ${wrote}${instead}. ${lost}.`;
  }
  const places = candidates.length === 1 ? "The one earlier place" : `None of the ${candidates.length} earlier places`;
  const goes = candidates.length === 1 ? "does not go on" : "goes on";
  return `${places} that could be copied ${goes} as the answer does: ${wrote}${instead}. No ranking could have helped.`;
}
