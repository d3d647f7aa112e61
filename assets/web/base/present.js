/* Presenter mode: large type, no controls, keys alone, and how long the step has been shown. `&present=1` opens it. */

import { button, h } from "specviz/base/dom.js";
import { clamp } from "specviz/base/numbers.js";

/** How much what is drawn in fixed sizes grows: by the window's width. */
export const zoom = () => clamp(window.innerWidth / 1280, 1.15, 2.5);

/** @type {(ms: number) => string} */
const clock = (ms) => {
  const seconds = Math.floor(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
};

/** A parameter of the address: after # in a file from disk, after ? on a server. @param {string} name */
export const asked = (name) =>
  new URLSearchParams(location.hash.slice(1)).get(name) ?? new URLSearchParams(location.search).get(name);

export class Presenter {
  /** ``root`` fills the window while presenting; ``hashed``: the address keeps it after #; ``changed(on)`` is told. */
  /** @param {HTMLElement} root @param {{ hashed?: boolean, changed?: (on: boolean) => void }} options */
  constructor(root, { hashed = false, changed = () => {} } = {}) {
    this.root = root;
    this.hashed = hashed;
    this.changed = changed;
    this.on = this.begun = false;
    this.since = this.ticker = 0;
    this.told = "";
    this.time = h("b.sv-present-time", "0:00");
    const leave = button("Esc leaves presenter mode", { class: "sv-quiet", onclick: () => this.set(false) });
    leave.append(h("kbd", "Esc"));
    this.place = h("span.sv-present-place");
    this.bar = h(
      "div.sv-present-bar",
      { role: "group", "aria-label": "Presenter mode" },
      this.place,
      h("span", { "aria-label": "Time on this step", role: "timer" }, this.time),
      leave,
    );
    root.append(this.bar);
  }

  toggle() {
    this.set(!this.on);
  }

  /** @param {boolean} on */
  set(on) {
    if (on === this.on) return;
    this.on = on;
    this.root.classList.toggle("sv-presenting", on);
    document.documentElement.classList.toggle("sv-presented", on);
    clearInterval(this.ticker);
    if (on) {
      this.root.style.setProperty("--sv-zoom", String(zoom()));
      this.restart();
      this.ticker = setInterval(() => this.tick(), 1000);
      this.root.focus({ preventScroll: true });
    }
    this.remember();
    this.changed(on);
  }

  /** Begins once, where the address asks for it and means this page. */
  /** @param {{ present?: boolean | string, actions?: unknown }} options */
  begin({ present, actions }) {
    if (this.begun) return;
    this.begun = true;
    const tab = asked("tab") || "inspect";
    if (asked("present") === "1" && actions && tab === (present || "inspect")) this.set(true);
  }

  /** A new step: its time begins at 0. ``place`` is what the bar says of it. @param {string} [place] */
  restart(place) {
    if (place !== undefined) this.told = place;
    if (!this.on) return;
    this.since = performance.now();
    this.place.textContent = this.told;
    this.tick();
  }

  tick() {
    this.time.textContent = clock(performance.now() - this.since);
  }

  /** The address opens this mode again. */
  remember() {
    try {
      const url = new URL(location.href);
      const known = this.hashed ? new URLSearchParams(url.hash.slice(1)) : url.searchParams;
      if (this.on) known.set("present", "1");
      else known.delete("present");
      if (this.hashed) url.hash = known.toString().replaceAll("%2C", ",");
      history.replaceState(history.state, "", url.href);
    } catch {
      // a frame without an address of its own
    }
  }

  destroy() {
    clearInterval(this.ticker);
    if (this.on) document.documentElement.classList.toggle("sv-presented", false);
  }
}
