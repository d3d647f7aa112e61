/* Places in the page: `gr.HTML` components with a constant template. */

/** The element of a part that is to be filled. */
export const place = (element, name) => element.querySelector(`.svp-${name}`);
