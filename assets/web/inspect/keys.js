/* Keyboard control, and what the tooltip says of a token. */

import { closest, facts, h } from "specviz/base/dom.js";
import { POOL } from "specviz/base/model.js";
import { format, plural } from "specviz/base/numbers.js";
import { ofPosition } from "specviz/inspect/selection.js";

/** ``inside``: the focus is in the inspector; else only keys are taken that the page does not use: those that scroll
 * are free where nothing has the focus, and all is in sight. @type {TakeKey} */
export function keys(inspector, event, inside) {
  const typing = closest(event, "input, textarea, select, [contenteditable]");
  if (typing || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !inspector.model) return;
  const many = event.shiftKey ? 10 : 1;
  /** @type {Record<string, () => unknown>} */
  const own = {
    ArrowRight: () => inspector.go(many),
    ArrowLeft: () => inspector.go(-many),
    "]": () => inspector.timeline.miss(1),
    "[": () => inspector.timeline.miss(-1),
    "?": () => inspector.showHelp(inspector.help.hidden),
    d: () => toggleDetails(inspector),
    f: () => inspector.presenter?.toggle(),
    Escape: () => escape(inspector),
  };
  /** @type {Record<string, () => unknown>} */
  const focused = {
    Home: () => inspector.go(-Infinity),
    End: () => inspector.go(inspector.model.stepCount),
    p: () => pinStep(inspector),
    ",": () => walkText(inspector, -1),
    ".": () => walkText(inspector, 1),
    w: () => inspector.spaceButton.click(),
    o: () => inspector.offerButton.click(),
  };
  if (!closest(event, "button, a, [role=button]")) focused[" "] = () => inspector.player.toggle();
  const { scrollHeight, clientHeight } = document.documentElement;
  const free = inside || (document.activeElement === document.body && scrollHeight <= clientHeight);
  const act = own[/^[DF]$/.test(event.key) ? event.key.toLowerCase() : event.key] || (free && focused[event.key]);
  if (!act) return;
  event.preventDefault();
  act();
}

/** Whether the focus is where the page itself has no use for these keys: nowhere, or on a plain button outside. */
/** @param {Element} root */
export function unclaimed(root) {
  const at = document.activeElement;
  if (!at || at === document.body) return true;
  const uses = "[role=tab], [role=radio], [role=option], [role^=menu], [role=dialog], .sv, dialog";
  return !root.contains(at) && at.matches("button, a, summary") && !at.closest(uses);
}

/** Opens the tab Details, or goes back to the first; nothing where there is none. @param {Inspector} inspector */
function toggleDetails({ details: { element }, tabs }) {
  if (tabs.at.peek() === "details") return tabs.close();
  tabs.open("details");
  requestAnimationFrame(() => element.focus()); // it is drawn then
}

/** @param {Inspector} inspector */
function escape(inspector) {
  inspector.tip.hide();
  if (!inspector.help.hidden) inspector.showHelp(false);
  else if (inspector.details.element.contains(document.activeElement)) inspector.tabs.close();
  else if (inspector.presenter?.on) inspector.presenter.set(false);
  else if (inspector.pins.length || inspector.selection.peek()) {
    inspector.setPins([]);
    inspector.deselect();
  }
}

/** Selects the next (or previous) token of the text; the first time, the first one of the step. */
/** @type {(inspector: Inspector, by: 1 | -1) => void} */
function walkText(inspector, by) {
  const { model } = inspector;
  const from = inspector.selection.peek()?.position ?? -1;
  const to = from < 0 ? model.step(inspector.number).context : from + by;
  if (to < 0 || to >= model.tokenCount || from >= POOL) return;
  const step = model.stepOf(to);
  if (step >= 0) inspector.setStep(step);
  inspector.select(ofPosition(model, to));
  inspector.reveal(to);
}

/** Pins the copy accepted in this step. @param {Inspector} inspector */
function pinStep(inspector) {
  const view = inspector.model.step(inspector.number);
  for (let position = view.context; position < view.end; position++) {
    if (inspector.model.runOf.has(position)) return inspector.setPins([position]);
  }
  inspector.say("Nothing was copied in this step.");
}

/** A token's facts: its bytes, how it was written, where from. @type {OfPosition<Child[]>} */
export function tokenFacts(inspector, position) {
  const { model } = inspector;
  if (position >= POOL) return poolFacts(inspector, position);
  const { tokens } = model.trace;
  const own = model.runOf.get(position);
  const copies = model.copies.get(position) || [];
  const kind = {
    prompt: "",
    accepted: "drafted, then accepted",
    bonus: "the target's own token",
    plain: "the target's own token (no draft)",
  }[tokens.kind[position]];
  const cell = inspector.paneOf(position).elements(position)[0];
  const shared = cell && cell.dataset.n ? Number(cell.dataset.n) : 1;
  const start = cell ? Number(cell.dataset.p) : position;
  const ids = tokens.id.slice(start, start + shared);
  const origin = tokens.origin[position];
  const size = own ? own.stop - own.start : 0;
  /** @type {Fact[]} */
  const rows = [
    ["written in", tokens.step[position] >= 0 ? `step ${tokens.step[position] + 1}` : ""],
    ["as", kind && origin && origin !== "main" ? `${kind} (${origin})` : kind],
    [
      "copied from",
      own ? `${inspector.where(model.sourceOf(position))}${size > 1 ? `, ${size} tokens in a row` : ""}` : "",
    ],
    [
      "copied to",
      copies.length
        ? plural(copies.length, "place") + ` (${inspector.where(copies[0].start)}${copies.length > 1 ? ", …" : ""})`
        : "",
    ],
    ["target", tokens.prob[position] === null ? "" : `probability ${format(tokens.prob[position])}`],
    ["its choice", tokens.rank[position] > 0 ? `no. ${tokens.rank[position] + 1}` : ""],
    [
      shared > 1 ? `${shared} tokens` : "token",
      ids.map((one) => `${one} · bytes ${model.pieces.bytes(one)}`).join("; "),
    ],
    ["position", String(position)],
  ];
  return [
    h("code.sv-token", model.pieces.phrase(ids, 60)),
    tokens.rank[position] > 0 ? differing(inspector, position) : null,
    facts(rows),
  ];
}

/** "accepted at p = 0.14; the model preferred “carried” (p = 0.52)". @type {OfPosition<HTMLElement>} */
function differing(inspector, position) {
  const { model } = inspector;
  const { kind, prob } = model.trace.tokens;
  const rather = model.decision(position)?.rather;
  const how = kind[position] === "accepted" && inspector.model.lossy ? "accepted" : "drawn";
  const line = h("div.sv-tip-differs", `${how} at p = ${format(prob[position], 2)}`);
  if (rather)
    line.append(`; the model preferred “${model.pieces.label(rather.token)}” (p = ${format(rather.prob, 2)})`);
  return line;
}

/** @type {(inspector: Inspector, position: Position) => Child[]} */
function poolFacts(inspector, position) {
  const { model } = inspector;
  const id = model.id(position);
  const copies = model.copies.get(position) || [];
  const at = position - POOL;
  return [
    h("code.sv-token", model.pieces.label(id)),
    facts([
      ["in the pool", `position ${at.toLocaleString("en")}, passage ${(model.poolPassages[at] ?? 0) + 1}`],
      ["copied to", copies.length ? `${plural(copies.length, "place")} (${inspector.where(copies[0].start)})` : ""],
      ["token", `${id} · bytes ${model.pieces.bytes(id)}`],
    ]),
  ];
}
