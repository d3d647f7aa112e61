/* What every number means: a sentence, the formula with a run's or a step's numbers, and the code that made it. */

import { OPEN } from "specviz/base/model.js";
import { format, h, plural } from "specviz/base/dom.js";
import { regrets } from "specviz/base/regrets.js";
import { drafted, terms, verified } from "specviz/generated/terms.js"; // made by specviz/terms.py

const sum = (values) => values.reduce((total, value) => total + (value || 0), 0);
const known = (values) => values.filter((value) => value !== null && value !== undefined);
const written = (model) => model.tokenCount - model.promptLength;
const decoding = (model) =>
  (model.run.timings || {}).decode_ms || model.steps.elapsed_ms[model.steps.elapsed_ms.length - 1];
const ratio = (above, below, names = ["", ""]) => [
  `${format(above)}${names[0]} ÷ ${format(below)}${names[1]}`,
  above / below,
];

function copied({ trace, promptLength }) {
  const { source, pool } = trace.tokens;
  let count = 0;
  for (let k = promptLength; k < source.length; k++) if (source[k] >= 0 || pool[k] >= 0) count++;
  return count;
}

function overlaps(model) {
  const { status, origin, "term:overlap": overlap } = model.trace.nodes;
  const reached = (k) => ["accepted", "rejected"].includes(status[k]) && origin[k] !== "expansion";
  return overlap ? overlap.filter((value, k) => value !== null && reached(k)) : [];
}

function forwards(model) {
  const { "term:forward_ms": spent, depth, verify_ms: verify } = model.steps;
  const rows = (spent || []).map((ms, k) => [ms, depth[k], verify[k]]);
  return rows.filter(([ms, deep, checked]) => deep && ms !== null && checked !== null);
}

/** Key → (model) => [the formula with the run's numbers, what it comes to], null where they are not there. */
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
    const bytes = (model.run.memory || {}).kv_bytes_per_token;
    return bytes ? [`${format(bytes)} × ${format(model.tokenCount)} ÷ 10⁶`, (bytes * model.tokenCount) / 1e6] : null;
  },
  draft_share: ({ steps }) => ratio(sum(known(steps.draft_ms)), sum(known(steps.verify_ms)), [" ms", " ms"]),
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
    const found = regrets(model);
    const total = sum(found.map((one) => one.tokens));
    return found.length ? ratio(total, found.length, ["", found.length === 1 ? " step" : " steps"]) : null;
  },
  differs: (model) => [`${model.differs} of ${plural(written(model), "token")}`, model.differs],
};

const ms = (value) => `${format(value || 0)} ms`;

/** The same of one step: (view) => text; a run's metric says what this step adds to it. */
const OF_STEP = {
  tokens: (view) => `+ ${view.emitted}`,
  drafted: (view) => `+ ${view.drafted}`,
  accepted: (view) => `+ ${view.accepted}`,
  tokens_per_step: (view) => `${view.accepted} + 1 = ${view.accepted + 1}`,
  draft_share: (view) =>
    view.verify_ms
      ? `${ms(view.draft_ms)} ÷ ${ms(view.verify_ms)} = ${format((100 * view.draft_ms) / view.verify_ms)} %`
      : "",
  draft_efficiency: (view) => (view.drafted ? `${view.accepted} ÷ ${view.drafted}` : "no draft"),
  no_draft_steps: (view) => (view.drafted ? "has a draft" : `no draft: ${view.reason}`),
  ranking_regret: (view) => {
    const { best, chosen } = view;
    return best && chosen && chosen.would >= 0
      ? `${best.would} − ${chosen.would} = ${best.would - chosen.would}`
      : "no chosen candidate";
  },
  step_drafted: (view) =>
    view.depth === view.drafted ? `${view.drafted}, in one line` : `${view.drafted}, up to ${view.depth} deep`,
  step_accepted: (view) => `${view.accepted} of ${view.drafted}`,
  step_bonus: (view) => {
    const choice = (view.targets.get(view.last) || []).findIndex((one) => one.token === view.bonus);
    return view.bonus < 0
      ? "a stop token"
      : choice < 0
        ? ""
        : `choice no. ${choice + 1}, p = ${format(view.targets.get(view.last)[choice].prob)}`;
  },
  step_written: (view) =>
    view.bonus < 0 ? `${view.emitted}, then the stop token` : `${view.accepted} + 1 = ${view.emitted}`,
  step_time: (view) => {
    const parts = [view.draft_ms, view.verify_ms, view.commit_ms];
    return `${parts.map((part) => format(part || 0)).join(" + ")} = ${ms(sum(parts))}`;
  },
  step_candidates: (view) => plural(view.candidates.length, "place"),
  step_score: (view) => (view.chosen && typeof view.chosen.score === "number" ? format(view.chosen.score) : ""),
  step_regret: (view) =>
    view.best && view.chosen
      ? `${view.best.would} − ${view.chosen.would} = ${view.best.would - view.chosen.would}`
      : "",
};

const DRAFT = ["step_drafted", "step_candidates", "step_score"];
const SHARES = ["draft_share", "copied_share", "beta", "draft_efficiency"];
const percent = (key, value) => (SHARES.includes(key) ? `${format(100 * value)} %` : format(value));

/** The code that made a number of this run. */
function codeOf(model, key, view) {
  const { name } = model.run.method;
  if (key === "step_drafted") return drafted[name] || terms[key].code;
  if (key === "step_accepted" && view && view.route === "drawn") return verified.drawn;
  if (key === "step_accepted") return verified[name] || terms[key].code;
  return terms[key].code;
}

/** A tooltip: sentence, formula, its numbers, code. ``told`` is what the run's own record says of a metric. */
export function explain(owner, key, told) {
  const term = { ...terms[key], ...told };
  const { model } = owner;
  const view = model.stepCount ? model.step(owner.number) : null;
  const open = view && view.bonus === OPEN; // of a step that is not decided yet, only the draft is known
  const whole = NUMBERS[key] && !open && NUMBERS[key](model);
  const here = view && OF_STEP[key] && (!open || DRAFT.includes(key)) ? OF_STEP[key](view) : "";
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

function codeLine(code) {
  const [file, name] = code.split(" ");
  return h("div", { class: "sv-tip-code" }, h("code", {}, file), " · ", h("code", {}, name));
}

/** Words of a sentence that explain themselves. */
export function term(owner, key, ...words) {
  const span = h("span", { class: "sv-term", tabindex: "0" }, ...words);
  return owner.tip.add(span, () => explain(owner, key));
}

export const numbers = (key, model) => (NUMBERS[key] ? NUMBERS[key](model) : null);

export const KEYS = Object.keys(NUMBERS);
