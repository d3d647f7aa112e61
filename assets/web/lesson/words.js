/* The text of a lesson as nodes: paragraphs, questions, the last card. */

import { button, h, replace } from "specviz/base/dom.js";

/** Runs of text as nodes: words, emphasis, code. @param {Paragraph} runs */
const inline = (runs) =>
  runs.map(([kind, words]) => {
    if (kind === "em") return h("em", words);
    return kind === "code" ? h("code.sv-token", words) : words.replace(/(\d) %/g, "$1\u00a0%");
  });

/** @param {Paragraph[]} list */
export const paragraphs = (list) => list.map((runs) => h("p", inline(runs)));

/** What is asked before a step, and the answer once it was given; ``fresh``: just now. */
/** @type {(player: import("specviz/lesson/lesson.js").Lesson, ask: LessonQuestion, fresh: boolean) => HTMLElement} */
export function question(player, ask, fresh) {
  const chosen = player.answers[player.at];
  const answered = chosen !== undefined;
  const right = chosen === ask.answer;
  /** @type {(option: LessonOption, k: number) => HTMLElement} */
  const one = ({ runs, position = -1 }, k) => {
    const state = k === ask.answer ? "right" : k === chosen ? "wrong" : "other";
    const place = position >= 0 && h("small", { "data-position": position });
    const pressed = answered && String(k === chosen);
    const choice = { disabled: answered, "aria-pressed": pressed || null, onclick: () => player.choose(k) };
    const told = { "aria-label": state === "right" ? "right" : "your answer" };
    const mark = answered && state !== "other" && h("b.sv-option-mark", told, state === "right" ? "✓" : "✗");
    const words = h("span", inline(runs), place && " ", place);
    const key = h("kbd", String(k + 1));
    const look = answered && `sv-option-${state}`;
    return h("li", h("button.sv-button.sv-option", { class: look, ...choice }, key, words, mark));
  };
  const state = answered ? `sv-ask-${right ? "right" : "wrong"}` : "";
  return h(
    "section.sv-ask.ui-stack",
    { class: `${state} ${fresh ? "sv-fresh" : ""}`, "aria-label": "Question" },
    h("p.sv-ask-head", answered ? (right ? "You predicted it" : "Not this time") : "Predict"),
    paragraphs(ask.text),
    h("ol.sv-options.ui-stack", ask.options.map(one)),
    answered
      ? h("div.sv-reveal.ui-stack", { role: "status" }, paragraphs(ask.reveal))
      : h("p.sv-ask-hint", { hidden: true }, "Choose an answer first: press its number."),
  );
}

/** The score, and what was missed. @param {import("specviz/lesson/lesson.js").Lesson} player */
export function drawEnd(player) {
  const { lesson } = player;
  const asked = lesson.stops.flatMap(({ ask, title }, k) => (ask ? [{ ask, title, k }] : []));
  const right = asked.filter(({ ask, k }) => player.answers[k] === ask.answer);
  const missed = asked.filter((one) => !right.includes(one));
  const rows = missed.map(({ ask, title, k }) => {
    const said = ask.options[player.answers[k]];
    const before = said ? ["you said ", inline(said.runs), ", it was "] : "not answered; it was ";
    const words = h("span", before, inline(ask.options[ask.answer].runs));
    const again = { class: "sv-missed ui-stack", onclick: () => player.go(k) };
    return h("li", button(`Look again: ${title}`, again, h("b", title), words));
  });
  const praise = missed.length ? "What was missed, to look at again:" : asked.length > 0 && "Nothing was missed.";
  replace(player.words, [
    h("p.sv-lesson-place.ui-row.ui-soft", h("span", "The end")),
    h("h3.sv-lesson-stop", lesson.title),
    h("p.sv-score", asked.length ? [h("b", `${right.length} of ${asked.length}`), " predicted"] : "Done"),
    praise && h("p", praise),
    rows.length > 0 && h("ul.sv-misses.ui-stack", rows),
    h("h4.sv-lesson-learnt", "You have seen"),
    h("ul.sv-learnt.ui-stack", lesson.learn.map((one) => h("li", one))),
  ]);
}
