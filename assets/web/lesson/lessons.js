/* Lessons as cards, and the player with its place in the address and in this browser. Text nodes only. */

import { h, later } from "specviz/base/dom.js";
import { sentence, within } from "specviz/base/json.js";
import { clamp, plural } from "specviz/base/numbers.js";
import { parse, stored } from "specviz/base/storage.js";
import { Lesson } from "specviz/lesson/lesson.js";

class LessonPage {
  /** Where lessons and their runs come from, and what is around them. @type {LessonHost} */
  host = later();
  /** @type {HTMLElement} */
  box = document.body; // until the page is there
  place = h("div", h("p.svp-empty", "Opening the lessons …"));
  /** @type {(LessonCard | FaultyLesson)[]} */
  lessons = [];
  /** @type {Lesson | null} */
  player = null;
  /** Run → its trace, fetched once. @type {Map<string, Promise<Trace>>} */
  runs = new Map();
  asked = false;
  /** Of the lesson that is asked for: an answer to an older one is dropped. */
  ticket = 0;
}
export const page = new LessonPage();

/** @param {string} id */
const key = (id) => `lesson-${id}`;
/** Where a learner stands, as this browser keeps it. @type {(id: string) => Partial<LessonProgress>} */
const kept = (id) => parse(stored.get(key(id)) ?? "");

/** The address of a stop; ``at`` counts from 0. @type {(id: string, at: number, present: boolean) => string} */
function link(id, at, present) {
  const asked = { ...page.host.address, lesson: id, at: String(at + 1), ...(present ? { present: "1" } : null) };
  return new URL(`?${new URLSearchParams(asked)}`, location.href).href;
}

/** A run, fetched once. @param {string} name */
function run(name) {
  const trace = page.runs.get(name) ?? page.host.run(name);
  page.runs.set(name, trace);
  trace.catch(() => page.runs.delete(name));
  return trace;
}

// --- cards ---

/** How far a learner is, and what the button says. @param {LessonCard} card */
function state(card) {
  const { at } = kept(card.id);
  if (at === undefined) return { words: "Start", at: 0, done: 0 };
  if (at >= card.stops) return { words: "Again", at: 0, done: 1 };
  return { words: at > 0 ? "Go on" : "Start", at, done: at / card.stops };
}

/** @type {(one: LessonCard | FaultyLesson, number: number) => HTMLElement} */
function card(one, number) {
  if (one.faults)
    return h(
      "li.svn-card.svn-faulty.ui-stack.ui-box",
      h("h3", one.id.replace(/^own-/, "")),
      h("p", "This lesson cannot be shown yet:"),
      h("ul.ui-stack", one.faults.map((text) => h("li", text))),
    );
  const { words, at, done } = state(one);
  const finished = done >= 1;
  return h(
    "li.svn-card.ui-stack.ui-box",
    { class: finished && "svn-finished" },
    h(
      "div.svn-top.ui-line.ui-soft",
      h("span.svn-number", one.own ? "Own lesson" : String(number)),
      h("span.svn-minutes", finished ? "✓ done · " : "", plural(one.minutes, "minute")),
    ),
    h("h3", one.title),
    h("p", one.about),
    h("ul.svn-learn.ui-stack.ui-soft", one.learn.map((text) => h("li", text))),
    h(
      "div.svn-foot.ui-line",
      h("button.svp-button.svn-go", { "aria-label": `${words}: ${one.title}`, onclick: () => play(one.id, at) }, words),
      h(
        "span.svn-progress.ui-bar",
        { role: "img", "aria-label": `${Math.round(100 * done)} % seen` },
        h("i", { style: `width:${100 * done}%` }),
      ),
      h("span.svn-asked.ui-soft", plural(one.asked, "question")),
    ),
  );
}

