/* What a run or a step is made of: outcomes, routes, parts of the drafting time as bars; what was compressed. */

import { formula, h, later, told, write } from "specviz/base/dom.js";
import { format, plain, plural } from "specviz/base/numbers.js";
import { unknown } from "specviz/inspect/imported.js";

/** @type {(share: number) => string} */
const percent = (share) => (share < 0.001 && share > 0 ? "<0.1 %" : `${format(100 * share, 2)} %`);
/** @type {(term: RunTerm) => boolean} */
const isTime = (term) => /_ms$|^ms\d$/.test(term.key);
/** Labels of today for terms of runs that were recorded with other ones. @type {Record<string, string>} */
const LABELS = { expand_ms: "building the tree" };
/** @type {(term: RunTerm) => string} */
const named = (term) => (LABELS[term.key] ?? (term.label || term.key)).replace(/ ms$/, "");

/** The first clause of a help text. @param {string} [help] */
export const clause = (help = "") => help.split(/\.(?: |$)|[:;] (?![^(]*\))/)[0];

/** A bar of named parts; what they leave of ``least``, the value of a full bar at the least, stays empty. */
/** @type {(owner: Inspector, title: string, help: Child[], parts: SharePart[], least?: number) => HTMLElement} */
function bar(owner, title, help, parts, least = 0) {
  const sum = parts.reduce((sum, { value }) => sum + value, 0);
  const whole = Math.max(sum, least);
  const strip = h("div.sv-share-bar", { "aria-hidden": "true" });
  const list = h("ul.sv-share-list.ui-legend");
  for (const { name, value, shown, tip, look } of parts) {
    const part = h("i", { class: `sv-share sv-share-${look}`, style: `flex:${value / (whole || 1)} 0 0` });
    const key = h("i", { class: `sv-share sv-share-key sv-share-${look}`, "aria-hidden": "true" });
    strip.append(owner.tip.add(part, () => tip));
    list.append(owner.tip.explained("li", () => tip, key, `${name} `, h("b", shown)));
  }
  if (sum < whole) strip.append(h("i.sv-share.sv-share-none", { style: `flex:${1 - sum / whole} 0 0` }));
  const heading = owner.tip.explained("h4", () => [h("b", title), ...help], title);
  return h("section.sv-breakdown-part", heading, strip, list);
}

/** @type {(owner: Inspector, title: string, help: string, counts: Count[]) => HTMLElement} */
function steps(owner, title, help, counts) {
  const { stepCount } = owner.model;
  const parts = counts.map(([name, count], k) => ({
    name,
    value: count,
    shown: percent(count / stepCount),
    look: name === "none" ? "none" : name === "mismatch" ? "mismatch" : String(Math.min(k, 5)),
    tip: told(name, `${plural(count, "step")} of ${stepCount.toLocaleString("en")}`),
  }));
  return bar(owner, title, [h("div", help)], parts);
}

/** Σ of each part of drafting ÷ Σ verify time. @type {(owner: Inspector, report: Report) => HTMLElement | null} */
function times(owner, { drafting, verify_ms: verify }) {
  if (!drafting.length || !verify) return null;
  const parts = drafting.map(([key, ms], k) => {
    const term = owner.model.stepTerms.find((one) => one.key === key) ?? { key, label: key, help: "", low: 0, high: 0 };
    const spent = ms ?? 0;
    return {
      name: named(term),
      value: spent,
      shown: percent(spent / verify),
      look: String(Math.min(k, 5)),
      tip: told(named(term), formula(`= Σ its time ÷ Σ verifying time = ${format(spent)} ÷ ${format(verify)} ms`),
        term.help),
    };
  });
  const help = [h("div", "Each part of drafting, against the time of the target's forwards: the full bar is 100 %.")];
  return bar(owner, "Drafting time ÷ verify time", help, parts, verify);
}

/** The run's bars; none where nothing can be told apart, or it goes on. @type {(owner: Inspector) => HTMLElement[]} */
export function run(owner) {
  const { model } = owner;
  const { report } = model;
  if (!report || !model.stepCount) return [];
  const parts = [];
  const help = "Origins of the accepted path; mismatch: nothing of the draft was accepted; none: there was no draft.";
  if (lettered(model))
    parts.push(steps(owner, "Steps by outcome", help, report.outcomes.map(([name, n]) => [composed(model, name), n])));
  if (report.routes.filter(([name]) => name !== "none").length > 1)
    parts.push(steps(owner, "How drafts were found", "Steps by the way the method took.", report.routes));
  const timed = times(owner, report);
  return timed ? [...parts, timed] : parts;
}

