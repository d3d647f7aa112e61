/* What every number means: a sentence, the formula with a run's or a step's numbers, and the code that made it. */

import { OPEN } from "specviz/base/model.js";
import { format, h, plural } from "specviz/base/dom.js";
import { regrets } from "specviz/base/regrets.js";
import { drafted, terms, verified } from "specviz/generated/terms.js"; // made by specviz/terms.py

/**
 * What a tooltip of numbers needs: the run, the step shown, the tooltip.
 *
 * @typedef {Pick<Inspector, "model" | "number" | "tip">} Owner
 */
/**
 * The formula with the run's numbers, and what it comes to; null where they are not there.
 *
 * @typedef {[string, number] | null} Worked
 */

/** @type {(values: (number | null)[]) => number} */
const sum = (values) => values.reduce((/** @type {number} */ total, value) => total + (value || 0), 0);
/** @type {(model: Model) => number} */
const written = (model) => model.tokenCount - model.promptLength;
/** @type {(model: Model) => number | null | undefined} */
const decoding = (model) => model.run.timings?.decode_ms || model.steps.elapsed_ms.at(-1);
/** @type {(above: number, below: number, names?: [string, string]) => [string, number]} */
const ratio = (above, below, names = ["", ""]) => [
  `${format(above)}${names[0]} ÷ ${format(below)}${names[1]}`,
  above / below,
];

/** @param {Model} model */
function copied({ trace, promptLength }) {
  const { source, pool } = trace.tokens;
  let count = 0;
  for (let k = promptLength; k < source.length; k++) if (source[k] >= 0 || pool[k] >= 0) count++;
  return count;
}

/** @param {Model} model */
function overlaps(model) {
  const { status, origin, "term:overlap": overlap } = model.trace.nodes;
  /** @type {(k: number) => boolean} */
  const reached = (k) => ["accepted", "rejected"].includes(status[k]) && origin[k] !== "expansion";
  return overlap ? overlap.filter((value, k) => value !== null && reached(k)) : [];
}

/** @param {Model} model */
function forwards(model) {
  const { "term:forward_ms": spent, depth, verify_ms: verify } = model.steps;
  const rows = (spent || []).map((ms, k) => [ms, depth[k], verify[k]]);
  return rows.filter(([ms, deep, checked]) => deep && ms !== null && checked !== null);
}

/** Key → a run's number. @type {Record<string, (model: Model) => Worked>} */
const NUMBERS = {
  tokens: (model) => [`${format(model.tokenCount)} − ${format(model.promptLength)} of the prompt`, written(model)],
  steps: (model) => [`${format(model.stepCount)} rows`, model.stepCount],
  drafted: ({ steps }) => [
    `${format(sum(steps.drafted))} in ${plural(steps.drafted.length, "step")}`,
    sum(steps.drafted),
  ],
  accepted: ({ steps }) => [
    `${format(sum(steps.accepted))} in ${plural(steps.accepted.length, "step")}`,
    sum(steps.accepted),
  ],
  tokens_per_step: ({ steps }) => {
    const count = steps.accepted.length;
    return [`(${format(sum(steps.accepted))} + ${count}) ÷ ${count}`, (sum(steps.accepted) + count) / count];
  },
  tokens_per_s: (model) => {
    const ms = decoding(model);
    return ms ? [`${format(written(model))} ÷ ${format(ms / 1000)} s`, (1000 * written(model)) / ms] : null;
  },
  speedup: ({ run }) => {
    const { tokens_per_s: speed, speedup } = run.metrics || {};
    return speed && speedup ? ratio(speed, speed / speedup, ["", " tokens/s"]) : null;
  },
  kv_mb: (model) => {
    const bytes = model.run.memory?.kv_bytes_per_token;
    return bytes ? [`${format(bytes)} × ${format(model.tokenCount)} ÷ 10⁶`, (bytes * model.tokenCount) / 1e6] : null;
  },
  draft_share: ({ steps }) => ratio(sum(steps.draft_ms), sum(steps.verify_ms), [" ms", " ms"]),
  beta: (model) => {
    const values = overlaps(model);
    return values.length ? ratio(sum(values), values.length, ["", " tokens"]) : null;
  },
  draft_cost: (model) => {
    const rows = forwards(model);
    const [spent, runs, checked] = [0, 1, 2].map((k) => sum(rows.map((row) => row[k])));
    return rows.length ? ratio(spent / runs, checked / rows.length, [" ms", " ms"]) : null;
  },
  draft_efficiency: ({ steps }) => ratio(sum(steps.accepted), sum(steps.drafted)),
  copied_share: (model) => ratio(copied(model), written(model), ["", " tokens"]),
  no_draft_steps: ({ steps }) => {
    const none = steps.drafted.filter((count) => !count).length;
    return [`${none} of ${plural(steps.drafted.length, "step")}`, none];
  },
  ranking_regret: (model) => {
    const lost = regrets(model).map((one) => one.tokens);
    return lost.length ? ratio(sum(lost), lost.length, ["", lost.length === 1 ? " step" : " steps"]) : null;
  },
  differs: (model) => [`${model.differs} of ${plural(written(model), "token")}`, model.differs],
};

