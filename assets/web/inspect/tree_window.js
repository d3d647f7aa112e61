/* What is seen of a draft tree: fitted to the width, zoomed, panned, and a small map of a tree that is larger. */

import { button, framed, h } from "specviz/base/dom.js";
import { dragged, set, sheet } from "specviz/base/drawing.js";
import { clamp } from "specviz/base/numbers.js";
import { statusOf } from "specviz/inspect/tree_boxes.js";
import { MARGIN } from "specviz/inspect/tree_layout.js";

const FIT = "Fit the tree to its width";
const [LEAST, MOST] = [0.05, 3]; // by hand
const STEP = 1.25;
const PAN = 80; // pixels
const [SIDE, ABOVE] = [12, 4]; // pixels: the panel's padding, as in the style sheet
const [MAP_WIDE, MAP_HIGH] = [150, 64]; // pixels, at most
const LEAST_MAPPED = 360; // a lower panel, or a narrower one, needs its height for the tree
const LEAST_FITTED = 0.72; // of a narrow panel's tree: its letters can still be read

/** @type {Record<string, [across: number, down: number]>} */
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** @type {(status: ReturnType<typeof statusOf>, colors: Colors) => string} */
function colorOf(status, colors) {
  if (status === "accepted" || status === "rejected") return colors[status];
  if (status === "bonus") return colors.own;
  return status === "root" ? colors.ink : colors.faint;
}

export class TreeWindow {
  /** @param {TreeView} tree */
  constructor(tree) {
    this.tree = tree;
    /** The scale that was chosen by hand; null: it is fitted. @type {number | null} */
    this.chosen = null;
    this.scale = 1;
    this.room = 800; // of the panel's body, in pixels
    this.high = 300;
    this.panel = 300; // with the map, where it is drawn
    this.width = this.height = 0; // of the tree at full scale
    this.left = this.top = 0; // where it is scrolled to
    this.wanted = 0; // where it is to be scrolled to
    this.settled = true;
    this.moved = false; // it was scrolled, by the user or by settle()
    /** @type {(label: string, key: string, act: () => void, text: string) => HTMLButtonElement} */
    const tool = (label, key, act, text) => {
      const one = button(label, { class: "sv-quiet", onclick: act }, text);
      return tree.owner.tip.add(one, () => [`${label} `, h("kbd", key)]);
    };
    this.fitted = tool(FIT, "0", () => this.zoom(null), "fit");
    this.tools = h(
      "span.sv-zooms.ui-seg",
      { role: "group", "aria-label": "Size of the tree" },
      tool("Draw the tree smaller", "−", () => this.zoom(this.scale / STEP), "−"),
      this.fitted,
      tool("Draw the tree larger", "+", () => this.zoom(this.scale * STEP), "+"),
    );
    this.canvas = h("canvas");
    this.hidden = h("button.sv-button.sv-quiet.sv-tree-rest", { onclick: () => this.whole() });
    this.map = h("div.sv-tree-map", { hidden: true }, this.hidden, this.canvas);
    tree.owner.tip.add(this.hidden, () => ["Show the whole tree"]);
    tree.element.append(this.map);
    this.listen();
  }

