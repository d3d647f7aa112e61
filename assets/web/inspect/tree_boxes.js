/* The drawing of one item of a draft tree: outline by origin, text, probability, badges, its prompt tokens. */

import { later, s, write } from "specviz/base/dom.js";
import { set } from "specviz/base/drawing.js";
import { nth, plural } from "specviz/base/numbers.js";
import { hanging } from "specviz/inspect/prompt_marks.js";
import { discRoom, drafters, drawDisc, namesIn } from "specviz/inspect/proposers.js";

const BAN = 17; // pixels that the sign of a forbidden token takes in its box

/** @type {Record<NodeStatus | "bonus" | "chip", string>} */
export const STATUS = {
  root: "last written token",
  accepted: "accepted",
  rejected: "rejected",
  unreached: "never checked",
  bonus: "the target's own token",
  chip: "folded",
};

/** @type {(w: number, h: number, r: number) => string} */
const corner = (w, h, r) =>
  `M${r} 0H${w - r}Q${w} 0 ${w} ${r}V${h - r}Q${w} ${h} ${w - r} ${h}H${r}Q0 ${h} 0 ${h - r}V${r}Q0 0 ${r} 0Z`;

/** The outlines of boxes by origins' names for them. @type {Record<string, (w: number, h: number) => string>} */
const OUTLINES = {
  box: (w, h) => corner(w, h, h / 6),
  // of what springs from the place before it
  pointed: (w, h) => `M${h / 5} 0H${w - 5}Q${w} 0 ${w} 5V${h - 5}Q${w} ${h} ${w - 5} ${h}H${h / 5}L0 ${h / 2}Z`,
  // of what goes on from there
  notched: (w, h) => `M0 0H${w - 5}Q${w} 0 ${w} 5V${h - 5}Q${w} ${h} ${w - 5} ${h}H0L${h / 5} ${h / 2}Z`,
  spine: (w, h) => `M0 0H${w}V${h}H0ZM${h / 9} 0V${h}`,
  cut: (w, h) => `M7 0H${w - 7}L${w} 7V${h - 7}L${w - 7} ${h}H7L0 ${h - 7}V7Z`,
  // a dog's ear
  ear: (w, h) => `M0 0H${w - h / 4}L${w} ${h / 4}V${h}H0ZM${w - h / 4} 0V${h / 4}H${w}`,
  round: (w, h) => corner(w, h, h / 2.4),
};
/** @type {(origin: RunOrigin | null, width: number, height: number) => string} */
const outline = (origin, width, height) => (OUTLINES[origin?.outline ?? ""] ?? OUTLINES.box)(width, height);

/** Classes for a box's origin and its colour. @type {(origin: ReturnType<Model["origin"]>) => string} */
const classOf = (origin) => `sv-of-${origin.declared ? origin.name : "other"} sv-hue-${origin.hue}`;

/** Group → its box, for events. @type {WeakMap<Element, Box>} */
const boxes = new WeakMap();

/** The box in which an event happened. @type {(event: Event) => Box | null} */
export function boxOf(event) {
  const group = event.target instanceof Element ? event.target.closest(".sv-node") : null;
  return (group && boxes.get(group)) || null;
}

/** The drawing of one item; used again for another item of another step. */
export class Box {
  constructor() {
    this.shape = s("path.sv-box");
    this.label = s("text.sv-label", { x: 8 });
    this.small = s("text.sv-aside-label", { "aria-hidden": "true" }); // its name says more
    this.group = s("g", this.shape, this.label, this.small);
    boxes.set(this.group, this);
    /** What is drawn. @type {TreeItem} */
    this.item = later();
    /** The place it was copied from, or the anchor it was drafted in; else -1. @type {Position} */
    this.place = -1;
    this.anchored = false;
    /** @type {Map<string, SVGElement>} */
    this.parts = new Map();
  }

  /** A part that only some items have: made when first needed, taken out where it is not. @type {BoxPart} */
  part(name, wanted, make, before = null) {
    let part = this.parts.get(name);
    if (!wanted) {
      if (part && part.parentNode) part.remove();
      return null;
    }
    if (!part) this.parts.set(name, (part = make()));
    if (!part.parentNode) this.group.insertBefore(part, before);
    return part;
  }
}

