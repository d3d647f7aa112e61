/* Page "Attribution": what its two forms share. */

import { page, part } from "specviz/attribution/state.js";
import { h, must } from "specviz/base/dom.js";
import { short } from "specviz/base/numbers.js";
import { sentence, tell } from "specviz/base/json.js";
import { stored } from "specviz/base/storage.js";

/** The names of the signals that are ticked. @type {(form: HTMLFormElement) => string[]} */
export function chosenSignals(form) {
  const ticked = form.querySelectorAll(".sva-checks input:checked");
  return [...ticked].flatMap((input) => (input instanceof HTMLInputElement ? [input.value] : []));
}

/** A tick per signal. @param {string} group the form's name */
export function checks(group) {
  const signals = must(page.catalog).signals;
  const usual = (stored.get("signals") ?? "").split(",");
  if (!signals.some(({ name }) => usual.includes(name))) for (const one of signals) if (one.usual) usual.push(one.name);
  return h(
    "fieldset.sva-checks.ui-row",
    h("legend", "Signals"),
    signals.map(({ name, title, missing, tells }) => {
      const tick = { value: name, disabled: Boolean(missing), checked: !missing && usual.includes(name) };
      return h(
        "label.ui-check",
        { title: missing || tells },
        h("input", { type: "checkbox", name: `sva-${group}`, ...tick }),
        ` ${short(title)}`,
        missing && h("small.ui-soft", " not available"),
      );
    }),
  );
}

/** The signals of a form as they were last chosen. @param {string} name */
export const choices = (name) => part(name).querySelector(".sva-checks")?.replaceWith(checks(name));

/** A field of several lines under its label, and the label that holds it. */
/** @param {string} name @param {string} label @param {number} rows @param {string} [hint] */
export function area(name, label, rows, value = "", hint) {
  const field = h("textarea", { name, rows, placeholder: hint, spellcheck: "false" }, value);
  return { field, label: h("label.sva-field.ui-above", h("span", label), field) };
}

/** Does ``work`` while the button rests; says in ``bad`` what went wrong. */
/** @type {(button: HTMLButtonElement, bad: HTMLElement, work: () => Promise<void>) => Promise<void>} */
export async function starting(button, bad, work) {
  button.disabled = true;
  tell(bad, "");
  try {
    await work();
  } catch (problem) {
    tell(bad, sentence(problem), true);
  }
  button.disabled = false;
}
