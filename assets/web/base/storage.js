/* What this browser keeps, and JSON that may be none. */

/** Text by name; nothing where the browser keeps nothing (private windows). */
export const stored = {
  /** @type {(key: string) => string | null} */
  get(key) {
    try {
      return localStorage.getItem(`specviz-${key}`);
    } catch {
      return null;
    }
  },
  /** @type {(key: string, value: string) => void} */
  set(key, value) {
    try {
      localStorage.setItem(`specviz-${key}`, value);
    } catch {
      /* private mode */
    }
  },
};

/** An object from JSON, an empty one where it is none. @type {(text: string | null) => any} */
export function parse(text) {
  try {
    return JSON.parse(text || "{}") || {};
  } catch {
    return {};
  }
}
