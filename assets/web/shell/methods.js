/* Methods to choose from. */

import { h } from "specviz/base/dom.js";

/** @param {MethodCard} method @param {string} [more] said after its title */
export const methodOption = ({ name, title, lossless, missing }, more = "") =>
  h(
    "option",
    { value: name, disabled: Boolean(missing) },
    title + more + (lossless ? "" : " (lossy)") + (missing ? " — not available" : ""),
  );

/** Those that cannot be chosen, and why. @param {MethodCard[]} missing */
export const missingMethods = (missing) =>
  missing.length
    ? h(
        "details.svf-missing",
        h("summary", `${missing.length} not available here`),
        missing.map((method) => h("p", h("b", method.title), `: ${method.missing}`)),
      )
    : "";
