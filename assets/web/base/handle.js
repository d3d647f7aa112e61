/* The one global name: ``specviz``, for tinkering in the browser's console and for tests. */

/** Adds to ``globalThis.specviz``: the app has {app, inspector, open, link, refreshRuns}, a standalone page its view. */
export function expose(parts) {
  globalThis.specviz ??= {};
  Object.defineProperties(globalThis.specviz, Object.getOwnPropertyDescriptors(parts));
}
