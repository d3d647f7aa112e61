/* Helpers shared by every view: elements, tables, icons, the tooltip. Text only ever enters through text nodes. */

import { clamp } from "specviz/base/numbers.js";

const NAMESPACE = "http://www.w3.org/2000/svg";

/** The value, where there is one for certain; else an Error that says ``what`` is missing. */
/** @type {<T>(value: T, what?: string) => NonNullable<T>} */
export function must(value, what = "a part of the page") {
  if (value === null || value === undefined) throw new Error(`There is no ${what}.`);
  return value;
}

/** Nothing, for a field that is set before it is first read. @type {<T>() => T} */
export const later = () => /** @type {any} */ (undefined);

// what is set as a property, once the element has its children: a select's value, a slider's within its range
const PROPERTIES = ["value", "checked"];

/** Attributes, where the first of ``rest`` are some, and children. */
/** @type {<Target extends Element>(element: Target, classes: string[], rest: (object | Child)[]) => Target} */
function fill(element, classes, [first, ...rest]) {
  const bare = first === null || typeof first !== "object" || first instanceof Node || Array.isArray(first);
  const given = /** @type {{ [name: string]: unknown }} */ (bare ? {} : first);
  const attributes = Object.entries(given).filter(([, value]) => value !== null && value !== undefined);
  const properties = attributes.filter(([name]) => PROPERTIES.includes(name));
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of attributes) {
    if (value === false || PROPERTIES.includes(name)) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else if (name === "class") element.setAttribute(name, [...classes, value].join(" "));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, /** @type {Child[]} */ (bare ? [first, ...rest] : rest));
  for (const [name, value] of properties) Reflect.set(element, name, value);
  return element;
}

/** Appends nodes, texts and lists of them; null, undefined and false are left out. */
/** @type {<Target extends Element>(element: Target, children: Child[]) => Target} */
export function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false)
      element.append(typeof child === "number" ? String(child) : child);
  }
  return element;
}

/** Puts children in the place of what an element holds; a field that is drawn anew keeps the focus by its id. */
/** @type {<Target extends Element>(element: Target, children: Child[]) => Target} */
export function replace(element, children) {
  const held = document.activeElement;
  const id = held !== element && element.contains(held) ? held?.id : "";
  element.replaceChildren();
  append(element, children);
  if (id) document.getElementById(id)?.focus({ preventScroll: true });
  return element;
}

/**
 * An HTML element: h("button.sv-button", { onclick: fn }, "text", child). Classes stand behind the tag's name (those of
 * the attribute ``class`` join them); the attributes may be left out. A button submits nothing unless its type says so.
 *
 * @template {TagName} Name
 * @param {Name} name
 * @param {Attributes<ElementOf<Name>> | Child} [first]
 * @param {Child[]} children
 * @returns {ElementOf<Name>}
 */
export function h(name, first, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = /** @type {ElementOf<Name>} */ (document.createElement(tag));
  if (element instanceof HTMLButtonElement) element.type = "button";
  return fill(element, classes, [first, ...children]);
}

/**
 * An SVG element, made the same way.
 *
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag | `${Tag}.${string}`} name
 * @param {Attributes<SVGElementTagNameMap[Tag]> | Child} [first]
 * @param {Child[]} children
 */
export function s(name, first, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = /** @type {SVGElementTagNameMap[Tag]} */ (document.createElementNS(NAMESPACE, tag));
  return fill(element, classes, [first, ...children]);
}

/** Marks along a line of ``length``, stretched to the width of their place. */
/** @type {(name: string, length: number, high: number, marks: SVGElement[]) => SVGElement} */
export function stretched(name, length, high, marks) {
  const box = { viewBox: `0 0 ${Math.max(1, length)} ${high}`, preserveAspectRatio: "none" };
  return s("svg", { class: name, "aria-hidden": "true", ...box }, marks);
}

