/* What went wrong, in a sentence. */

import { h } from "specviz/base/dom.js";

/** The sentence of what was thrown. @param {unknown} problem */
export const sentence = (problem) => (problem instanceof Error ? problem.message : String(problem));

/** The same as a note on the page. @param {unknown} problem */
export const alertNote = (problem) => h("p.svp-note.svp-error", { role: "alert" }, sentence(problem));

/** Writes a sentence into its place. @type {(place: HTMLElement, text: string, error?: boolean) => void} */
export function tell(place, text, error = false) {
  place.textContent = text;
  place.classList.toggle("svp-error", Boolean(text && error));
  place.setAttribute("role", error ? "alert" : "status");
}
