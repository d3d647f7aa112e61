/* What went wrong, in a sentence. */

import { h } from "specviz/base/dom.js";

/** The sentence of what was thrown. @param {unknown} problem */
export const sentence = (problem) => (problem instanceof Error ? problem.message : String(problem));

/** The same as a note on the page. @param {unknown} problem */
export const alertNote = (problem) => h("p.svp-note.svp-error", { role: "alert" }, sentence(problem));