/** @type {(value: number | null) => string} */
const ms = (value) => `${format(value || 0)} ms`;

/**
 * The same of one step; a run's metric says what this step adds to it.
 *
 * @type {Record<string, (view: StepView) => string>}
 */
const OF_STEP = {
  tokens: (view) => `+ ${view.emitted}`,
  drafted: (view) => `+ ${view.drafted}`,
  accepted: (view) => `+ ${view.accepted}`,
  tokens_per_step: (view) => `${view.accepted} + 1 = ${view.accepted + 1}`,
  draft_share: (view) =>
    view.verify_ms
      ? `${ms(view.draft_ms)} ÷ ${ms(view.verify_ms)} = ${format((100 * (view.draft_ms || 0)) / view.verify_ms)} %`
      : "",
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
    return `${parts.map((part) => format(part || 0)).join(" + ")} = ${ms(sum(parts))}`;
  },
  step_candidates: (view) => plural(view.candidates.length, "place"),
  step_score: (view) => (view.chosen && typeof view.chosen.score === "number" ? format(view.chosen.score) : ""),
  step_regret: (view) => lost(view),
};

/** @type {(view: StepView) => string} */
const lost = ({ best, chosen }) =>
  best && chosen ? `${best.would} − ${chosen.would} = ${best.would - chosen.would}` : "";

const DRAFT = ["step_drafted", "step_candidates", "step_score"];
const SHARES = ["draft_share", "copied_share", "beta", "draft_efficiency"];
/** @type {(key: string, value: number) => string} */
const percent = (key, value) => (SHARES.includes(key) ? `${format(100 * value)} %` : format(value));

/** The code that made a number of this run. @type {(model: Model, key: string, view: StepView | null) => string} */
function codeOf(model, key, view) {
  const { name } = model.run.method;
  if (key === "step_drafted") return drafted[name] || terms[key].code;
  if (key === "step_accepted" && view && view.route === "drawn") return verified.drawn;
  if (key === "step_accepted") return verified[name] || terms[key].code;
  return terms[key].code;
}

/**
 * A tooltip: sentence, formula, its numbers, code. ``told`` is what the run's own record says of a metric.
 *
 * @type {(owner: Owner, key: string, told?: Partial<MetricHelp>) => Child[]}
 */
export function explain(owner, key, told) {
  const term = { ...terms[key], ...told };
  const { model } = owner;
  const view = model.stepCount ? model.step(owner.number) : null;
  const open = view && view.bonus === OPEN; // of a step that is not decided yet, only the draft is known
  const whole = NUMBERS[key] && !open && NUMBERS[key](model);
  const here = view && OF_STEP[key] && (!open || DRAFT.includes(key)) ? OF_STEP[key](view) : "";
  /** @type {(label: string, text: string) => HTMLElement} */
  const line = (label, text) => h("div", { class: "sv-formula" }, h("span", {}, label), text);
  return [
    h("b", {}, term.label || key),
    term.help ? h("div", {}, term.help) : null,
    term.formula ? h("div", { class: "sv-formula" }, `= ${term.formula}`) : null,
    whole && Number.isFinite(whole[1]) && whole[0] ? line("this run", `${whole[0]} = ${percent(key, whole[1])}`) : null,
    here ? line("this step", here) : null,
    terms[key] ? codeLine(codeOf(model, key, view)) : null,
  ].filter(Boolean);
}

/** @param {string} code */
function codeLine(code) {
  const [file, name] = code.split(" ");
  return h("div", { class: "sv-tip-code" }, h("code", {}, file), " · ", h("code", {}, name));
}

/**
 * Words of a sentence that explain themselves.
 *
 * @type {(owner: Owner, key: string, ...words: Child[]) => HTMLElement}
 */
export function term(owner, key, ...words) {
  const span = h("span", { class: "sv-term", tabindex: "0" }, ...words);
  return owner.tip.add(span, () => explain(owner, key));
}

/** A run's number, worked out. @type {(key: string, model: Model) => Worked} */
export const numbers = (key, model) => (NUMBERS[key] ? NUMBERS[key](model) : null);

export const KEYS = Object.keys(NUMBERS);
