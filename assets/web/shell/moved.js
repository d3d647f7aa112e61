/* Where addresses without a tab and those of old pages lead. A room's ``moved.js`` runs before the app's entry. */

import { put } from "specviz/base/storage.js";

/** By the old tab, what the address says instead. */
/** @typedef {Record<string, (old: URLSearchParams) => Record<string, string | null | undefined>>} Moved */
/** @type {Moved} */
const MOVED = {
  "": (old) => (old.get("lesson") && !old.get("trace") ? { tab: "lessons" } : {}), // a run's address stays its own
  acceptance: (old) => {
    const view = old.get("acceptance");
    if (view === "outputs") return { tab: "compare", acceptance: null, outputs: "1" };
    return { tab: "compare", view: "acceptance", acceptance: view ?? "definitions" };
  },
  runs: (old) => {
    if (old.has("acceptance")) return { tab: "compare", view: "acceptance" };
    if (old.has("difference")) return { tab: "compare", view: "difference", difference: null };
    return { tab: null, library: "1" };
  },
};

const url = new URL(location.href);
const moved = MOVED[url.searchParams.get("tab") ?? ""]?.(url.searchParams);
if (moved) history.replaceState(history.state, "", put(url, moved));
