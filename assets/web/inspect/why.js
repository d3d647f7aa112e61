/* The panel "Why": a step in sentences, what it cost, a verdict per token, and the facts of the token selected. */

import { OPEN } from "specviz/base/model.js";
import { format, plural, probability } from "specviz/base/numbers.js";
import { explain } from "specviz/base/terms.js";
import { Proposers, Shares } from "specviz/inspect/proposers.js";
import { TokenFacts } from "specviz/inspect/token_facts.js";
import { ended, forbidder } from "specviz/inspect/tree_words.js";
import { Held } from "specviz/ui/element.js";
import { html } from "specviz/ui/html.js";
import { Hint } from "specviz/ui/tooltip.js";

const MOST_REFUSED = 4; // rows; the others are counted
const MOST_ROWS = 12; // that presenter mode has room for, one below the other
const LABEL = 18; // characters

/** @type {Record<string, string>} */
const MARKS = { accepted: "✓", rejected: "✕", forbidden: "⊘", own: "+" };

/** How likely a token is: a bar for the model, a line for the drafter. */
/** @param {{ p: number | null, q?: number | null }} props */
const Meter = ({ p, q = null }) => html`<span class="sv-meter" aria-hidden="true">
  <i style="width:${(100 * (p ?? 0)).toFixed(1)}%" />
  ${q !== null && html`<b style="left:${(100 * q).toFixed(1)}%" />`}</span>`;

/**
 * A token's verdict; a click selects it everywhere.
 *
 * @param {{ inspector: Inspector, node: number, token: number, state: string, p: number | null, q?: number | null,
 *   said: string }} props ``said``: the state in words
 */
function Verdict({ inspector, node, token, state, p, q = null, said }) {
  const now = inspector.selection.value;
  const chosen = !!now && now.node === node && now.step === inspector.at.value;
  const text = token < 0 ? "■ end" : inspector.model.pieces.word(token, LABEL);
  const sign = /[\p{L}\p{N}]/u.test(text) ? "" : " sv-sign"; // a stroke through it would erase it
  return html`<li><button type="button" class="sv-verdict-row sv-is-${state}" aria-pressed=${String(chosen)}
    onClick=${() => (chosen ? inspector.deselect() : inspector.selectNode(node))}>
    <span class="sv-mark" aria-hidden="true">${MARKS[state]}</span>
    <code class="sv-word${sign}">${text}</code><span class="svp-unseen">${said}, probability</span>
    <${Meter} p=${p} q=${q} /><span class="sv-value">${p === null ? "–" : probability(p)}</span>
  </button></li>`;
}

/** A verdict per token: kept, refused, the target's own; how many were not reached. */
/** @param {{ inspector: Inspector, view: StepView }} props */
function Verdicts({ inspector, view }) {
  const { refused, path, targets, last } = view;
  const unread = view.nodes.filter(({ status }) => status === "unreached").length;
  const shown = refused.slice(0, MOST_REFUSED);
  const first = targets.get(last) ?? [];
  const own = first.find(({ token }) => token === view.bonus)?.prob ?? null;
  const guessed = [...path, ...shown].some(({ draftProb }) => draftProb !== null);
  const banned = [...new Set(view.nodes.map((node) => forbidder(inspector.model, node)))].filter(Boolean);
  const beside = view.drafted - path.length - refused.length - unread;
  const left = [
    banned.length && `⊘ forbidden by ${banned.join(" and ")}`,
    refused.length > MOST_REFUSED && `${refused.length - MOST_REFUSED} more refused`,
    beside > 0 && path.length > 0 && `${plural(beside, "other guess", "other guesses")} beside a kept token`,
    unread && `${plural(unread, "drafted token")} not reached`,
  ].filter(Boolean).join("; ");
  /** @type {(node: TreeNode, state: string, said: string) => import("preact").Drawn} */
  const row = (node, state, said) => html`<${Verdict} key=${node.index} inspector=${inspector} node=${node.index}
    token=${node.token} state=${state} p=${node.prob} q=${node.draftProb} said=${said} />`;
  return html`
    <p class="sv-verdict-head" aria-hidden="true"><span>${view.drafted ? "draft" : "token"}</span>
      <span>how likely to the model${guessed && " · ❘ to the drafter"}</span></p>
    <ul class="sv-verdicts${path.length + shown.length > MOST_ROWS ? " sv-many" : ""}" aria-label="Verdict per token">
      ${path.map((node) => row(node, "accepted", "kept"))}
      ${shown.map((node) => node.forbidden
        ? row(node, "forbidden", `forbidden by ${forbidder(inspector.model, node)}`)
        : row(node, "rejected", "refused"))}
      ${!ended(view) && html`<${Verdict} key="own" inspector=${inspector} node=${-1} token=${view.bonus} state="own"
        p=${own} said="written by the model itself" />`}
    </ul>
    ${left && html`<p class="sv-verdict-note">${left[0].toUpperCase() + left.slice(1)}.</p>`}`;
}

