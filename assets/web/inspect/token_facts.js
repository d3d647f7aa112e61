/* What is recorded of the token that is selected, and why it stood or fell. */

import { h } from "specviz/base/dom.js";
import { OPEN } from "specviz/base/model.js";
import { tokenFacts } from "specviz/inspect/keys.js";
import { goTo } from "specviz/inspect/looks.js";
import { why } from "specviz/inspect/selection.js";
import { ENDED, ended, explainNode, statusWords } from "specviz/inspect/tree_words.js";
import { Held } from "specviz/ui/element.js";
import { html } from "specviz/ui/html.js";

/** The selected token. @param {{ inspector: Inspector, view: StepView }} props */
export function TokenFacts({ inspector, view }) {
  const { model } = inspector;
  const { number } = view;
  const selected = inspector.selection.value;
  if (!selected) return null;
  const { node: index, position } = selected;
  const node = index === null ? null : view.nodes[index] ?? null;
  /** @param {number} id */
  const label = (id) => model.pieces.label(id, 20);
  const token = node ? node.token : index === null ? model.id(position) : view.bonus;
  const status = node ? node.status : index === null ? "prompt" : "bonus";
  const source = node ? node.source : position >= 0 ? model.sourceOf(position) : -1;
  const open = view.bonus === OPEN;
  const own = ended(view) ? ENDED : "After the accepted tokens the target wrote it itself.";
  const said = index === null || open ? "" : node ? why(view, node, label) : own;
  const stands = status === "prompt" ? "of the prompt" : open ? "not checked yet" : statusWords(view, node);
  const facts = index === null ? tokenFacts(inspector, position) : explainNode(inspector, view, node);
  const places = [];
  if (position >= 0) places.push(h("li", goTo(inspector, position, `in the text: ${inspector.where(position)}`)));
  if (source >= 0) places.push(h("li", goTo(inspector, source, `copied from ${inspector.where(source)}`)));
  const layers = inspector.layers.value;
  const known = layers && layers.step === number && layers.node === index ? layers.text : "";
  const lens = inspector.tabs.all.value.some((one) => one.name === "lens" && !one.off);
  return html`<div class="sv-token-tab">
    <p class="ui-row">
      <code class="sv-token sv-state-${status}">${token === undefined || token < 0 ? "stop" : label(token)}</code>
      <b class="sv-state-${status}">${stands}</b>
      <span class="sv-faint">${index === null ? "" : `step ${number + 1}${node ? `, depth ${node.depth}` : ""}`}</span>
    </p>
    ${said && html`<p class="sv-why">${said}</p>`}
    ${known && html`<p class="sv-why">${known}</p>`}
    ${places.length > 0 && html`<${Held} is="ul" class="sv-token-places ui-row" of=${places} />`}
    ${lens && node && node.index > 0 && !known && html`<p><button type="button" class="ui-link"
      onClick=${() => inspector.tabs.open("lens")}>At which layer was it decided? (Lens)</button></p>`}
    <${Held} class="sv-token-facts" of=${facts.map((one) => (one instanceof Node ? one : h("div", one)))} />
  </div>`;
}
