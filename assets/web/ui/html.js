/* Preact, htm and signals under one roof: html`<${Field} label="Depth">…</>` is what a component returns. */

import htm from "htm";
import { h } from "preact";
import { useState } from "preact/hooks";

export { createContext, render } from "preact";
export { useContext, useLayoutEffect, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal } from "@preact/signals";

/** Elements and components from a template. Text in ``${…}`` becomes text nodes, whatever it holds. */
export const html = htm.bind(h);

let ids = 0;

/** An id that nothing else has; Preact's own are each root's, and a page has several roots. */
export const useId = () => useState(() => `ui-${++ids}`)[0];

/** A sentence whose commands stand between backticks. @param {{ text: string }} props */
export const Coded = ({ text }) => text.split("`").map((piece, k) => (k % 2 ? html`<code>${piece}</code>` : piece));
