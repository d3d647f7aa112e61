/* The drawer of runs, over any page: the library, and what is made of the runs selected there. */

import { emit, on } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { drawLibrary } from "specviz/runs/library.js";
import { setAddress } from "specviz/shell/address.js";
import { onInspect } from "specviz/shell/open.js";
import { refreshRuns } from "specviz/shell/runs.js";
import { goTo } from "specviz/shell/tabs.js";
import { Held } from "specviz/ui/element.js";
import { html, signal } from "specviz/ui/html.js";
import { Sheet, floating } from "specviz/ui/sheet.js";

const open = signal(false);
/** @type {HTMLElement | null} */
let library = null;

function close() {
  open.value = false;
  setAddress({ library: null });
}

/** Runs selected in the library are looked at on page "Compare". */
/** @type {(view: "race" | "acceptance" | "difference", ids: string[], raced: boolean) => void} */
function look(view, ids, raced) {
  open.value = false;
  const named = raced ? { lanes: ids.join(","), runs: null } : { runs: ids.join(","), lanes: null };
  setAddress({ tab: "compare", library: null, acceptance: null, ...named, view: view === "race" ? null : view });
  goTo("compare");
  emit("look", { ids, view, raced });
}

/** @param {string} id @param {At} [at] */
function show(id, at) {
  close();
  onInspect(id, at);
}

function Drawer() {
  const file = () => {
    close();
    emit("file");
  };
  return html`<${Sheet} title="Runs" class="svr-drawer" open=${open.value} close=${close}>
    <${Held} of=${library} class="svp-runs" />
    <div class="svr-file"><button type="button" class="ui-link" onClick=${file}>Open a file …</button></div>
  </${Sheet}>`;
}

/** Opens the drawer; ``search`` is what it looks for at first. @param {{ search?: string }} [options] */
export function openRuns({ search } = {}) {
  if (!library) {
    library = h("div.ui-stack");
    drawLibrary(library, { look, show });
    floating(html`<${Drawer} />`);
  }
  const field = library.querySelector("input");
  if (field && search !== undefined) {
    field.value = search;
    field.dispatchEvent(new Event("input"));
  }
  refreshRuns();
  open.value = true;
  setAddress({ library: "1" });
  requestAnimationFrame(() => field?.focus());
}

on("address", (asked) => {
  open.value = asked.has("library");
});
