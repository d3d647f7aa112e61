/* JSON in script files, as pages from disk may fetch nothing else: `specvizFile("…")`, gzip in base64. */

import { h } from "specviz/base/dom.js";

const NAME = "specvizFile";

/** @type {Map<string, Promise<any>>} */
const read = new Map();
/** @type {WeakMap<HTMLOrSVGScriptElement, (packed: string) => void>} */
const waiting = new WeakMap();

/** The value that was packed. @param {string} packed */
async function unpacked(packed) {
  const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

/** What a file of this page's folder holds, read once. Throws an Error with a sentence where it cannot be read. */
/** @param {string} address @returns {Promise<any>} */
export function file(address) {
  const known = read.get(address);
  if (known) return known;
  Reflect.set(window, NAME, (/** @type {string} */ packed) => {
    if (document.currentScript) waiting.get(document.currentScript)?.(packed);
  });
  const script = h("script", { src: address });
  const value = new Promise((resolve, reject) => {
    waiting.set(script, (packed) => resolve(unpacked(packed)));
    script.addEventListener("load", () => reject(new Error(`${address} is no file of this site: publish it again.`)));
    script.addEventListener("error", () => reject(new Error(`${address} cannot be read: publish the site again.`)));
  }).finally(() => script.remove());
  read.set(address, value);
  value.catch(() => read.delete(address));
  document.head.append(script);
  return value;
}
