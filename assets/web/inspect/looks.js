/* Where a draft model or a prompt token looked: the switch, the selects, the heaviest places. */

import { append, h, told } from "specviz/base/dom.js";
import { probability } from "specviz/base/numbers.js";
import { choiceOf, label, same } from "specviz/inspect/drafting.js";
import * as marks from "specviz/inspect/marks.js";
import { Panel, toggle } from "specviz/inspect/panel.js";

const PLACES = 6; // places looked at that are named

/** Where a node looked. @type {(model: Model, step: number, node: number, layer: number, head: number) => Look[]} */
export function looks(model, step, node, layer, head) {
  const table = model.trace.attention;
  if (!table) return [];
  return model
    .rows("attention", step)
    .filter((row) => table.node[row] === node && table.layer[row] === layer && table.head[row] === head)
    .map((row) => ({ position: table.position[row], weight: table.weight[row] }))
    .sort((a, b) => (b.weight ?? 0) - (a.weight ?? 0));
}

/** A panel that tells about a chosen item of the tree, and where its query looked; a switch and selects for that. */
export class LookPanel extends Panel {
  /** @param {Inspector} owner @param {string} name @param {string} title @param {string} help */
  constructor(owner, name, title, help) {
    super(owner, name, title);
    this.on = false;
    this.shading = true;
    this.head = -1;
    this.layer = -1;
    /** @type {Look[]} */
    this.look = [];
    /** @type {StepView | null} */
    this.view = null;
    /** The token of the tree that it tells about. @type {NodeChoice | null} */
    this.chosen = null;
    /** The one that is hovered, else the chosen one. @type {NodeChoice | null} */
    this.shown = null;
    this.shadeButton = toggle(owner.tip, "Attention heat", help, true, (on) => {
      this.shading = on;
      if (this.view) marks.shade(owner, this.view);
    });
    this.heads = this.select("Attention head", (value) => (this.head = value));
    this.layers = this.select("Attention layer", (value) => (this.layer = value));
    this.bar.append(this.shadeButton, this.layers, this.heads);
  }

  /** @type {(label: string, pick: (value: number) => void) => HTMLSelectElement} */
  select(label, pick) {
    return h("select.sv-select.sv-look-select", {
      "aria-label": label,
      onchange: (event) => {
        pick(Number(event.currentTarget.value));
        this.refresh();
        this.bring();
      },
    });
  }

  /** The choice an item of the tree stands for; null where there is nothing to tell of it. @type {Picker["choice"]} */
  choice(item) {
    return item && this.on && item.kind === "node" ? choiceOf(item.node) : null;
  }

  /** @type {Picker["isChosen"]} */
  isChosen(item) {
    const one = this.choice(item);
    return !!one && one.parent === this.chosen?.parent && one.node === this.chosen.node;
  }

  /** Shows an item of the tree for as long as it is hovered; null: what was chosen again. @type {Picker["preview"]} */
  preview(item) {
    if (!this.on || !this.view) return;
    const one = this.choice(item) || this.chosen;
    if (same(one, this.shown)) return;
    this.shown = one;
    this.refresh();
  }

  /** @type {Picker["choose"]} */
  choose(one) {
    if (!one) return;
    this.chosen = this.shown = one;
    this.owner.tree.mark();
    this.refresh();
  }

  /** What the panel says, and the shades of the text, anew. */
  refresh() {
    if (!this.view) return;
    this.fill();
    marks.shade(this.owner, this.view);
  }

  fill() {}

  /** Scrolls the prompt to the place looked at most, unless the panes are to stay where they are. */
  bring() {
    if (this.owner.follow) this.owner.reveal(heaviest(this));
  }

  /** The layers and heads that a run recorded. @param {RunAttention | null | undefined} attention */
  offerLooks(attention) {
    for (const one of [this.shadeButton, this.layers, this.heads]) one.hidden = !attention;
    if (!attention) return;
    const { layers = [], heads = 0 } = attention;
    if (!layers.includes(this.layer)) this.layer = layers[layers.length - 1];
    if (!(this.head < heads)) this.head = -1;
    /** @type {(value: number, label: string, chosen: number) => HTMLElement} */
    const option = (value, label, chosen) => h("option", { value, selected: value === chosen }, label);
    this.layers.hidden = layers.length < 2;
    this.layers.replaceChildren(...layers.map((n) => option(n, `layer ${n}`, this.layer)));
    this.heads.replaceChildren(
      option(-1, `mean of ${heads} heads`, this.head),
      ...Array.from({ length: heads }, (_, n) => option(n, `head ${n}`, this.head)),
    );
  }
}

/** The place in the prompt's own text that was looked at most, -1 if none is. @type {(panel: Looked) => Position} */
export function heaviest({ owner, shading, look }) {
  const { segment } = owner.model.trace.tokens;
  const most = shading && look.find(({ position }) => segment[position] && segment[position] !== "template");
  return most ? most.position : -1;
}

/** The heaviest places, to go to, under a title. @type {(panel: LookPanel, words: string) => HTMLElement} */
export function lookedAt({ owner, head, layer, look }, words) {
  const { attention } = owner.model.run;
  const of = head < 0 ? "mean of its heads" : `head ${head}`;
  const about = `Layer ${layer} of the target, ${of}. Small weights are not recorded.`;
  const title = owner.tip.explained("h4", () => told(attention?.label, about), words);
  const box = h("div.sv-looked", title);
  if (!look.length) return append(box, [h("p.sv-faint", "No large weight was recorded.")]);
  const list = h("ul.ui-row");
  for (const one of look.slice(0, PLACES)) {
    const word = h("code", label(owner, owner.model.id(one.position), 10));
    const go = goTo(owner, one.position, h("span.sv-place", owner.short(one.position)), " ");
    go.append(word, " ", probability(one.weight));
    list.append(h("li", go));
  }
  return append(box, [list]);
}

/** A button that goes to a place, and lights it while it is hovered. @type {GoTo} */
export function goTo(owner, position, ...inside) {
  return h(
    "button.sv-button.sv-quiet.sv-go",
    {
      onclick: () => owner.reveal(position, true),
      onpointerenter: () => owner.light([position]),
      onpointerleave: () => owner.light([]),
    },
    ...inside,
  );
}
