/* The drawing of one item of a draft tree: outline by origin, text, probability, badges, its prompt tokens. */

import { plural, s } from "specviz/base/dom.js";
import { NODE } from "specviz/inspect/tree_layout.js";

export const STATUS = {
  root: "last written token",
  accepted: "accepted",
  rejected: "rejected",
  unreached: "never checked",
  bonus: "the target's own token",
};

const corner = (w, h, r) =>
  `M${r} 0H${w - r}Q${w} 0 ${w} ${r}V${h - r}Q${w} ${h} ${w - r} ${h}H${r}Q0 ${h} 0 ${h - r}V${r}Q0 0 ${r} 0Z`;

// how a node's box tells where its token came from: [letter, outline]
const ORIGINS = {
  main: ["", (w, h) => corner(w, h, h / 6)],
  // a pointed left side: it springs from the place before it
  branch: ["B", (w, h) => `M${h / 5} 0H${w - 5}Q${w} 0 ${w} 5V${h - 5}Q${w} ${h} ${w - 5} ${h}H${h / 5}L0 ${h / 2}Z`],
  // a notched one: it goes on from a branch
  successor: ["S", (w, h) => `M0 0H${w - 5}Q${w} 0 ${w} 5V${h - 5}Q${w} ${h} ${w - 5} ${h}H0L${h / 5} ${h / 2}Z`],
  // a book's spine
  datastore: ["D", (w, h) => `M0 0H${w}V${h}H0ZM${h / 9} 0V${h}`],
  // cut corners
  expansion: ["E", (w, h) => `M7 0H${w - 7}L${w} 7V${h - 7}L${w - 7} ${h}H7L0 ${h - 7}V7Z`],
  // a dog's ear
  prompt: ["P", (w, h) => `M0 0H${w - h / 4}L${w} ${h / 4}V${h}H0ZM${w - h / 4} 0V${h / 4}H${w}`],
  drafter: ["", (w, h) => corner(w, h, h / 2.4)],
};
const letterOf = (origin) => (ORIGINS[origin] ? ORIGINS[origin][0] : origin.charAt(0).toUpperCase());

/** A node's outline, by its origin. */
const outline = (origin, width, height) => (ORIGINS[origin] || ORIGINS.main)[1](width, height);

