/* Events of the page: PageEvents says which there are, and what is told. */

/** Calls ``fn`` with what is told under ``name``. */
/** @type {<Name extends keyof PageEvents>(name: Name, fn: (detail: PageEvents[Name]) => unknown) => void} */
export const on = (name, fn) =>
  document.addEventListener(`specviz:${name}`, (event) => fn(/** @type {CustomEvent} */ (event).detail));

/** Tells everyone who listens. */
/** @type {<Name extends keyof PageEvents>(name: Name, detail?: PageEvents[Name]) => boolean} */
export const emit = (name, detail) => document.dispatchEvent(new CustomEvent(`specviz:${name}`, { detail }));
