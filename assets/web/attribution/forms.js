/* Page "Attribution": what its two forms share. */

import { page, part } from "specviz/attribution/state.js";
import { h } from "specviz/base/dom.js";
import { stored } from "specviz/base/storage.js";

export function chosenSignals(box) {
  return [...box.querySelectorAll(".sva-checks input:checked")].map((input) => input.value);
}

export function checks(group) {
  const { catalog } = page;
  const usual = (stored.get("signals") || "pld+h").split(",");
  return h(
    "fieldset",
    { class: "sva-checks" },
    h("legend", {}, "Signals"),
    catalog.signals.map((signal) => {
      const input = h("input", {
        type: "checkbox",
        name: `sva-${group}`,
        value: signal.name,
        disabled: Boolean(signal.missing),
      });
      input.checked = !signal.missing && usual.includes(signal.name);
      return h(
        "label",
        { class: "sva-check", title: signal.missing || signal.tells },
        input,
        ` ${signal.title.split(":")[0]}`,
        signal.missing ? h("small", {}, " not available") : null,
      );
    }),
  );
}

/** The signals of a form as they were last chosen. */
export const choices = (name) => part(name).querySelector(".sva-checks").replaceWith(checks(name));

export const area = (name, label, rows, value, hint) =>
  h(
    "label",
    { class: "sva-field" },
    h("span", {}, label),
    h("textarea", { name, rows, placeholder: hint || null, spellcheck: "false" }, value || ""),
  );

export async function starting(button, bad, work) {
  button.disabled = true;
  bad.textContent = "";
  bad.className = "svp-note";
  try {
    await work();
  } catch (problem) {
    bad.textContent = problem.message;
    bad.className = "svp-note svp-error";
    bad.setAttribute("role", "alert");
  }
  button.disabled = false;
}
