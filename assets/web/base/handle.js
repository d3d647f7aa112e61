/* The one global name: ``specviz``, for tinkering in the browser's console and for tests. */

/** Adds to ``globalThis.specviz``: the app's {app, inspector, open, link, goTo, refreshRuns}, or a page's view. */
/** @param {object} parts */
export function expose(parts) {
  globalThis.specviz ??= {};
  Object.defineProperties(globalThis.specviz, Object.getOwnPropertyDescriptors(parts));
}
