/* The tabs below the tree: the panels that a run has something for, and those of the page's own. */

import { computed, signal } from "specviz/ui/html.js";

const RECORDED = ["candidates", "drafter", "prompts", "lattice"]; // panels of what a method recorded

export class PanelTabs {
  /** @param {Inspector} owner */
  constructor(owner) {
    this.owner = owner;
    /** The tab in sight; "": the one that suits the run. */
    this.at = signal("");
    /** Tabs of the page's own. */
    this.added = signal(/** @type {PanelTab[]} */ ([]));
    /** All of them, as the run has them. */
    this.all = computed(() => this.list());
  }

  /** @returns {PanelTab[]} */
  list() {
    this.owner.version.value;
    const { drafter, prompts, candidates, tree } = this.owner;
    const ranked = this.ranked || !(drafter.on || prompts.on || tree.lattice.on);
    return [
      { name: "token", label: "Token" },
      ...(ranked ? [{ name: "candidates", label: "Candidates", element: candidates.element }] : []),
      ...(tree.lattice.on ? [{ name: "lattice", label: "Lattice", element: tree.lattice.element }] : []),
      ...(drafter.on ? [{ name: "drafter", label: "Drafter", element: drafter.element }] : []),
      ...(prompts.on ? [{ name: "prompts", label: "Prompt tokens", element: prompts.element }] : []),
      ...this.added.value,
    ];
  }

  /** @param {string} name */
  find(name) {
    return this.all.peek().find((one) => one.name === name);
  }

  /** Whether a ranking of earlier places was recorded. */
  get ranked() {
    const { candidates, run } = this.owner.model?.trace ?? {};
    return !!candidates && (candidates.step.length > 0 || (run?.terms || []).length > 0);
  }

  /** The tab of what the run's method recorded. */
  get own() {
    if (this.owner.tree.lattice.on) return "lattice";
    return this.owner.drafter.on ? "drafter" : this.owner.prompts.on ? "prompts" : "candidates";
  }

  /** A tab of the page's own; of one name there is one. @param {PanelTab} tab */
  add(tab) {
    const before = this.added.peek();
    const at = before.findIndex((one) => one.name === tab.name);
    this.added.value = at < 0 ? [...before, tab] : before.with(at, tab);
  }

  /** @param {string} name */
  remove(name) {
    if (!this.added.peek().some((one) => one.name === name)) return;
    this.added.value = this.added.peek().filter((one) => one.name !== name);
    this.suit();
  }

  /** Brings a tab into sight; its panel is told through ``open``, the one before through ``close``. */
  /** @param {string} name @returns {void} */
  open(name) {
    const tab = this.find(name);
    const before = this.find(this.at.peek());
    if (!tab || before === tab) return;
    if (tab.off) return this.owner.say(tab.off, tab.way?.());
    this.at.value = name;
    before?.close?.();
    tab.open?.();
    requestAnimationFrame(() => this.owner.resized()); // its size is known once it is in sight
  }

  /** Leaves a tab of the page's own; its name keeps the focus where it was inside. */
  close() {
    const { root } = this.owner;
    const inside = root.querySelector(".sv-lower")?.contains(document.activeElement);
    const label = root.querySelector(`.ui-tab[id$="-${this.at.peek()}"]`);
    this.open(this.own);
    if (inside && label instanceof HTMLElement) label.focus({ preventScroll: true });
  }

  /** Shows a tab that suits the run. */
  suit() {
    const now = this.find(this.at.peek());
    if (!now || (RECORDED.includes(now.name) && now.name !== this.own)) this.at.value = this.own;
  }
}
