/* Where a token pane is scrolled to: so that what a step tells of is in sight, and no line is cut at the top. */

import { framed, must } from "specviz/base/dom.js";
import { clamp } from "specviz/base/numbers.js";
import { ROW_HEIGHT } from "specviz/inspect/pane.js";

const MARGIN = 40; // pixels below a step's last token
const MARK = 3; // pixels of a mark above a letter
const ABOVE = 2; // lines above what is aimed at
const DOWN = 0.42; // of the pane's height: where a revealed token stands

/** @typedef {import("specviz/inspect/pane.js").TokenPane} TokenPane */

/** Scrolls only the pane, only if the position is out of sight (or ``always``). */
/** @type {(pane: TokenPane, position: Position, always?: boolean) => void} */
export function reveal(pane, position, always = false) {
  const [element] = pane.elements(position);
  if (!element) return;
  const move = () => {
    const frame = pane.body.getBoundingClientRect();
    const box = element.getBoundingClientRect();
    const seen = box.top > frame.top + 14 && box.bottom < frame.bottom - 34;
    if (seen && !always) return false;
    pane.body.scrollTop = whole(pane, position, box.top - frame.top - frame.height * DOWN);
    return true;
  };
  if (!move() || !pane.code.classList.contains("sv-big")) return;
  requestAnimationFrame(() => {
    always = false;
    move();
  });
}

/** Scrolls so that positions ``from`` to ``to`` are seen, and another one (-1: none) where all have room; without */
/** room for it, what is ``covered`` at the top stays free. */
/** @type {(pane: TokenPane, from: Position, to: Position, beside?: Position, covered?: () => number,
 *   again?: boolean) => void} */
export function aim(pane, from, to, beside = -1, covered = () => 0, again = true) {
  const [first, written, other] = [from, to, beside].map((at) =>
    at < 0 ? undefined : pane.elements(at).find((one) => one.checkVisibility())); // a lesson may hide its prompt
  const last = written ?? first; // nothing of the step is written yet
  if (!first || !last) return;
  const { style } = must(pane.code.parentElement);
  if (style.marginTop) style.marginTop = "";
  // so many rows apart they are not seen together: the source is not measured
  const far = !!other && Math.abs(pane.rowIndex(from) - pane.rowIndex(beside)) * ROW_HEIGHT > pane.height;
  if (far) covered(); // laid out now, so that it costs no layout of its own below
  const seen = inSight(pane);
  const end = last.getBoundingClientRect().bottom + MARGIN;
  const begin = first.getBoundingClientRect().top;
  const top = Math.min(begin, other && !far ? other.getBoundingClientRect().top : begin);
  const near = !far && end - top < seen.height - MARGIN / 2;
  const most = end - 0.62 * seen.height;
  const over = near || !other || seen.cut || (!far && top > most) ? 0 : covered();
  const line = lineOf(pane);
  const start = begin - over - clamp(seen.height - over - 2 * line, 0, ABOVE * line);
  const aimed = near ? (top + end - seen.height) / 2 : Math.min(most, start);
  // nothing moves where all of it is in sight already; to show whole lines may take one of the margin below it
  const high = near ? top - MARGIN / 2 : start + 1;
  if (!pane.fresh && end - line <= seen.top + seen.height && high >= seen.top) return;
  pane.fresh = false;
  const target = whole(pane, from, aimed - seen.top, over + seen.top);
  if (seen.cut && target < 0) style.marginTop = `${-target}px`; // a short text comes down to where it is seen
  pane.body.scrollTop = target;
  // what was out of sight had an estimated height
  if (again && pane.code.classList.contains("sv-big"))
    requestAnimationFrame(() => aim(pane, from, to, beside, covered, false));
}