/** Sets what differs from the last time: an attribute costs a style pass, a string comparison does not. */
export function set(element, name, value) {
  const had = element.svSet || (element.svSet = {});
  if (had[name] === value) return;
  had[name] = value;
  if (value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

export function write(element, text) {
  if (element.svText === text) return;
  element.svText = text;
  element.textContent = text;
}

/** The drawing of one item; used again for another item of another step. */
export class Box {
  constructor() {
    this.shape = s("path", { class: "sv-box" });
    this.label = s("text", { class: "sv-label", y: 17 });
    this.small = s("text", { class: "sv-small", y: 30 });
    this.group = s("g", {}, this.shape, this.label, this.small);
    this.group.svBox = this;
  }

  /** A part that only some items have: made when first needed, taken out where it is not. */
  part(name, wanted, make, before = null) {
    if (!wanted) {
      if (this[name] && this[name].parentNode) this[name].remove();
      return null;
    }
    if (!this[name]) this[name] = make();
    if (!this[name].parentNode) this.group.insertBefore(this[name], before);
    return this[name];
  }
}

/** How an item is drawn: a node by what became of it. */
export const statusOf = (item) => (item.kind === "node" ? item.node.status : item.kind);

/** Draws an item in a box of ``tree``, a TreeView. */
export function fill(tree, box, item, view) {
  const status = statusOf(item);
  const node = item.kind === "node" ? item.node : null;
  const { group } = box;
  const { model } = tree.owner;
  const origin = node && node.index ? node.origin : "main";
  const anchor = node && node.source < 0 ? model.anchorOf(node) : -1;
  box.item = item;
  box.anchored = anchor >= 0;
  box.place = anchor >= 0 ? anchor : node ? node.source : -1;
  const copied = box.place >= 0 ? " sv-copied" : "";
  set(
    group,
    "class",
    `sv-node sv-node-${status} sv-of-${ORIGINS[origin] ? origin : "other"}${copied}${item.small ? " sv-leaf" : ""}`,
  );
  set(group, "transform", `translate(${item.x} ${item.y})`);
  set(
    box.shape,
    "d",
    item.kind === "chip" ? corner(item.width, NODE, NODE / 2) : outline(origin, item.width, item.high),
  );
  const doubled = () => s("path", { class: "sv-box sv-inner", transform: "translate(2.5 2.5)" });
  const inner = box.part("inner", status === "bonus", doubled, box.label);
  if (inner) set(inner, "d", corner(item.width - 5, NODE - 5, 4));
  set(box.label, "x", item.small ? item.textMiddle : item.middle);
  set(box.label, "y", item.small ? 16 : 17);
  set(box.small, "x", item.small ? item.width - item.sideMiddle : item.middle);
  set(box.small, "y", item.small ? 15.5 : 30);
  write(box.label, item.text);
  write(box.small, item.line);
  const bar = () => s("rect", { class: "sv-level", y: 33.5, height: 2 });
  const level = box.part("level", item.prob && node && node.index && !item.small, bar);
  if (level) {
    set(level, "x", 8);
    set(level, "width", Math.max(1, (item.width - 14) * item.prob));
  }
  drawBadge(tree, box, node);
  drawTag(tree, box, item, node);
  hang(tree, box, item, view);
  if (item.kind === "chip") {
    set(group, "tabindex", 0);
    set(group, "role", "button");
    set(group, "aria-pressed", null);
    set(group, "aria-label", `Show ${plural(item.count, "folded node")}`);
    return;
  }
  const token = item.kind === "bonus" ? view.bonus : node.token;
  const from = node && node.index && node.origin !== "main" ? `, ${node.origin}` : "";
  const count = node && tree.owner.prompts.on ? tree.owner.prompts.count(node.index) : -1;
  const leads = count < 0 ? "" : `, ${plural(count, "prompt token")}: state ${count} next`;
  pick(tree, box);
  set(group, "aria-label", `${token < 0 ? "stop" : model.pieces.label(token)}: ${STATUS[status]}${from}${leads}`);
}

/** The prompt tokens below a node, and the state they lead to; filled where acceptance ended. */
function hang(tree, box, item, view) {
  const wanted = item.kind === "node" && tree.owner.prompts.on;
  const hung = box.part("hung", wanted, () =>
    s(
      "g",
      {},
      s("path", { class: "sv-hung-marks" }),
      s("rect", { class: "sv-hung-pill", y: 1, height: 12, rx: 6 }),
      s("text", { class: "sv-hung-state", y: 10.4 }),
    ),
  );
  if (!hung) return;
  const { d, text, x, width } = tree.rail(item);
  const [marks, pill, state] = hung.children;
  set(hung, "class", `sv-hung${item.node.index === view.last ? " sv-hung-read" : ""}`);
  set(hung, "transform", `translate(0 ${NODE})`);
  set(marks, "d", d);
  set(pill, "x", x);
  set(pill, "width", width - x);
  set(state, "x", (x + width) / 2);
  write(state, text);
}

/** A node that a panel can show is a button; the shown one is reached by Tab, the others from there. */
export function pick(tree, { group, item }) {
  const { picker } = tree.owner;
  const open = !!picker.choice(item);
  const chosen = open && picker.isChosen(item);
  set(group, "tabindex", open ? (chosen ? 0 : -1) : null);
  set(group, "role", open ? "button" : "img");
  set(group, "aria-pressed", open ? String(chosen) : null);
}

/** The number of the source span a copied token came from; only where a span begins. */
function drawBadge(tree, box, node) {
  const above = node && tree.view.nodes[node.parent];
  const wanted = node && node.span && !(above && above.span === node.span);
  const badge = box.part("number", wanted, () =>
    s(
      "g",
      {},
      s("circle", { class: "sv-badge", cx: 3, cy: 3, r: 7 }),
      s("text", { class: "sv-badge-text", x: 3, y: 6 }),
    ),
  );
  if (badge) write(badge.lastChild, String(node.span));
}

/** A letter where a part of the tree begins that is not the main copy, and its rank where one was recorded. */
function drawTag(tree, box, item, node) {
  const above = node && tree.view.nodes[node.parent];
  const guess = node && node.origin === "prompt"; // each is a guess of its own
  const begins = node && node.index && (guess || !(above && above.index && above.origin === node.origin));
  const letter = begins ? letterOf(node.origin) : "";
  const tag = box.part("letter", letter, () =>
    s("g", {}, s("rect", { class: "sv-tag", y: -5, height: 13, rx: 3 }), s("text", { class: "sv-tag-text", y: 5 })),
  );
  if (!tag) return;
  const ranked = tree.owner.model.nodeTerms.find(({ key }) => key.endsWith("_rank"));
  const rank = ranked ? tree.owner.model.nodeTerm(node, ranked.key) : null;
  const text = Number.isInteger(rank) ? `${letter}${rank + 1}` : letter;
  const width = 7 + 6 * text.length;
  const shift = item.small ? `${item.width - 8} 8.5` : `${item.width - width + 4} 0`;
  set(tag, "transform", `translate(${shift})`);
  set(tag.firstChild, "width", width);
  set(tag.lastChild, "x", width / 2);
  write(tag.lastChild, text);
}

/** A small node as it looks in the tree, for the legend. */
export function originSample(origin) {
  const letter = letterOf(origin);
  const size = { class: "sv-mini", width: 24, height: 16, viewBox: "-1 -1 26 18", "aria-hidden": "true" };
  const text = s("text", { class: "sv-mini-text", x: 13, y: 11.5 });
  text.append(letter);
  const known = ORIGINS[origin] ? origin : "other";
  return s(
    "svg",
    size,
    s("g", { class: `sv-of-${known}` }, s("path", { class: "sv-mini-box", d: outline(origin, 24, 16) }), text),
  );
}
