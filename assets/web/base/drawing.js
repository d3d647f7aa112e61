/* Drawing again and again into the same elements, at little cost; dragging in them. */

import { must, s } from "specviz/base/dom.js";

/** The attributes of an element as they were set last. @type {WeakMap<Element, Record<string, unknown>>} */
const last = new WeakMap();

// to set an attribute costs a style pass, to compare it does not
/** Sets the attributes that differ from the last time (null: none; ``text``: the content). */
/** @type {(element: Element, values: Record<string, string | number | null>) => void} */
export function set(element, values) {
  let before = last.get(element);
  if (!before) last.set(element, (before = {}));
  for (const [name, value] of Object.entries(values)) {
    if (before[name] === value) continue;
    before[name] = value;
    if (name === "text") element.textContent = String(value);
    else if (value === null) element.removeAttribute(name);
    else element.setAttribute(name, String(value));
  }
}

/** A cleared canvas of a size in pixels of the page, and its pen. */
/** @type {(canvas: HTMLCanvasElement, width: number, height: number) => CanvasRenderingContext2D} */
export function sheet(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const pen = must(canvas.getContext("2d"));
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

/** The mark at an end of a line: a dot, or an arrow down (``hidden`` 1) or up (-1) where the end is out of sight. */
/** @type {(end: { x: number, y: number, hidden: number }, line: "path" | `path.${string}`,
 *   dot: "circle" | `circle.${string}`) => SVGElement} */
export const endMark = ({ x, y, hidden }, line, dot) =>
  hidden
    ? s(line, { d: `M${x - 5} ${y - 4 * hidden} L${x} ${y + 3 * hidden} L${x + 5} ${y - 4 * hidden}` })
    : s(dot, { cx: x, cy: y, r: 2.5 });

/** Calls ``at`` where a pointer is pressed on an element and wherever it is dragged from there, ``over`` at the end. */
/** @type {(element: HTMLElement, at: (event: PointerEvent) => void, over?: () => void) => void} */
export function dragged(element, at, over = () => {}) {
  let down = false;
  element.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    element.setPointerCapture(event.pointerId);
    down = true;
    at(event);
  });
  element.addEventListener("pointermove", (event) => down && at(event));
  for (const name of ["pointerup", "pointercancel"])
    element.addEventListener(name, () => {
      down = false;
      over();
    });
}
