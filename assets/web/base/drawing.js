/* Drawing again and again into the same elements, at little cost. */

import { must } from "specviz/base/dom.js";

/** The attributes of an element as they were set last. @type {WeakMap<Element, Record<string, unknown>>} */
const last = new WeakMap();

/**
 * Sets the attributes that differ from the last time (null: none; ``text``: the content): to set one costs a style
 * pass, to compare it does not.
 *
 * @type {(element: Element, values: Record<string, string | number | null>) => void}
 */
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
