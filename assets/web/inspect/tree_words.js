/* What a draft tree says of an item: its tooltip, and what the target would have written after the accepted path. */

import { facts, h } from "specviz/base/dom.js";
import { OPEN } from "specviz/base/model.js";
import { format, plain, plural, probability } from "specviz/base/numbers.js";
import { STATUS, statusOf } from "specviz/inspect/tree_boxes.js";

export const LABEL = 14; // characters

/** An item's tooltip. @type {(tree: TreeView, item: TreeItem, view: StepView) => Child[]} */
export function explain(tree, item, view) {
  const { model } = tree.owner;
  const { pieces } = model;
  if (item.kind === "chip") return [`Show ${plural(item.count, "folded node")} (${item.what})`];
  const status = statusOf(item);
  if (item.kind === "stretch") {
    const { nodes } = item;
    const from = nodes[0].source >= 0 ? `, copied from ${tree.owner.where(nodes[0].source)}` : "";
    return [
      h("code.sv-token", pieces.phrase(nodes.map((node) => node.token))),
      h("div", `${plural(nodes.length, "token")} in a row: ${STATUS[status]}${from}. Click to see them one by one.`),
    ];
  }
  const node = item.kind === "node" ? item.node : null;
  const { rank } = item.kind === "node" ? item.node : item;
  const token = node ? node.token : view.bonus;
  if (token < 0) return ["A stop token ended the run here."];
  /** @type {Fact[]} */
  const rows = [
    [
      "status",
      view.bonus === OPEN && status === "unreached"
        ? "not checked yet"
        : STATUS[status] + (node && node.index && node.reason && node.reason !== status ? ` (${node.reason})` : ""),
    ],
    ["target", item.prob !== null && `${format(item.prob)}, its choice no. ${1 + rank}`],
    [
      node && node.origin === "prompt" ? "prompt token" : "drafter",
      node && node.draftProb !== null && format(node.draftProb),
    ],
    ["origin", node && node.index > 0 && node.origin],
    ["copied from", node && node.source >= 0 ? tree.owner.where(node.source) : ""],
    ...(node ? numbers(tree, node) : []),
    ["token", `${token} · bytes ${pieces.bytes(token)}`],
  ];
  /** @type {Child[]} */
  const parts = [h("code.sv-token", pieces.label(token)), facts(rows)];
  const asked = node ? view.targets.get(node.parent) : view.targets.get(view.last);
  if (asked && asked.length)
    parts.push(h("div.sv-tip-head", "The target's first choices here"), bars(tree, asked, token));
  return parts;
}

/** The method's own numbers of a node, then what no view knows. @type {(tree: TreeView, node: TreeNode) => Fact[]} */
function numbers(tree, node) {
  const { model } = tree.owner;
  /** @type {Fact[]} */
  const rows = [];
  for (const { key, label } of model.nodeTerms) {
    const value = model.nodeTerm(node, key);
    if (value === null) continue;
    /** @type {Child} */
    let shown = format(value);
    if (key.endsWith("_anchor") && model.id(value) !== undefined)
      shown = [`${tree.owner.where(value)}, `, h("code.sv-token", model.pieces.label(model.id(value), LABEL))];
    else if (key.endsWith("_rank")) shown = `no. ${value + 1}`;
    else if (key.endsWith("_logprob")) shown = `${format(value)} (p = ${probability(Math.exp(value))})`;
    rows.push([label || key, shown]);
  }
  for (const { label, value } of model.plainValues("nodes", node.row))
    if (value !== null) rows.push([label, plain(value)]);
  return rows;
}

/** @type {(tree: TreeView, choices: Choice[], token: number) => HTMLElement} */
function bars(tree, choices, token) {
  const { pieces } = tree.owner.model;
  const list = h("div.sv-tip-bars");
  for (const one of choices.slice(0, 6)) {
    const level = h("i", { style: `width:${Math.round(one.prob * 100)}%` });
    const name = h("code", { class: one.token === token ? "sv-this" : "" }, pieces.label(one.token, LABEL));
    list.append(name, h("span.sv-level-bar", level), h("span", probability(one.prob)));
  }
  return list;
}

/** What the target prefers after the path; drafted ones are struck. @type {(tree: TreeView, view: StepView) => void} */
export function drawChoices(tree, view) {
  const choices = view.targets.get(view.last) || [];
  tree.choices.hidden = !choices.length;
  if (!choices.length) return;
  const { pieces } = tree.owner.model;
  const after = view.last ? view.nodes[view.last].token : view.root;
  const refused = new Set(view.refused.map((node) => node.token));
  const parts = [
    h("span.sv-choices-head", "After ", h("code.sv-token", pieces.label(after, LABEL)), " the target prefers"),
  ];
  choices.slice(0, 5).forEach((one) => {
    const status = one.token === view.bonus ? "sv-choice-own" : refused.has(one.token) ? "sv-choice-refused" : "";
    parts.push(
      h(
        "span",
        { class: `sv-choice ${status}` },
        h("code", pieces.label(one.token, LABEL)),
        ` ${probability(one.prob)}`,
      ),
    );
  });
  tree.choices.replaceChildren(...parts);
}
