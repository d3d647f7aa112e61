/* Prompt tokens in words and small drawings: what they offered, what came of it, the legend. */

import { h, s } from "specviz/base/dom.js";
import { plural } from "specviz/base/numbers.js";

const KIND = "prompt";
const JOINT = "joint"; // what several vectors of a prompt token guess together
const MARKS = 6; // prompt tokens drawn one by one
const APART = 10; // pixels from one to the next
const FIRST = 24; // right of the edge that leaves a node
const PILL = { y: 2, height: 16, rx: 8 };

/** Whether a run hangs prompt tokens on its trees; a live one is known by its declared numbers. @param {Model} model */
export function present(model) {
  return (model.run.node_terms || []).some(({ key }) => key === "next_state") || model.trace.probes.kind.includes(KIND);
}

/**
 * Node → its prompt tokens in order, a row per trained vector; ``probe`` is the number of the first, ``joint`` what
 * several guess together, where that is recorded.
 *
 * @type {(model: Model, step: number) => Map<number, PromptGuess[]>}
 */
export function hung(model, step) {
  const { parent, offset, kind, token, prob } = model.trace.probes;
  /** @type {Map<number, PromptGuess[]>} */
  const byNode = new Map();
  model.rows("probes", step).forEach((row, probe) => {
    const list = byNode.get(parent[row]) || [];
    const guess = { token: token[row], prob: prob[row] };
    if (kind[row] === JOINT) {
      const place = list.find((one) => one.distance === offset[row]);
      if (place) place.joint = guess;
    }
    if (kind[row] !== KIND) return;
    byNode.set(parent[row], list);
    const last = list.at(-1);
    if (last?.distance === offset[row]) last.rows.push(guess);
    else list.push({ distance: offset[row], probe, rows: [guess], joint: null });
  });
  return byNode;
}

/** Distance → the guesses that entered a step's tree, by rank. @type {OfStep<Map<number, OfferedGuess[]>>} */
function offered(model, step) {
  /** @type {Map<number, OfferedGuess[]>} */
  const byDistance = new Map();
  const ranks = model.trace.nodes["term:guess_rank"];
  if (!ranks || step >= model.stepCount) return byDistance;
  const { token, depth, draft_prob: own } = model.trace.nodes;
  for (const row of model.rows("nodes", step)) {
    const rank = ranks[row];
    if (typeof rank !== "number") continue;
    const list = byDistance.get(depth[row]) || [];
    byDistance.set(depth[row], list);
    if (!list.some((one) => one.rank === rank)) list.push({ rank, token: token[row], prob: own[row] ?? 0 });
  }
  for (const list of byDistance.values()) list.sort((a, b) => a.rank - b.rank);
  return byDistance;
}

/**
 * What the prompt tokens of the node where acceptance ended guessed, and what the text became there. The token behind
 * the bonus is at distance 1.
 *
 * @type {(model: Model, step: number) => PromptOutcome[]}
 */
export function outcome(model, step) {
  const { status } = model.trace.nodes;
  const last = Math.max(0, model.rows("nodes", step).findLastIndex((row) => status[row] === "accepted"));
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

/** Whether a step ended its run: no state follows. @type {(owner: Inspector, view: StepView) => boolean} */
export const over = ({ model }, view) => view.bonus < 0 || (model.run.complete && view.number === model.stepCount - 1);

/** The state that follows a step, for its sentence. @type {(owner: Inspector, view: StepView) => Child[]} */
export function follows(owner, view) {
  if (over(owner, view)) return [];
  const count = owner.prompts.count(view.last);
  const hang = count > 1 ? `${count}\u00a0prompt tokens hang` : `${count || "No"}\u00a0prompt token hangs`;
  const where = `on the last ${view.last ? "accepted" : "written"} token`;
  return [` ${hang} ${where}, so the next step's tree is that of `, h("b", `state\u00a0${count}`), "."];
}

/** @param {number} count */
const marks = (count) => (count > MARKS ? 1 : count);

/** The outline of a row of prompt tokens: a chain, as each sees those before it. @param {number} count */
function chain(count) {
  let d = count ? `M${FIRST} 0V6` : "";
  for (let k = 0; k < marks(count); k++) {
    const x = FIRST + APART * k;
    d += `M${x} 6l4 4-4 4-4-4z${k ? `M${x - APART + 4} 10h2` : ""}`;
  }
  return d;
}

/** What hangs on a node of the tree, as a drawing. @param {number} count */
export function rail(count) {
  const more = count > MARKS ? `×${count} ` : "";
  const text = `${more}→${count}`;
  const x = FIRST + (count ? 9 + APART * (marks(count) - 1) : -4);
  return { d: chain(count), text, x, width: x + 14 + 8 * text.length };
}

/** The drawing of what hangs on a node: its prompt tokens, and the state they lead to. */
export const hanging = () =>
  s("g", { "aria-hidden": "true" }, s("path.sv-hung-marks"), s("rect.sv-hung-pill", PILL),
    s("text.sv-hung-state", { y: 14.4 }));

/** @param {Inspector} owner */
export function legend(owner) {
  const { kind } = owner.model.trace.probes;
  const count = kind.filter((one) => one === KIND).length;
  /** @type {(...inside: Child[]) => SVGElement} */
  const sample = (...inside) =>
    s("svg.sv-mini", { width: 30, height: 20, viewBox: "0 0 30 20", "aria-hidden": "true" }, ...inside);
  /** @type {(mini: SVGElement, text: Child, help: string) => HTMLElement} */
  const entry = (mini, text, help) => owner.tip.add(h("li", mini, h("span", text)), () => [help]);
  /** @type {(name: string) => SVGElement} */
  const row = (name) =>
    s("g", { class: `sv-hung ${name}`, transform: `translate(${10 - FIRST} 0)` },
      s("path.sv-hung-marks", { d: chain(2) }));
  const pill = s(
    "g.sv-hung",
    s("rect.sv-hung-pill", { ...PILL, x: 1, width: 28 }),
    s("text.sv-hung-state", { x: 15, y: 14.4 }, "→2"),
  );
  return [
    entry(
      sample(row("")),
      ["prompt tokens ", h("b", count.toLocaleString("en"))],
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
