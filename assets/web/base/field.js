/* A form's control for one parameter, made from its description: label, range, default, help. */

import { h } from "specviz/base/dom.js";

/** A row of a form, and what reads it. @typedef {{ row: HTMLElement, read: () => Setting, name: string }} Field */

/** Which numbers are asked for. @param {Control} control */
function needs({ kind, low, high }) {
  const range = low === null ? "" : high === null ? `of at least ${low}` : `from ${low} to ${high}`;
  return `Needs a ${kind === "int" ? "whole " : ""}number ${range || (high === null ? "" : `of at most ${high}`)}.`;
}

/** A number or a text, with a slider where its range is narrow, and a tick where it may be left open. */
/** @type {(control: Control, id: string, value: Setting | undefined, changed: () => unknown,
 *   released?: () => unknown) => { read: () => Setting, parts: HTMLElement[], wrong: HTMLElement }} */
function typed(control, id, value, changed, released) {
  const { low, high, kind, optional, label } = control;
  const number = kind !== "str" && kind !== "text";
  const step = kind === "int" ? 1 : "any";
  const wrong = h("span.svp-wrong", { role: "alert" });
  const mark = () => {
    const bad = input.willValidate && !input.validity.valid; // a disabled field is not validated
    wrong.textContent = bad ? needs(control) : "";
    input.setAttribute("aria-invalid", String(bad));
  };
  const input = h("input.svp-input", {
    id,
    type: number ? "number" : "text",
    "aria-describedby": `${id}-help`,
    ...(number ? { min: low, max: high, step, required: true } : null),
    value: value ?? control.default ?? "",
    oninput: () => {
      if (slider) slider.value = input.value;
      mark();
      changed();
    },
  });
  const slides = number && low !== null && high !== null && high - low <= 1000;
  const slider = slides
    ? h("input.svp-range", {
        type: "range",
        min: low,
        max: high,
        step: control.step ?? (kind === "int" ? 1 : (high - low) / 100),
        tabindex: -1,
        "aria-hidden": "true",
        value: input.value || low,
        oninput: ({ currentTarget }) => {
          input.value = currentTarget.value;
          mark();
          changed();
        },
        onchange: released,
      })
    : null;
  if (!optional) return { read: () => input.value, parts: [slider, input].filter((part) => part !== null), wrong };
  const used = h("input", {
    type: "checkbox",
    "aria-label": `Use ${label}`,
    checked: value !== null && value !== undefined,
    onchange: () => {
      if (used.checked && input.value === "") input.value = slider ? slider.value : String(low ?? 0);
      able();
      changed();
    },
  });
  const able = () => {
    for (const part of [input, slider]) if (part) part.disabled = !used.checked;
    mark();
  };
  able();
  const parts = [used, slider, input].filter((part) => part !== null);
  return { read: () => (used.checked ? input.value : null), parts, wrong };
}

/** A row of a form: ``changed`` is called as its value is typed, ``released`` when a slider is let go. */
/** @type {(control: Control, value: Setting | undefined, changed: () => unknown, released?: () => unknown,
 *   prefix?: string) => Field} */
export function field(control, value, changed, released, prefix = "") {
  const { name, kind, label, help, choices, optional } = control;
  const id = `${prefix}svf-${name}`;
  const common = { id, "aria-describedby": `${id}-help`, onchange: changed };
  /** @type {{ read: () => Setting, parts: HTMLElement[], wrong?: HTMLElement }} */
  let made;
  if (kind === "bool") {
    const box = h("input", { type: "checkbox", checked: Boolean(value), ...common });
    made = { read: () => box.checked, parts: [box] };
  } else if (kind === "choice") {
    const options = choices.map((choice) => h("option", { value: choice }, choice));
    if (optional) options.unshift(h("option", { value: "" }, "off"));
    const select = h("select.svp-select", { value: value ?? "", ...common }, options);
    made = { read: () => select.value || null, parts: [select] };
  } else made = typed(control, id, value, changed, released);
  const row = h(
    "div",
    { class: `svf-row svf-${kind}` },
    h("label", { for: id }, label),
    h("div.svf-value.ui-row", made.parts),
    made.wrong,
    h("p.svf-help", { id: `${id}-help` }, help),
  );
  return { row, read: made.read, name };
}

/** A row per control; what is typed stays in ``kept``. ``prefix``: of ids, where another form has the same fields. */
/** @type {(controls: Control[], kept: Record<string, Setting>, changed?: () => void, prefix?: string) => Field[]} */
export const fields = (controls, kept, changed = () => {}, prefix = "") =>
  controls.map((control) => {
    const { name } = control;
    const keep = () => {
      kept[name] = row.read();
      changed();
    };
    const row = field(control, name in kept ? kept[name] : control.default, keep, undefined, prefix);
    return row;
  });

/** What fields hold, by name. @param {Field[]} rows */
export const valuesOf = (rows) => Object.fromEntries(rows.map(({ name, read }) => [name, read()]));

/** A field that shows ``owner[key]``, and keeps there what is typed or chosen; ``then`` is called after it. */
/** @type {<Element extends HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement, Owner extends object>(
 *   element: Element, owner: Owner, key: keyof Owner, then?: () => unknown) => Element} */
export function bound(element, owner, key, then) {
  element.value = String(owner[key] ?? "");
  element.addEventListener("input", () => {
    Reflect.set(owner, key, element.value);
    then?.();
  });
  return element;
}
