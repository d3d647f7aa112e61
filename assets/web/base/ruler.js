/* The widths of texts, each measured once in its font. */

import { must } from "specviz/base/dom.js";

export class Ruler {
  constructor() {
    this.pen = must(document.createElement("canvas").getContext("2d"));
    /** Font → text → its width. @type {Map<string, Map<string, number>>} */
    this.fonts = new Map();
  }

  /** A text's width in pixels. @type {(text: string, font: string) => number} */
  width(text, font) {
    let widths = this.fonts.get(font);
    if (!widths) this.fonts.set(font, (widths = new Map()));
    let width = widths.get(text);
    if (width === undefined) {
      this.pen.font = font;
      widths.set(text, (width = this.pen.measureText(text).width));
    }
    return width;
  }
}