  listen() {
    const { body, element } = this.tree;
    const look = framed(() => this.look());
    body.addEventListener("scroll", () => ((this.moved = true), look()), { passive: true });
    element.addEventListener("keydown", (event) => this.key(event));
    element.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.zoom(this.scale * Math.exp(-event.deltaY / 300), event);
      },
      { passive: false },
    );
    /** Where the hand took hold of the tree. @type {{ x: number, y: number, left: number, top: number } | null} */
    let held = null;
    body.addEventListener("pointerdown", (event) => {
      const onNode = event.target instanceof Element && event.target.closest(".sv-node");
      if (event.button || event.pointerType === "touch" || onNode || !this.larger) return;
      held = { x: event.clientX, y: event.clientY, left: body.scrollLeft, top: body.scrollTop };
      body.setPointerCapture(event.pointerId);
    });
    body.addEventListener("pointermove", (event) => {
      if (held) body.scrollTo(held.left + held.x - event.clientX, held.top + held.y - event.clientY);
    });
    for (const name of ["pointerup", "pointercancel"]) body.addEventListener(name, () => (held = null));
    dragged(this.canvas, (event) => {
      const box = this.canvas.getBoundingClientRect();
      const k = (this.width * this.scale) / box.width;
      body.scrollTo((event.clientX - box.left) * k - this.room / 2, (event.clientY - box.top) * k - this.high / 2);
    });
  }

  /** Whether the tree is larger than its panel. */
  get larger() {
    return this.width * this.scale > this.room + 2 || this.height * this.scale > this.high + 2;
  }

  /** Reads the panel's size; returns whether it changed. */
  measure() {
    const { clientWidth, clientHeight } = this.tree.body;
    const [room, high] = [clientWidth - 2 * SIDE, clientHeight - 2 * ABOVE];
    if (!clientWidth || (room === this.room && high === this.high)) return false;
    this.room = room;
    this.high = high;
    this.panel = high + (this.map.hidden || this.canvas.hidden ? 0 : MAP_HIGH);
    return true;
  }

  /** The panel has another size: what is drawn in it is fitted anew. */
  resized() {
    const { tree } = this;
    if (!this.measure() || !tree.shown || tree.drawn !== tree.owner.model) return;
    tree.draw(tree.view, true);
    if (this.chosen !== null) return;
    this.scale = this.plain;
    this.apply();
  }

  /** Whether the panel is so narrow that a tree is drawn smaller rather than folded. */
  get narrow() {
    return this.room <= LEAST_MAPPED * this.tree.owner.zoom;
  }

  /** The width of a tree that a panel has room for: a narrow one's is drawn smaller. */
  get across() {
    return this.narrow ? this.room / LEAST_FITTED : this.room;
  }

  /** The scale at which its letters are as large as all others; smaller in a narrow panel, where all of it, or the */
  /** accepted path, then has room. */
  get plain() {
    const { zoom } = this.tree.owner;
    if (!this.narrow || !this.height) return zoom;
    const across = Math.min(zoom, this.room / this.width);
    const fits = (/** @type {number} */ high) => Math.min(across, this.high / high);
    return [this.height, this.bottom].map(fits).find((scale) => scale >= LEAST_FITTED * zoom) ?? zoom;
  }

  /** Where the accepted path ends, at full scale; 0: nothing was written. */
  get bottom() {
    const end = this.tree.placed.find((item) => item.kind === "bonus");
    return end ? end.y + end.high + MARGIN : 0;
  }

  /** A tree of a size was drawn; ``keep``: the same step's, so scale and place stay. */
  /** @type {(width: number, height: number, keep: boolean) => void} */
  fit(width, height, keep) {
    this.width = width;
    this.height = height;
    if (!keep) this.scale = this.chosen ?? this.plain;
    this.apply();
    if (keep) return;
    const bottom = this.bottom * this.scale;
    this.wanted = bottom > this.high ? bottom - this.high * 0.72 : 0;
    this.left = 0;
    this.top = this.wanted;
    this.settled = false;
  }

  /** No tree is drawn, so none is mapped. */
  clear() {
    [this.width, this.height] = [0, 0];
    this.tree.placed = [];
    this.drawMap();
  }

  /** Sizes the drawing, and its map. */
  apply() {
    const { width, height, scale } = this;
    set(this.tree.svg, { width: width * scale, height: height * scale });
    const said = this.chosen === null && !this.larger ? "fit" : `${Math.round(100 * scale)} %`;
    if (this.fitted.textContent !== said) {
      this.fitted.textContent = said;
      this.fitted.setAttribute("aria-label", said === "fit" ? FIT : `${FIT}, now ${said}`);
    }
    this.drawMap();
  }

  /** Scrolls to what was wanted of the last drawing. */
  settle() {
    if (this.settled) return;
    this.settled = true;
    if (this.wanted || this.moved) this.tree.body.scrollTo(0, this.wanted);
    this.moved = this.wanted > 0;
  }

  /** Scrolls so that an element of the tree is seen. @param {Element} element */
  reach(element) {
    const { body } = this.tree;
    const pane = body.getBoundingClientRect();
    const at = element.getBoundingClientRect();
    if (at.left < pane.left || at.right > pane.right) body.scrollLeft += at.left - pane.left - pane.width / 2;
    if (at.top < pane.top || at.bottom > pane.bottom) body.scrollTop += at.top - pane.top - pane.height / 2;
  }

  /** A scale by hand (null: fitted again), around a point of the window. */
  /** @type {(scale: number | null, at?: { clientX: number, clientY: number }) => void} */
  zoom(scale, at) {
    const { body } = this.tree;
    if (!this.tree.shown) return;
    const frame = body.getBoundingClientRect();
    const x = at ? at.clientX - frame.left : this.room / 2;
    const y = at ? at.clientY - frame.top : this.high / 2;
    const before = this.scale;
    this.chosen = scale === null ? null : clamp(scale, LEAST, MOST);
    this.scale = this.chosen ?? this.plain;
    this.apply();
    const grown = this.scale / before;
    body.scrollTo((body.scrollLeft + x) * grown - x, (body.scrollTop + y) * grown - y);
    this.look();
    this.resized(); // the map came or went
  }

  /** So small that nothing is out of sight. */
  whole() {
    this.zoom(Math.min(this.room / this.width, this.high / this.height));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const pan = event.shiftKey ? ARROWS[event.key] : undefined;
    if (pan) this.tree.body.scrollBy(pan[0] * PAN, pan[1] * PAN);
    else if (event.key === "+" || event.key === "=") this.zoom(this.scale * STEP);
    else if (event.key === "-" || event.key === "−") this.zoom(this.scale / STEP);
    else if (event.key === "0") this.zoom(null);
    else return;
    event.preventDefault();
  }

  /** It was scrolled. */
  look() {
    this.left = this.tree.body.scrollLeft;
    this.top = this.tree.body.scrollTop;
    this.drawMap();
  }

  /** How many pixels of what is seen show the upper part of a row alone, at the lower edge. */
  get sliced() {
    const { top, high, scale, tree } = this;
    const end = top + high + ABOVE;
    const cut = tree.placed.filter((item) => item.y * scale < end && (item.y + item.high) * scale > end + 1);
    return cut.length ? Math.ceil(end - Math.min(...cut.map(({ y }) => y)) * scale) + 2 : 0;
  }

  /** How many tokens of the tree lie outside what is seen. */
  unseen() {
    const { left, top, room, scale } = this;
    const high = this.high - this.sliced;
    let count = 0;
    for (const item of this.tree.placed) {
      const x = (item.x + item.width / 2) * scale;
      const y = (item.y + item.high / 2) * scale;
      if (x >= left && x <= left + room && y >= top && y <= top + high) continue;
      count += item.kind === "chip" ? item.count : item.kind === "stretch" ? item.nodes.length : 1;
    }
    return count;
  }

  /** The map of a tree that is larger than its panel: everything in its colour, and a frame around what is seen. */
  drawMap() {
    const { larger, map } = this;
    if (map.hidden === larger) map.hidden = !larger;
    const { style } = this.tree.body;
    const clip = larger && this.sliced ? `inset(0 0 ${this.sliced}px 0)` : "";
    if (style.clipPath !== clip) style.clipPath = clip;
    if (!larger) return;
    this.drawCount();
    const low = Math.min(this.panel, this.room) < LEAST_MAPPED;
    this.canvas.hidden = low || this.width * this.scale <= this.room + 2; // one bar says as much
    if (this.canvas.hidden) return;
    const { colors } = this.tree.owner;
    const k = Math.min(MAP_WIDE / this.width, MAP_HIGH / this.height);
    const [wide, high] = [Math.ceil(this.width * k), Math.ceil(this.height * k)];
    const pen = sheet(this.canvas, wide, high);
    set(this.canvas, { style: `width:${wide}px;height:${high}px` });
    for (const item of this.tree.placed) {
      pen.fillStyle = colorOf(statusOf(item), colors);
      pen.fillRect(item.x * k, item.y * k, Math.max(1.5, item.width * k), Math.max(1.5, item.high * k));
    }
    const shown = k / this.scale;
    pen.strokeStyle = colors.ink;
    pen.lineWidth = 1.5;
    const across = Math.min(wide, this.room * shown) - 1.5;
    pen.strokeRect(this.left * shown + 0.75, this.top * shown + 0.75, across, Math.min(high, this.high * shown) - 1.5);
  }

  /** How much of it is out of sight. */
  drawCount() {
    const count = this.unseen();
    const said = count ? `${count} out of sight` : "";
    if (this.hidden.textContent !== said) this.hidden.textContent = said;
    if (this.hidden.hidden === count > 0) this.hidden.hidden = !count;
  }
}
