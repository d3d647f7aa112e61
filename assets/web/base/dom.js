/* Helpers shared by every view: elements, icons, numbers, the tooltip. Text only ever enters through text nodes. */

const NAMESPACE = "http://www.w3.org/2000/svg";

function assign(element, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** An HTML element: h("button", {class: "sv-button", onclick: fn}, "text", child). */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  assign(element, attributes);
  return append(element, children);
}

/** An SVG element, made the same way. */
export function s(tag, attributes, ...children) {
  const element = document.createElementNS(NAMESPACE, tag);
  assign(element, attributes);
  return append(element, children);
}

const ICONS = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M4 2.5h3v11H4zM9 2.5h3v11H9z",
  previous: "M10.5 3 5.5 8l5 5",
  next: "M5.5 3l5 5-5 5",
  link: "M6.5 9.5a3 3 0 0 0 4.2 0l2-2a3 3 0 0 0-4.2-4.2l-.8.8M9.5 6.5a3 3 0 0 0-4.2 0l-2 2a3 3 0 0 0 4.2 4.2l.8-.8",
  download: "M8 2v8M4.5 7 8 10.5 11.5 7M3 13.5h10",
  close: "M4 4l8 8M12 4l-8 8",
};

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
  return s("svg", { class: "sv-icon", width: 14, height: 14, viewBox: "0 0 16 16", "aria-hidden": "true" }, path);
}

export function button(label, attributes, ...children) {
  return h("button", { type: "button", class: "sv-button", "aria-label": label, ...attributes }, ...children);
}

export const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

export const plural = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many || one + "s"}`;

/** A number as people read it: 1,234 · 12.3 · 0.123 · 1.2e-5; "–" for what was not measured. */
export function format(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size > 0 && size < 0.001) return value.toExponential(1);
  const text = value.toPrecision(digits);
  return text.includes("e") ? String(Number(text)) : text;
}

/** A probability in a narrow place: 1.0, .93, .004, <.001. */
export function probability(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 0.995) return "1.0";
  if (value > 0 && value < 0.001) return "<.001";
  return value.toFixed(value < 0.01 ? 3 : 2).replace(/^0/, "");
}

const COLORS = ["accepted", "rejected", "own", "ghost", "line", "faint", "card", "source", "heat", "pin"];

/** The theme's colours and fonts, for what is drawn on a canvas. */
export function readColors(root) {
  const style = getComputedStyle(root);
  const names = [...COLORS, "sans", "mono"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--sv-${name}`).trim()]));
}

/** Runs fn at most once per frame. */
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

/** One tooltip per inspector: .add(element, fill) shows fill()'s nodes on hover and on keyboard focus. */
export class Tooltip {
  constructor(root) {
    this.root = root;
    this.fills = new WeakMap();
    this.element = h("div", { class: "sv-tip", role: "tooltip", hidden: true });
    root.append(this.element);
    const over = (event) => {
      // token panes and the timeline show the tooltip themselves: they have no element per thing explained
      if (event.target.closest && event.target.closest(".sv-tokens, .sv-timeline")) return;
      const owner = event.target.closest && event.target.closest("[data-tip]");
      if (owner && this.fills.has(owner)) this.show(owner, this.fills.get(owner)());
      else if (event.type === "pointerover") this.hide();
    };
    root.addEventListener("pointerover", over);
    root.addEventListener("focusin", over);
    root.addEventListener("focusout", () => this.hide());
    root.addEventListener("pointerleave", () => this.hide());
    root.addEventListener("pointerdown", () => this.hide());
  }

  add(element, fill) {
    element.setAttribute("data-tip", "");
    this.fills.set(element, typeof fill === "function" ? fill : () => [fill]);
    return element;
  }

  show(owner, content) {
    if (!content || !content.length) return this.hide();
    this.element.replaceChildren();
    append(this.element, [content]);
    this.element.hidden = false;
    const frame = this.root.getBoundingClientRect();
    const box = owner.getBoundingClientRect();
    const size = this.element.getBoundingClientRect();
    const below = box.bottom + 8 + size.height < window.innerHeight || box.top - 8 - size.height < 0;
    const top = below ? box.bottom + 8 : box.top - 8 - size.height;
    const most = Math.max(4, Math.min(frame.width, window.innerWidth - frame.left) - size.width - 4);
    const left = clamp(box.left + Math.min(box.width, 80) / 2 - size.width / 2 - frame.left, 4, most);
    this.element.style.transform = `translate(${Math.round(left)}px, ${Math.round(top - frame.top)}px)`;
  }

  /** Shows after a moment's rest, so that the marks of what is hovered are seen first. */
  later(owner, fill) {
    this.hide();
    this.timer = setTimeout(() => this.show(owner, fill()), 250);
  }

  hide() {
    clearTimeout(this.timer);
    this.element.hidden = true;
  }
}

/** Label–value lines for a tooltip. */
export function facts(rows) {
  const list = h("dl", { class: "sv-facts" });
  for (const [label, value] of rows) {
    if (value === null || value === undefined || value === "") continue;
    list.append(h("dt", {}, label), append(h("dd", {}), [value]));
  }
  return list;
}

/** A titled panel: {element, body, note, tools}. */
export function card(name, title, ...tools) {
  const note = h("span", { class: "sv-note" });
  const heading = h("h3", { class: "sv-heading" }, title);
  const bar = h("header", { class: "sv-bar" }, heading, note, h("span", { class: "sv-grow" }), ...tools);
  const body = h("div", { class: "sv-body", tabindex: "0", role: "region", "aria-label": title });
  const element = h("section", { class: `sv-card sv-${name}`, "aria-label": title }, bar, body);
  return { element, body, note, bar, heading };
}

/** A sentence whose commands stand between backticks, as nodes. */
export const coded = (text) => text.split("`").map((piece, k) => (k % 2 ? h("code", {}, piece) : piece));
