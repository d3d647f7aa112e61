/* A sentence next to what it is about. */

import { on } from "specviz/base/bus.js";
import { tell } from "specviz/base/json.js";
import { parse } from "specviz/base/storage.js";
import { closest, place } from "specviz/base/dom.js";

/** ``value`` is {"text", "error"}. @param {Part} part */
export function mount({ element, props, watch }) {
  const box = place(element, "note");
  function draw() {
    const { text, error } = parse(props.value);
    tell(box, text || "", error);
  }
  watch("value", draw);
  if (element.closest("#sv-file-note")) on("current", () => tell(box, ""));
  if (element.closest("#sv-run-note")) {
    on("refused", (text) => tell(box, text, true)); // a run that could not begin
    document.addEventListener("input", (event) => { // it was about what stood there
      if (closest(event, "#sv-prompt-part, #sv-panel, #sv-bar")) tell(box, "");
    });
  }
  draw();
}
