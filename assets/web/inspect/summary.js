/* Words about a run: its numbers, its name, the legend and the keyboard help. */

import { append, facts, h, replace } from "specviz/base/dom.js";
import { BASELINE } from "specviz/base/methods.js";
import { format, mean, plural, short } from "specviz/base/numbers.js";
import * as terms from "specviz/base/terms.js";
import { safe } from "specviz/base/text.js";
import * as imported from "specviz/inspect/imported.js";
import { legend as hungLegend } from "specviz/inspect/prompt_marks.js";
import { legend as discLegend } from "specviz/inspect/proposers.js";
import * as shares from "specviz/inspect/shares.js";
import { originSample } from "specviz/inspect/tree_boxes.js";

const MEANS = new Set(["tokens_per_step", "ranking_regret"]);

/** What is known of a metric. @typedef {Pick<RunMetric, "key" | "label"> & Partial<RunMetric>} Help */
/** @type {(owner: Inspector, help: Help, value: number | null) => HTMLElement} */
function metric(owner, help, value) {
  const share = help.unit === "share";
  const shown = value === null ? "–"
    : share ? format(100 * value) : help.unit === "×" || MEANS.has(help.key) ? mean(value) : format(value);
  // a unit that the label already names is not said twice
  const named = (help.label || "").toLowerCase().includes((help.unit || "").split("/")[0]);
  const one = help.unit?.replace(/^(step|token)s$/, "$1");
  const unit = share ? "%" : named ? "" : value === 1 ? one : help.unit;
  const box = h("div.sv-metric", { tabindex: "0" }, h("dt", help.label || help.key));
  const glue = unit === "%" || unit === "×" ? "" : " ";
  const doubt = owner.model.report?.doubts?.[help.key];
  const mark = doubt && h("small", { "aria-label": `, ${doubt}` }, " ‡");
  box.append(h("dd", shown, unit && shown !== "–" ? h("small", glue + unit) : null, mark));
  box.dataset.key = help.key;
  const why = doubt ? [h("div", `‡ ${doubt}.`)] : [];
  return owner.tip.add(box, () => [...terms.explain(owner, help.key, help), ...why]);
}

/** @type {Record<string, string>} */
const BRIEFLY = { speedup: "faster", tokens_per_step: "tokens per step", copied_share: "copied" };
const LATE = { key: "depth_efficiency", label: "Accepted ÷ depth", unit: "share" };
const LOSS = ["other_share", "divergence"]; // of a lossy run

/** How much was copied is one of the numbers of a method that drafts by copying. @param {Model} model */
export const copied = ({ trace }) =>
  trace.candidates.step.length > 0 || trace.nodes.source.some((at) => at >= 0) ? ["copied_share"] : [];

/** The numbers that stand above the steps, in one line; each explains itself. */
/** @type {(owner: Inspector, list: HTMLElement) => void} */
export function headline(owner, list) {
  const { model } = owner;
  const { metrics: values = {}, metric_help: helps = [], method } = model.run;
  const plainly = method.name === BASELINE;
  const keys = plainly
    ? ["tokens_per_s", "tokens_per_step", "tokens"]
    : [...owner.wantedMetrics, ...(model.lossy ? LOSS : []), "speedup", "tokens_per_step", ...copied(model)];
  const rows = [...new Set(keys)].flatMap((key) => {
    const help = helps.find((one) => one.key === key);
    const value = values[key] ?? null;
    if (value === null && !owner.wantedMetrics.includes(key)) return []; // not measured, or not in its day
    const brief = key === "speedup" && (value ?? 1) < 1 ? "as fast" : BRIEFLY[key];
    const label = brief ?? (help?.label ?? key).replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
    return metric(owner, { key, ...help, label }, value);
  });
  replace(list, [rows, !plainly && identical(owner)]);
}

/** Whether the output is plain decoding's: compared with it where it was run, else with the target's first choices. */
/** @param {Inspector} owner */
function identical(owner) {
  const { model } = owner;
  const { run, trace } = model;
  const plain = trace.plain?.id ?? [];
  const mine = trace.tokens.id.slice(model.promptLength);
  const { value: differs } = model.metric("differs");
  const sampled = (run.sampling?.temperature ?? 0) > 0;
  let [said, why] = ["–", "Known when the run is over."];
  if (!mine.length) why = "This run has written no token that could be compared.";
  else if (plain.length) {
    const same = mine.length === plain.length && mine.every((id, k) => id === plain[k]);
    [said, why] = same
      ? ["✓ identical to plain", "Plain decoding of the same prompt wrote the same tokens."]
      : ["≠ differs", "Plain decoding of the same prompt wrote other tokens: they stand side by side below."];
  } else if (run.forced || sampled) {
    [said, why] = run.forced ? ["given", FORCED] : ["sampled", "Drawn tokens: two runs agree only with one seed."];
  } else if (run.processing) {
    [said, why] = ["processed", "Logits processors chose among the tokens, and plain decoding with them was not run."];
  } else if (typeof differs === "number") {
    [said, why] = differs
      ? [`${differs} ≠ first choice`, "Output tokens that are not the target's first choice."]
      : ["✓ identical to plain", "Every output token is the target's own first choice, as in plain decoding."];
  }
  if (said === "–" && !run.complete) return null;
  const box = h("div.sv-metric", { tabindex: "0" }, h("dt.svp-unseen", "Against plain"), h("dd", said));
  box.dataset.key = "identical";
  return owner.tip.add(box, () => [h("b", said), h("div", why)]);
}

