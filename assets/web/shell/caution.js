/* Beside the run button: why it is off, what to know of the model, and that a lossy method may answer otherwise. */

import { on } from "specviz/base/bus.js";
import { coded, h, place, replace } from "specviz/base/dom.js";
import { app } from "specviz/shell/state.js";

/** @param {Part} part */
export function mount({ element }) {
  const off = h("p.svf-reason", { role: "status" });
  const differs = h("p.svf-may-differ");
  const about = h("p.svp-note.svf-model");
  function draw() {
    const { reason, note, lossy } = app.caution;
    replace(about, coded(note));
    about.hidden = !note;
    replace(off, coded(reason));
    off.hidden = !reason;
    differs.textContent = lossy;
    differs.hidden = !lossy;
  }
  place(element, "caution").append(off, differs, about);
  on("caution", draw);
  draw();
}