/** How an item is drawn: a node by what became of it. @type {(item: TreeItem) => keyof typeof STATUS} */
export const statusOf = (item) =>
  item.kind === "node" ? item.node.status : item.kind === "stretch" ? item.nodes[0].status : item.kind;

/** Whether an item stands for several, and opens. @type {(item: TreeItem) => item is ChipItem | StretchItem} */
export const folds = (item) => item.kind === "chip" || item.kind === "stretch";

/** Draws an item in a box of the tree. @type {DrawItem} */
export function fill(tree, box, item, view) {
  const status = statusOf(item);
  const node = item.kind === "node" ? item.node : null;
  const first = item.kind === "stretch" ? item.nodes[0] : node;
  const { group } = box;
  const { model } = tree.owner;
  const origin = first && first.index ? model.origin(first.origin) : null; // the root has none
  const anchor = node && node.source < 0 ? model.anchorOf(node) : -1;
  box.item = item;
  box.anchored = anchor >= 0;
  box.place = anchor >= 0 ? anchor : first ? first.source : -1;
  const copied = `${box.place >= 0 ? " sv-copied" : ""}${first?.draft ? ` sv-draft-${first.draft}` : ""}${
    first?.forbidden ? " sv-forbidden" : ""}`;
  const names = first?.who ? drafters(model) : [];
  const middle = item.high / 2;
  set(group, {
    class: `sv-node sv-node-${status}${origin ? ` ${classOf(origin)}` : ""}${copied}${
      item.kind === "stretch" ? " sv-stretch" : ""
    }`,
    transform: `translate(${item.x} ${item.y})`,
  });
  const { high, width } = item;
  set(box.shape, { d: item.kind === "chip" ? corner(width, high, high / 2) : outline(origin, width, high) });
  set(box.label, { x: 8 + lead(tree, first, item.tag), y: middle });
  set(box.small, { x: width - 7, y: middle });
  write(box.label, item.text);
  write(box.small, item.line);
  const disc = box.part("disc", names.length > 0, () => s("g.sv-disc", { "aria-hidden": "true" }));
  if (disc && first) {
    set(disc, { transform: `translate(13 ${middle})` });
    drawDisc(disc, names.length, first.who, Math.min(6, middle - 3));
  }
  const ban = box.part("ban", !!first?.forbidden, () =>
    s("g.sv-ban", { "aria-hidden": "true" }, s("circle", { r: 6 }), s("path", { d: "M-4.2 4.2L4.2 -4.2" })));
  const after = 8 + discRoom(model, first);
  if (ban) set(ban, { transform: `translate(${after + 5} ${middle})` });
  drawTag(box, after + (first?.forbidden ? BAN : 0));
  hang(tree, box, item, view);
  if (folds(item)) {
    const opens =
      item.kind === "chip"
        ? `Show ${plural(item.count, "folded node")}`
        : `${item.nodes.length} tokens in a row, ${STATUS[status]}. Show them one by one`;
    return set(group, { tabindex: 0, role: "button", "aria-pressed": null, "aria-description": opens });
  }
  const from = node && node.index && node.origin !== "main" ? `, ${node.origin}` : "";
  const count = node && tree.owner.prompts.on ? tree.owner.prompts.count(node.index) : -1;
  const leads = count < 0 ? "" : `, ${plural(count, "prompt token")}: state ${count} next`;
  const what = node?.index ? "drafted token, " : "";
  const by = names.length && node ? `, by ${namesIn(names, node.who)}` : "";
  const banned = node?.forbidden ? ", forbidden" : "";
  const draft = node?.draft;
  const whose = draft === "other" ? ", only in this draft" : draft === "recorded" ? ", only in the recorded draft" : "";
  // its name is the token that stands on it
  set(group, { "aria-description": `${what}${STATUS[status]}${banned}${from}${by}${leads}${whose}` });
}

/** A node's prompt tokens and the state they lead to; filled where acceptance ended. @type {DrawItem} */
function hang(tree, box, item, view) {
  const wanted = item.kind === "node" && tree.owner.prompts.on;
  const hung = box.part("hung", wanted, hanging);
  if (!hung || item.kind !== "node") return;
  const { d, text, x, width } = tree.rail(item);
  const [marks, pill, state] = hung.children;
  set(hung, {
    class: `sv-hung${item.node.index === view.last ? " sv-hung-read" : ""}`,
    transform: `translate(0 ${item.high})`,
  });
  set(marks, { d });
  set(pill, { x, width: width - x });
  set(state, { x: (x + width) / 2 });
  write(state, text);
}

