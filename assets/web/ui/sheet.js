/* A sheet over the page: a dialog with a title; Esc, its cross and a click beside it close it. */

import { html, render, useLayoutEffect, useRef } from "specviz/ui/html.js";

/**
 * A sheet.
 *
 * @param {{ title: string, open: boolean, close: () => unknown, class?: string,
 *   children?: import("preact").Drawn }} props It stays in the page while it is closed, with all that was typed.
 */
export function Sheet({ title, open, close, class: name = "", children }) {
  const place = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useLayoutEffect(() => {
    const dialog = place.current;
    if (open && !dialog?.open) dialog?.showModal();
    else if (!open && dialog?.open) dialog.close();
  }, [open]);
  /** @param {MouseEvent} event */
  const beside = (event) => event.target === place.current && close();
  return html`<dialog class="ui-sheet ${name}" ref=${place} aria-label=${title} onClose=${close} onClick=${beside}>
    <div class="ui-sheet-inside">
      <header>
        <h2 tabindex="-1" autofocus>${title}</h2>
        <button type="button" class="ui-button ui-square" aria-label="Close" onClick=${close}>×</button>
      </header>
      ${children}
    </div>
  </dialog>`;
}

/** Draws a sheet in a place of its own, at the end of the page. @param {import("preact").Drawn} sheet */
export function floating(sheet) {
  const place = document.createElement("div");
  place.className = "svp"; // where the components' styles hold
  document.body.append(place);
  render(sheet, place);
}