// a ``kind`` is asked for where more than an HTMLElement's properties are needed
/** The element that a selector names; there is always one. */
/** @type {<T extends Element = HTMLElement>(root: ParentNode, selector: string, kind?: new () => T) => T} */
export function find(root, selector, kind) {
  const element = root.querySelector(selector);
  if (!(element instanceof (kind ?? HTMLElement))) throw new Error(`The page has no ${selector}.`);
  return /** @type {any} */ (element);
}

/** The element of a part that is to be filled. @param {HTMLElement} element @param {string} name */
export const place = (element, name) => find(element, `.svp-${name}`);

/** The nearest element around what an event happened in that matches a selector. */
/** @type {(event: Event, selector: string) => HTMLElement | null} */
export const closest = (event, selector) => event.target instanceof Element ? event.target.closest(selector) : null;

const ICONS = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M4 2.5h3v11H4zM9 2.5h3v11H9z",
  previous: "M10.5 3 5.5 8l5 5",
  next: "M5.5 3l5 5-5 5",
  link: "M6.5 9.5a3 3 0 0 0 4.2 0l2-2a3 3 0 0 0-4.2-4.2l-.8.8M9.5 6.5a3 3 0 0 0-4.2 0l-2 2a3 3 0 0 0 4.2 4.2l.8-.8",
  close: "M4 4l8 8M12 4l-8 8",
  present: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
};

/** @type {(name: keyof typeof ICONS) => SVGSVGElement} */
export function icon(name) {
  const solid = name === "play" || name === "pause";
  const path = s("path", {
    d: ICONS[name],
    fill: solid ? "currentColor" : "none",
    stroke: solid ? "none" : "currentColor",
    "stroke-width": 1.6,
    "stroke-linecap": "round",
    "stroke-linejoin": "round",
  });
  return s("svg.sv-icon", { width: 14, height: 14, viewBox: "0 0 16 16", "aria-hidden": "true" }, path);
}

/** @type {(label: string, attributes?: Attributes<HTMLButtonElement>, ...children: Child[]) => HTMLButtonElement} */
export function button(label, attributes, ...children) {
  return h("button.sv-button", { "aria-label": label, ...attributes }, ...children);
}

/** @type {(keyof Colors)[]} */
const COLORS = [
  "accepted", "rejected", "own", "ghost", "line", "faint", "card", "source", "heat", "pin", "ink", "raised",
  "unreached",
];

/** The theme's colours and fonts, for what is drawn on a canvas. @param {Element} root */
export function readColors(root) {
  const probe = h("i");
  probe.style.setProperty("forced-color-adjust", "none"); // what is drawn keeps its colours
  root.append(probe);
  const style = getComputedStyle(probe);
  const colors = COLORS.map((name) => {
    probe.style.color = `var(--sv-${name})`; // a colour as it is drawn: the property itself may name two
    return [name, style.color];
  });
  const fonts = ["sans", "mono"].map((name) => [name, style.getPropertyValue(`--sv-${name}`).trim()]);
  probe.remove();
  return /** @type {Colors} */ (Object.fromEntries([...colors, ...fonts]));
}

/** Runs fn at most once per frame. @type {(fn: () => void) => () => void} */
export function framed(fn) {
  let waiting = 0;
  return () => {
    if (waiting) return;
    waiting = requestAnimationFrame(() => {
      waiting = 0;
      fn();
    });
  };
}

/** Runs fn once it was not asked for during so many ms. @type {(fn: () => unknown, ms: number) => () => void} */
export function rested(fn, ms) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(fn, ms);
  };
}

/** Where the pointer last was: what comes to lie below one that did not move is not asked about. */
const pointer = { x: -1, y: -1 };
/** @param {PointerEvent} event */
const rests = (event) => event.clientX === pointer.x && event.clientY === pointer.y;
/** @param {Event} event */
const follow = (event) => {
  if (event instanceof PointerEvent) [pointer.x, pointer.y] = [event.clientX, event.clientY];
};
for (const name of ["pointermove", "pointerdown"]) // before there is a tooltip, too: it may come below the pointer
  globalThis.addEventListener?.(name, follow, { capture: true, passive: true });

