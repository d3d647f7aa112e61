/* Two parts side by side or one above the other, and the bar between them that is dragged, or moved by the arrows. */

import { dragged } from "specviz/base/drawing.js";
import { clamp } from "specviz/base/numbers.js";
import { stored } from "specviz/base/storage.js";
import { html, useLayoutEffect, useRef, useState } from "specviz/ui/html.js";

const STEP = 2; // percent a key

/** @type {Record<string, number>} */
const BY_KEY = { ArrowLeft: -STEP, ArrowUp: -STEP, ArrowRight: STEP, ArrowDown: STEP };

/**
 * A split; the browser remembers where its bar was left.
 *
 * @param {{ name: string, label: string, first: import("preact").Drawn, second: import("preact").Drawn,
 *   down?: boolean, share?: number, least?: number, class?: string, moved?: () => unknown }} props
 *   ``name`` under which it is remembered, ``label`` what the bar is called, ``down`` one above the other, ``share`` of
 *   the first part in percent, ``least`` of either, ``moved`` is called when the parts have another size.
 */
export function Split({
  name, label, first, second, down = false, share = 50, least = 20, class: look = "", moved = () => {},
}) {
  const [at, setAt] = useState(() => Number(stored.get(`split-${name}`)) || share);
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const bar = useRef(/** @type {HTMLElement | null} */ (null));
  /** @param {number} to */
  const move = (to) => {
    const next = Math.round(10 * clamp(to, least, 100 - least)) / 10;
    stored.set(`split-${name}`, String(next));
    setAt(next);
  };
  useLayoutEffect(() => {
    if (!bar.current) return;
    dragged(bar.current, (event) => {
      const box = place.current?.getBoundingClientRect();
      if (box) move(100 * (down ? (event.clientY - box.top) / box.height : (event.clientX - box.left) / box.width));
    });
  }, []);
  useLayoutEffect(() => void moved(), [at]);
  /** @param {KeyboardEvent} event */
  const key = (event) => {
    const by = BY_KEY[event.key];
    const to = event.key === "Home" ? least : event.key === "End" ? 100 - least : by ? at + by : null;
    if (to === null) return;
    event.preventDefault();
    event.stopPropagation();
    move(to);
  };
  return html`<div class="ui-split ${down ? "ui-down" : ""} ${look}" ref=${place} style="--ui-share:${at}%">
    ${first}
    <div class="ui-splitter" ref=${bar} role="separator" tabindex="0" aria-label=${label}
      aria-orientation=${down ? "horizontal" : "vertical"} aria-valuemin=${least} aria-valuemax=${100 - least}
      aria-valuenow=${Math.round(at)} onKeyDown=${key} onDblClick=${() => move(share)} />
    ${second}
  </div>`;
}
