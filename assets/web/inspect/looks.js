/* Where a draft model or a prompt token looked: the switch, the selects, the heaviest places. */

import { append, button, h, probability } from "specviz/base/dom.js";
import { label } from "specviz/inspect/drafting.js";
import * as marks from "specviz/inspect/marks.js";

const PLACES = 6; // places looked at that are named

/** The row of a step's attention: [{position, weight}], heaviest first. */
export function looks(model, step, node, layer, head) {
  const table = model.trace.attention;
  const found = [];
  const [from, to] = model.rows("attention", step);
  for (let row = from; row < to; row++) {
    if (table.node[row] === node && table.layer[row] === layer && table.head[row] === head)
      found.push({ position: table.position[row], weight: table.weight[row] });
  }
  return found.sort((a, b) => b.weight - a.weight);
}

/** The attention's switch and selects, in a panel with ``look``, ``refresh`` and ``bring``. */
export function lookTools(panel, help) {
  Object.assign(panel, { shading: true, head: -1, layer: -1, look: [] });
  panel.shadeButton = button(
    "Attention heat",
    {
      class: "sv-button sv-toggle",
      "aria-pressed": "true",
      onclick: () => {
        panel.shading = !panel.shading;
        panel.shadeButton.setAttribute("aria-pressed", String(panel.shading));
        if (panel.view) marks.shade(panel.owner, panel.view);
      },
    },
    "Attention heat",
  );
  panel.owner.tip.add(panel.shadeButton, () => [help]);
  const select = (label, pick) => {
    const change = (event) => {
      pick(Number(event.target.value));
      panel.refresh();
      panel.bring();
    };
    return h("select", { class: "sv-select sv-look-select", "aria-label": label, onchange: change });
  };
  panel.heads = select("Attention head", (value) => (panel.head = value));
  panel.layers = select("Attention layer", (value) => (panel.layer = value));
  panel.bar.append(panel.shadeButton, panel.layers, panel.heads);
}

/** Their choices for a run: ``attention`` is what it recorded, if anything. */
export function offerLooks(panel, attention) {
  for (const one of [panel.shadeButton, panel.layers, panel.heads]) one.hidden = !attention;
  if (!attention) return;
  const { layers, heads } = attention;
  if (!layers.includes(panel.layer)) panel.layer = layers[layers.length - 1];
  if (!(panel.head < heads)) panel.head = -1;
  const option = (value, label, chosen) => h("option", { value, selected: value === chosen }, label);
  panel.layers.hidden = layers.length < 2;
  panel.layers.replaceChildren(...layers.map((n) => option(n, `layer ${n}`, panel.layer)));
  panel.heads.replaceChildren(
    option(-1, `mean of ${heads} heads`, panel.head),
    ...Array.from({ length: heads }, (_, n) => option(n, `head ${n}`, panel.head)),
  );
}

/** The place in the prompt's own text that was looked at most, -1 if none is known. */
export function heaviest({ owner, shading, look }) {
  const { segment } = owner.model.trace.tokens;
  const most = shading && look.find(({ position }) => segment[position] && segment[position] !== "template");
  return most ? most.position : -1;
}

/** The heaviest places, to go to, under a title. */
export function lookedAt({ owner, head, layer, look }, words) {
  const { attention } = owner.model.run;
  const of = head < 0 ? "mean of its heads" : `head ${head}`;
  const title = h("h4", { tabindex: "0" }, words);
  owner.tip.add(title, () => [
    h("b", {}, attention.label),
    h("div", {}, `Layer ${layer} of the target, ${of}. Small weights are not recorded.`),
  ]);
  const box = h("div", { class: "sv-looked" }, title);
  if (!look.length) return append(box, [h("p", { class: "sv-faint" }, "No large weight was recorded.")]);
  const list = h("ul", {});
  for (const one of look.slice(0, PLACES)) {
    const go = h(
      "button",
      { type: "button", class: "sv-go", onclick: () => owner.reveal(one.position, true) },
      h("span", { class: "sv-place" }, owner.short(one.position)),
      " ",
      h("code", {}, label(owner, owner.model.id(one.position), 10)),
      " ",
      probability(one.weight),
    );
    go.addEventListener("pointerenter", () => owner.light([one.position]));
    go.addEventListener("pointerleave", () => owner.light([]));
    list.append(h("li", {}, go));
  }
  return append(box, [list]);
}
