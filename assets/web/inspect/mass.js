/* Where the mass of drafter and target lies at one position: what stands, what is rejected, what the residual adds. */

import { facts, h } from "specviz/base/dom.js";
import { format, probability } from "specviz/base/numbers.js";
import { label } from "specviz/inspect/drafting.js";

const LEAST = 0.01; // a smaller part has no piece of its own
const LETTER = 0.017; // of a bar: a piece that has room for its token names it

/** @typedef {{ token: number | null, share: number }} Piece */

/** The parts of p and q: shared min(p, q), which sums to β; the drafter's surplus (q − p)+ and the target's residual
 * (p − q)+, which both sum to 1 − β. Tokens that were not recorded, or are small, are one piece (token null).
 * @param {{ token: number, q: number | null, p: number | null }[]} list @param {number} beta
 * @returns {Record<"shared" | "surplus" | "residual", Piece[]>} */
export function massOf(list, beta) {
  /** @type {(of: (one: { q: number | null, p: number | null }) => number, total: number) => Piece[]} */
  const parts = (of, total) => {
    const pieces = list
      .map((one) => ({ token: /** @type {number | null} */ (one.token), share: of(one) }))
      .filter(({ share }) => share >= LEAST)
      .sort((a, b) => b.share - a.share);
    const rest = total - pieces.reduce((sum, { share }) => sum + share, 0);
    return rest > 1e-4 ? [...pieces, { token: null, share: rest }] : pieces;
  };
  return {
    shared: parts(({ q, p }) => Math.min(q ?? 0, p ?? 0), beta),
    surplus: parts(({ q, p }) => (q ?? 0) - (p ?? 0), 1 - beta),
    residual: parts(({ q, p }) => (p ?? 0) - (q ?? 0), 1 - beta),
  };
}

/** Two bars of the same length: q above, p below; what they share stands at the left of both. */
/** @type {(owner: Inspector, place: Place, list: Guess[]) => Child} */
export function mass(owner, place, list) {
  const { beta, view, shown } = place;
  if (beta === null || !list.length) return null;
  const parts = massOf(list, beta);
  const drawn = view.route === "drawn";
  /** @type {(kind: string, words: string) => (piece: Piece) => HTMLElement} */
  const pieceOf = (kind, words) => ({ token, share }) => {
    const name = token === null ? "others" : label(owner, token, 12);
    const here = token !== null && token === shown.token ? ".sv-mass-this" : "";
    const piece = h(
      `span.sv-mass-piece.sv-mass-${token === null ? "other" : "one"}.sv-mass-${kind}${here}`,
      { style: `width:${(100 * share).toFixed(2)}%` },
      share >= LETTER * (name.length + 1) ? h("span", name) : null,
    );
    return owner.tip.add(piece, () => [
      token === null ? "all other tokens" : h("code.sv-token", label(owner, token)),
      facts([[words, format(share)]]),
    ]);
  };
  const both = "min(p, q)";
  /** @type {(name: string, pieces: HTMLElement[]) => HTMLElement} */
  const row = (name, pieces) =>
    h("div.sv-mass-row", { "aria-hidden": "true" }, h("span.sv-mass-name", name), h("div.sv-mass-bar", pieces));
  const lost = probability(1 - beta);
  const are = drawn ? "are" : "would be";
  const chosen = list.find(({ token }) => token === shown.token);
  const inSight = Object.values(parts).flat().some(({ token }) => token === shown.token);
  /** @type {(kind: string, ...words: Child[]) => HTMLElement} */
  const said = (kind, ...words) => h("li", h("i", { class: `sv-mass-key sv-mass-${kind}` }), h("span", words));
  return h(
    "section.sv-mass",
    h("h4", drawn ? "Accepted mass, and what the residual adds" : "Had this token been drawn from q, at temperature 1"),
    row("q", [...parts.shared.map(pieceOf("shared", both)), ...parts.surplus.map(pieceOf("surplus", "q − p"))]),
    row("p", [...parts.shared.map(pieceOf("shared", both)), ...parts.residual.map(pieceOf("residual", "p − q"))]),
    h(
      "ul.sv-mass-words.ui-legend.ui-words",
      inSight && chosen && said("this", h("code", label(owner, shown.token ?? 0, 12)), ": q ",
        h("b", probability(chosen.q)), view.nodes[shown.node]?.draftProb === null && " (not drawn, so certain)",
        ", p ", h("b", probability(chosen.p))),
      said("shared", "shared: ", h("b", probability(beta)),
        ` of the drafter's tokens ${are} accepted`),
      parts.surplus.length > 0 && said("surplus", "too much of q: ", h("b", lost), ` ${are} rejected`),
      parts.residual.length > 0 &&
        said("residual", `too little of q: rejected ones ${are} drawn from these `, h("b", lost), " of p instead"),
    ),
    drawn && h(
      "p.sv-mass-note.ui-words",
      owner.model.run.method.lossless === false
        ? "By this rule, p/q, the text would have the target's own distribution p; the run's own is lossy."
        : "So the text has the target's own distribution p.",
    ),
  );
}
