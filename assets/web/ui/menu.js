/* A button that opens a menu: arrows walk, Enter acts, Esc closes and gives the focus back. */

import { html, useLayoutEffect, useRef, useState } from "specviz/ui/html.js";

/** @type {Record<string, number>} */
const BY_KEY = { ArrowDown: 1, ArrowUp: -1 };
const EDGE = 8; // pixels between a menu and the window's side

/**
 * @typedef {object} Item An entry: a link where it has an ``href``, else a button; without either a heading.
 * @property {string} label
 * @property {string} [href]
 * @property {string} [file] the name under which a link is saved, where its server names none
 * @property {() => unknown} [act]
 * @property {Item[]} [items] entries that take the place of all
 * @property {string} [about] said below the label
 */

/**
 * A menu; ``items`` is asked each time it is opened.
 *
 * @param {{ label: string, items: () => Item[], class?: string, children?: import("preact").Drawn, name?: string,
 *   failed?: (problem: Error) => unknown, disabled?: boolean }} props ``name``: what a screen reader says,
 *   else the label.
 */
export function Menu({
  label, name, items, disabled, class: look = "", children, failed = (problem) => { throw problem; },
}) {
  const [open, setOpen] = useState(false);
  const [inner, setInner] = useState(/** @type {Item | null} */ (null));
  const wrap = useRef(/** @type {HTMLElement | null} */ (null));
  /** @type {() => HTMLElement[]} */
  const entries = () => Array.from(wrap.current?.querySelectorAll('[role="menuitem"]') ?? []);
  useLayoutEffect(() => { // before it is seen: it would jump
    if (!open) return;
    const menu = /** @type {HTMLElement} */ (wrap.current?.querySelector(".ui-menu"));
    const { left } = menu.getBoundingClientRect();
    if (left < EDGE) menu.style.right = `${left - EDGE}px`; // in a narrow window, below a button at the left
    entries()[0]?.focus();
  }, [open, inner]);
  const opener = () => /** @type {HTMLElement | null} */ (wrap.current?.querySelector("button"));
  /** @param {KeyboardEvent} event */
  const key = (event) => {
    if (!open) return;
    const by = BY_KEY[event.key];
    const all = entries();
    const at = all.findIndex((one) => one === document.activeElement);
    if (by) all[(at + by + all.length) % all.length].focus();
    else if (event.key === "Home" || event.key === "End") all.at(event.key === "Home" ? 0 : -1)?.focus();
    else if (event.key === "Escape") {
      setOpen(false);
      opener()?.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  /** @param {FocusEvent} event */
  const left = ({ relatedTarget }) => {
    if (!(relatedTarget instanceof Node && wrap.current?.contains(relatedTarget))) setOpen(false);
  };
  /** @type {(act: () => unknown) => () => unknown} */
  const run = (act) => () => {
    setOpen(false);
    opener()?.focus();
    return Promise.resolve().then(act).catch(failed);
  };
  /** @param {Item} item */
  const entry = (item) => {
    const { label: said, href, file = "", act, about } = item;
    const inside = html`${said}${about && html`<small>${about}</small>`}`;
    const common = { class: "ui-item", role: "menuitem", tabindex: -1 };
    if (href) return html`<a ...${common} href=${href} download=${file}
      onClick=${() => setOpen(false)}>${inside}</a>`;
    if (act) return html`<button type="button" ...${common} onClick=${run(act)}>${inside}</button>`;
    if (item.items) return html`<button type="button" ...${common} aria-haspopup="menu"
      onClick=${() => {
        opener()?.focus(); // the entry goes
        setInner(item);
      }}>${inside}</button>`;
    return html`<div class="ui-menu-head" role="presentation">${said}</div>`;
  };
  return html`<div class="ui-menu-wrap" ref=${wrap} onKeyDown=${key} onFocusOut=${left}>
    <button type="button" class="ui-button ${look}" aria-haspopup="menu" aria-expanded=${String(open)}
      aria-label=${name} disabled=${disabled} onClick=${() => {
        setInner(null);
        setOpen(!open);
      }}>
      ${children ?? label}<span class="ui-caret" aria-hidden="true" />
    </button>
    ${open && html`<div class="ui-menu" role="menu" aria-label=${inner?.label ?? name ?? label}>
      ${(inner?.items ?? items()).map(entry)}</div>`}
  </div>`;
}
