/* A sentence next to what it is about. */

import { on } from "specviz/base/bus.js";
import { parse } from "specviz/base/storage.js";
import { place } from "specviz/shell/place.js";

/** ``value`` is {"text", "error"}. @param {Part} part */
export function mount({ element, props, watch }) {
  const box = place(element, "note");
  /** @param {string} [text] @param {boolean} [error] */
  function write(text, error) {
    box.textContent = text || "";
    box.classList.toggle("svp-error", Boolean(error));
    box.setAttribute("role", error ? "alert" : "status");
  }
  function draw() {
    const { text, error } = parse(props.value);
    write(text, error);
  }
  watch("value", draw);
  if (element.closest("#sv-file-note")) on("current", () => write("", false));
  if (element.closest("#sv-run-note")) on("refused", (text) => write(text, true)); // a run that could not begin
  draw();
}
