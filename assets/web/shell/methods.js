/* Methods to choose from. */

import { coded, h } from "specviz/base/dom.js";

/** @param {MethodCard} method @param {string} [more] said after its title */
export const methodOption = ({ name, title, lossless, missing }, more = "") =>
  h(
    "option",
    { value: name, disabled: Boolean(missing) },
    title + more + (lossless ? "" : " (lossy)") + (missing ? " — not available" : ""),
  );

/** All of them by kind, those that cannot be chosen last. @param {MethodCard[]} methods */
export function methodGroups(methods) {
  const there = methods.filter((method) => !method.missing);
  /** @type {[label: string, methods: MethodCard[]][]} */
  const groups = [
    ["Lossless: the output is plain decoding's", there.filter((method) => method.lossless)],
    ["Lossy: the output may differ", there.filter((method) => !method.lossless)],
    ["Not available here", methods.filter((method) => method.missing)],
  ];
  return groups.map(
    ([label, some]) => some.length > 0 && h("optgroup", { label }, some.map((method) => methodOption(method))),
  );
}

/** Whether a method's output is plain decoding's. @param {MethodCard} method */
export const badge = ({ lossless }) =>
  lossless
    ? h("span.svf-badge.svf-lossless", { title: "Its output is exactly what plain decoding gives." }, "= lossless")
    : h("span.svf-badge.svf-lossy", { title: "Its output may differ from plain decoding's." }, "≈ lossy");

/** Those that cannot be chosen, and why. @param {MethodCard[]} methods */
export function missingMethods(methods) {
  const missing = methods.filter((method) => method.missing);
  return missing.length
    ? h(
        "details.svf-missing",
        h("summary", `${missing.length} not available here`),
        missing.map((method) => h("p", h("b", method.title), ": ", coded(method.missing))),
      )
    : "";
}
