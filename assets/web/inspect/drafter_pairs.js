/* The draft model's probabilities at one position beside the target's, and what replaced a rejected draw. */

import { facts, formula, h, level, told } from "specviz/base/dom.js";
import { OPEN } from "specviz/base/model.js";
import { format, plural, probability } from "specviz/base/numbers.js";
import { STATES, drafterOf, label, numberOf } from "specviz/inspect/drafting.js";

const LEAST = 0.001; // a token below this for both is folded away, unless it was drafted or written
const UNREAD = { "aria-hidden": "true" }; // the bars: the numbers beside them say as much

/** Both distributions, token by token. @type {(panel: DrafterView, place: Place, list: Guess[]) => HTMLElement} */
export function pairs(panel, place, list) {
  const { owner } = panel;
  const drafter = drafterOf(owner.model);
  if (!list.length) return h("p.sv-empty", `The ${drafter} did not go on from here: there is nothing to compare.`);
  const title = `${drafter[0].toUpperCase()}${drafter.slice(1)} against target`;
  const drawn = place.view.route === "drawn";
  /** @type {(name: string, text: string) => HTMLElement} */
  const key = (name, text) => h("li", h("i", { class: `sv-pair-key sv-pair-${name}` }), text);
  const head = h(
    "div.sv-pairs-head.ui-row",
    h("h4", title),
    h("ul.ui-legend", key("q", `q: ${drafter}`), key("p", "p: target"), key("both", "both")),
  );
  owner.tip.add(head, () => [
    drawn ? "Probabilities after the run's temperature, top-k and top-p." : "Probabilities at temperature 1.",
  ]);
  const table = h("div.sv-pairs", { role: "table", "aria-label": title });
  table.append(
    h(
      "div.sv-pair-row.sv-pair-top",
      { role: "row" },
      ["guess", "token", "", "q", "p"].map((name) => h("span", name ? { role: "columnheader" } : UNREAD, name)),
    ),
  );
  const tokens = list.map((one) => stateOf(owner, place, one));
  const rare = tokens.filter((one) => !one.role && (one.q ?? 0) < LEAST && (one.p ?? 0) < LEAST);
  for (const one of tokens) if (panel.rare || !rare.includes(one)) table.append(pairOf(owner, place, one));
  const flip = () => {
    panel.rare = !panel.rare;
    panel.fill();
    const again = panel.parts.querySelector(".sv-rare");
    if (again instanceof HTMLElement) again.focus();
  };
  const look = { class: "sv-quiet sv-rare", "aria-expanded": String(panel.rare), onclick: flip };
  const words = panel.rare ? "fewer" : `${plural(rare.length, "more token")} below ${probability(LEAST)}`;
  const more = rare.length ? h("button.sv-button", look, words) : null;
  return h("section", head, place.beta === null ? null : overlap(owner, place.beta), table, more);
}

/** The bars of a row, which lie on each other. @type {(...bars: Child[]) => HTMLElement} */
const barsOf = (...bars) => h("span.sv-pair-bars", UNREAD, bars);

/** A row of a token: its rank, its name, bars, numbers. */
/** @type {(rank: number, here: boolean, token: Child, bars: HTMLElement, ...numbers: (number | null)[]) =>
 *   HTMLElement} */
const rowOf = (rank, here, token, bars, ...numbers) =>
  h(
    "div",
    { class: `sv-pair-row${here ? " sv-this" : ""}`, role: "row" },
    h("span.sv-pair-rank", { role: "cell" }, String(rank + 1)),
    h("span.sv-pair-token.ui-row", { role: "cell" }, token),
    bars,
    numbers.map((number) => h("span.sv-pair-number", { role: "cell" }, probability(number))),
  );

