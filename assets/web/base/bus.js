/* Events of the page: "inspector", "current", "runs", "model", "session", "tab", "open", "started", "stop",
   "refused", "caution", "lab". */

/** Calls ``fn`` with what is told under ``name``. */
export const on = (name, fn) => document.addEventListener(`specviz:${name}`, (event) => fn(event.detail));
export const emit = (name, detail) => document.dispatchEvent(new CustomEvent(`specviz:${name}`, { detail }));