/** In a pane that got another height the first line below what is ``covered`` at its top is whole again. */
/** @type {(pane: TokenPane, position: Position, covered: number) => void} */
export function settle(pane, position, covered) {
  const edge = pane.body.getBoundingClientRect().top + covered;
  if (pane.rows.length) pane.body.scrollTop = whole(pane, Math.max(0, position), 0, edge);
}

/** Below ``root``, what scrolls ends on a whole line; returns what looks again, where something else was drawn. */
/** @param {HTMLElement} root */
export function wholeFeet(root) {
  const look = framed(() => {
    /** @type {NodeListOf<HTMLElement>} */
    const bodies = root.querySelectorAll(".sv-body");
    const feet = [...bodies].map(foot); // all is read before anything is written
    bodies.forEach(({ style }, k) => (style.clipPath = feet[k] ? `inset(0 0 ${feet[k]}px)` : ""));
  });
  for (const name of ["scroll", "click", "keyup"])
    root.addEventListener(name, look, { capture: true, passive: true });
  return look;
}

/** How many pixels at the foot of what scrolls show a part of a line alone. @param {HTMLElement} body */
function foot(body) {
  const { top, bottom, height } = body.getBoundingClientRect();
  if (!height || body.scrollTop + body.clientHeight >= body.scrollHeight || body.querySelector(".sv-big")) return 0;
  /** @type {DOMRect[]} */
  const boxes = [];
  const range = document.createRange();
  const texts = document.createTreeWalker(body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT, (node) => {
    if (!(node instanceof Element)) return NodeFilter.FILTER_ACCEPT;
    const box = node.getBoundingClientRect();
    const far = box.height && (box.bottom < top || box.top > bottom); // with all that is in it
    return far ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_SKIP;
  });
  while (texts.nextNode()) {
    range.selectNode(texts.currentNode);
    const framed = texts.currentNode.parentElement?.closest("button, tr, .sv-node, .sv-crow");
    for (const box of framed ? [framed.getBoundingClientRect()] : range.getClientRects())
      if (box.height && box.top < bottom && box.bottom > top && box.height < height / 3) boxes.push(box);
  }
  let end = bottom;
  for (const box of boxes.sort((a, b) => b.top - a.top))
    if (box.top < end && box.bottom > end + 1) end = box.top;
  return end < bottom && end > top + height / 2 ? Math.round(bottom - end) + MARK : 0;
}

/** What of the text is in sight: of a pane that the page scrolled out of the window (``cut``), the rest. */
/** @param {TokenPane} pane */
function inSight(pane) {
  const { top, bottom } = pane.body.getBoundingClientRect();
  const [from, to] = [Math.max(top, 0), Math.min(bottom, window.innerHeight)];
  const cut = from > top;
  return to - from > 4 * ROW_HEIGHT ? { top: from, height: to - from, cut } : { top, height: bottom - top, cut: false };
}

/** @param {TokenPane} pane */
const lineOf = (pane) => parseFloat(getComputedStyle(pane.code).lineHeight);

/** Where the pane is scrolled to when it moves by so much, or less, so that the first line below ``edge`` (in the */
/** window; the pane's top by default) is a whole one, of the rows above a position. */
/** @type {(pane: TokenPane, position: Position, by: number, edge?: number) => number} */
function whole(pane, position, by, edge = pane.body.getBoundingClientRect().top) {
  const { scrollTop, scrollHeight, clientHeight } = pane.body;
  // of a long text, rows out of sight would have to be laid out
  if (pane.code.classList.contains("sv-big")) return Math.round(scrollTop + by);
  const most = Math.min(by, scrollHeight - clientHeight - scrollTop);
  const height = edge + most;
  for (let row = pane.rowIndex(position); row >= 0; row--) {
    const { top } = pane.rows[row].line.getBoundingClientRect();
    const [over, line] = [height - top, lineOf(pane)]; // no second line stands alone
    if (over >= 0) return Math.round(scrollTop + most - (over < 2 * line ? over : over % line));
  }
  return Math.round(scrollTop + most);
}
