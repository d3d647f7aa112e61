/* Methods to choose from. */

import { coded, h } from "specviz/base/dom.js";
import { format, percentage, plural } from "specviz/base/numbers.js";
import { FAMILIES, picture } from "specviz/shell/families.js";

/** A time as people say it. @param {number} seconds */
const lasting = (seconds) =>
  seconds < 90
    ? `${Math.round(seconds)} s`
    : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;

/** How a part was trained, in a sentence: a head of minutes is not the method of its paper. "" of what has no part. */
/** @param {RunTraining | undefined} training */
export function trained({ tokens, seconds, acceptance, top1 } = {}) {
  const long = seconds === undefined ? "" : ` for ${lasting(seconds)}`;
  const much = tokens === undefined ? "" : ` on ${format(tokens)} tokens`;
  const well =
    acceptance !== undefined
      ? `held-out acceptance ${percentage(acceptance)}`
      : top1 !== undefined
        ? `on held-out text ${percentage(top1)} of its first guesses are right`
        : "";
  return [(long || much) && `Trained${long}${much}`, well].filter(Boolean).join("; ");
}

/** @param {MethodCard} method @param {string} [more] said after its title */
export const methodOption = ({ name, title, lossless, missing, family, trained: training = {} }, more = "") =>
  h(
    "option",
    { value: name, disabled: Boolean(missing), title: missing ? null : trained(training) || null },
    picture(family), // where a browser shows what is in an option; else its text alone
    title + more + (lossless ? "" : " (lossy)"),
    missing ? " — not available" : training.seconds ? ` · trained ${lasting(training.seconds)}` : "",
  );

/** All of them by family, those that cannot be chosen last. @param {MethodCard[]} methods */
export function methodGroups(methods) {
  const there = methods.filter((method) => !method.missing);
  const families = /** @type {(keyof typeof FAMILIES)[]} */ (Object.keys(FAMILIES));
  /** @type {[label: string, methods: MethodCard[]][]} */
  const groups = [
    ...families.map((family) => /** @type {[string, MethodCard[]]} */ ([
      FAMILIES[family],
      there.filter((method) => (method.family in FAMILIES ? method.family : "") === family),
    ])),
    ["Not available here", methods.filter((method) => method.missing)],
  ];
  return groups.map(
    ([label, some]) => some.length > 0 && h("optgroup", { label }, some.map((method) => methodOption(method))),
  );
}

/** Whether a method's output is plain decoding's. @param {MethodCard} method */
export const badge = ({ lossless }) =>
  lossless
    ? h("span.svf-badge", { title: "Its output is exactly what plain decoding gives." }, "= lossless")
    : h("span.svf-badge.svf-lossy", { title: "Its output may differ from plain decoding's." }, "≈ lossy");

/** Those that cannot be chosen, and why. @param {MethodCard[]} methods */
export function missingMethods(methods) {
  const missing = methods.filter((method) => method.missing);
  return missing.length
    ? h(
        "details.svf-missing.ui-fold",
        h("summary", `${plural(missing.length, "method")} not available here`),
        missing.map((method) => h("p", h("b", method.title), ": ", coded(method.missing))),
      )
    : "";
}
