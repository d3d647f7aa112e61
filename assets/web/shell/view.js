/* The place of the inspector: takes over what was drawn before Gradio was there. */

import { emit } from "specviz/base/bus.js";
import { parse } from "specviz/base/storage.js";
import { follow } from "specviz/shell/live.js";
import { open } from "specviz/shell/open.js";
import { place } from "specviz/base/dom.js";
import { refreshRuns, running } from "specviz/shell/runs.js";
import { stage } from "specviz/shell/stage.js";
import { app } from "specviz/shell/state.js";
import { paint } from "specviz/shell/theme.js";

/** Our style sheets come after Gradio's, whose resets would win otherwise; copies first, so that nothing flickers. */
function lastWord() {
  for (const old of document.querySelectorAll('link[rel="stylesheet"][href^="web/"]')) {
    const copy = old.cloneNode();
    copy.addEventListener("load", () => old.remove());
    document.head.append(copy);
  }
}

/** ``value`` is {"trace": id, "own": started by this page, "prompt": its key, "n": differs every time}. */
/** @param {Part} part */
export function mount({ element, props, watch }) {
  place(element, "view").replaceWith(stage);
  if (app.inspector) {
    app.inspector.unseen = true; // an element that is moved is scrolled back
    requestAnimationFrame(() => app.inspector?.resized());
  }
  for (const old of document.querySelectorAll("#sv-boot, .svp-frame")) old.remove();
  document.body.classList.add("sv-mounted");
  paint();
  lastWord();
  watch("value", () => {
    const value = parse(props.value);
    if (!value.trace) return;
    if (value.own) {
      app.mine.add(value.trace);
      app.promptOf.set(value.trace, value.prompt || "");
      app.held = value.trace;
      running();
      // at once: its end is heard of whatever is looked at by then
      follow(value.trace, { seq: -1, state: "queued", ahead: 0 });
      emit("started", value.trace);
    }
    open(value.trace);
    refreshRuns();
  });
  refreshRuns();
}
