/* Page "Compare" in the app: its runs come from the server. */

import { getJson, traceUrl } from "specviz/base/json.js";
import { drawGo, stop } from "specviz/compare/ask.js";
import { post } from "specviz/compare/state.js";
import { onInspect } from "specviz/shell/open.js";
import { refreshRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";

/** @param {string[]} ids */
const listed = (ids) => ids.map(encodeURIComponent).join(",");

/** @type {CompareHost} */
export const server = {
  trace: (id) => getJson(traceUrl(id)),
  ask: (what, ids) => getJson(`api/compare/${what}?runs=${listed(ids)}`),
  inspect: (id, step) => onInspect(id, { step }),
  begun: () => {},
  changed: drawGo,
  over: () => {
    drawGo();
    refreshRuns();
  },
  adopt: async (ids) => (await post("adopt", { ids, session: await app.session() })).done,
  stop,
  repeat: (ids) => post("repeat", { ids }),
  figure: (ids) => app.figureOfRuns(ids),
};
