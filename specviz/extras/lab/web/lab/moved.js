/* Old addresses of what stands in the Lab's list. */

import { put } from "specviz/base/storage.js";

const url = new URL(location.href);
const tab = url.searchParams.get("tab") ?? "";
const view = url.searchParams.get("acceptance");
if (["trees", "doctor"].includes(tab)) history.replaceState(history.state, "", put(url, { tab: "lab", lab: tab }));
else if (tab === "acceptance" && view === "speedup")
  history.replaceState(history.state, "", put(url, { tab: "lab", acceptance: null, lab: view }));
