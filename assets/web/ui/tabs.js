/* Tabs: one panel of several in sight; arrows walk along their names. */

import { html, useId, useLayoutEffect, useRef, useState } from "specviz/ui/html.js";

/** Brings the tab in use into sight, and says on which sides there are more than are seen. */
/** @type {(now: string | undefined, count: number) => { list: { current: HTMLElement | null }, more: string[] }} */
function useScrolled(now, count) {
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const [more, setMore] = useState("");
  useLayoutEffect(() => {
    const row = list.current;
    if (!row) return;
    const look = () => {
      const { scrollLeft, scrollWidth, clientWidth } = row;
      const end = scrollWidth - clientWidth - scrollLeft;
      setMore([scrollLeft > 2 && "start", end > 2 && "end"].filter(Boolean).join(" "));
    };
    const sizes = new ResizeObserver(look); // (called once at first, after the layout)
    sizes.observe(row);
    row.addEventListener("scroll", look, { passive: true });
    return () => (sizes.disconnect(), row.removeEventListener("scroll", look));
  }, [count]);
  useLayoutEffect(() => {
    const row = list.current;
    if (!more || !row) return;
    const tab = row.querySelector("[aria-selected=true]");
    if (!(tab instanceof HTMLElement)) return;
    const left = tab.offsetLeft - row.offsetLeft;
    if (left < row.scrollLeft + AWAY) row.scrollLeft = left - AWAY;
    else if (left + tab.offsetWidth > row.scrollLeft + row.clientWidth - AWAY)
      row.scrollLeft = left + tab.offsetWidth + AWAY - row.clientWidth;
  }, [now, !!more]);
  return { list, more: more.split(" ").filter(Boolean) };
}

const AWAY = 34; // pixels: from the sign that there are more

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
  const { list, more } = useScrolled(now, tabs.length);
  const further = (/** @type {number} */ by) => list.current?.scrollBy({ left: by * 160, behavior: "smooth" });
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
      <div class="ui-tabs" role="tablist" aria-label=${label} onKeyDown=${key} ref=${list} data-more=${more.join(" ")}>
        ${tabs.map(({ name, label: said, note, off, class: look = "" }) => html`<button type="button" role="tab"
          class="ui-tab ${look}" id="${id}-${name}" key=${name} aria-selected=${String(name === now)}
          aria-disabled=${off ? "true" : null} title=${off}
          aria-controls="${id}-${name}-panel" tabindex=${name === now ? 0 : -1} onClick=${() => choose(name)}>
          ${said}${note && html`<small>${note}</small>`}</button>`)}
      </div>
      ${more.map((side) => html`<button type="button" class="ui-tabs-more ui-tabs-${side}" key=${side} tabindex="-1"
        aria-hidden="true" onClick=${() => further(side === "end" ? 1 : -1)}>${side === "end" ? "›" : "‹"}</button>`)}
      ${tools}
    </div>
    ${tabs.map(({ name, panel }) => html`<div class="ui-panel" role="tabpanel" id="${id}-${name}-panel" key=${name}
      aria-labelledby="${id}-${name}" hidden=${name !== now}>${panel}</div>`)}
  </div>`;
}
