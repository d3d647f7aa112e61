/* A labelled field of a form, its help and what is wrong with it; and the slider beside a number. */

import { clamp } from "specviz/base/numbers.js";
import { html, useId } from "specviz/ui/html.js";

/** @typedef {import("preact").Drawn} Drawn */

/**
 * A row of a form.
 *
 * @param {{ label: string, help?: string, wrong?: string, id?: string,
 *   children: (attributes: object) => Drawn }} props
 *   ``children`` draws the control with the attributes that tie it to its label, its help and its error.
 */
export function Field({ label, help, wrong, id, children }) {
  const own = useId();
  const name = id ?? own;
  const described = [help && `${name}-help`, wrong && `${name}-wrong`].filter(Boolean).join(" ");
  const attributes = { id: name, "aria-describedby": described || null, "aria-invalid": wrong ? "true" : null };
  return html`<div class="ui-field">
    <label for=${name}>${label}</label>
    <div class="ui-control">${children(attributes)}</div>
    ${wrong && html`<p class="ui-wrong" id="${name}-wrong" role="alert">${wrong}</p>`}
    ${help && html`<p class="ui-help" id="${name}-help">${help}</p>`}
  </div>`;
}

/**
 * A number with a slider over its range; the number is typed, the slider dragged, and both tell the same.
 *
 * @param {{ label: string, value: number, low: number, high: number, step?: number, help?: string,
 *   change: (value: number) => unknown, released?: (value: number) => unknown }} props
 */
export function Slider({ label, value, low, high, step = 1, help, change, released }) {
  const bad = !(value >= low && value <= high);
  const moved = (/** @type {FieldEvent} */ { currentTarget }) => change(currentTarget.valueAsNumber);
  return html`<${Field} label=${label} help=${help} wrong=${bad && `Needs a number from ${low} to ${high}.`}>
    ${(/** @type {object} */ tied) => html`
      <input class="ui-range" type="range" tabindex="-1" aria-hidden="true" min=${low} max=${high} step=${step}
        value=${clamp(value || low, low, high)} onInput=${moved} onChange=${() => released?.(value)} />
      <input class="ui-input ui-number" type="number" min=${low} max=${high} step=${step} value=${value}
        onInput=${moved} ...${tied} />`}
  </${Field}>`;
}

/**
 * A list to choose one from.
 *
 * @param {{ label: string, value: string, change: (value: string) => unknown, help?: string,
 *   options: { value: string, label: string, group?: string, off?: boolean }[] }} props
 */
export function Choice({ label, value, options, change, help }) {
  const groups = [...new Set(options.map((one) => one.group ?? ""))];
  /** @param {string} group */
  const of = (group) =>
    options
      .filter((one) => (one.group ?? "") === group)
      .map((one) => html`<option value=${one.value} disabled=${one.off} selected=${one.value === value}>
        ${one.label}</option>`);
  const chosen = (/** @type {FieldEvent<HTMLSelectElement>} */ { currentTarget }) => change(currentTarget.value);
  return html`<${Field} label=${label} help=${help}>
    ${(/** @type {object} */ tied) => html`<select class="ui-input" onChange=${chosen} ...${tied}>
      ${groups.map((group) => (group ? html`<optgroup label=${group}>${of(group)}</optgroup>` : of(group)))}
    </select>`}
  </${Field}>`;
}
