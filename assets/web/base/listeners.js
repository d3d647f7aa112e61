/* Who is told of what happens to an object. */

/** @template {object} Events Event name → its detail. */
export class Listeners {
  constructor() {
    /** @type {Map<keyof Events, ((detail: any) => unknown)[]>} */
    this.listeners = new Map();
  }

  /**
   * @template {keyof Events} Event
   * @param {Event} event
   * @param {(detail: Events[Event]) => unknown} listener
   */
  on(event, listener) {
    this.listeners.set(event, [...(this.listeners.get(event) ?? []), listener]);
    return this;
  }

  /**
   * @template {keyof Events} Event
   * @param {Event} event
   * @param {Events[Event]} detail
   */
  emit(event, detail) {
    for (const listener of this.listeners.get(event) ?? []) listener(detail);
  }
}
