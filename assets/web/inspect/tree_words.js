/* What a draft tree says of an item: its tooltip, and what was recorded of a node. */

import { facts, h } from "specviz/base/dom.js";
import { OPEN } from "specviz/base/model.js";
import { format, plain, plural, probability } from "specviz/base/numbers.js";
import { onlyRecorded } from "specviz/inspect/ghosts.js";
import { facts as proposerFacts, isOwn } from "specviz/inspect/proposers.js";
import { STATUS, statusOf } from "specviz/inspect/tree_boxes.js";

export const LABEL = 14; // characters
export const ENDED = "A stop token ended the run here; the target added no token of its own.";

/** Whether a stop token ended the run in this step, so that no token of the target's own followed. */
/** @param {Pick<StepView, "bonus">} view */
export const ended = ({ bonus }) => bonus < 0 && bonus !== OPEN;

/** A node's status in words (null: of what followed the accepted path). */
/** @type {(view: Pick<StepView, "bonus">, node: Pick<TreeNode, "status"> | null) => string} */
export function statusWords(view, node) {
  if (!node && ended(view)) return "the end of the run";
  const waits = view.bonus === OPEN && (!node || node.status === "unreached");
  return waits ? "not checked yet" : STATUS[node?.status ?? "bonus"];
}

/** Who forbids a drafted token; "" where nobody does. @type {(model: Model, node: TreeNode) => string} */
export function forbidder({ run }, node) {
  if (!node.forbidden) return "";
  const { names = [] } = run.processing ?? {};
  const name = /^forbidden by (.+)$/.exec(node.reason)?.[1] ?? (names.length === 1 ? names[0] : "");
  return name === "GrammarProcessor" ? "the grammar" : name.replace(/LogitsProcessor$/, "") || "a logits processor";
}

/** The marks of a tree, each as it stands on one of its items, and what it says. */
/** @type {(tree: TreeView, view: StepView) => [sign: string, said: string][]} */
export function marks({ owner, placed, other, barred }, view) {
  const nodes = placed.flatMap((item) => (item.kind === "node" ? [item] : []));
  const [ranked, parent] = [nodes.find(({ tag }) => /^\d/.test(tag)), nodes.find(({ hidden }) => hidden)];
  const own = placed.some(({ kind }) => kind === "bonus")
    ? (view.targets.get(view.last) ?? []).find(({ token }) => token === view.bonus) : undefined;
  const sure = nodes.find(({ node }) => node.index && node.prob !== null)?.node ?? own;
  const [chip, stretch] = ["chip", "stretch"].map((kind) => placed.find((item) => item.kind === kind));
  const names = [...new Set(view.nodes.slice(1).map(({ origin }) => origin))].map((name) => owner.model.origin(name));
  /** @type {[string, string][]} */
  const signs = ranked ? [[ranked.tag, "choice"]]
    : names.flatMap(({ letter, label }) => (letter ? [[letter, label ?? ""]] : []));
  const also = barred ? ", as a bar too" : "";
  if (sure && view.bonus !== OPEN) signs.push([probability(sure.prob), `target's probability${also}`]);
  const guess = nodes.find(({ line }) => line.startsWith("q"))?.node;
  if (guess) signs.push([`q${probability(guess.draftProb)}`, "drafter's probability"]);
  const too = parent?.node.draft === "recorded" && !onlyRecorded(view) ? ", too" : "";
  if (parent) signs.push([`▾${parent.hidden}`, `below it${too}`]);
  if (chip?.kind === "chip") signs.push([chip.text, "beside it"]);
  if (stretch?.kind === "stretch") signs.push([`⋯${stretch.nodes.length}`, "in a row"]);
  if (owner.prompts.on && !other) {
    const count = owner.prompts.count(view.last);
    signs.push(["◇", "prompt token"], [`→${count}`, "next state"]);
  }
  return signs;
}

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
  if (item.kind === "bonus" && ended(view)) return [ENDED];
  const node = item.kind === "node" ? item.node : null;
  const token = node ? node.token : view.bonus;
  return [h("code.sv-token", pieces.label(token)), ...explainNode(tree.owner, view, node)];
}

/** What was recorded of a node (null: of the target's own token), and what the target would have written there. */
/** @type {(owner: Inspector, view: StepView, node: TreeNode | null) => Child[]} */
export function explainNode(owner, view, node) {
  const { pieces } = owner.model;
  const asked = view.targets.get(node ? node.parent : view.last) ?? [];
  const own = asked.findIndex((one) => one.token === view.bonus);
  const token = node ? node.token : view.bonus;
  const [prob, rank] = node ? [node.prob, node.rank] : [asked[own]?.prob ?? null, own];
  /** @type {Fact[]} */
  const rows = [
    [
      "status",
      statusWords(view, node) +
        (node && node.index && node.reason && node.reason !== node.status ? ` (${node.reason})` : ""),
    ],
    ["forbidden by", node && forbidder(owner.model, node)],
    ["target", prob !== null && `${format(prob)}, its choice no. ${1 + rank}`],
    [
      node && node.origin === "prompt" ? "prompt token" : "drafter",
      node && node.draftProb !== null && format(node.draftProb),
    ],
    ["origin", node && node.index > 0 && owner.model.origin(node.origin).label],
    ["copied from", node && node.source >= 0 ? owner.where(node.source) : ""],
    ...(node ? [...proposerFacts(owner, node), ...numbers(owner, node)] : []),
    ["token", token >= 0 && `${token} · bytes ${pieces.bytes(token)}`],
  ];
  if (!asked.length) return [facts(rows)];
  return [facts(rows), h("div.sv-tip-head", "The target's first choices here"), bars(owner, asked, token)];
}

/** The method's own numbers of a node, then what no view knows. @type {(owner: Inspector, node: TreeNode) => Fact[]} */
function numbers(owner, node) {
  const { model } = owner;
  /** @type {Fact[]} */
  const rows = [];
  for (const { key, label } of model.nodeTerms) {
    const value = model.nodeTerm(node, key);
    if (value === null || isOwn(model, key) || key === "forbidden") continue;
    /** @type {Child} */
    let shown = format(value);
    if (key.endsWith("_anchor") && model.id(value) !== undefined)
      shown = [`${owner.where(value)}, `, h("code.sv-token", model.pieces.label(model.id(value), LABEL))];
    else if (key.endsWith("_rank")) shown = `no. ${value + 1}`;
    else if (key.endsWith("_logprob")) shown = `${format(value)} (p = ${probability(Math.exp(value))})`;
    rows.push([label || key, shown]);
  }
  for (const { label, value } of model.plainValues("nodes", node.row))
    if (value !== null) rows.push([label, plain(value)]);
  return rows;
}

/** @type {(owner: Inspector, choices: Choice[], token: number) => HTMLElement} */
function bars(owner, choices, token) {
  const { pieces } = owner.model;
  const list = h("div.sv-tip-bars");
  for (const one of choices.slice(0, 6)) {
    const level = h("i", { style: `width:${Math.round((one.prob ?? 0) * 100)}%` });
    const name = h("code", { class: one.token === token ? "sv-this" : "" }, pieces.label(one.token, LABEL));
    list.append(name, h("span.sv-level-bar", level), h("span", probability(one.prob)));
  }
  return list;
}