/** One tooltip per inspector: .add(element, fill) shows fill()'s nodes on hover and on keyboard focus. */
export class Tooltip {
  /** It stands in ``root``, and explains what is in ``around``. */
  /** @param {HTMLElement} root @param {HTMLElement} [around] */
  constructor(root, around = root) {
    this.root = root;
    /** @type {WeakMap<Element, Tip>} */
    this.fills = new WeakMap();
    this.timer = 0;
    this.element = h("div.sv-tip", { role: "tooltip", hidden: true });
    root.append(this.element);
    /** @type {Element | null} */
    let pressed = null;
    /** @type {(event: PointerEvent | FocusEvent) => void} */
    const over = (event) => {
      if (event instanceof PointerEvent && rests(event)) return this.hide();
      // token panes and the timeline show the tooltip themselves: they have no element per thing explained
      if (closest(event, ".sv-tokens, .sv-timeline")) return;
      const owner = closest(event, "[data-tip]");
      if (owner !== pressed) pressed = null;
      const fill = owner && !pressed && this.fills.get(owner);
      if (fill) this.show(owner, fill());
      else if (event.type === "pointerover") this.hide();
    };
    around.addEventListener("pointerover", over);
    around.addEventListener("focusin", over);
    around.addEventListener("focusout", () => this.hide());
    around.addEventListener("pointerleave", () => this.hide());
    around.addEventListener("pointerdown", (event) => {
      pressed = closest(event, "button[data-tip]"); // it acts: what it does is to be seen
      this.hide();
    });
    addEventListener("resize", () => this.hide()); // it would stand where the window was, and widen the page
  }

  /** @type {<Target extends Element>(element: Target, fill: Tip | Child) => Target} */
  add(element, fill) {
    element.setAttribute("data-tip", "");
    this.fills.set(element, typeof fill === "function" ? fill : () => [fill]);
    return element;
  }

  /** An element that explains itself, also to the keyboard: .explained("span.sv-chip", "why", "what it says"). */
  /** @type {<Name extends TagName>(name: Name, fill: Tip | Child, ...children: Child[]) => ElementOf<Name>} */
  explained(name, fill, ...children) {
    return this.add(h(name, { tabindex: "0" }, ...children), fill);
  }

  /** @type {(owner: { getBoundingClientRect(): Box }, content: Child[]) => void} */
  show(owner, content) {
    if (!content || !content.length) return this.hide();
    replace(this.element, content);
    this.element.hidden = false;
    const frame = this.root.getBoundingClientRect();
    const box = owner.getBoundingClientRect();
    const around = owner instanceof Element ? owner.closest(".sv-sentence") : null; // stays in sight, all of it
    const { top: above, bottom } = (around ?? owner).getBoundingClientRect();
    const size = this.element.getBoundingClientRect();
    const below = bottom + 8 + size.height < window.innerHeight || above - 8 - size.height < 0;
    const top = below ? bottom + 8 : above - 8 - size.height;
    const most = Math.max(4, Math.min(frame.width, window.innerWidth - frame.left) - size.width - 4);
    const left = clamp(box.left + Math.min(box.width, 80) / 2 - size.width / 2 - frame.left, 4, most);
    this.element.style.transform = `translate(${Math.round(left)}px, ${Math.round(top - frame.top)}px)`;
  }

  /** Shows after a moment's rest, so that the marks of what is hovered are seen first. */
  /** @type {(owner: Element, fill: Tip) => void} */
  later(owner, fill) {
    this.hide();
    this.timer = setTimeout(() => this.show(owner, fill()), 250);
  }

  hide() {
    clearTimeout(this.timer);
    this.element.hidden = true;
  }
}

/** Label–value lines for a tooltip. @param {Fact[]} rows */
export function facts(rows) {
  const list = h("dl.sv-facts");
  for (const [label, value] of rows) {
    if (value === null || value === undefined || value === "" || value === false) continue;
    list.append(h("dt", label), append(h("dd"), [value]));
  }
  return list;
}

/** A tooltip: its title, then a line each; a text that is empty is left out. @type {(...lines: Child[]) => Child[]} */
export const told = (title, ...lines) => [
  h("b", title),
  ...lines.map((line) => (typeof line === "string" && line ? h("div", line) : line)),
];

