/* Families of methods: by what they draft with, each with a small picture. */

import { s } from "specviz/base/dom.js";

/** A family as it heads a group, in order. @type {Record<MethodCard["family"], string>} */
export const FAMILIES = {
  copy: "Copy: spans of the text at hand",
  ngram: "N-gram: what the model guessed before",
  "draft model": "Draft model: a smaller model writes ahead",
  heads: "Heads: trained parts on the target's own state",
  "": "Others",
};

/**
 * What the pictures are drawn of, 24 × 16: lines of the text, tokens (filled where they were drafted) and networks.
 *
 * @type {Record<MethodCard["family"], [lines: string, filled: string]>}
 */
const DRAWINGS = {
  // one token after the other
  "": ["M2 8h2.5M9.5 8h2.5M17 8h3", "M5 6h4v4H5zM12.5 6h4v4h-4z"],
  // a stretch of a line above goes down into the text
  copy: ["M2 3h4M16 3h6M2 13h6M8 5c0 3 6 2.5 6 5.5M12 8.5l2 2.2 2-2.2", "M7 1.5h8v3H7zM10 11.5h8v3h-8z"],
  // rows of short runs, one of them taken
  ngram: ["M2 3h4M8 3h4M14 3h4M2 13h4M8 13h4M14 13h4", "M2 6.5h4v3H2zM8 6.5h4v3H8zM14 6.5h4v3h-4z"],
  // a small network before a large one
  "draft model": ["M11 2h11v12H11zM7.5 8H11M14 5h5M14 8h5M14 11h5", "M2 5.5h5.5v5H2z"],
  // a network with heads that branch off its end
  heads: [
    "M2 2h8v12H2zM10 8h3.5M13.5 3.5v9M13.5 3.5H16M13.5 8H16M13.5 12.5H16",
    "M16 2h5v3h-5zM16 6.5h5v3h-5zM16 11h5v3h-5z",
  ],
};

/** A family's picture, in the colours of the text around it. @param {MethodCard["family"]} family */
export function picture(family) {
  const [lines, filled] = DRAWINGS[family] ?? DRAWINGS[""];
  const stroke = { fill: "none", stroke: "currentColor", "stroke-width": 1.3, "stroke-linecap": "round" };
  return s(
    "svg.svf-family",
    { width: 24, height: 16, viewBox: "0 0 24 16", "aria-hidden": "true" },
    s("path", { d: lines, ...stroke, "stroke-linejoin": "round", opacity: 0.75 }),
    s("path.svf-drafted", { d: filled }),
  );
}
