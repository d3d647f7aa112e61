/* What a run or a step is made of: outcomes, routes, parts of the drafting time as bars; what was compressed. */

import { format, h, plural } from "specviz/base/dom.js";

const percent = (share) => (share < 0.001 && share > 0 ? "<0.1 %" : `${format(100 * share, 2)} %`);
const isTime = (term) => term.key.endsWith("_ms");
const named = (term) => (term.label || term.key).replace(/ ms$/, "");

/** Steps by what was accepted: an origin or a chain of them, mismatch (a draft, nothing accepted), none (no draft). */
export function outcomes(model) {
  const { origins, drafted } = model.steps;
  return tally(origins.map((origin, k) => origin || (drafted[k] ? "mismatch" : "none")));
}

function tally(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) || 0) + 1);
  const last = (name) => (name === "none" ? 2 : name === "mismatch" ? 1 : 0);
  return [...counts].sort((a, b) => last(a[0]) - last(b[0]) || b[1] - a[1]);
}

const total = (values) => values.reduce((sum, value) => sum + (value || 0), 0);

/** A bar of parts, each named with its share: parts are {name, value, shown, tip, look}. */
function bar(owner, title, help, parts, whole) {
  const strip = h("div", { class: "sv-share-bar", "aria-hidden": "true" });
  const list = h("ul", { class: "sv-share-list" });
  for (const { name, value, shown, tip, look } of parts) {
    const part = h("i", { class: `sv-share sv-share-${look}`, style: `flex:${value / (whole || 1)} 0 0` });
    const key = h("i", { class: `sv-share sv-share-key sv-share-${look}`, "aria-hidden": "true" });
    strip.append(owner.tip.add(part, () => tip));
    list.append(owner.tip.add(h("li", { tabindex: "0" }, key, `${name} `, h("b", {}, shown)), () => tip));
  }
  const heading = owner.tip.add(h("h4", { tabindex: "0" }, title), () => [h("b", {}, title), ...help]);
  return h("section", { class: "sv-breakdown-part" }, heading, strip, list);
}

const formula = (text) => h("div", { class: "sv-formula" }, text);

function steps(owner, title, help, found) {
  const { stepCount } = owner.model;
  const parts = found.map(([name, count], k) => ({
    name,
    value: count,
    shown: percent(count / stepCount),
    look: name === "none" ? "none" : name === "mismatch" ? "mismatch" : String(Math.min(k, 5)),
    tip: [h("b", {}, name), h("div", {}, `${plural(count, "step")} of ${stepCount.toLocaleString("en")}`)],
  }));
  return bar(owner, title, help, parts, stepCount);
}

/** Σ of each timed part of drafting ÷ Σ verify time, as a share of all drafting time in the bar. */
function times(owner) {
  const { model } = owner;
  const timed = model.stepTerms.filter(isTime);
  const verify = total(model.steps.verify_ms);
  const sums = timed.map((term) => total(model.steps[`term:${term.key}`]));
  if (!timed.length || !verify) return null;
  const parts = timed.map((term, k) => ({
    name: named(term),
    value: sums[k],
    shown: percent(sums[k] / verify),
    look: String(Math.min(k, 5)),
    tip: [
      h("b", {}, named(term)),
      formula(`= Σ ${term.key} ÷ Σ verify_ms = ${format(sums[k])} ÷ ${format(verify)} ms`),
      h("div", {}, term.help || ""),
    ],
  }));
  const help = [h("div", {}, "Each part of drafting, against the time of the target's forwards.")];
  return bar(owner, "Drafting time ÷ verify time", help, parts, total(sums));
}

/** The run's bars; none where there is nothing to tell apart. */
export function run(owner) {
  const { model } = owner;
  if (!model.stepCount) return [];
  const found = outcomes(model);
  const ways = tally(model.steps.route);
  const parts = [];
  if (found.some(([name]) => !["main", "drafter", "mismatch", "none"].includes(name)))
    parts.push(
      steps(
        owner,
        "Steps by outcome",
        [
          h(
            "div",
            {},
            "What the accepted path was made of; mismatch: nothing of the draft stood; none: there was no draft.",
          ),
        ],
        found,
      ),
    );
  if (ways.filter(([name]) => name !== "none").length > 1)
    parts.push(steps(owner, "Steps by route", [h("div", {}, "The way the method found its draft.")], ways));
  return [...parts, times(owner)].filter(Boolean);
}

/** The outcomes in one line. */
export function brief(owner) {
  const found = outcomes(owner.model).slice(0, 6);
  const shares = found.map(([name, count]) => [` ${name} `, h("b", {}, percent(count / owner.model.stepCount))]);
  return [h("span", { class: "sv-faint" }, "Steps"), ...shares.flat()];
}

/** Routes that the timeline marks: [name, look], only where there is more than one. */
export function routes(model) {
  const found = [...new Set(model.steps.route)].filter((name) => name && name !== "none");
  return found.length > 1 ? found.sort().map((name, k) => [name, k]) : [];
}

