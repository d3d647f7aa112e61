/* The tab "Details": this step's own numbers, and what is known of the whole run, each number with what it says. */

import { facts, h, replace, told } from "specviz/base/dom.js";
import { amount, format, probability, setting } from "specviz/base/numbers.js";
import { ENDS } from "specviz/base/terms.js";
import { terms } from "specviz/generated/terms.js"; // made by specviz/views/terms.py
import { byPlace } from "specviz/inspect/by_place.js";
import * as shares from "specviz/inspect/shares.js";
import * as words from "specviz/inspect/summary.js";

/** @type {(title: string, ...inside: Child[]) => HTMLElement} */
const section = (title, ...inside) => h("section.sv-detail", h("h3", title), inside);

export class Details {
  /** @param {Inspector} owner */
  constructor(owner) {
    this.owner = owner;
    this.facts = new shares.StepFacts(owner);
    this.metrics = h("div");
    this.parameters = h("div.sv-parameters.ui-row");
    this.run = h("div");
    this.regrets = h("div"); // filled by arrange()
    this.compression = h("p.sv-compression.ui-row.ui-words");
    this.brief = h("p.sv-brief.ui-words");
    this.parts = h("div.sv-breakdown-parts.ui-tiles");
    this.places = h("div.sv-by-place.ui-stack");
    this.breakdown = h("div.sv-breakdown", this.brief, this.parts);
    this.element = h(
      "section.sv-details",
      { "aria-label": "Details", tabindex: "-1" },
      section("This step", this.facts.element),
      section("Parameters", this.parameters),
      section("The whole run", this.metrics),
      this.regrets,
      section("Steps and their time", this.breakdown),
      section("Drafts by place in the tree", this.places),
      section("Prompt and memory", this.compression),
      section("Model and sampling", this.run),
    );
  }

  /** Fills it: a trace was loaded, or has grown. */
  describe() {
    const { owner } = this;
    const { run } = owner.model;
    this.metrics.replaceChildren(...metricGroups(owner));
    this.compression.replaceChildren(...shares.compression(owner));
    this.compression.hidden = !this.compression.childElementCount;
    this.parts.replaceChildren(...shares.run(owner));
    this.places.replaceChildren(...byPlace(owner));
    this.places.hidden = !this.places.childElementCount;
    this.brief.replaceChildren(...shares.brief(owner));
    this.breakdown.hidden = !this.parts.childElementCount;
    this.facts.build();
    replace(this.parameters, parameters(owner));
    const { temperature = 0, top_k: topK = 0, top_p: topP = 1, seed = 0 } = run.sampling || {};
    /** @type {Fact[]} */
    const rows = [
      ...Object.entries(run.model || {}).map(modelFact),
      ["sampling", temperature > 0 ? "" : "greedy: the likeliest token"],
      ["temperature", temperature > 0 && String(temperature)],
      ["top-k", temperature > 0 && topK ? String(topK) : ""],
      ["top-p", temperature > 0 && topP < 1 ? String(topP) : ""],
      ["seed", temperature > 0 && String(seed)],
      ["ended", ENDS[run.stop ?? ""] ?? run.stop],
    ];
    this.run.replaceChildren(facts(rows.filter(([, value]) => value)));
    if (run.reference) this.run.append(reference(run));
  }
}

/** What metrics are about, by their keys; the last takes all others. @type {[title: string, keys: RegExp][]} */
const GROUPS = [
  ["Against the reference", /^quality_/],
  ["Time and memory", /_ms$|_mb$|_per_s$|^speedup$|^draft_(share|cost)$/],
  ["The output", /^tokens|^steps$|^copied|^differs$|^other_share$|^divergence$/],
  ["The drafts", /./],
];

/** All metrics of a run, in groups. @param {Inspector} owner */
function metricGroups(owner) {
  const all = h("div");
  words.metrics(owner, all);
  const sorted = GROUPS.map(([title]) => h("dl.sv-metrics.sv-all-metrics.ui-row", { "aria-label": title }));
  const helps = new Map((owner.model.run.metric_help ?? []).map(({ key, help }) => [key, help]));
  for (const box of [...all.children]) {
    const { key = "" } = /** @type {HTMLElement} */ (box).dataset;
    const help = terms[key]?.help ?? helps.get(key) ?? ""; // a run's own words may be of an earlier version
    box.firstElementChild?.append(" ", h("small", shares.clause(help))); // its card says all of it
    sorted[GROUPS.findIndex(([, keys]) => keys.test(key))].append(box);
  }
  const groups = GROUPS.map(([title], k) => (sorted[k].childElementCount ? [h("h4", title), sorted[k]] : []));
  return [groups[2], groups[3], groups[1], groups[0]].flat();
}