// what a reader looks for first; all others follow in the run's own order
const SPEED = ["tokens_per_step", "tokens_per_s", "speedup"];
const QUALITY = ["quality_f1", "quality_rouge_l", "quality_edit"];
const FIRST = [...SPEED, "copied_share", "ranking_regret", "tokens", "steps"];
const FIRST_LOSSY = [...SPEED, ...LOSS, "differs", ...QUALITY, "tokens", "steps"];

/** The run's metrics, those looked for first before the others. */
/** @type {(owner: Inspector, list: HTMLElement, most?: number) => void} */
export function metrics(owner, list, most = Infinity) {
  const { run } = owner.model;
  const late = owner.model.metric(LATE.key).value; // of a run from before there was this metric
  const values = { ...(typeof late === "number" ? { [LATE.key]: late } : {}), ...run.metrics };
  /** @type {Help[]} */
  const helps = (run.metric_help || []).filter((help) => values[help.key] !== undefined && values[help.key] !== null);
  const helped = new Set((run.metric_help || []).map((help) => help.key));
  for (const key of Object.keys(values)) {
    if (!helped.has(key) && values[key] !== null && typeof values[key] !== "object")
      helps.push(key === LATE.key ? LATE : { key, label: key });
  }
  const first = [...owner.wantedMetrics, ...(owner.model.lossy ? FIRST_LOSSY : FIRST)];
  /** @type {(help: Help) => number} */
  const place = (help) => (first.includes(help.key) ? first.indexOf(help.key) : first.length);
  helps.sort((a, b) => place(a) - place(b));
  list.replaceChildren(...helps.slice(0, most).map((help) => metric(owner, help, values[help.key] ?? 0)));
}

export const LOSSY =
  "Lossy: this method keeps drafted tokens that are likely enough, so its text may differ from what the model " +
  "would write by itself.";

const FORCED =
  "The model did not write this text: it was given, and a drafted token was accepted where it agreed with the text.";

/** Title, method, model and badges. @param {Inspector} owner */
export function heading(owner) {
  const { run } = owner.model;
  const by = h("div.sv-by.ui-row.ui-words");
  const { method } = run;
  const model = run.model || {};
  const about = () => [h("b", method.title), h("div", method.summary || ""), h("div.sv-faint", method.paper || "")];
  const known = () => [facts(Object.entries(model).map(([k, v]) => [k.replace(/_/g, " "), format(v)]))];
  by.append(
    owner.tip.explained("b", about, short(method.title || method.name)),
    owner.tip.explained("span", known, model.name || ""),
    ...imported.badges(owner),
  );
  if (run.forced && !run.imported) by.append(owner.tip.explained("span.sv-chip", FORCED, "answer given"));
  else if (method.lossless === false) by.append(owner.tip.explained("span.sv-lossy", LOSSY, "≈ lossy"));
  const { temperature = 0, top_k: topK = 0, top_p: topP = 1, seed } = run.sampling || {};
  if (temperature > 0) {
    const drawn = seed === undefined ? "" : `seed ${seed}`;
    const more = [topK ? `top-k ${topK}` : "", topP < 1 ? `top-p ${topP}` : "", drawn]
      .filter(Boolean)
      .join(", ");
    by.append(h("span.sv-chip", `temperature ${temperature}${more && ", "}${more}`));
  }
  if (run.asked) by.append(h("span.sv-chip", "as it stood at this step"));
  else if (!run.complete) by.append(h("span.sv-live", run.error ? "stopped" : "running"));
  else if (run.stop === "cancelled") by.append(h("span.sv-chip", "stopped"));
  if (run.error) by.append(h("span.sv-lossy", run.error));
  return [h("h2.sv-title.ui-clip", safe(run.title || "") || run.id || "Untitled run"), by];
}