export function routeMarks(owner) {
  return routes(owner.model).map(([name, look]) => {
    const mark = h("i", { class: `sv-route-mark sv-route-${Math.min(look, 3)}`, "aria-hidden": "true" });
    return owner.tip.add(h("li", {}, mark, `${name} route`), () => ["The line under the timeline's bars."]);
  });
}

/** The chips of one step: route, what was accepted, and the method's own numbers; their text changes with the step. */
export class StepFacts {
  constructor(owner) {
    this.owner = owner;
    this.element = h("div", { class: "sv-step-facts" });
  }

  /** One chip per number of the run. */
  build() {
    const { model } = this.owner;
    const chip = (label, tip) => {
      const value = h("b", {}, "");
      const share = h("small", {}, "");
      const element = h("span", { class: "sv-chip", tabindex: "0" }, `${label} `, value, share);
      return { element: this.owner.tip.add(element, tip), value, share };
    };
    this.route = chip("route", () => ["The way the method found its draft in this step."]);
    this.origins = chip("accepted", () => ["Origins of the accepted tokens, in their order."]);
    this.terms = model.stepTerms.map((term) => ({ term, ...chip(named(term), () => this.explain(term)) }));
    this.element.replaceChildren(...[this.route, this.origins, ...this.terms].map((one) => one.element));
    this.element.hidden = !model.stepTerms.length && !routes(model).length;
  }

  explain(term) {
    const value = this.owner.model.stepTerm(this.view.number, term.key);
    const verify = this.view.verify_ms;
    const part = isTime(term) && typeof value === "number" && verify;
    return [
      h("b", {}, named(term)),
      part
        ? formula(`${term.key} ÷ verify_ms = ${format(value)} ÷ ${format(verify)} ms = ${percent(value / verify)}`)
        : null,
      h("div", {}, term.help || ""),
    ].filter(Boolean);
  }

  draw(view) {
    this.view = view;
    if (this.element.hidden) return;
    const put = (one, text, share) => {
      if (one.shown === text + share) return;
      one.shown = text + share;
      one.element.hidden = !text;
      one.value.textContent = text;
      one.share.textContent = share;
    };
    put(this.route, view.route, "");
    put(this.origins, view.accepted ? view.origins.replace(/\+/g, " + ") : "", "");
    for (const one of this.terms) {
      const value = this.owner.model.stepTerm(view.number, one.term.key);
      const known = typeof value === "number";
      const timed = known && isTime(one.term);
      const share = timed && view.verify_ms ? ` ${percent(value / view.verify_ms)}` : "";
      put(one, known ? format(value) + (timed ? " ms" : "") : "", share);
    }
  }
}

/** "context 1,204 → 240 tokens (5.0×, extractive)": what was left out of the prompt, each number with its formula. */
export function compression(owner) {
  const { run } = owner.model;
  const found = run.compression;
  if (!found) return [];
  const whole = (n) => Math.round(n).toLocaleString("en");
  const fact = (label, text, more, tip) =>
    owner.tip.add(h("span", { tabindex: "0" }, `${label} `, h("b", {}, text), more), () => tip);
  const { context_tokens: full, kept_tokens: kept, prompt_tokens_full: before } = found;
  const parts = [];
  if (full && kept)
    parts.push(
      fact(
        "context",
        `${whole(full)} → ${whole(kept)} tokens`,
        ` (${format(full / kept, 2)}×, ${found.compressor || "compressed"})`,
        [
          h("b", {}, "The target read a compressed context; drafts come from the full one."),
          formula(
            `${whole(full)} ÷ ${whole(kept)} = ` +
              `${format(full / kept)}${found.ratio_asked ? `; asked: ${format(found.ratio_asked)}` : ""}`,
          ),
        ],
      ),
    );
  if (before)
    parts.push(
      fact("prompt", `${whole(before)} → ${whole(run.prompt_length)} tokens`, "", [
        "The whole prompt, before and after.",
      ]),
    );
  const bytes = (run.memory || {}).kv_bytes_per_token;
  if (bytes && before) {
    const written = owner.model.tokenCount - run.prompt_length;
    const size = (prompt) => format((bytes * (prompt + written)) / 1e6);
    parts.push(
      fact("keys and values", `${size(before)} → ${size(run.prompt_length)} MB`, "", [
        h("b", {}, "Memory of the target's cache at the end of the run."),
        formula(`= ${whole(bytes)} bytes per token × (prompt + ${whole(written)} output tokens) ÷ 10⁶`),
      ]),
    );
  }
  const { prefill_ms: prefill } = run.timings || {};
  if (prefill) parts.push(fact("prefill", `${format(prefill)} ms`, "", ["Time of the forward over the prompt."]));
  if (found.compress_ms !== undefined)
    parts.push(fact("compressing", `${format(found.compress_ms)} ms`, "", ["Time spent choosing what to keep."]));
  return parts;
}
