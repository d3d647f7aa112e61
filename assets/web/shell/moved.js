/* Pages that went into others: where their old addresses lead. */

/** By the old tab, what the address says instead. @type {Record<string, (old: URLSearchParams) => object>} */
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
for (const [key, value] of Object.entries(moved ?? {})) {
  if (value) url.searchParams.set(key, value);
  else url.searchParams.delete(key);
}
if (moved) history.replaceState(history.state, "", url);
