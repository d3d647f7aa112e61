/* What this browser keeps, and JSON that may be none. */

/** Text by name; nothing where the browser keeps nothing (private windows). */
export const stored = {
  get(key) {
    try {
      return localStorage.getItem(`specviz-${key}`);
    } catch {
      return null;
    }
  },
  set(key, value) {
    try {
      localStorage.setItem(`specviz-${key}`, value);
    } catch {
      /* private mode */
    }
  },
};

/** An object from JSON, an empty one where it is none. */
export function parse(text) {
  try {
    return JSON.parse(text || "{}") || {};
  } catch {
    return {};
  }
}
