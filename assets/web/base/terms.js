/* What every number means: a sentence, the formula with a run's or a step's numbers, and the code that made it. */

import { OPEN } from "specviz/base/model.js";
import { h } from "specviz/base/dom.js";
import { format, plural } from "specviz/base/numbers.js";
import { terms, verified } from "specviz/generated/terms.js"; // made by specviz/terms.py

/** What a tooltip of numbers needs: the run, the step shown, the tooltip. */
/** @typedef {Pick<Inspector, "model" | "number" | "tip">} Owner */
/** The formula with the run's numbers, and what it comes to; null where they are not there. */
/** @typedef {[string, number] | null} Worked */

/** How a run ended, in words. @type {Record<string, string>} */
export const ENDS = { eos: "by itself", "max tokens": "at its limit", cancelled: "stopped", error: "failed" };

/** @type {(values: (number | null)[]) => number} */
const sum = (values) => values.reduce((/** @type {number} */ total, value) => total + (value || 0), 0);
/** @type {(value: number | null) => string} */
const ms = (value) => `${format(value || 0)} ms`;

/** The same of one step; a run's metric says what this step adds to it. */
/** @type {Record<string, (view: StepView) => string>} */
const OF_STEP = {
  tokens: (view) => `+ ${view.emitted}`,
  drafted: (view) => `+ ${view.drafted}`,
  accepted: (view) => `+ ${view.accepted}`,
  tokens_per_step: (view) => `${view.accepted} + 1 = ${view.accepted + 1}`,
  draft_share: (view) =>
    view.verify_ms
      ? `${ms(view.draft_ms)} ÷ ${ms(view.verify_ms)} = ${format((100 * (view.draft_ms || 0)) / view.verify_ms)} %`
      : "",
  depth_efficiency: (view) => (view.depth ? `${view.accepted} ÷ ${view.depth}` : "no draft"),
  draft_efficiency: (view) => (view.drafted ? `${view.accepted} ÷ ${view.drafted}` : "no draft"),
  no_draft_steps: (view) => (view.drafted ? "has a draft" : `no draft: ${view.reason}`),
  ranking_regret: (view) => (view.chosen && view.chosen.would >= 0 && lost(view)) || "no chosen candidate",
  step_drafted: (view) =>
    view.depth === view.drafted ? `${view.drafted}, in one line` : `${view.drafted}, up to ${view.depth} deep`,
  step_accepted: (view) => `${view.accepted} of ${view.drafted}`,
  step_bonus: (view) => {
    const choices = view.targets.get(view.last) || [];
    const choice = choices.findIndex((one) => one.token === view.bonus);
    if (view.bonus < 0) return "a stop token";
    return choice < 0 ? "" : `choice no. ${choice + 1}, p = ${format(choices[choice].prob)}`;
  },
  step_written: (view) =>
    view.bonus < 0 ? `${view.emitted}, then the stop token` : `${view.accepted} + 1 = ${view.emitted}`,
  step_time: (view) => {
    const parts = [view.draft_ms, view.verify_ms, view.commit_ms];
    if (parts.every((part) => part === null)) return "not recorded";
    const decided = view.decide_ms === null ? "" : `; of verifying, the decision took ${ms(view.decide_ms)}`;
    return `${parts.map((part) => format(part || 0)).join(" + ")} = ${ms(sum(parts))}${decided}`;
  },
  step_candidates: (view) => plural(view.candidates.length, "place"),
  step_score: (view) => (view.chosen && typeof view.chosen.score === "number" ? format(view.chosen.score) : ""),
  step_regret: (view) => lost(view),
};

/** @type {(view: StepView) => string} */
const lost = ({ best, chosen }) =>
  best && chosen ? `${best.would} − ${chosen.would} = ${best.would - chosen.would}` : "";

/** A run's number, worked out: the parts that Python gave in the formula's places. */
/** @type {(key: string, model: Model) => Worked} */
export function numbers(key, model) {
  const worked = terms[key]?.worked;
  const { value, ...parts } = model.metric(key);
  if (!worked || typeof value !== "number") return null;
  const text = worked.replace(/\{(\w+)\}/g, (_, part) => format(parts[part]));
  return [text.replace(/(^|\s)1 (row|step|token)s(?![\w/])/g, "$11 $2"), value];
}

const DRAFT = ["step_drafted", "step_candidates", "step_score"];
const SHARES = ["draft_share", "copied_share", "beta", "draft_efficiency", "depth_efficiency"];
/** @type {(key: string, value: number) => string} */
const percent = (key, value) => (SHARES.includes(key) ? `${format(100 * value)} %` : format(value));

/** The code that made a number of this run. @type {(model: Model, key: string, view: StepView | null) => string} */
function codeOf(model, key, view) {
  const { drafts, verifies } = model.run.method.code ?? {};
  if (key === "step_drafted" && drafts) return drafts;
  if (key === "step_accepted" && verifies) return verifies;
  if (key === "step_accepted" && view?.route === "drawn") return verified.drawn;
  return terms[key].code;
}

/** A tooltip: sentence, formula, its numbers, code. ``told`` is what the run's own record says of a metric; where its
 *  sentence is of an earlier version, today's stands. */
/** @type {(owner: Owner, key: string, told?: Partial<RunMetric>) => Child[]} */
export function explain(owner, key, told) {
  const term = { ...terms[key], ...told };
  term.help = terms[key]?.help ?? term.help;
  const { model } = owner;
  const view = model.stepCount ? model.step(owner.number) : null;
  const open = view && view.bonus === OPEN; // of a step that is not decided yet, only the draft is known
  const whole = open ? null : numbers(key, model);
  const here = view && OF_STEP[key] && (!open || DRAFT.includes(key)) ? OF_STEP[key](view) : "";
  /** @type {(label: string, text: string) => HTMLElement} */
  const line = (label, text) => h("div.sv-formula", h("span", label), text);
  return [
    h("b", term.label || key),
    term.help ? h("div", term.help) : null,
    term.formula ? h("div.sv-formula", `= ${term.formula}`) : null,
    whole ? line("this run", `${whole[0]} = ${percent(key, whole[1])}`) : null,
    here ? line("this step", here) : null,
    model.report?.notes?.[key] ? h("div.sv-formula", model.report.notes[key]) : null,
    terms[key] && !(told && DRAFT.includes(key)) ? codeLine(codeOf(model, key, view)) : null,
  ].filter(Boolean);
}

/** @param {string} code */
function codeLine(code) {
  const [file, name] = code.split(" ");
  return h("div.sv-tip-code", h("code", file), " · ", h("code", name));
}

/** Words of a sentence that explain themselves. */
/** @type {(owner: Owner, key: string, ...words: Child[]) => HTMLElement} */
export function term(owner, key, ...words) {
  return owner.tip.explained("span.sv-term", () => explain(owner, key), ...words);
}
