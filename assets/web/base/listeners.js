/* Who is told of what happens to an object. */

/** @template {object} Events Event name → its detail. */
export class Listeners {
  constructor() {
    /** @type {Map<keyof Events, ((detail: any) => unknown)[]>} */
    this.listeners = new Map();
  }

  /** @type {<Event extends keyof Events>(event: Event, listener: (detail: Events[Event]) => unknown) => this} */
  on(event, listener) {
    this.listeners.set(event, [...(this.listeners.get(event) ?? []), listener]);
    return this;
  }

  /** @type {<Event extends keyof Events>(event: Event, detail: Events[Event]) => void} */
  emit(event, detail) {
    for (const listener of this.listeners.get(event) ?? []) listener(detail);
  }
}
