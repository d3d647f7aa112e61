/* Who proposed a node of a merged draft: discs with a part per drafter, and what each of them did in a step. */

import { h, s } from "specviz/base/dom.js";
import { set } from "specviz/base/drawing.js";
import { format, probability, short } from "specviz/base/numbers.js";
import { Held } from "specviz/ui/element.js";
import { html } from "specviz/ui/html.js";
import { Table } from "specviz/ui/table.js";

const DISC = 17; // pixels that a disc takes in a node
const OWN = /^(who|q\d|rank\d)$/; // keys of nodes' numbers that are told here

/** The names of the drafters that a run's drafts are merged of; none where they are not merged. */
/** @type {(model: Model) => string[]} */
export function drafters({ run, nodeTerms }) {
  const merged = nodeTerms.some(({ key }) => key === "who");
  const { drafters: titles, params } = run.method;
  return merged ? titles?.map(short) ?? String(params?.drafters ?? "").split(",").map((name) => name.trim()) : [];
}

/** The names in a mask: "SAM decoding and EAGLE-3". @type {(names: string[], mask: number) => string} */
export const namesIn = (names, mask) => names.filter((_, k) => (mask >> k) & 1).join(" and ");

/** Whether a node's number is one of those that ``facts`` tells. @type {(model: Model, key: string) => boolean} */
export const isOwn = (model, key) => OWN.test(key) && drafters(model).length > 0;

/** The part of a disc that stands for one of ``count`` drafters: for two, the first one's is the left half. */
/** @type {(count: number, k: number, r: number) => string} */
export function sector(count, k, r) {
  /** @param {number} turn */
  const point = (turn) => {
    const angle = 2 * Math.PI * (0.25 + turn / count);
    return `${(r * Math.cos(angle)).toFixed(2)} ${(r * Math.sin(angle)).toFixed(2)}`;
  };
  return `M0 0L${point(k)}A${r} ${r} 0 0 1 ${point(k + 1)}Z`;
}

/** The room that a node's disc takes in its box. @type {(model: Model, node: TreeNode | null) => number} */
export const discRoom = (model, node) => (node && node.who && drafters(model).length ? DISC : 0);

/** Draws who proposed in a disc. @type {(disc: SVGElement, count: number, mask: number, r: number) => void} */
export function drawDisc(disc, count, mask, r) {
  while (disc.childElementCount < count) disc.append(s("path"));
  [...disc.children].forEach((part, k) =>
    set(/** @type {SVGElement} */ (part), {
      class: `sv-disc-${k + 1}${(mask >> k) & 1 ? " sv-disc-on" : ""}`,
      d: k < count ? sector(count, k, r) : "",
    }));
}

/** A disc by itself. @type {(count: number, mask: number) => SVGElement} */
export function discSample(count, mask) {
  const disc = s("g.sv-disc");
  drawDisc(disc, count, mask, 6);
  return s("svg", { class: "sv-mini", width: 16, height: 16, viewBox: "-8 -8 16 16", "aria-hidden": "true" }, disc);
}

/** The discs' legend. @param {Inspector} owner */
export function legend(owner) {
  const names = drafters(owner.model);
  if (!names.length) return [];
  const all = 2 ** names.length - 1;
  const masks = [...names.map((_, k) => 1 << k), all];
  return masks.map((mask) => {
    const label = mask === all ? (names.length > 2 ? "all" : "both") : namesIn(names, mask);
    const help = `The disc of a drafted token: proposed by ${namesIn(names, mask)}.`;
    return owner.tip.add(h("li", discSample(names.length, mask), h("span", label)), () => [help]);
  });
}

/** Each drafter's rank and probability of a node, and what the merge made of it. */
/** @type {(owner: Inspector, node: TreeNode) => Fact[]} */
export function facts({ model }, node) {
  if (!node.who) return [];
  return drafters(model).map((name, k) => {
    if (!((node.who >> k) & 1)) return [name, "did not propose it"];
    const [rank, q] = [`rank${k + 1}`, `q${k + 1}`].map((key) => model.nodeTerm(node, key));
    const sure = q === null ? "" : `, q ${probability(q)}`;
    return [name, rank === null ? `proposed it${sure}` : `its guess no. ${rank + 1} there${sure}`];
  });
}

/** What each drafter did in a step: asked or not, tokens drafted, verified and accepted, and its time. */
/** @param {{ inspector: Inspector, view: StepView }} props */
export function Proposers({ inspector, view }) {
  const { model } = inspector;
  const names = drafters(model);
  if (!names.length) return null;
  /** @type {(key: string, k: number) => number | null} */
  const number = (key, k) => model.stepTerm(view.number, `${key}${k + 1}`);
  const rows = names.map((name, k) => ({ name, k, asked: number("asked", k) !== 0 }));
  /** @typedef {typeof rows[number]} Row */
  /** @type {(head: string, key: string, tip: string) => import("specviz/ui/table.js").Column<Row>} */
  const column = (head, key, tip) => ({
    head, tip, number: true,
    cell: ({ k, asked }) => (asked ? format(number(key, k) ?? NaN, 2) : "–"),
  });
  /** @type {import("specviz/ui/table.js").Column<Row>[]} */
  const columns = [
    {
      head: "Drafter",
      cell: ({ name, k }) => html`<span class="sv-proposer">
        <${Held} is="span" of=${discSample(names.length, 1 << k)} /> ${name}</span>`,
    },
    column("drafted", "proposed", "Tokens that it drafted."),
    column("verified", "verified", "Of these, how many were likely enough to be verified."),
    column("accepted", "accepted", "Of these, how many the model kept. A token of both counts for both."),
    column("ms", "ms", "Milliseconds that its draft took."),
  ];
  const left = rows.filter(({ asked }) => !asked).map(({ name, k }) => {
    const without = number("without", k);
    const why = without === null ? "" : `: ${format(without, 2)} tokens were expected without it, and less of it ` +
      "than its time is worth";
    return `${name} was not asked${why}.`;
  });
  return html`<div class="sv-proposers">
    <${Table} label="What each drafter did in this step" class="ui-dense" columns=${columns} rows=${rows} />
    ${left.map((words) => html`<p class="sv-verdict-note">${words}</p>`)}
  </div>`;
}

/** Over the run: how often a token stood after an accepted parent, by who proposed it, and who others beside it. */
/** @param {{ inspector: Inspector }} props */
export function Shares({ inspector }) {
  inspector.version.value;
  const { report, run } = inspector.model;
  const shares = report?.branches.proposed_by ?? [];
  if (!shares.length || !run.complete) return null;
  const count = drafters(inspector.model).length;
  /** @param {BranchCounts["proposed_by"][number]} share */
  const row = ({ who, mask, share, accepted, judged }) => html`<li class="sv-share-row">
    <${Held} is="span" of=${discSample(count, mask)} /><span>${who}</span>
    <span class="ui-bar" aria-hidden="true"><i style="width:${(100 * (share ?? 0)).toFixed(1)}%" /></span>
    <b>${accepted ? probability(share) : "0"}</b><span class="sv-faint">${accepted} of ${judged}</span></li>`;
  return html`<section class="sv-shares" aria-label="Acceptance by who proposed">
    <p class="sv-verdict-note">Accepted after an accepted parent, over the run:</p>
    <ul>${shares.map(row)}</ul></section>`;
}
