/* Page "Attribution": a text of one's own. */

import { area, checks, chosenSignals, starting } from "specviz/attribution/forms.js";
import { show, start } from "specviz/attribution/runs.js";
import { page } from "specviz/attribution/state.js";
import { h } from "specviz/base/dom.js";
import { stored } from "specviz/base/storage.js";

const INSTRUCTION = "Answer the question with quotes from the passages.";
const CONTEXT_HINT = "The passages. Put --- on a line of its own between two.";
const SAMPLE = {
  context:
    "The harbour museum opened in 1931 and holds two hundred model ships. Its oldest piece, a " +
    "brass compass, was given by the widow of a pilot.\n---\nEvery spring the ferry brings " +
    "about four thousand visitors to the island. Most of them stay for a single day.",
  question: "What can visitors of the island see?",
  answer:
    "About four thousand visitors come to the island, and the harbour " +
    "museum opened in 1931 and holds two hundred model ships. Its " +
    "oldest piece, a brass compass, was given by the widow of a pilot.",
};

/** A text to attribute, typed. */
export function answerForm() {
  const rest = () => (answer.field.disabled = write.checked);
  const write = h("input", { type: "checkbox", name: "write", onchange: rest });
  const answer = area("answer", "Answer", 5, SAMPLE.answer, "The text to attribute, as it stands.");
  const context = area("context", "Sources", 9, SAMPLE.context, CONTEXT_HINT);
  const question = area("question", "Question", 1, SAMPLE.question);
  const instead = h("label.ui-check", write, " The model writes the answer instead");
  const go = h("button.svp-button.sva-go", { type: "submit" }, "Attribute");
  const bad = h("p.svp-note", { role: "status" });
  const box = h(
    "form.ui-stack",
    { "aria-label": "An answer of your own" },
    h("div.ui-halves", context.label, h("div.ui-stack", question.label, answer.label, instead)),
    h("div.sva-row.ui-row", checks("own"), go),
    bad,
  );
  box.addEventListener("submit", async (event) => {
    event.preventDefault();
    const signals = chosenSignals(box);
    const asked = {
      signals,
      form: { instruction: INSTRUCTION, context: context.field.value, question: question.field.value },
      ...(write.checked ? { max_new_tokens: 256 } : { answer: answer.field.value }),
    };
    await starting(go, bad, async () => {
      stored.set("signals", signals.join(","));
      const started = await start(asked);
      if (write.checked && signals.length > 1) page.then = { id: started.runs[0].id, signals: signals.slice(1) };
      show(started);
    });
  });
  return box;
}
