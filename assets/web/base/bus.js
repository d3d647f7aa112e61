/* Events of the page: PageEvents says which there are, and what is told. */

/**
 * Calls ``fn`` with what is told under ``name``.
 *
 * @template {keyof PageEvents} Name
 * @param {Name} name
 * @param {(detail: PageEvents[Name]) => unknown} fn
 */
export const on = (name, fn) =>
  document.addEventListener(`specviz:${name}`, (event) => fn(/** @type {CustomEvent} */ (event).detail));

/**
 * Tells everyone who listens.
 *
 * @template {keyof PageEvents} Name
 * @param {Name} name
 * @param {PageEvents[Name]} [detail]
 */
export const emit = (name, detail) => document.dispatchEvent(new CustomEvent(`specviz:${name}`, { detail }));
