/* The tabs beside the text: why, the tree, what was ranked or guessed, and those of the page's own. A tab may have
   several forms: the tree's lattice, a drafter's guesses in place of a ranking. */

import { computed, signal } from "specviz/ui/html.js";

const FIRST = "why";
const OWN = ["whatif", "lens", "judges"]; // of the page's own, in this order before all others

export class PanelTabs {
  /** @param {Inspector} owner */
  constructor(owner) {
    this.owner = owner;
    /** The tab in sight; "": the first. */
    this.at = signal("");
    /** Tab → its form in sight, where it was chosen. */
    this.forms = signal(/** @type {Record<string, string>} */ ({}));
    /** Tabs of the page's own. */
    this.added = signal(/** @type {PanelTab[]} */ ([]));
    /** All of them, as the run has them. */
    this.all = computed(() => this.list());
  }

  /** @returns {PanelTab[]} */
  list() {
    this.owner.version.value;
    const { details, drafter, prompts, candidates, tree, options } = this.owner;
    const chosen = this.forms.value;
    const ranked = this.ranked || !(drafter.on || prompts.on || tree.lattice.on);
    /** @type {(name: string, label: string, forms: (PanelTab | false)[]) => PanelTab[]} */
    const tab = (name, label, forms) => {
      const all = forms.filter((form) => !!form);
      const shown = all.find((form) => form.name === chosen[name]) ?? all[0];
      return shown ? [{ name, label, element: shown.element, forms: all, form: shown.name }] : [];
    };
    const lattice = tree.lattice.on && { name: "lattice", label: "Lattice", element: tree.lattice.element };
    const own = [...this.added.value].sort((a, b) => place(a) - place(b));
    return [
      ...(options.drawer === false ? [] : [{ name: FIRST, label: "Why" }]),
      ...(options.drawer === false
        ? tab("lattice", "Lattice", [lattice])
        : tab("tree", "Tree", [{ name: "tree", label: "Tree", element: tree.element }, lattice])),
      ...tab("candidates", "Candidates", [
        ranked && { name: "candidates", label: "Ranking", element: candidates.element },
        drafter.on && { name: "drafter", label: "Drafter", element: drafter.element },
        prompts.on && { name: "prompts", label: "Prompt tokens", element: prompts.element },
      ]),
      ...own,
      ...(options.drawer === false ? [] : [{ name: "details", label: "Details", element: details.element }]),
    ];
  }

  /** A tab by its name, or by that of one of its forms. @param {string} name */
  find(name) {
    const all = this.all.peek();
    return all.find((one) => one.name === name) ?? all.find(({ forms }) => forms?.some((form) => form.name === name));
  }

  /** Whether a ranking of earlier places was recorded. */
  get ranked() {
    const { candidates, run } = this.owner.model?.trace ?? {};
    return !!candidates && (candidates.step.length > 0 || (run?.terms || []).length > 0);
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

  /** Brings a tab, or one of its forms, into sight; its panel is told through ``open``, the one before ``close``. */
  /** @param {string} name @returns {void} */
  open(name) {
    const tab = this.find(name);
    const before = this.find(this.at.peek());
    if (!tab) return;
    if (tab.off) return this.owner.say(tab.off, tab.way?.());
    const form = tab.forms?.some((one) => one.name === name) && tab.form !== name;
    if (form) this.forms.value = { ...this.forms.peek(), [tab.name]: name };
    if (before === tab && !form) return;
    this.at.value = tab.name;
    if (before !== tab) {
      before?.close?.();
      tab.open?.();
    }
    requestAnimationFrame(() => this.owner.resized()); // its size is known once it is in sight
  }

  /** Leaves a tab of the page's own; its name keeps the focus where it was inside. */
  close() {
    const { root } = this.owner;
    const inside = root.querySelector(".sv-lower")?.contains(document.activeElement);
    const label = root.querySelector(`.ui-tab[id$="-${this.at.peek()}"]`);
    this.open(this.first);
    if (inside && label instanceof HTMLElement) label.focus({ preventScroll: true });
  }

  get first() {
    return this.all.peek()[0].name;
  }

  /** Shows the first tab where the one in sight is not there for the run. */
  suit() {
    if (!this.find(this.at.peek())) this.at.value = this.first;
  }
}

/** A tab's place among those of the page's own. @param {PanelTab} tab */
const place = ({ name }) => (OWN.includes(name) ? OWN.indexOf(name) : OWN.length);