function drawCards() {
  leave();
  const own = page.lessons.filter((one) => one.own);
  const ours = page.lessons.filter((one) => !one.own);
  const total = ours.reduce((sum, one) => sum + (one.minutes || 0), 0);
  page.place.replaceChildren(
    h(
      "header.svn-head.ui-stack",
      h("h2", "Lessons"),
      h(
        "p",
        `Short tours over recorded runs: ${ours.length} lessons, ${plural(total, "minute")} in all. Read, ` +
          `predict, then see what happened. The keys → ← and the digits are enough; F makes it large for a class.`,
      ),
    ),
    h("ol.svn-cards", ours.map((one, k) => card(one, k + 1))),
    ...(own.length ? [h("h2.svn-own", "Your own"), h("ul.svn-cards", own.map((one, k) => card(one, k + 1)))] : []),
    page.host.note(),
  );
  page.box.dataset.ready = "cards";
}

// --- the player ---

function leave() {
  if (page.player) page.player.destroy();
  page.player = null;
}

/** The id that an address means: itself, its number, or its name without the number. @param {string} asked */
function idOf(asked) {
  const ids = page.lessons.map(({ id }) => id);
  const found = ids.find((id) => [id, parseInt(id, 10).toString(), id.replace(/^\d+-/, "")].includes(asked));
  if (!found) throw Error(`There is no lesson ${asked}. There are ${ids.join(", ")}.`);
  return found;
}

/** Opens a lesson at a stop; without one, where the learner was. @param {string} asked @param {number} [at] */
async function play(asked, at = undefined, present = false) {
  const ticket = ++page.ticket;
  /** @type {string} */
  let id;
  /** @type {LessonText} */
  let lesson;
  try {
    id = idOf(asked);
    lesson = await page.host.lesson(id);
    if (ticket !== page.ticket) return;
  } catch (problem) {
    if (ticket !== page.ticket) return;
    drawCards();
    page.place.prepend(h("p.svp-note.svp-error.svn-problem", { role: "alert" }, sentence(problem)));
    return;
  }
  leave();
  const order = page.lessons.flatMap((one) => (one.faults ? [] : [one]));
  const after = order[order.findIndex((one) => one.id === id) + 1];
  const before = kept(id);
  const host = h("div");
  page.place.replaceChildren(host);
  const start = clamp(at ?? before.at ?? 0, 0, lesson.stops.length);
  /** @param {LessonProgress} progress */
  const keep = ({ at: now, answers }) => {
    stored.set(key(id), JSON.stringify({ at: now, answers }));
    page.host.moved({ lesson: id, at: String(now + 1) });
  };
  const presenting = () => Boolean(page.player?.presenter.on);
  const answers = Object.fromEntries(
    Object.entries(before.answers || {}).filter(([k, option]) => lesson.stops[Number(k)]?.ask?.options[option]),
  );
  page.player = new Lesson(host, lesson, {
    load: run,
    at: start,
    answers: (before.at ?? 0) >= lesson.stops.length && start === 0 ? {} : answers,
    present,
    moved: keep,
    link: (now) => link(id, now, presenting()),
    leave: () => {
      page.host.moved({ lesson: null, at: null });
      drawCards();
    },
    open: (name, step) => {
      page.player?.presenter.set(false);
      page.host.inspect(name, step);
    },
    next: after && !lesson.own ? { title: after.title, go: () => play(after.id, 0, presenting()) } : null,
  });
  keep({ at: start, answers: page.player.answers });
  page.box.dataset.ready = id;
  scrollTo({ top: 0 });
  page.player.root.focus({ preventScroll: true });
}

/** Opens a lesson where the learner was. @param {string} id */
export const again = (id) => play(id);

/** Shows a lesson's stop, or the cards. @param {string | null} id @param {number} at */
export function turn(id, at) {
  if (!id) return page.player && drawCards();
  if (id === page.player?.lesson.id) return page.player.go(at);
  return play(id, at);
}

/** Shows the cards, or the lesson that the address names. */
export async function load() {
  const answer = await within(page.place, page.host.lessons);
  page.asked = !!answer;
  if (!answer) return;
  page.lessons = answer.lessons;
  const asked = new URLSearchParams(location.search);
  const id = asked.get("lesson");
  if (!id) return drawCards();
  const at = Number.parseInt(asked.get("at") || "", 10);
  await play(id, Number.isFinite(at) ? at - 1 : undefined, asked.get("present") === "1");
}
