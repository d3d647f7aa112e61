/* A tooltip for components: <Hint tip=${() => […]}> explains itself on hover and on keyboard focus. */

import { Tooltip } from "specviz/base/dom.js";
import { createContext, html, useContext, useLayoutEffect, useRef } from "specviz/ui/html.js";

/** The tooltip of the view around a component; null: one of the page's own. */
export const Tips = createContext(/** @type {Tooltip | null} */ (null));

/** @type {Tooltip | null} */
let common = null;

/** The page's tooltip, outside of every inspector. */
function pageTooltip() {
  if (!common) {
    const layer = document.createElement("div");
    layer.className = "sv ui-tips";
    document.body.append(layer);
    common = new Tooltip(layer, document.body);
    common.element.className = "ui-tip";
  }
  return common;
}

/**
 * An element with a tooltip.
 *
 * @param {{ is?: string, tip?: Tip | Child, children?: import("preact").Drawn, [attribute: string]: unknown }} props
 *   ``is`` its tag (a span), ``tip`` what it says: nodes, made when they are shown. An element that takes no keyboard
 *   focus by itself gets it here, unless ``tabindex`` says otherwise.
 */
export function Hint({ is = "span", tip, children, ...attributes }) {
  const tips = useContext(Tips);
  const place = useRef(/** @type {Element | null} */ (null));
  const said = useRef(tip);
  said.current = tip;
  useLayoutEffect(() => {
    const fill = () => (typeof said.current === "function" ? said.current() : [said.current]);
    if (place.current && tip) (tips ?? pageTooltip()).add(place.current, fill);
  }, [tips, !tip]);
  const focus = !tip || is === "button" || is === "a" ? {} : { tabindex: 0 };
  return html`<${is} ref=${place} ...${focus} ...${attributes}>${children}</${is}>`;
}
