/* What this browser keeps, parameters of its address, and JSON that may be none. */

const LOOKS = /^specviz-(theme|opening|details|split-.*)$/;

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
  /** Forgets what a person typed and did here; how the page looks stays. */
  forget() {
    try {
      for (const key of Object.keys(localStorage))
        if (key.startsWith("specviz-") && !LOOKS.test(key)) localStorage.removeItem(key);
    } catch {
      /* private mode */
    }
  },
};

/** An address with other parameters; null and "" remove one. */
/** @type {(url: URL, values: Record<string, string | null | undefined>) => URL} */
export function put(url, values) {
  for (const [key, value] of Object.entries(values)) {
    if (value) url.searchParams.set(key, value);
    else url.searchParams.delete(key);
  }
  return url;
}

/** An object from JSON, an empty one where it is none. @type {(text: string | null) => any} */
export function parse(text) {
  try {
    return JSON.parse(text || "{}") || {};
  } catch {
    return {};
  }
}
