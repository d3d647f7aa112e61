/* A titled panel of the inspector: what all of them have; a switch in its bar. */

import { button, card } from "specviz/base/dom.js";

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

/** A button that is on or off; ``flip`` is told which, after each click. @type {MakeToggle} */
export function toggle(tip, label, help, on, flip) {
  const onclick = () => {
    one.setAttribute("aria-pressed", String((on = !on)));
    flip(on);
  };
  const one = button(label, { class: "sv-toggle", "aria-pressed": String(on), onclick }, label);
  return tip.add(one, () => [help]);
}
