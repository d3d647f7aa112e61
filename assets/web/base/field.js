/* A form's control for one parameter, made from its description: label, range, default, help. */

import { h } from "specviz/base/dom.js";

/** {row, read, name}: ``changed`` is called as it is typed, ``released`` when a slider is let go. */
export function field(control, value, changed, released) {
  const id = `svf-${control.name}`;
  const hint = `${id}-help`;
  let read,
    wrong = "";
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
      "select",
      { id, class: "svp-select", "aria-describedby": hint, onchange: changed },
      control.choices.map((c) => h("option", { value: c }, c)),
    );
    if (control.optional) select.prepend(h("option", { value: "" }, "off"));
    select.value = value ?? "";
    read = () => (select.value === "" ? null : select.value);
    parts.push(select);
  } else {
    const number = control.kind !== "str";
    const low = control.low,
      high = control.high;
    const step = control.step ?? (whole ? 1 : "any");
    const input = h("input", {
      id,
      type: number ? "number" : "text",
      class: "svp-input",
      "aria-describedby": hint,
      min: number ? low : null,
      max: number ? high : null,
      step: number ? (whole ? 1 : "any") : null,
    });
    const start = value ?? control.default;
    input.value = start === null || start === undefined ? "" : String(start);
    let slider = null;
    if (number && low !== null && high !== null && high - low <= 1000) {
      const grain = step === "any" ? (high - low) / 100 : step;
      slider = h("input", {
        type: "range",
        class: "svp-range",
        min: low,
        max: high,
        step: grain,
        tabindex: -1,
        "aria-hidden": "true",
      });
      slider.value = input.value === "" ? String(low) : input.value;
      slider.addEventListener("input", () => {
        input.value = slider.value;
        mark();
        changed();
      });
      if (released) slider.addEventListener("change", released);
      input.addEventListener("input", () => {
        slider.value = input.value;
      });
    }
    wrong = h("span", { class: "svp-wrong", role: "alert" });
    function mark() {
      const off = enable && !enable.checked;
      let text = "";
      if (!off && number) {
        const range =
          low !== null && high !== null
            ? `from ${low} to ${high}`
            : low !== null
              ? `of at least ${low}`
              : high !== null
                ? `of at most ${high}`
                : "";
        const n = Number(input.value);
        if (
          input.value === "" ||
          !Number.isFinite(n) ||
          (whole && !Number.isInteger(n)) ||
          (low !== null && n < low) ||
          (high !== null && n > high)
        )
          text = `Needs a ${whole ? "whole " : ""}number ${range}.`;
      }
      wrong.textContent = text;
      input.setAttribute("aria-invalid", text ? "true" : "false");
    }
    let enable = null;
    if (control.optional) {
      enable = h("input", { type: "checkbox", "aria-label": `Use ${control.label}` });
      enable.checked = value !== null && value !== undefined;
      const able = () => {
        input.disabled = !enable.checked;
        if (slider) slider.disabled = !enable.checked;
        mark();
      };
      enable.addEventListener("change", () => {
        if (enable.checked && input.value === "") input.value = slider ? slider.value : String(low ?? 0);
        able();
        changed();
      });
      parts.push(enable);
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
    h("div", { class: "svf-value" }, parts),
    wrong,
    h("p", { id: hint, class: "svf-help" }, control.help),
  );
  return { row, read, name: control.name };
}