/** β: how far the two distributions overlap. @type {(owner: Inspector, beta: number) => HTMLElement} */
function overlap(owner, beta) {
  const bars = barsOf(level(1, "sv-pair-q"), level(1, "sv-pair-p"), level(beta, "sv-pair-both"));
  const help = "Over the whole vocabulary: how much of q and p is the same.";
  const tip = () => told("Overlap β", formula(`= Σ min(p, q) = ${format(beta)}`), help);
  return owner.tip.explained("div.sv-beta.ui-words", tip, h("span", "overlap β ", h("b", probability(beta))), bars,
    h("span.sv-faint", `A token drawn from q would be accepted here with a probability of ${probability(beta)}.`));
}

/** A guess with what became of it. @type {(owner: Inspector, place: Place, one: Guess) => Judged} */
function stateOf(owner, { view, shown }, one) {
  const node = view.nodes.find((it) => it.index && it.parent === shown.parent && it.token === one.token) || null;
  if (node) {
    return { ...one, role: node.status, words: view.bonus === OPEN ? "not checked yet" : STATES[node.status] };
  }
  if (shown.parent === view.last && one.token === view.bonus) {
    const redrawn = one.residual !== null;
    return { ...one, role: "own", words: redrawn ? "drawn from the residual" : "written by the target" };
  }
  return { ...one, role: "", words: "" };
}

/** @type {(owner: Inspector, place: Place, one: Judged) => HTMLElement} */
function pairOf(owner, { shown }, one) {
  const { p, q } = { p: one.p ?? 0, q: one.q ?? 0 };
  /** What is more than nothing is seen. @type {(share: number, name: string) => HTMLElement} */
  const bar = (share, name) => level(Math.max(share > 0 ? 0.004 : 0, share), name);
  const both = Math.min(p, q);
  const token = [
    h("code", { class: one.role ? `sv-state-${one.role}` : "" }, label(owner, one.token, 16)),
    one.role && h("small", { class: `sv-role sv-role-${one.role}` }, one.words),
  ];
  const shared = both >= 0.002 && bar(both, "sv-pair-both");
  const bars = barsOf(bar(q, "sv-pair-q"), bar(p, "sv-pair-p"), shared);
  return owner.tip.add(rowOf(one.rank, one.token === shown.token, token, bars, one.q, one.p), () => [
    h("code.sv-token", label(owner, one.token)),
    facts([
      ["drafter", `q = ${format(one.q)}, its choice no. ${one.rank + 1}`],
      ["target", `p = ${format(one.p)}`],
      ["shared", `min(p, q) = ${format(both)}`],
      ["residual", one.residual === null ? "" : format(one.residual)],
      ["here", one.words],
    ]),
  ]);
}

/** What a rejected draw was replaced from. @type {(panel: DrafterView, place: Place, list: Guess[]) => Child} */
export function residual({ owner }, place, list) {
  const { view, beta } = place;
  const some = list
    .flatMap(({ residual, ...one }) => (residual === null ? [] : [{ ...one, residual }]))
    .filter((one) => one.residual >= LEAST || stateOf(owner, place, one).role === "own");
  if (!some.length) return null;
  const carried = numberOf(owner, view.nodes[place.shown.parent], "block_p");
  const share = beta === null || carried !== null ? "" : `: 1 − β = ${format(1 - beta)}`;
  const gives = `What the target gives beyond the drafter${share}.`;
  const block = `= max(0, P · p − q) ÷ Σ max(0, P · p − q), P = ${format(carried ?? 1)}`;
  const tip = () => [
    formula(carried === null ? "= max(0, p − q) ÷ Σ max(0, p − q)" : block),
    h("div", gives),
  ];
  const title = owner.tip.explained("h4", tip, "Residual, that replaced the rejected draw");
  const rows = some.sort((a, b) => b.residual - a.residual).slice(0, 8);
  const table = rows.map((one) => {
    const taken = one.token === view.bonus;
    const name = h("code", { class: taken ? "sv-state-own" : "" }, label(owner, one.token, 16));
    const token = [name, taken && h("small.sv-role.sv-role-own", "drawn")];
    return rowOf(one.rank, taken, token, barsOf(level(one.residual, "sv-pair-left")), one.residual);
  });
  return h("section", title, h("div.sv-pairs.sv-residual", { role: "table", "aria-label": "Residual" }, table));
}
