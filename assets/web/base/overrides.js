/* Characters that turn the text around them round are shown as marks, wherever a page writes a text: a run's title, a
 * model's name, a server's sentence. Views of tokens do so themselves (text.js); what is typed stays as it is. */

const OVERRIDE = /[\u202a-\u202e\u2066\u2067]/g;
const ATTRIBUTES = ["title", "aria-label", "label", "placeholder", "alt"];
const NAMED = ATTRIBUTES.map((name) => `[${name}]`).join();
const RAW = "script, style, textarea, [contenteditable]";

/** @type {(text: string) => string} */
export const markText = (text) =>
  text.replace(OVERRIDE, (character) => `⟨U+${character.charCodeAt(0).toString(16).toUpperCase()}⟩`);

/** @param {Node} node a text, or what holds texts */
function mark(node) {
  if (node instanceof CharacterData) {
    if (node.data.search(OVERRIDE) >= 0 && !node.parentElement?.closest(RAW)) node.data = markText(node.data);
  } else if (node instanceof Element) {
    if ((node.textContent ?? "").search(OVERRIDE) >= 0) {
      const texts = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) mark(texts.currentNode);
    }
    for (const element of [node, ...node.querySelectorAll(NAMED)])
      for (const name of ATTRIBUTES) markAttribute(element, name);
  }
}

/** @type {(element: Element, name: string) => void} */
function markAttribute(element, name) {
  const text = element.getAttribute(name);
  if (text !== null && text.search(OVERRIDE) >= 0) element.setAttribute(name, markText(text));
}

/** Marks them in the page as it is and, before it is painted, in all that changes. */
export function markOverrides() {
  mark(document.documentElement);
  const observer = new MutationObserver((changes) => {
    for (const change of changes) {
      if (change.type === "characterData") mark(change.target);
      else if (change.type === "childList") change.addedNodes.forEach(mark);
      else markAttribute(/** @type {Element} */ (change.target), change.attributeName ?? "");
    }
  });
  observer.observe(document, {
    subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: ATTRIBUTES,
  });
}
