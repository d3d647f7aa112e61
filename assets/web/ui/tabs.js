/* Tabs: one panel of several in sight; arrows walk along their names. */

import { html, useId } from "specviz/ui/html.js";

/**
 * @typedef {object} Tab
 * @property {string} name
 * @property {string} label
 * @property {import("preact").Drawn} panel stays in the page while another one is in sight
 * @property {import("preact").Drawn} [note] said behind the label
 * @property {string} [off] why it cannot be opened now; it is asked for all the same, so that this can be said
 * @property {string} [class]
 */

/**
 * Tabs and their panels.
 *
 * @param {{ label: string, tabs: Tab[], at: string, choose: (name: string) => unknown,
 *   tools?: import("preact").Drawn }} props ``tools`` stand at the end of the row of names.
 */
export function Tabs({ label, tabs, at, choose, tools }) {
  const id = useId();
  const now = tabs.some((one) => one.name === at) ? at : tabs[0]?.name;
  /** @param {KeyboardEvent & { currentTarget: HTMLElement }} event */
  const key = (event) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const k = tabs.findIndex((one) => `${id}-${one.name}` === document.activeElement?.id);
    const next = tabs[(k + by + tabs.length) % tabs.length];
    choose(next.name);
    document.getElementById(`${id}-${next.name}`)?.focus();
  };
  return html`<div class="ui-tabbed">
    <div class="ui-tab-row">
      <div class="ui-tabs" role="tablist" aria-label=${label} onKeyDown=${key}>
        ${tabs.map(({ name, label: said, note, off, class: look = "" }) => html`<button type="button" role="tab"
          class="ui-tab ${look}" id="${id}-${name}" key=${name} aria-selected=${String(name === now)}
          aria-disabled=${off ? "true" : null} title=${off}
          aria-controls="${id}-${name}-panel" tabindex=${name === now ? 0 : -1} onClick=${() => choose(name)}>
          ${said}${note && html`<small>${note}</small>`}</button>`)}
      </div>
      ${tools}
    </div>
    ${tabs.map(({ name, panel }) => html`<div class="ui-panel" role="tabpanel" id="${id}-${name}-panel" key=${name}
      aria-labelledby="${id}-${name}" hidden=${name !== now}>${panel}</div>`)}
  </div>`;
}
