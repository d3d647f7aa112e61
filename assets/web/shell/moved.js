/* Pages that went into others: where their old addresses lead. */

import { put } from "specviz/base/storage.js";

/** By the old tab, what the address says instead. */
/** @type {Record<string, (old: URLSearchParams) => Record<string, string | null | undefined>>} */
const MOVED = {
  trees: () => ({ tab: "lab", lab: "trees" }),
  acceptance: (old) => {
    const view = old.get("acceptance");
    if (view === "outputs") return { tab: "compare", acceptance: null, outputs: "1" };
    if (view === "speedup") return { tab: "lab", acceptance: null, lab: "speedup" };
    return { tab: "runs", acceptance: view ?? "definitions" };
  },
};

const url = new URL(location.href);
const moved = MOVED[url.searchParams.get("tab") ?? ""]?.(url.searchParams);
if (moved) history.replaceState(history.state, "", put(url, moved));
