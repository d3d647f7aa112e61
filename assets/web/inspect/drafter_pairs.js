/* The draft model's probabilities at one position beside the target's, and what replaced a rejected draw. */

import { facts, format, h, plural, probability } from "specviz/base/dom.js";
import { STATES, beside, label, lanes, numberOf } from "specviz/inspect/drafting.js";

const LEAST = 0.001; // a token below this for both is folded away, unless it was drafted or written

/**
 * The position compared: ``shown`` there, ``beta`` the overlap of both distributions.
 *
 * @typedef {{ view: StepView, shown: NodeChoice, beta: number | null }} Place
 * @typedef {import("specviz/inspect/drafter.js").DrafterView} DrafterView
 */

/**
 * Both distributions, token by token: a shared part, and what only one of them gives.
 *
 * @type {(panel: DrafterView, place: Place, list: Guess[]) => HTMLElement}
 */
export function pairs(panel, place, list) {
  if (!list.length)
    return h("p", { class: "sv-empty" }, "The draft model did not go on from here: there is nothing to compare.");
  const { owner } = panel;
  const drawn = place.view.route === "drawn";
  /** @type {(name: string, text: string) => HTMLElement} */
  const key = (name, text) => h("span", {}, h("i", { class: `sv-pair-key sv-pair-${name}` }), text);
  const head = h(
    "div",
    { class: "sv-pairs-head" },
    h("h4", {}, "Draft model against target"),
    h("span", { class: "sv-pair-keys" }, key("q", "drafter q"), key("p", "target p"), key("both", "shared")),
  );
  owner.tip.add(head, () => [
    drawn ? "Probabilities after the run's temperature, top-k and top-p." : "Probabilities at temperature 1.",
  ]);
  const table = h("div", { class: "sv-pairs", role: "table", "aria-label": "Draft model against target" });
  table.append(
    h(
      "div",
      { class: "sv-pair-row sv-pair-top", role: "row" },
      ["#", "token", "", "q", "p"].map((name) => h("span", { role: "columnheader" }, name)),
    ),
  );
  const tokens = list.map((one) => stateOf(owner, place, one));
  const rare = tokens.filter((one) => !one.role && one.q < LEAST && one.p < LEAST);
  for (const one of tokens) if (panel.rare || !rare.includes(one)) table.append(pairOf(owner, place, one));
  const more = rare.length
    ? h(
        "button",
        {
          type: "button",
          class: "sv-go sv-rare",
          "aria-expanded": String(panel.rare),
          onclick: () => {
            panel.rare = !panel.rare;
            panel.fill();
            const again = panel.parts.querySelector(".sv-rare");
            if (again instanceof HTMLElement) again.focus();
          },
        },
        panel.rare ? "fewer" : `${plural(rare.length, "more token")} below ${probability(LEAST)}`,
      )
    : null;
  return h("section", {}, head, place.beta === null ? null : overlap(owner, place.beta), table, more);
}

/** β: how far the two distributions overlap. @type {(owner: Inspector, beta: number) => HTMLElement} */
function overlap(owner, beta) {
  const box = h(
    "div",
    { class: "sv-beta", tabindex: "0" },
    h("span", {}, "overlap β ", h("b", {}, probability(beta))),
    h(
      "span",
      { class: "sv-pair-bars", "aria-hidden": "true" },
      h("i", { class: "sv-pair-q", style: "width:100%" }),
      h("i", { class: "sv-pair-p", style: "width:100%" }),
      h("i", { class: "sv-pair-both", style: `width:${(100 * beta).toFixed(1)}%` }),
    ),
  );
  return owner.tip.add(box, () => [
    h("b", {}, "Overlap β"),
    h("div", { class: "sv-formula" }, `= Σ min(p, q) = ${format(beta)}`),
    h("div", {}, "Over the whole vocabulary: how likely a token drawn from the drafter is accepted here."),
  ]);
}

/**
 * A guess with what became of it in this step.
 *
 * @typedef {Guess & { role: string, words: string, name: string }} Judged
 * @type {(owner: Inspector, place: Place, one: Guess) => Judged}
 */
