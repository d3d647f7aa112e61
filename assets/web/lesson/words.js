/* The text of a lesson as nodes: paragraphs, questions, the last card. */

import { button, h } from "specviz/base/dom.js";

/** Runs of text as nodes: words, emphasis, code. @param {Paragraph} runs */
const inline = (runs) =>
  runs.map(([kind, words]) => {
    if (kind === "em") return h("em", words);
    return kind === "code" ? h("code.sv-token", words) : words;
  });

/** @param {Paragraph[]} list */
export const paragraphs = (list) => list.map((runs) => h("p", inline(runs)));

/** What is asked before a step, and the answer once it was given; ``fresh``: just now. */
/** @type {(player: import("specviz/lesson/lesson.js").Lesson, ask: LessonQuestion, fresh: boolean) => HTMLElement} */
export function question(player, ask, fresh) {
  const chosen = player.answers[player.at];
  const answered = chosen !== undefined;
  /** @type {(option: LessonOption, k: number) => HTMLElement} */
  const one = (option, k) => {
    const right = k === ask.answer;
    const mark = !answered ? "" : right ? " sv-option-right" : k === chosen ? " sv-option-wrong" : " sv-option-other";
    const said = !answered ? "" : right ? "✓" : k === chosen ? "✗" : "";
    const { position = -1 } = option;
    const place = position >= 0 ? h("small", { "data-position": position }) : null;
    return h(
      "li",
      h(
        "button",
        {
          class: `sv-option${mark}`,
          disabled: answered,
          "aria-pressed": answered ? String(k === chosen) : null,
          onclick: () => player.choose(k),
        },
        h("kbd", String(k + 1)),
        h("span", inline(option.runs), place && " ", place),
        said ? h("b.sv-option-mark", { "aria-label": right ? "right" : "your answer" }, said) : null,
      ),
    );
  };
  const parts = [
    h("p.sv-ask-head", answered ? (chosen === ask.answer ? "You predicted it" : "Not this time") : "Predict"),
    ...paragraphs(ask.text),
    h("ol.sv-options", ask.options.map(one)),
  ];
  if (answered) parts.push(h("div.sv-reveal", { role: "status" }, paragraphs(ask.reveal)));
  else parts.push(h("p.sv-ask-hint", { hidden: true }, "Choose an answer first: press its number."));
  const state = !answered ? "" : chosen === ask.answer ? " sv-ask-right" : " sv-ask-wrong";
  return h("section", { class: `sv-ask${state}${fresh ? " sv-fresh" : ""}`, "aria-label": "Question" }, parts);
}

/** The score, and what was missed. @param {import("specviz/lesson/lesson.js").Lesson} player */
export function drawEnd(player) {
  const { lesson } = player;
  const asked = lesson.stops.flatMap(({ ask, title }, k) => (ask ? [{ ask, title, k }] : []));
  const right = asked.filter(({ ask, k }) => player.answers[k] === ask.answer);
  const missed = asked.filter((one) => !right.includes(one));
  const score = asked.length
    ? h("p.sv-score", h("b", `${right.length} of ${asked.length}`), " predicted")
    : h("p.sv-score", "Done");
  const rows = missed.map(({ ask, title, k }) => {
    const given =
      k in player.answers
        ? ["you said ", inline(ask.options[player.answers[k]].runs), ", it was "]
        : ["not answered; it was "];
    const answer = inline(ask.options[ask.answer].runs);
    return h(
      "li",
      button(
        `Look again: ${title}`,
        { class: "sv-button sv-missed", onclick: () => player.go(k) },
        h("b", title),
        h("span", given, answer),
      ),
    );
  });
  const praise = missed.length ? "What was missed, to look at again:" : asked.length ? "Nothing was missed." : "";
  player.words.replaceChildren(
    h("p.sv-lesson-place", h("span", "The end")),
    h("h3.sv-lesson-stop", lesson.title),
    score,
    praise ? h("p", praise) : "",
    rows.length ? h("ul.sv-misses", rows) : "",
    h("h4.sv-lesson-learnt", "You have seen"),
    h("ul.sv-learnt", lesson.learn.map((one) => h("li", one))),
  );
}
