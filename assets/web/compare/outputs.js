/* Page "Compare", two outputs of a server: pasted, read by the model in use, judged. */

import { h } from "specviz/base/dom.js";
import { postJson, within } from "specviz/base/json.js";
import { format, probability } from "specviz/base/numbers.js";
import { bound } from "specviz/base/field.js";
import { CALLS } from "specviz/compare/calls.js";

const typed = { mode: "text", prompt: "", plain: "", drafted: "", dtype: "bfloat16", lossless: true };

/** @type {Record<string, (a: OutputsAnswer) => string>} */
const WORDS = {
  same: () => "Both outputs are the same, token by token.",
  "near tie": (a) =>
    `A near tie: every token of the drafted output lies within ${format(a.tolerance)} of the best logit. ` +
    "Rounding decides between such tokens, so this is no fault of drafting.",
  "lossy by design": () =>
    "Lossy: the method may leave the target's first choice, and does. That is its design, not a fault.",
  bug: (a) =>
    `A bug, as far as this model can tell: the drafted output has a token ${format(Math.max(...a.drafted.below))} ` +
    `below the best logit, and rounding explains ${format(a.tolerance)} at most. Greedy decoding would not have ` +
    "written it.",
  "not greedy": (a) =>
    "Nothing can be said of drafting: the output without it is not what this model writes greedily either (a token " +
    `lies ${format(Math.max(...a.plain.below))} below the best logit). Was it drawn, or is the model, its ` +
    "quantisation or the chat template another one?",
};

/** @param {OutputsAnswer} a @param {"plain" | "drafted"} which @param {string} name */
function text(a, which, name) {
  const reading = a[which];
  const tokens = a.texts[which].map((piece, i) => {
    const far = reading.below[i] > a.tolerance;
    const kind = [i === a.at && "svd-first", far && "svd-far"].filter(Boolean).join(" ");
    const about = `p ${probability(reading.probs[i])}, ${format(reading.below[i])} below the best logit`;
    return h("span", { class: kind || null, title: about }, piece);
  });
  if (a.at === tokens.length) tokens.push(h("span.svd-first", { title: "it ended here" }, "∎"));
  return h("figure.svd-text", h("figcaption.ui-soft", name), h("pre.ui-pre", tokens));
}

/** @param {OutputsAnswer} a */
function verdict(a) {
  const facts =
    a.at === null
      ? []
      : [
          `first difference at token ${a.at + 1}`,
          `p without drafting ${probability(a.plain_prob)}, with it ${probability(a.drafted_prob)}`,
          `the two best logits there differ by ${format(a.gap)}`,
        ];
  return [
    h("p.svd-verdict", { "data-verdict": a.verdict, role: "status" }, WORDS[a.verdict](a)),
    CALLS[a.calls] && h("p.svd-calls", { "data-calls": a.calls }, CALLS[a.calls]),
    h("p.ui-soft", [...facts, `judged by ${a.model}, read teacher-forced`].join(" · ")),
    h("div.ui-halves", text(a, "plain", "without drafting"), text(a, "drafted", "with drafting")),
    h(
      "p.ui-soft",
      h("span.svd-first", "first difference"),
      " ",
      h("span.svd-far", "below the best logit by more than rounding explains"),
      " Pasted text is split into tokens anew: where a server's own token ids were others, differences can move.",
    ),
  ];
}

/** @param {HTMLElement} place */
export function drawOutputs(place) {
  const result = h("div.svd-result.ui-stack");
  /** @type {(key: "prompt" | "plain" | "drafted", label: string, rows: number) => HTMLElement} */
  const area = (key, label, rows) =>
    h("label.ui-above", h("b", label), bound(h("textarea.svc-area", { rows }), typed, key, able));
  const dtypes = ["float32", "bfloat16", "float16"].map((name) => h("option", { value: name }, name));
  const modes = [
    ["text", "as it is"],
    ["chat", "through the chat template"],
  ].map(([value, words]) => h("option", { value }, words));
  const lossy = h("input", {
    type: "checkbox",
    checked: !typed.lossless,
    onchange: ({ currentTarget }) => (typed.lossless = !currentTarget.checked),
  });
  const go = h("button.svp-button.svd-go", { onclick: ask }, "Judge them");
  function able() {
    go.disabled = !(typed.prompt.trim() && typed.plain && typed.drafted);
  }
  async function ask() {
    go.disabled = true;
    result.replaceChildren(h("p.ui-soft", { role: "status" }, "The model reads both …"));
    /** @type {OutputsAnswer | undefined} */
    const answer = await within(result, () => postJson("api/acceptance/outputs", typed));
    if (answer) result.replaceChildren(...verdict(answer));
    able();
  }
  able();
  place.replaceChildren(
    h(
      "p.svd-lead",
      "Greedy outputs of one prompt, with drafting and without, differ: is it rounding, a lossy method or a bug? " +
        "Paste both; the model in use, which must be the one that wrote them, reads each and says how far every " +
        "token lies below its first choice.",
    ),
    area("prompt", "Prompt", 4),
    h(
      "div.ui-row",
      h("label.ui-check", "It was sent ", bound(h("select.svp-select", modes), typed, "mode")),
      h("label.ui-check", "The server computes in ", bound(h("select.svp-select", dtypes), typed, "dtype")),
      h("label.ui-check", lossy, " the method is lossy by design"),
    ),
    h("div.ui-halves", area("plain", "Output without drafting", 7), area("drafted", "Output with drafting", 7)),
    h("div.ui-row", go),
    result,
  );
}