/** Whether outcomes differ by their origin, so that a bar shows them. @param {Model} model */
const lettered = (model) => !!model.report?.outcomes.some(([name]) =>
  !["mismatch", "none"].includes(name) && model.origin(name).letter);

/** What an accepted path was made of, in words: of a drafter's guesses, which. */
/** @type {(model: Model, outcome: string) => string} */
function composed(model, outcome) {
  const several = model.origins.some(({ beside }) => beside);
  return outcome.split("+").map((name) => {
    const { beside, label } = model.origin(name);
    return beside ? "2nd or later guess" : name === "drafter" && several ? "first guess" : label;
  }).join(" + ");
}

/** The outcomes in one line, where no bar shows them. @type {(owner: Inspector) => (Node | string)[]} */
export function brief(owner) {
  const { report, stepCount } = owner.model;
  if (lettered(owner.model)) return [];
  const most = report?.outcomes.slice(0, 6) ?? [];
  const shares = most.map(([name, count]) => [` ${composed(owner.model, name)} `, h("b", percent(count / stepCount))]);
  return [h("span.sv-faint", "Steps"), ...shares.flat()];
}

/** Routes that the timeline marks, where there are several. @type {(model: Model) => [name: string, look: number][]} */
export function routes(model) {
  const names = [...new Set(model.steps.route)].filter((name) => name && name !== "none");
  const first = (/** @type {string} */ name) => Number(name !== "lexical"); // in every run the same line
  names.sort((a, b) => first(a) - first(b) || (a < b ? -1 : 1));
  return names.length > 1 ? names.map((name, k) => [name, k]) : [];
}

/** The routes in the legend. @param {Inspector} owner */
export function routeMarks(owner) {
  return routes(owner.model).map(([name, look]) => {
    const mark = h("i", { class: `sv-route-mark sv-route-${Math.min(look, 3)}`, "aria-hidden": "true" });
    const help = "The line under the timeline's bars: how the draft was found.";
    return owner.tip.add(h("li", mark, `found: ${name}`), () => [help]);
  });
}

/** Whether a step's forward ran otherwise than by stock code. @param {string} engine */
const notStock = (engine) => engine !== "" && engine !== "eager";

/** The chips of one step: route, what was accepted, and the method's own numbers; their text changes with the step. */
export class StepFacts {
  /** @param {Inspector} owner */
  constructor(owner) {
    this.owner = owner;
    /** @type {StepView} */
    this.view = later();
    this.stood = this.chip("accepted", () => ["Drafted tokens that were accepted in this step."]);
    this.drafting = this.chip("drafted in", () => ["Time spent on drafting in this step."]);
    this.verifying = this.chip("verified in", () => ["Time of the target's forward over the draft."]);
    this.route = this.chip("found by", () => ["The way the method found its draft in this step."]);
    this.forward = this.chip("forward", () => ["The engine that ran the target's forward, and its bucket."]);
    this.origins = this.chip("from", () => ["Origins of the accepted tokens, in their order."]);
    /** @type {(ReturnType<StepFacts["chip"]> & { term: RunTerm })[]} */
    this.terms = [];
    /** @type {(ReturnType<StepFacts["chip"]> & { column: PlainColumn })[]} */
    this.plains = [];
    this.element = h("div.sv-step-facts.ui-row");
  }

  /** @type {(label: string, tip: Tip) => { element: HTMLElement, value: HTMLElement, share: HTMLElement }} */
  chip(label, tip) {
    const value = h("b", "");
    const share = h("small", "");
    return { element: this.owner.tip.explained("span.sv-chip", tip, `${label} `, value, share), value, share };
  }

  /** One chip per number of the run, and per column that no view knows. */
  build() {
    const { model } = this.owner;
    this.terms = model.stepTerms.map((term) => ({ term, ...this.chip(named(term), () => this.explain(term)) }));
    for (const { term, element } of this.terms) element.classList.toggle("sv-worded", !isTime(term) && !!term.help);
    this.plains = (model.columns.steps ?? []).map((column) => ({
      column,
      ...this.chip(column.label, () => told(column.label, column.help)),
    }));
    const first = [this.stood, this.origins, this.route, this.drafting, this.verifying, this.forward];
    this.element.replaceChildren(...[...first, ...this.terms, ...this.plains].map((one) => one.element));
  }

  /** @type {(term: RunTerm) => Child[]} */
  explain(term) {
    const value = this.owner.model.stepTerm(this.view.number, term.key);
    const verify = this.view.verify_ms;
    return [
      h("b", named(term)),
      isTime(term) && value !== null && verify
        ? formula(`${term.key} ÷ verify_ms = ${format(value)} ÷ ${format(verify)} ms = ${percent(value / verify)}`)
        : null,
      h("div", term.help || ""),
    ];
  }