/** Names of what is recorded of a model, where they are not read as they are. @type {Record<string, string>} */
const MODEL = { kv_heads: "key-value heads", context_length: "longest context", packed: "weights packed",
  fused_norms: "norm layers", dequantised: "weights read from", key: "fingerprint", dtype: "computed in",
  hidden: "hidden size", vocab: "vocabulary" };

/** Values of the model's facts that need words. @type {Record<string, (value: unknown) => string>} */
const SAID = {
  vocab: (value) => `${format(value)} tokens`,
  context_length: (value) => `${format(value)} tokens`,
  packed: (value) => (value ? "yes, for forwards over few rows" : "no"),
  fused_norms: (value) => (value ? `${format(value)}, each computed by one fused kernel` : ""),
};

/** @type {(entry: [string, unknown]) => Fact} */
function modelFact([name, value]) {
  const { file } = /** @type {{ file?: string }} */ (value ?? {});
  const said = SAID[name]?.(value) ?? (typeof value === "boolean" ? shown(value) : file ?? format(value));
  return [MODEL[name] ?? name.replace(/_/g, " "), said];
}

/** @type {(value: unknown) => string} */
const shown = (value) => (value === true ? "yes" : value === false ? "no" : String(value));

/** Whether the run began with what earlier ones had left, where its method keeps anything. @param {Inspector} owner */
function start(owner) {
  const { kept } = owner.model.run;
  if (!kept) return [];
  const before = kept.warm ? amount(kept.before ?? 0, kept.unit || "") : "nothing";
  const text = `It began with ${before} of earlier runs, and ended with ${amount(kept.count ?? 0, kept.unit || "")}.`;
  const begun = h("b", kept.warm ? "warm" : "cold");
  return [owner.tip.explained("span.sv-chip", () => told("Start", text), "Start ", begun)];
}

/** Which trained part drafted, and what was found of it when it was loaded. @param {Inspector} owner */
function part(owner) {
  const { part } = owner.model.run;
  if (!part) return [];
  const from = part.offset === undefined ? "" : `, from position ${part.offset} on`;
  const states = part.features?.length === 1 ? "state" : "states";
  const lines = [
    `${part.title || part.format}${part.fingerprint ? `, fingerprint ${part.fingerprint}` : ""}.`,
    part.features && `It reads the target's ${states} ${part.features.join(", ")}${from}.`,
    part.acceptance !== undefined && `On a short text ${probability(part.acceptance)} of its first guesses were right.`,
  ];
  const by = h("b", part.from === "trained here" && part.title ? `${part.title}, trained here` : part.from);
  const chip = owner.tip.explained("span.sv-chip", () => told("Drafted by", ...lines), "Drafted by ", by);
  return [chip, ...(part.warnings || []).map((words) => h("p", words))];
}

/** The method's parameters as the run had them. @param {Inspector} owner @returns {Child[]} */
function parameters(owner) {
  const { method, part: loaded } = owner.model.run;
  const controls = new Map((method.controls || []).map((control) => [control.name, control]));
  const chips = [...start(owner), ...part(owner)];
  for (const [name, given] of Object.entries(method.params || {})) {
    if (name === "part" && given === null && loaded) continue; // "Drafted by" says which
    const control = controls.get(name);
    const label = control?.label || name;
    const resolved = method.resolved?.[name]; // what a setting left open came to
    const text = control?.help ?? "";
    const now = typeof given === "string" ? given.replace(/\W/g, "\\$&") : given ? "on" : "off";
    const state = new RegExp(`(?:^| )${now}: (.*?)\\.(?= |$)`, "i").exec(text)?.[1] ?? ""; // what the value means
    const value = resolved === undefined ? (given === null && state) || setting(given) : `${resolved} (automatic)`;
    const help = () => told(label, text || name);
    const about = /^\w+: /.test(text) && (state || /^O(n|ff): /.test(text)) ? state : shares.clause(text);
    const said = about && about.toLowerCase() !== value.toLowerCase() && h("small", ` ${about}`);
    chips.push(owner.tip.explained("span.sv-chip", help, `${label} `, h("b", value), said));
  }
  return chips;
}

/** The hoped-for answer, opened by a click. @param {Run} run */
function reference(run) {
  const text = h("div.sv-reference-text.ui-pre", { tabindex: "0" }, run.reference);
  const whose = run.reference_of ? `${run.reference_of} reference` : "Reference";
  return h("details.sv-reference.ui-fold", h("summary", `${whose}: the reference answer`), text);
}