/** A formula with its numbers. @param {string} text */
export const formula = (text) => h("div.sv-formula", text);

/** How far a bar is filled. @type {(share: number, name?: string) => HTMLElement} */
export const level = (share, name) => h("i", { class: name, style: `width:${(100 * share).toFixed(1)}%` });

/** A large number below its name. @type {(name: string, value: string, title: string) => HTMLElement} */
export const fact = (name, value, title) => h("div", { title }, h("dt", name), h("dd", value));

/** A titled panel. @param {string} name @param {string} title @param {Child[]} tools */
export function card(name, title, ...tools) {
  const note = h("span.sv-note.ui-soft.ui-clip");
  const heading = h("h3.sv-heading", title);
  const bar = h("header.sv-bar", heading, note, h("span.sv-grow"), ...tools);
  const body = h("div.sv-body", { tabindex: "0", role: "group", "aria-label": title });
  const element = h("section", { class: `sv-card sv-${name}`, "aria-label": title }, bar, body);
  return { element, body, note, bar, heading };
}

/** Copies a link, and returns whether it did; where that is not allowed, shows it. ``label`` says so for a moment. */
/** @type {(url: string, label?: Element) => Promise<boolean>} */
export async function copyLink(url, label) {
  const copied = await navigator.clipboard.writeText(url).then(() => true, () => false);
  if (!copied) window.prompt("Copy this:", url);
  if (!label) return copied;
  if (copied) label.textContent = "Copied";
  setTimeout(() => (label.textContent = "Copy link"), 1500);
  return copied;
}

/** @type {WeakMap<Element, string>} */
const texts = new WeakMap();

/** Writes text only where it changed since the last time: a new text node costs a layout. */
/** @type {(element: Element, text: string) => void} */
export function write(element, text) {
  if (texts.get(element) === text) return;
  texts.set(element, text);
  element.textContent = text;
}

/** A sentence whose commands stand between backticks, as nodes. @type {(text: string) => Child[]} */
export const coded = (text) => text.split("`").map((piece, k) => (k % 2 ? h("code", piece) : piece));

/** Heads of columns: texts first, then numbers. @type {(texts: Child[], numbers?: Child[]) => Child[]} */
export const heads = (texts, numbers = []) => [
  texts.map((text) => (text ? h("th", { scope: "col" }, text) : h("td"))),
  numbers.map((text) => h("th.svp-num", { scope: "col" }, text)),
];

/** What a table holds: its row of heads, and its rows. @type {(head: Child[], rows: Child) => Child[]} */
export const tabled = (head, rows) => [h("thead", h("tr", head)), h("tbody", rows)];

/** A grid: its row of heads, its rows, and what else it holds. */
/** @type {(attributes: Attributes, head: Child[], rows: Child, ...more: Child[]) => HTMLTableElement} */
export const table = (attributes, head, rows, ...more) => h("table.svp-grid", attributes, tabled(head, rows), more);

/** What is asked, in words. @type {(title: string, question: string, above?: Child, below?: Child) => HTMLElement} */
export const titled = (title, question, above, below) =>
  h("header.svp-asked", above, h("h2", title), h("p.svp-question", question), below);

/** What may be wider than the page: it scrolls by itself, with the keyboard, too. */
/** @type {(name: string, ...inside: Child[]) => HTMLElement} */
export const scrolled = (name, ...inside) =>
  h("div.svl-scroll", { tabindex: 0, role: "group", "aria-label": name }, inside);

/** A bar of a range: what is certain, and up to where it may go. */
/** @type {(look: string, both: [number, number], most: number) => HTMLElement} */
export function rangeBar(look, [low, high], most) {
  const part = (/** @type {number} */ share) => `width:${((100 * share) / most).toFixed(2)}%`;
  return h(`span.${look}`, { "aria-hidden": "true" }, h("i", { style: part(low) }),
    h("i.sv-open-part", { style: part(high - low) }));
}
