/* Page "Runs": the library, and what the runs selected there have to say: acceptance, and the difference of two. */

import { drawAcceptance } from "specviz/acceptance/view.js";
import { emit, on } from "specviz/base/bus.js";
import { h, place } from "specviz/base/dom.js";
import { plural } from "specviz/base/numbers.js";
import { drawDifference } from "specviz/runs/difference.js";
import { drawLibrary } from "specviz/runs/library.js";
import { setAddress } from "specviz/shell/address.js";
import { countable } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";
import { goTo } from "specviz/shell/tabs.js";

const LIBRARY = { acceptance: null, difference: null, runs: null }; // as the address says it

/** @param {Part} part */
export function mount({ element }) {
  const box = place(element, "runs");
  const library = h("div.ui-stack");
  const title = h("h2");
  let inside = h("div");
  const back = h("button.svp-button", { onclick: toLibrary }, "← All runs");
  const shown = h("div.svr-view.ui-stack", { hidden: true }, h("header.ui-row", back, title), inside);
  /** @type {Element | null} */
  let before = null;

  /** @param {boolean} on */
  function turn(on) {
    shown.hidden = !on;
    library.hidden = on;
  }

  function toLibrary() {
    turn(false);
    setAddress(LIBRARY);
    if (before instanceof HTMLElement && before.isConnected) before.focus();
  }

  /** ``ids``: none for all that can be counted. @type {(what: string, ids: string[], how?: string) => void} */
  function look(what, ids, how = "definitions") {
    if (what === "compare") {
      setAddress({ lanes: ids.join(",") });
      goTo("compare");
      emit("lanes", ids);
      return;
    }
    before = document.activeElement;
    const counted = ids.length ? ids : countable().map((run) => run.id);
    // a place of its own for each view: a late answer of the view before fills one that is gone
    const fresh = h(what === "acceptance" ? "div.svp-acceptance" : "div.svr-difference.ui-stack");
    inside.replaceWith(fresh);
    inside = fresh;
    title.textContent =
      what === "acceptance" ? `Acceptance of ${plural(counted.length, "run")}` : "Difference of two runs";
    const view = what === "acceptance" ? { acceptance: how } : { difference: "1" };
    setAddress({ ...LIBRARY, runs: ids.join(","), ...view });
    turn(true);
    if (what === "acceptance") drawAcceptance(inside, counted, how);
    else drawDifference(inside, ids);
    scrollTo({ top: 0 });
    if (before) back.focus();
  }

  /** Shows what an address names; all runs, once they are listed. @param {URLSearchParams} asked */
  function turnTo(asked) {
    const what = asked.has("acceptance") ? "acceptance" : asked.has("difference") ? "difference" : "";
    const ids = (asked.get("runs") || "").split(",").filter(Boolean);
    if (!what) {
      if (!shown.hidden) toLibrary();
      return;
    }
    if (app.runs.length || ids.length) return look(what, ids, asked.get("acceptance") || undefined);
    turn(true);
    inside.replaceChildren(h("p.svp-empty", "Looking for runs …"));
    let begun = false;
    on("runs", () => {
      if (!begun && !shown.hidden) look(what, ids, asked.get("acceptance") || undefined);
      begun = true;
    });
  }

  box.append(library, shown);
  drawLibrary(library, look);
  on("address", (asked) => asked.get("tab") === "runs" && turnTo(asked));
  if (app.tab === "runs") turnTo(new URLSearchParams(location.search));
}