/** The target's own first choices where the draft was left. @param {{ inspector: Inspector, view: StepView }} props */
function Rather({ inspector, view }) {
  const choices = view.targets.get(view.last) ?? [];
  if (choices.length < 2 || view.bonus < 0) return null;
  const { pieces } = inspector.model;
  const after = pieces.word(view.nodes[view.last].token, LABEL);
  return html`<p class="sv-verdict-note">The model's first choices after <code class="sv-token">${after}</code>:</p>
    <ul class="sv-verdicts">${choices.slice(0, 4).map(({ token, prob }) => html`<li key=${token}>
      <span class="sv-verdict-row ${token === view.bonus ? "sv-is-own" : "sv-is-unreached"}">
        <span class="sv-mark" aria-hidden="true" /><code class="sv-word">${pieces.word(token, LABEL)}</code>
        <${Meter} p=${prob} /><span class="sv-value">${probability(prob)}</span></span></li>`)}</ul>`;
}

/** ms that plain decoding takes for a token: measured beside the run, or a forward of one row. @param {Model} model */
export function plainTime({ run }) {
  const { speedup, tokens_per_s: speed } = run.metrics ?? {};
  if (speedup && speed) return { ms: (1000 * speedup) / speed, measured: true };
  const { one_row_ms: row } = run.timings;
  return row ? { ms: row, measured: false } : null;
}

/** What the step took, beside what plain decoding takes for the same tokens. */
/** @param {{ inspector: Inspector, view: StepView }} props */
function Cost({ inspector, view }) {
  const { draft_ms: draft, verify_ms: verify } = view;
  if (draft === null && verify === null) return null;
  const took = inspector.timeline.total(view.number);
  const plain = plainTime(inspector.model);
  const parts = `${format(draft ?? 0)} ms to draft, ${format(verify ?? 0)} ms to verify`;
  /** @param {string} words */
  const time = (words) =>
    html`<${Hint} class="sv-term" tip=${() => explain(inspector, "step_time")}>${words}</${Hint}>`;
  if (!plain || !view.emitted)
    return html`<p class="sv-verdict-note sv-took">${time(`${format(took)} ms`)}: ${parts}.</p>`;
  const each = plain.ms * view.emitted;
  const most = Math.max(took, each);
  const tokens = plural(view.emitted, "token");
  const other = plain.measured ? `plain, ${tokens}` : `${tokens}, a pass each`;
  /** @type {(name: import("preact").Drawn, ms: number, look: string, title: string) => import("preact").Drawn} */
  const bar = (name, ms, look, title) => html`<div class="sv-cost-row ${look}" title=${title}><span>${name}</span>
    <span class="ui-bar"><i style="width:${Math.max(0.5, (100 * ms) / most).toFixed(1)}%" /></span>
    <b>${ms < 10 ? format(ms, 2) : Math.round(ms).toLocaleString("en")} ms</b></div>`;
  const as = plain.measured ? "as plain decoding took beside this run" : "as a forward of one row takes";
  const about = `${format(plain.ms)} ms a token, ${as}`;
  return html`<div class="sv-cost">
    ${bar(time("this step"), took, took < each ? "sv-cheaper" : "sv-dearer", parts)}
    ${bar(other, each, "", about)}</div>`;
}

/** The step: why it came as it did. @param {{ inspector: Inspector }} props */
export function Why({ inspector }) {
  inspector.version.value;
  const number = inspector.at.value;
  const { model } = inspector;
  const waits = inspector.tabs.at.value !== "why" || !model?.stepCount; // (nothing is drawn out of sight)
  const view = waits ? null : model.step(number);
  const decided = view && view.bonus !== OPEN && !model.run.unknown?.length;
  return html`<div class="sv-why-panel">
    <${Held} of=${inspector.sentence} />
    ${view && model.run.imported?.warnings?.map((words) => html`<p class="sv-verdict-note">⚠ ${words}</p>`)}
    ${decided && html`<${Cost} inspector=${inspector} view=${view} />
      <${Proposers} inspector=${inspector} view=${view} />
      <${Verdicts} inspector=${inspector} view=${view} /><${Rather} inspector=${inspector} view=${view} />
      <${Shares} inspector=${inspector} />`}
    ${view && html`<${TokenFacts} inspector=${inspector} view=${view} />`}
  </div>`;
}