/** The origins of the run's nodes, with how many of them were accepted; none where there is nothing to tell apart. */
/** @type {(owner: Inspector, where: string) => HTMLElement[]} */
function originMarks(owner, where) {
  const { model } = owner;
  /** @type {[name: string, nodes?: number, accepted?: number][]} */
  const drafted = model.report
    ? model.report.origins
    : [...new Set(model.trace.nodes.origin)].filter((name) => name !== "root").map((name) => [name]);
  const names = drafted.map(([name]) => name);
  if (names.length < 2 && !names.some((name) => model.origin(name).letter)) return [];
  const main = names.filter((name) => !model.origin(name).beside);
  const widened = main.length === 1 && main.length < names.length;
  /** @type {Record<string, string>} */
  const beside = Object.fromEntries(
    widened ? names.map((n) => [n, n === main[0] ? "first choices" : "others"]) : [],
  );
  const ranked = model.nodeTerms.some(({ key }) => key.endsWith("_rank"));
  return drafted.map(([name, nodes, accepted]) => {
    const origin = model.origin(name);
    const counts = [": ", h("b", accepted?.toLocaleString("en")), ` of ${nodes?.toLocaleString("en")} accepted`];
    const text = h("span", beside[name] ?? origin.label, model.report && counts);
    return owner.tip.add(h("li", originSample(origin, ranked), text), () => [
      `${origin.sentence} Accepted of drafted; shown by the node's outline and letter. ${where}`,
    ]);
  });
}

/** What marks mean. @type {[key: keyof Report["statuses"], label: string, help: string][]} */
const STATUSES = [
  ["accepted", "accepted", "Drafted tokens that the target confirmed."],
  ["own", "target's own", "One token per step that the target wrote itself."],
  ["rejected", "rejected", "Checked and refused: the target wanted something else."],
  ["unreached", "never checked", "Drafted below a refused token, never compared."],
  ["sources", "copied from here", "Accepted tokens with a recorded source; the number links them."],
];

/** @param {Inspector} owner */
export function legend(owner) {
  const { model, prompts } = owner;
  const counts = model.report?.statuses;
  const where = counts ? "Counts are for the whole run." : "Counted when the run is over.";
  /** @type {(name: string, label: string, count: number | null | undefined, help: string) => HTMLElement} */
  const entry = (name, label, count, help) => {
    const sample = h("span", { class: `sv-sample sv-sample-${name}`, "aria-hidden": "true" }, "ab");
    const text = typeof count === "number" ? [`${label} `, h("b", count.toLocaleString("en"))] : label;
    return owner.tip.add(h("li", sample, h("span", text)), () => [help]);
  };
  const shown = STATUSES.filter(([key]) => key !== "sources" || counts?.sources !== 0); // no draft is a copy
  const entries = shown.map(([key, label, help]) =>
    entry(key === "sources" ? "source" : key, label, counts?.[key], `${help} ${where}`),
  );
  const differs = model.metric("differs").value;
  const below = "Output tokens that the model ranked below another one; hover them to see which.";
  if (differs) entries.push(entry("differs", "not its first choice", differs, `${below} ${where}`));
  const forbidden = counts?.forbidden;
  const bans = "Drafted tokens that a logits processor or the grammar forbids, be they rejected or never checked.";
  if (forbidden) entries.push(entry("forbidden", "⊘ forbidden", forbidden, `${bans} ${where}`));
  if (model.run.attention) {
    const [who, which] = prompts.on
      ? ["prompt token", "the one chosen in the panel Prompt tokens"]
      : ["draft model", "the token shown in the panel Drafter"];
    const help = `Its attention to the text, for ${which}: the darker, the more.`;
    entries.push(entry("heat", `where the ${who} looked`, null, help));
  }
  const hung = prompts.on ? hungLegend(owner) : [];
  return [...entries, ...originMarks(owner, where), ...discLegend(owner), ...hung, ...shares.routeMarks(owner)];
}

const KEYS = [
  ["← →", "previous, next step (with Shift: ten)"],
  ["Home End", "first, last step"],
  ["Space", "play, pause"],
  ["[ ]", "previous, next miss (a draft without an accepted token)"],
  ["P", "pin this step's copy"],
  [", .", "previous, next token of the text: select it everywhere"],
  ["Enter", "on a node of the tree: select it everywhere"],
  ["Esc", "unpin, close"],
  ["W", "whitespace shown or not"],
  ["O", "alternatives shown or not"],
  ["↑ ↓ Enter", "in the candidate table: walk, then scroll to the place"],
  ["↑ ↓", "in the drafter's positions, or in its tree: walk"],
  ["D", "details: all metrics, parameters, facts of the run"],
  ["+ − 0", "in the tree: larger, smaller, fitted to its width"],
  ["Shift ← ↑ ↓ →", "in the tree: pan (or drag it)"],
  ["F", "presenter mode: large type, keys only (Esc leaves it)"],
  ["?", "this help"],
];

export function help() {
  const list = KEYS.map(([keys, what]) => {
    const names = keys.split(" ").map((key) => h("kbd", key));
    return [h("dt", names), h("dd", what)];
  });
  const notes = [
    "Hover a token to see where it was copied from, or what was copied from it. Click to pin (Shift: several).",
    "Bars: how deep a draft went, in blue what of it was accepted; a red line: nothing; a thin grey line: no draft.",
    "In the tree: the target's probability, its rank there (#1: the first choice), q the drafter's probability.",
  ].map((text) => h("p.sv-faint", text));
  return h("div", h("h3.sv-heading", "Keyboard"), h("dl.sv-keys", list), notes);
}
