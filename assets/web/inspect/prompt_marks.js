/* Prompt tokens in words and small drawings: what they offered, what came of it, the legend. */

import { h, plural, s } from "specviz/base/dom.js";
import { quoted } from "specviz/inspect/drafting.js";

const KIND = "prompt";

const JOINT = "joint"; // what several vectors of a prompt token guess together

const MARKS = 6; // prompt tokens drawn one by one

const APART = 10; // pixels from one to the next

/** Whether a run hangs prompt tokens on its trees; a live one is known by its declared numbers. */
export function present(model) {
  return (model.run.node_terms || []).some(({ key }) => key === "next_state") || model.trace.probes.kind.includes(KIND);
}

/**
 * Node → its prompt tokens in order: [{distance, probe, rows: [{token, prob}], joint}], a row per trained vector;
 * ``probe`` is the number of the first, ``joint`` what several guess together, where that is recorded.
 */
export function hung(model, step) {
  const { parent, offset, kind, token, prob } = model.trace.probes;
  const found = new Map();
  const [from, to] = model.rows("probes", step);
  for (let row = from; row < to; row++) {
    const mine = found.get(parent[row]) || [];
    if (kind[row] === JOINT) {
      const place = mine.find((one) => one.distance === offset[row]);
      if (place) place.joint = { token: token[row], prob: prob[row] };
    }
    if (kind[row] !== KIND) continue;
    if (!found.has(parent[row])) found.set(parent[row], []);
    const list = found.get(parent[row]);
    if (!list.length || list[list.length - 1].distance !== offset[row])
      list.push({ distance: offset[row], probe: row - from, rows: [], joint: null });
    list[list.length - 1].rows.push({ token: token[row], prob: prob[row] });
  }
  return found;
}

/** Distance → the guesses that entered a step's tree, by rank: [{rank, token, prob}]. */
function offered(model, step) {
  const found = new Map();
  const ranks = model.trace.nodes["term:guess_rank"];
  if (!ranks || step >= model.stepCount) return found;
  const { token, depth, draft_prob: own } = model.trace.nodes;
  const [from, to] = model.rows("nodes", step);
  for (let row = from; row < to; row++) {
    const rank = ranks[row];
    if (typeof rank !== "number") continue;
    if (!found.has(depth[row])) found.set(depth[row], []);
    const list = found.get(depth[row]);
    if (!list.some((one) => one.rank === rank)) list.push({ rank, token: token[row], prob: own[row] });
  }
  for (const list of found.values()) list.sort((a, b) => a.rank - b.rank);
  return found;
}

/**
 * What the prompt tokens of the node where acceptance ended guessed, and what the text became there:
 * [{distance, first, others, position, became}]. The token behind the bonus is at distance 1.
 */
export function outcome(model, step) {
  const { status } = model.trace.nodes;
  const [from, to] = model.rows("nodes", step);
  let last = 0;
  for (let row = from; row < to; row++) if (status[row] === "accepted") last = row - from;
  const { context, emitted } = model.steps;
  const end = context[step] + emitted[step];
  const next = offered(model, step + 1);
  return (hung(model, step).get(last) || []).map(({ distance, probe, rows, joint }) => {
    const guesses = next.get(distance) || [];
    const told = guesses.find((one) => one.rank === 0);
    return {
      distance,
      probe,
      first: rows.length === 1 ? rows[0] : joint || told || null, // several vectors guess together
      others: guesses.filter((one) => one.rank > 0),
      position: end - 1 + distance,
      became: model.trace.tokens.id[end - 1 + distance],
    };
  });
}

/** What a step offered, for its sentence. */
export function offer(owner, view) {
  const state = owner.model.stepTerms.some(({ key }) => key === "state")
    ? `in state ${owner.model.stepTerm(view.number, "state")}, `
    : "";
  const deep = view.depth > 1 ? `, up to ${view.depth} ahead` : "";
  const guesses = plural(view.drafted, "guess", "guesses");
  return [`${state}the prompt tokens offered ${guesses}${deep}, after `, quoted(owner, view.root), ", "];
}

/** Whether a step ended its run: no state follows. */
export const over = ({ model }, view) => view.bonus < 0 || (model.run.complete && view.number === model.stepCount - 1);

/** The state that follows a step, for its sentence. */
export function follows(owner, view) {
  if (over(owner, view)) return [];
  const count = owner.prompts.count(view.last);
  const where = view.last ? "The last accepted node has" : "The root has";
  return [` ${where} ${plural(count, "prompt token")}: `, h("b", {}, `state ${count} follows`), "."];
}

const marks = (count) => (count > MARKS ? 1 : count);

/** The outline of a row of prompt tokens, hung from a box: a chain, as each sees those before it. */
function chain(count) {
  let d = count ? "M7 0V3" : "";
  for (let k = 0; k < marks(count); k++) {
    const x = 7 + APART * k;
    d += `M${x} 3l4 4-4 4-4-4z${k ? `M${x - APART + 4} 7h2` : ""}`;
  }
  return d;
}

/** What a node of the tree hangs: {d, text, x, width}. */
export function rail(count) {
  const more = count > MARKS ? `×${count} ` : "";
  const text = `${more}→${count}`;
  const x = count ? 15 + APART * (marks(count) - 1) : 3;
  return { d: chain(count), text, x, width: x + 9 + 6 * text.length };
}

export function legend(owner) {
  const { kind } = owner.model.trace.probes;
  const count = kind.reduce((sum, one) => sum + (one === KIND ? 1 : 0), 0);
  const sample = (...inside) =>
    s("svg", { class: "sv-mini", width: 26, height: 14, viewBox: "0 0 26 14", "aria-hidden": "true" }, ...inside);
  const entry = (mini, text, help) =>
    owner.tip.add(h("li", { class: "sv-of" }, mini, h("span", {}, text)), () => [help]);
  const row = (name) =>
    s(
      "g",
      { class: `sv-hung ${name}`, transform: "translate(3 0)" },
      s("path", { class: "sv-hung-marks", d: chain(2) }),
    );
  const pill = s(
    "g",
    { class: "sv-hung" },
    s("rect", { class: "sv-hung-pill", x: 1, y: 1, width: 22, height: 12, rx: 6 }),
    s("text", { class: "sv-hung-state", x: 12, y: 10.5 }, "→2"),
  );
  return [
    entry(
      sample(row("")),
      ["prompt tokens ", h("b", {}, count.toLocaleString("en"))],
      "Trained inputs hung below a node: no candidates, they only guess the tokens after it. Rows of the whole run.",
    ),
    entry(
      sample(row("sv-hung-read")),
      "those read",
      "The prompt tokens of the node where acceptance ended: their guesses make the next step's tree.",
    ),
    entry(
      sample(pill),
      "next state",
      "The state that follows if acceptance ends at this node: the number of its prompt tokens, and how deep the " +
        "next tree can be.",
    ),
  ];
}
