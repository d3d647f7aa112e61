/* Imperative views inside components: a canvas, a pane of tokens, an SVG tree, a select that Gradio fills. */

import { html, useLayoutEffect, useRef } from "specviz/ui/html.js";

/**
 * Holds elements that draw themselves. They are moved in once and never diffed.
 *
 * @param {{ is?: string, of: Node | (Node | null | false | undefined)[], [attribute: string]: unknown }} props
 *   ``is`` the holder's tag, ``of`` what it holds; all else are the holder's attributes.
 */
export function Held({ is = "div", of, ...attributes }) {
  const nodes = [of].flat().filter((one) => one instanceof Node);
  const place = useRef(/** @type {Element | null} */ (null));
  useLayoutEffect(() => {
    const had = place.current ? [...place.current.childNodes] : [];
    const other = had.length !== nodes.length || nodes.some((node, k) => node !== had[k]);
    if (other) place.current?.replaceChildren(...nodes);
  });
  return html`<${is} ref=${place} ...${attributes} />`;
}
