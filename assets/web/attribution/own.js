/* Page "Attribution": a text of one's own. */

import { area, checks, chosenSignals, starting } from "specviz/attribution/forms.js";
import { show, start } from "specviz/attribution/runs.js";
import { page } from "specviz/attribution/state.js";
import { h } from "specviz/base/dom.js";
import { stored } from "specviz/base/storage.js";

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

export function answerForm() {
  const write = h("input", { type: "checkbox", name: "write" });
  const answer = area("answer", "Answer", 5, SAMPLE.answer, "The text to attribute, as it stands.");
  const text = answer.querySelector("textarea");
  write.addEventListener("change", () => {
    text.disabled = write.checked;
  });
  const go = h("button", { type: "submit", class: "svp-button sva-go" }, "Attribute");
  const bad = h("p", { class: "svp-note", role: "status" });
  const box = h(
    "form",
    { class: "sva-form", "aria-label": "An answer of your own" },
    h(
      "div",
      { class: "sva-two" },
      area("context", "Sources", 9, SAMPLE.context, "The passages. Put --- on a line of its own between two."),
      h(
        "div",
        { class: "sva-stack" },
        area("question", "Question", 1, SAMPLE.question),
        answer,
        h("label", { class: "sva-check" }, write, " The model writes the answer instead"),
      ),
    ),
    h("div", { class: "sva-row" }, checks("own"), go),
    bad,
  );
  box.addEventListener("submit", async (event) => {
    event.preventDefault();
    const value = (name) => box.elements[name].value;
    const signals = chosenSignals(box);
    const asked = {
      signals,
      form: {
        instruction: "Answer the question with quotes from the passages.",
        context: value("context"),
        question: value("question"),
      },
    };
    if (write.checked) asked.max_new_tokens = 256;
    else asked.answer = value("answer");
    await starting(go, bad, async () => {
      stored.set("signals", signals.join(","));
      const found = await start(asked);
      if (write.checked && signals.length > 1) page.then = { id: found.runs[0].id, signals: signals.slice(1) };
      show(found);
    });
  });
  return box;
}