  /** @param {StepView} view */
  draw(view) {
    this.view = view;
    /** @type {(one: ReturnType<StepFacts["chip"]>, text: string, share?: string) => void} */
    const put = (one, text, share = "") => {
      if (one.element.hidden !== !text) one.element.hidden = !text;
      write(one.value, text);
      write(one.share, share);
    };
    const known = !unknown(this.owner.model, "steps.drafted");
    put(this.stood, known && view.drafted ? `${view.accepted} of ${view.drafted}` : "");
    put(this.drafting, view.draft_ms ? `${format(view.draft_ms, 2)} ms` : "");
    put(this.verifying, view.verify_ms ? `${format(view.verify_ms, 2)} ms` : "");
    const { route } = view;
    const by = ["lexical", "semantic"].includes(route) ? `${route} match` : route;
    put(this.route, routes(this.owner.model).length ? by : ""); // else it tells nothing apart
    put(this.origins, view.accepted ? composed(this.owner.model, view.origins) : "");
    const { engine, engine_rows: rows, engine_keys: keys } = this.owner.model.steps;
    const bucket = `${rows[view.number]} rows, ${keys[view.number]} keys`;
    put(this.forward, notStock(engine[view.number]) ? engine[view.number] : "", ` ${bucket}`);
    for (const one of this.terms) {
      const value = this.owner.model.stepTerm(view.number, one.term.key);
      if (value === null) put(one, "");
      else if (!isTime(one.term)) put(one, format(value), ` ${clause(one.term.help)}`);
      else put(one, `${format(value, 2)} ms`, view.verify_ms ? ` ${percent(value / view.verify_ms)} of verifying` : "");
    }
    for (const one of this.plains) {
      const value = this.owner.model.plainValue("steps", one.column, view.number);
      put(one, value === null ? "" : plain(value));
    }
  }
}

/** Parts of the prompt without a segment, and what was left out of it: "context 1,204 → 240 tokens (5.0×, extractive)".
 * @param {Inspector} owner */
export function compression(owner) {
  const { run } = owner.model;
  const left = run.compression;
  const unplaced = run.unplaced?.length && owner.tip.explained("span", () => [
    h("b", "The chat template left these parts out, or rewrote them."),
    "The prompt is exactly what the template made. Where a part cannot be found in it, nothing is marked.",
  ], "not marked in the prompt ", h("b", run.unplaced.join(", ")));
  if (!left) return unplaced ? [unplaced] : [];
  /** @type {(n: number) => string} */
  const whole = (n) => Math.round(n).toLocaleString("en");
  /** @type {(label: string, text: string, more: string, tip: Child[]) => HTMLElement} */
  const fact = (label, text, more, tip) =>
    owner.tip.explained("span", () => tip, `${label} `, h("b", text), more);
  const { context_tokens: full, kept_tokens: kept, prompt_tokens_full: before } = left;
  const parts = unplaced ? [unplaced] : [];
  if (full && kept) {
    const asked = left.ratio_asked ? `; asked: ${format(left.ratio_asked)}` : "";
    const about = ` (${format(full / kept, 2)}×, ${left.compressor || "compressed"})`;
    parts.push(fact("context", `${whole(full)} → ${whole(kept)} tokens`, about, [
      h("b", "The target read a compressed context; drafts come from the full one."),
      formula(`${whole(full)} ÷ ${whole(kept)} = ${format(full / kept)}${asked}`),
    ]));
  }
  const tokens = before && `${whole(before)} → ${whole(run.prompt_length)} tokens`;
  if (tokens) parts.push(fact("prompt", tokens, "", ["The whole prompt, before and after."]));
  const bytes = run.memory?.kv_bytes_per_token;
  if (bytes && before) {
    const written = owner.model.tokenCount - run.prompt_length;
    /** @type {(prompt: number) => string} */
    const size = (prompt) => format((bytes * (prompt + written)) / 1e6);
    parts.push(fact("keys and values", `${size(before)} → ${size(run.prompt_length)} MB`, "", [
      h("b", "Memory of the target's cache at the end of the run."),
      formula(`= ${whole(bytes)} bytes per token × (prompt + ${whole(written)} output tokens) ÷ 10⁶`),
    ]));
  }
  const { prefill_ms: prefill } = run.timings || {};
  if (prefill) parts.push(fact("prefill", `${format(prefill)} ms`, "", ["Time of the forward over the prompt."]));
  if (left.compress_ms !== undefined)
    parts.push(fact("compressing", `${format(left.compress_ms)} ms`, "", ["Time spent choosing what to keep."]));
  return parts;
}
