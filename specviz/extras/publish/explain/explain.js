/* The page's sentences on steps of a run, without a page: sentencesOf takes {trace, steps} as JSON and gives
   [{step, words: [[text, whether it is a token], …]}, …] as JSON. The modules are those of the page and stand behind
   this; elements are made of the few properties that they use. Of Python: graphemes(text). */

/** Anything that a page would do with an element, and that leaves its text as it is. */
const nothing = () => undefined;

globalThis.Node = class {
  isConnected = true;
};
globalThis.CharacterData = class extends Node {};
globalThis.Element = class extends Node {
  constructor(tag = "") {
    super();
    Object.assign(this, { tag, childNodes: [], dataset: {}, style: { setProperty: nothing }, names: new Set() });
    this.classList = {
      add: (...names) => names.forEach((name) => this.names.add(name)),
      remove: (...names) => names.forEach((name) => this.names.delete(name)),
      contains: (name) => this.names.has(name),
      toggle: nothing,
    };
  }

  set className(name) {
    this.setAttribute("class", name);
  }

  get childElementCount() {
    return this.childNodes.length;
  }

  setAttribute(name, value) {
    if (name === "class") this.classList.add(...value.split(" "));
  }

  append(...nodes) {
    this.childNodes.push(...nodes);
  }

  replaceChildren(...nodes) {
    this.childNodes = nodes;
  }
};
for (const name of ["addEventListener", "before", "remove", "removeAttribute"]) Element.prototype[name] = nothing;
for (const name of ["HTMLElement", "HTMLButtonElement", "SVGElement"]) globalThis[name] = class extends Element {};
globalThis.document = {
  createElement: (tag) => new HTMLElement(tag),
  createElementNS: (_, tag) => new SVGElement(tag),
};
for (const name of ["addEventListener", "setTimeout", "requestAnimationFrame"]) globalThis[name] = nothing;
// what a browser has and the engine has not: UTF-8, graphemes, and commas in integers
globalThis.TextDecoder = class {
  decode(bytes) {
    return decodeURIComponent([...bytes].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join(""));
  }
};
globalThis.Intl = {
  Segmenter: class {
    segment(text) {
      return JSON.parse(graphemes(text)).map((index) => ({ index }));
    }
  },
};
Number.prototype.toLocaleString = function commas() {
  return String(this).replace(/\B(?=(\d{3})+$)/g, ",");
};

/** What the sentences ask of an inspector: the lines are those of its panes. */
function inspectorOf(trace) {
  const { Model, POOL } = modules["specviz/base/model.js"];
  const { TokenPane } = modules["specviz/inspect/pane.js"];
  const { PoolPane } = modules["specviz/inspect/pool.js"];
  const { hung, present } = modules["specviz/inspect/prompt_marks.js"];
  const { h } = modules["specviz/base/dom.js"];
  const model = new Model(trace);
  const owner = { model, tip: { add: (element) => element, explained: (name, _, ...words) => h(name, ...words) } };
  const [text, pool] = [new TokenPane(owner, "text", ""), new PoolPane(owner)];
  text.fill(0, model.tokenCount);
  pool.refill();
  const prompts = { on: present(model), count: (node) => (hung(model, owner.number).get(node) ?? []).length };
  const where = (position) => (position >= POOL ? pool : text).where(position);
  return Object.assign(owner, { where, prompts });
}

/** The texts within a node, each with whether it is a token. */
function* texts(node, inToken = false) {
  if (typeof node === "string") yield [node, inToken];
  else for (const child of node.childNodes) yield* texts(child, inToken || node.tag === "code");
}

function sentencesOf(question) {
  const { sentence } = modules["specviz/inspect/sentence.js"];
  const { trace, steps } = JSON.parse(question);
  const owner = inspectorOf(trace);
  const sentences = steps.map((step) => {
    owner.number = step;
    return { step, words: sentence(owner, owner.model.step(step)).flatMap((node) => [...texts(node)]) };
  });
  return JSON.stringify(sentences);
}
