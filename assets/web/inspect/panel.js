/* A titled panel of the inspector: what all of them have. */

import { card } from "specviz/base/dom.js";

export class Panel {
  /** @param {Inspector} owner @param {string} name @param {string} title @param {Child[]} tools */
  constructor(owner, name, title, ...tools) {
    const { element, body, note, bar } = card(name, title, ...tools);
    this.owner = owner;
    this.element = element;
    this.body = body;
    this.note = note;
    this.bar = bar;
  }
}