/** Every node is a button; one of them is chosen, and Tab leads to one. */
/** @type {(box: Box, chosen: boolean, first: boolean) => void} */
export const pick = ({ group }, chosen, first) =>
  set(group, { tabindex: first ? 0 : -1, role: "button", "aria-pressed": String(chosen) });

/** Origins whose tokens are a drafter's guesses, each with its rank among them. */
const GUESSED = new Set(["prompt", "head", "expansion"]);

/** The rank that was recorded of a token that is one of a drafter's guesses at its place: "2nd"; else "". */
/** @type {(model: Model, node: TreeNode, view: StepView) => string} */
export function choiceOf(model, node, { nodes }) {
  const among = () => nodes.some(({ parent, index }) => parent === node.parent && index !== node.index);
  if (!node.index || !(GUESSED.has(node.origin) || (node.origin === "drafter" && among()))) return "";
  const ranked = model.nodeTerms.find(({ key }) => key.endsWith("_rank"));
  const rank = ranked ? model.nodeTerm(node, ranked.key) : null;
  return rank !== null && Number.isInteger(rank) ? nth(rank + 1) : "";
}

/** The rank of a guess; else a letter, and its recorded rank, where a part begins that is not the main copy. */
/** @type {(tree: TreeView, node: TreeNode, view: StepView) => string} */
export function tagOf({ owner: { model } }, node, view) {
  const guess = choiceOf(model, node, view);
  if (guess) return guess;
  const above = view.nodes[node.parent];
  const begins = node.index && !(above && above.index && above.origin === node.origin);
  const letter = begins ? model.origin(node.origin).letter : "";
  if (!letter) return "";
  const ranked = model.nodeTerms.find(({ key }) => key.endsWith("_rank"));
  const rank = ranked ? model.nodeTerm(node, ranked.key) : null;
  return rank !== null && Number.isInteger(rank) ? `${letter}${rank + 1}` : letter;
}

/** The width of a tag. @param {string} text */
const tagWidth = (text) => (text.length > 2 ? 9 : 5) + 7 * text.length;

/** What stands before a node's text takes so much room: who proposed it, that it is forbidden, its letter. */
/** @type {(tree: TreeView, node: TreeNode | null, tag: string) => number} */
export const lead = ({ owner: { model } }, node, tag) =>
  discRoom(model, node) + (node?.forbidden ? BAN : 0) + (tag ? tagWidth(tag) + 4 : 0);

/** @type {(box: Box, x: number) => void} */
function drawTag(box, x) {
  const { tag: text, high } = box.item;
  const tag = box.part("letter", !!text, () =>
    s("g", { "aria-hidden": "true" }, s("rect.sv-tag", { rx: 3 }), s("text.sv-tag-text")));
  if (!tag) return;
  const [back, name] = tag.children;
  const tall = Math.min(14, high - 2);
  set(tag, { transform: `translate(${x} ${high / 2})` });
  set(back, { width: tagWidth(text), height: tall, y: -tall / 2 });
  set(name, { x: tagWidth(text) / 2 });
  write(name, text);
}

/** A small node as it looks in the tree, for the legend; ``ranked``: its guesses bear their ranks. */
/** @type {(origin: ReturnType<Model["origin"]>, ranked: boolean) => SVGElement} */
export function originSample(origin, ranked) {
  const word = ranked && origin.letter && GUESSED.has(origin.name) ? "2nd" : (origin.letter ?? "");
  const wide = word.length > 1 ? 36 : 24;
  const view = `-1 -1 ${wide + 2} 18`;
  const size = { class: "sv-mini", width: wide, height: 16, viewBox: view, "aria-hidden": "true" };
  const text = s("text.sv-mini-text", { x: wide / 2 + 1, y: 11.5 }, word);
  return s(
    "svg",
    size,
    s("g", { class: classOf(origin) }, s("path.sv-mini-box", { d: outline(origin, wide, 16) }), text),
  );
}
