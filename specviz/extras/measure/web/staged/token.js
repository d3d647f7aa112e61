/* From a token of a report to its step. */

import { ofPosition } from "specviz/inspect/selection.js";

/** Shows the step that wrote a token, and selects the token. @type {(inspector: Inspector, at: number) => void} */
export function showToken(inspector, at) {
  inspector.pause();
  inspector.setStep(inspector.model.stepOf(at));
  inspector.reveal(at);
  inspector.select(ofPosition(inspector.model, at));
}
