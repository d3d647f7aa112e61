/* A form's control for one parameter, made from its description: label, range, default, help. */

import { h } from "specviz/base/dom.js";

/**
 * A row of a form, and what reads its value: ``changed`` is called as it is typed, ``released`` when a slider is let
 * go.
 *
 * @param {Control} control
 * @param {Setting | undefined} value
 * @param {() => unknown} changed
 * @param {() => unknown} [released]
 */
export function field(control, value, changed, released) {
  const id = `svf-${control.name}`;
  const hint = `${id}-help`;
  /** @type {() => Setting} */
  let read;
  /** @type {Child} */
  let wrong = "";
  /** @type {HTMLElement[]} */
  const parts = [];
  const whole = control.kind === "int";
  if (control.kind === "bool") {
    const box = h("input", { type: "checkbox", id, "aria-describedby": hint });
    box.checked = Boolean(value);
    box.addEventListener("change", changed);
    read = () => box.checked;
    parts.push(box);
  } else if (control.kind === "choice") {
    const select = h(
      "select.svp-select",
      { id, "aria-describedby": hint, onchange: changed },
      control.choices.map((c) => h("option", { value: c }, c)),
    );
    if (control.optional) select.prepend(h("option", { value: "" }, "off"));
    select.value = String(value ?? "");
    read = () => (select.value === "" ? null : select.value);
    parts.push(select);
  } else {
    const number = control.kind !== "str";
    const { low, high } = control;
    const step = control.step ?? (whole ? 1 : "any");
    const input = h("input.svp-input", {
      id,
      type: number ? "number" : "text",
      "aria-describedby": hint,
      min: number ? low : null,
      max: number ? high : null,
      step: number ? (whole ? 1 : "any") : null,
    });
    const start = value ?? control.default;
    input.value = start === null || start === undefined ? "" : String(start);
    /** @type {HTMLInputElement | null} */
    let slider = null;
    if (number && low !== null && high !== null && high - low <= 1000) {
      const grain = step === "any" ? (high - low) / 100 : step;
      const range = h("input.svp-range", {
        type: "range",
        min: low,
        max: high,
        step: grain,
        tabindex: -1,
        "aria-hidden": "true",
      });
      range.value = input.value === "" ? String(low) : input.value;
      range.addEventListener("input", () => {
        input.value = range.value;
        mark();
        changed();
      });
      if (released) range.addEventListener("change", released);
      input.addEventListener("input", () => {
        range.value = input.value;
      });
      slider = range;
    }
    /** @type {HTMLInputElement | null} */
    let enable = null;
    const alert = h("span.svp-wrong", { role: "alert" });
    wrong = alert;
    const mark = () => {
      const off = enable && !enable.checked;
      let text = "";
      if (!off && number) {
        const range =
          low !== null && high !== null
            ? `from ${low} to ${high}`
            : low !== null ? `of at least ${low}` : high !== null ? `of at most ${high}` : "";
        const n = Number(input.value);
        if (
          input.value === "" || !Number.isFinite(n) || (whole && !Number.isInteger(n)) || (low !== null && n < low) ||
          (high !== null && n > high)
        )
          text = `Needs a ${whole ? "whole " : ""}number ${range}.`;
      }
      alert.textContent = text;
      input.setAttribute("aria-invalid", text ? "true" : "false");
    };
    if (control.optional) {
      const used = h("input", { type: "checkbox", "aria-label": `Use ${control.label}` });
      used.checked = value !== null && value !== undefined;
      enable = used;
      const able = () => {
        input.disabled = !used.checked;
        if (slider) slider.disabled = !used.checked;
        mark();
      };
      used.addEventListener("change", () => {
        if (used.checked && input.value === "") input.value = slider ? slider.value : String(low ?? 0);
        able();
        changed();
      });
      parts.push(used);
      able();
    }
    input.addEventListener("input", () => {
      mark();
      changed();
    });
    if (slider) parts.push(slider);
    parts.push(input);
    read = () => (enable && !enable.checked ? null : input.value);
  }
  const row = h(
    "div",
    { class: `svf-row svf-${control.kind}` },
    h("label", { for: id }, control.label),
    h("div.svf-value", parts),
    wrong,
    h("p.svf-help", { id: hint }, control.help),
  );
  return { row, read, name: control.name };
}
