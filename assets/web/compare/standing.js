/* How lanes stand before a race is over, in a sentence: what is true so far. No DOM. */

import { plural } from "specviz/base/numbers.js";

/** A lane at the clock: its steps, the tokens they wrote, and whether that is all. */
/** @typedef {{ name: string, steps: number, tokens: number, over: boolean }} Standing */

/** @param {string[]} words */
const listed = (words) => [words.slice(0, -1).join(", "), words[words.length - 1]].filter(Boolean).join(" and ");

/** What a lane does. @type {(state: string, ahead: number, steps: number) => string} */
export function stage(state, ahead, steps) {
  if (state === "waiting" && ahead > 0) return `waiting: ${plural(ahead, "run")} before it`;
  return state === "running" && !steps ? "reading the prompt" : state === "done" ? "" : state;
}

/** By time or forwards: who has written most, and who comes next. */
/** @type {(lanes: Standing[], after: string) => string} */
export function lead(lanes, after) {
  const [first, ...others] = [...lanes].sort((a, b) => b.tokens - a.tokens);
  if (!first?.tokens) return `After ${after}: nothing is written yet.`;
  const most = plural(first.tokens, "token");
  const level = [first, ...others.filter(({ tokens }) => tokens === first.tokens)].map(({ name }) => name);
  const next = others.find(({ tokens }) => tokens < first.tokens);
  const rest = next ? `; ${next.name} has ${next.tokens.toLocaleString("en")}` : "";
  if (level.length > 1) return `After ${after}: ${listed(level)} have written ${most} each${rest}.`;
  return `After ${after}: ${first.name} ${first.over ? "has written all its" : "is ahead with"} ${most}${rest}.`;
}

/** Up to a position: who needed the fewest forwards, and who comes next. */
/** @type {(lanes: Standing[], position: number) => string} */
export function fewest(lanes, position) {
  const [first, ...others] = lanes.filter(({ tokens }) => tokens >= position).sort((a, b) => a.steps - b.steps);
  if (!position || !first) return "Nothing is written yet.";
  const level = [first, ...others.filter(({ steps }) => steps === first.steps)].map(({ name }) => name);
  const next = others.find(({ steps }) => steps > first.steps);
  const rest = next ? `, ${next.name} ${next.steps.toLocaleString("en")}` : "";
  const each = level.length > 1 ? " each" : "";
  const forwards = `${plural(first.steps, "forward")}${each}`;
  return `To write ${plural(position, "token")}: ${listed(level)} needed ${forwards}${rest}.`;
}
