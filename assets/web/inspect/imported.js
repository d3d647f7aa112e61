/* A run that a server told of: what it did not say is named, never drawn as if it were known. */

import { facts, h } from "specviz/base/dom.js";
import { format, plural } from "specviz/base/numbers.js";
import { quoted } from "specviz/inspect/drafting.js";

/** What is not recorded, in words. @type {Record<string, string>} */
const WORDS = {
  prompt: "the prompt",
  text: "the text",
  steps: "which tokens came together",
  "steps.accepted": "which tokens were drafted and accepted",
  "steps.drafted": "how much was drafted",
  "tokens.kind": "",
  tokens: "the tokens (a text stands for several)",
  "tokens.id": "the token ids (texts stand for tokens)",
  "tokens.rank": "the target's ranks",
  "tokens.source": "where drafts were copied from",
  "nodes.token": "the rejected tokens",
};

/** Whether a run's column holds placeholders. @type {(model: Model, column: string) => boolean} */
export const unknown = (model, column) => model.run.unknown?.includes(column) ?? false;

/** @type {(model: Model) => string[]} */
const missing = (model) => (model.run.unknown ?? []).map((name) => WORDS[name] ?? name).filter(Boolean);

/** What the header says of a run that was imported, or recorded from outside. @param {Inspector} owner */
export function badges(owner) {
  const { run } = owner.model;
  const list = [];
  if (run.imported) {
    const { title, notes = [], warnings = [], said = {} } = run.imported;
    const lacks = missing(owner.model);
    const part = lacks.length ? `, ${lacks.length} not recorded` : "";
    const tip = () => [
      h("div", `From ${title}.`),
      h("div", lacks.length ? `Not recorded: ${lacks.join("; ")}.` : "Everything shown here comes from the server."),
      ...[...warnings, ...notes].map((note) => h("div.sv-faint", note)),
      facts(Object.entries(said).map(([key, value]) => [key, [value].flat().map((one) => format(one)).join(", ")])),
    ];
    list.push(owner.tip.explained("span.sv-chip", tip, `imported${part}`));
  }
  if (run.passed_over?.length) {
    const words = `The model's own settings ask for ${run.passed_over.join(", ")}; runs here do not apply that.`;
    list.push(owner.tip.explained("span.sv-chip", words, `${plural(run.passed_over.length, "setting")} not applied`));
  }
  if (run.processing) {
    const { settings = {}, extra = [], names = [] } = run.processing;
    const asked = [...Object.entries(settings).map(([name, value]) => `${name} = ${JSON.stringify(value)}`), ...extra];
    const words = `Logits processors chose among the tokens: ${asked.join(", ")}. Probabilities and ranks are the `
      + "model's own, before them; a drafted token that they forbid says so.";
    list.push(owner.tip.explained("span.sv-chip", words, plural(names.length, "logits processor")));
  }
  if (run.left_out?.length) {
    list.push(owner.tip.explained("span.sv-chip", run.left_out.join(" "), "recorded in part"));
  }
  if (run.recomputed) {
    const by = `Probabilities, ranks and first choices are those of ${run.model?.name}, which read the text again.`;
    list.push(owner.tip.explained("span.sv-chip", by, "recomputed here"));
  }
  if (run.redrafted) {
    const { method, compared = 0, differing = 0 } = run.redrafted;
    const differ = plural(differing, "step");
    const words = `Drafted again here with ${method}: in ${differ} another number of tokens is accepted.`;
    list.push(owner.tip.explained("span.sv-chip", words, `${differing} of ${compared} drafts differ`));
  }
  return list;
}

/** The step in a sentence, where the run does not know all of it; null where the usual one holds. */
/** @type {(owner: Inspector, view: StepView) => Child[] | null} */
export function step(owner, view) {
  const { model } = owner;
  if (unknown(model, "tokens")) return [...text(owner, view), "; its tokens and its draft are not recorded."];
  const tokens = plural(view.emitted, "token");
  if (unknown(model, "steps")) return [`${tokens} of the answer; which tokens came together is not recorded.`];
  if (unknown(model, "steps.accepted")) return [`${tokens} came together; what was drafted of them is not recorded.`];
  if (!unknown(model, "steps.drafted")) return null;
  /** @type {Child[]} */
  const own = view.bonus < 0 ? [] : [view.accepted ? ", then the target added " : "the target wrote "];
  if (own.length) own.push(quoted(owner, view.bonus));
  const stood = view.accepted ? [`${plural(view.accepted, "drafted token")} accepted`] : [];
  return [...stood, ...own, "; what was drafted beside is not recorded."];
}

/** A step's text, where nobody knows its tokens. @type {(owner: Inspector, view: StepView) => Child[]} */
const text = (owner, view) => [
  unknown(owner.model, "steps") ? "a word of the answer, " : "a chunk of the stream, ",
  quoted(owner, view.bonus),
];

/** What a step's tip in the timeline says of its draft and its time. @type {(model: Model, step: number) => string} */
export function drafted(model, step) {
  const { accepted, drafted: count } = model.steps;
  if (unknown(model, "steps.accepted")) return "drafted: not recorded";
  const stood = plural(accepted[step], "drafted token");
  if (unknown(model, "steps.drafted")) return `${stood} accepted; how many were drafted is not recorded`;
  return count[step] ? `${accepted[step]} of ${plural(count[step], "drafted token")} accepted` : "no draft";
}

/** Where a draft made here stands otherwise than the server's. @type {(owner: Inspector, view: StepView) => Child[]} */
export function otherwise(owner, view) {
  const { differs, local_accepted: local } = /** @type {Record<string, any[]>} */ (owner.model.steps);
  if (!differs?.[view.number]) return [];
  return [h("span.sv-regret", ` Drafted again here, ${local[view.number]} would be accepted: engine and head differ.`)];
}
