/* Preact, htm and signals under one roof: html`<${Field} label="Depth">…</>` is what a component returns. */

import htm from "htm";
import { h } from "preact";

export { Fragment, createContext, render } from "preact";
export {
  useContext, useEffect, useId, useLayoutEffect, useMemo, useRef, useState,
} from "preact/hooks";
export { batch, computed, effect, signal, useComputed, useSignal, useSignalEffect } from "@preact/signals";

/** Elements and components from a template. Text in ``${…}`` becomes text nodes, whatever it holds. */
export const html = htm.bind(h);