function stateOf(owner, { view, shown }, one) {
  const node = view.nodes.find((it) => it.index && it.parent === shown.parent && it.token === one.token) || null;
  if (node) {
    const rank = numberOf(owner, node, "draft_rank");
    const name = beside(node) ? `E${rank === null ? "" : rank + 1}` : lanes(view) ? "chain" : "drafted";
    return { ...one, role: node.status, words: STATES[node.status], name };
  }
  if (shown.parent === view.last && one.token === view.bonus) {
    const redrawn = one.residual !== null;
    return { ...one, role: "own", words: redrawn ? "drawn from the residual" : "written by the target", name: "" };
  }
  return { ...one, role: "", words: "", name: "" };
}

/** @type {(owner: Inspector, place: Place, one: Judged) => HTMLElement} */
function pairOf(owner, { shown }, one) {
  /** @type {(value: number) => string} */
  const width = (value) => `width:${Math.max(value > 0 ? 0.4 : 0, 100 * value).toFixed(1)}%`;
  const both = Math.min(one.p, one.q);
  const tag = one.role ? h("small", { class: `sv-role sv-role-${one.role}` }, one.words) : null;
  const name = one.name
    ? h("small", { class: `sv-role-name ${one.name[0] === "E" ? "sv-mark-e" : ""}` }, one.name)
    : null;
  const row = h(
    "div",
    { class: `sv-pair-row${one.token === shown.token ? " sv-this" : ""}`, role: "row" },
    h("span", { class: "sv-pair-rank", role: "cell" }, String(one.rank + 1)),
    h(
      "span",
      { class: "sv-pair-token", role: "cell" },
      h("code", { class: one.role ? `sv-state-${one.role}` : "" }, label(owner, one.token, 16)),
      name,
      tag,
    ),
    h(
      "span",
      { class: "sv-pair-bars", role: "cell", "aria-hidden": "true" },
      h("i", { class: "sv-pair-q", style: width(one.q) }),
      h("i", { class: "sv-pair-p", style: width(one.p) }),
      both >= 0.002 ? h("i", { class: "sv-pair-both", style: width(both) }) : null,
    ),
    h("span", { class: "sv-pair-number", role: "cell" }, probability(one.q)),
    h("span", { class: "sv-pair-number", role: "cell" }, probability(one.p)),
  );
  return owner.tip.add(row, () => [
    h("code", { class: "sv-token" }, label(owner, one.token)),
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
  const some = list.flatMap(({ residual, ...one }) => (residual === null ? [] : [{ ...one, residual }])).filter(
    (one) => one.residual >= LEAST || stateOf(owner, place, one).role === "own",
  );
  if (!some.length) return null;
  const title = h("h4", { tabindex: "0" }, "Residual, that replaced the rejected draw");
  owner.tip.add(title, () => [
    h("div", { class: "sv-formula" }, "= max(0, p − q) ÷ Σ max(0, p − q)"),
    h("div", {}, `What the target gives beyond the drafter${beta === null ? "" : `: 1 − β = ${format(1 - beta)}`}.`),
  ]);
  const table = h("div", { class: "sv-pairs sv-residual", role: "table", "aria-label": "Residual" });
  for (const one of some.sort((a, b) => b.residual - a.residual).slice(0, 8)) {
    const taken = one.token === view.bonus;
    table.append(
      h(
        "div",
        { class: `sv-pair-row${taken ? " sv-this" : ""}`, role: "row" },
        h("span", { class: "sv-pair-rank", role: "cell" }, String(one.rank + 1)),
        h(
          "span",
          { class: "sv-pair-token", role: "cell" },
          h("code", { class: taken ? "sv-state-own" : "" }, label(owner, one.token, 16)),
          taken ? h("small", { class: "sv-role sv-role-own" }, "drawn") : null,
        ),
        h(
          "span",
          { class: "sv-pair-bars", role: "cell", "aria-hidden": "true" },
          h("i", { class: "sv-pair-left", style: `width:${(100 * one.residual).toFixed(1)}%` }),
        ),
        h("span", { class: "sv-pair-number", role: "cell" }, probability(one.residual)),
      ),
    );
  }
  return h("section", {}, title, table);
}
