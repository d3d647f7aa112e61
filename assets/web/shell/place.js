/* Places in the page: `gr.HTML` components with a constant template. */

/**
 * The element that a selector names; there is always one. Its ``kind`` is asked for where more than an HTMLElement's
 * properties are needed.
 *
 * @template {Element} [T=HTMLElement]
 * @param {ParentNode} root
 * @param {string} selector
 * @param {new () => T} [kind]
 * @returns {T}
 */
export function find(root, selector, kind) {
  const element = root.querySelector(selector);
  if (!(element instanceof (kind ?? HTMLElement))) throw new Error(`The page has no ${selector}.`);
  return /** @type {T} */ (element);
}

/** The element of a part that is to be filled. @param {HTMLElement} element @param {string} name */
export const place = (element, name) => find(element, `.svp-${name}`);
