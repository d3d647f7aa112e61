/* A method to choose. */

import { h } from "specviz/base/dom.js";

/** @param {MethodCard} method @param {string} [more] said after its title */
export const methodOption = ({ name, title, lossless, missing }, more = "") =>
  h(
    "option",
    { value: name, disabled: Boolean(missing) },
    title + more + (lossless ? "" : " (lossy)") + (missing ? " — not available" : ""),
  );
