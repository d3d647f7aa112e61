/* Runs found by what they read and wrote, in the drawer of runs. */

import { h } from "specviz/base/dom.js";
import { getJson, sentence } from "specviz/base/json.js";
import { plural } from "specviz/base/numbers.js";
import { glyphs, inLine } from "specviz/base/text.js";
import { app } from "specviz/shell/state.js";

const TYPING_MS = 120; // between two questions while somebody types
const AGAIN_MS = 1500; // until what is still being read is asked for again
const MOST_PINS = 16; // tokens of a match that are marked in the text
const MOST_WORDS = 10; // that the server looks for at once
/** @type {FindAnswer} */
const NOTHING = { runs: {}, pending: 0 };

let asked = "";
let answered = "";
let answer = NOTHING;
let problem = "";
let timer = 0;

/** @param {string[]} words @param {() => void} draw */
async function fetchPlaces(words, draw) {
  const question = new URLSearchParams(words.map((word) => ["word", word])).toString();
  /** @type {FindAnswer} */
  let found = NOTHING;
  let fault = "";
  try {
    found = await getJson(`api/find?${question}`);
  } catch (error) {
    fault = sentence(error);
  }
  if (question !== asked) return; // an answer to an older question
  answered = question;
  answer = found;
  problem = fault;
  if (found.pending) timer = setTimeout(() => fetchPlaces(words, draw), AGAIN_MS);
  draw();
}

/** @param {FoundPlace} place */
const where = ({ part, step }) => (part === "prompt" ? "prompt" : `${part}, step ${step + 1}`);

/** A place: a click opens its step. @type {(place: FoundPlace, show: (at: At) => void) => Node} */
function placeOf(place, show) {
  const [before, match, behind] = place.text.map((text) => inLine(text.replace(/[\n\t\r]/g, glyphs)));
  const { part, first, last, step } = place;
  const count = part === "rejected" ? 0 : Math.min(last - first + 1, MOST_PINS);
  /** @type {At} */
  const at = { step: Math.max(0, step), pins: Array.from({ length: count }, (_, n) => first + n) };
  const act = (/** @type {Event} */ event) => {
    event.stopPropagation();
    show(at);
  };
  return h("button.svf-place", { type: "button", onclick: act },
    h("span.svf-where", where(place)), h("code", { dir: "auto" }, before, h("mark", match), behind));
}

app.runSearch = {
  hint: "Search: titles, prompts, outputs, rejected tokens; method:pld, tag:good, lossy, kept",
  ask(words, draw) {
    const some = words.slice(0, MOST_WORDS);
    clearTimeout(timer);
    asked = new URLSearchParams(some.map((word) => ["word", word])).toString();
    if (some.length) timer = setTimeout(() => fetchPlaces(some, draw), TYPING_MS);
    else answer = NOTHING;
  },
  // until it is answered, a word that grows while it is typed stands where its beginning did
  holds: (id, word) =>
    Boolean(answer.runs[id]?.words.some((known) => known === word || (asked !== answered && word.startsWith(known)))),
  places(id, show) {
    const run = answer.runs[id];
    if (!run?.places.length) return null;
    const left = run.count - run.places.length;
    const more = left > 0 && h("span.svf-more", `and ${plural(left, "further place")}`);
    return h("div.svf-places", run.places.map((place) => placeOf(place, show)), more);
  },
  note: () => problem || (answer.pending ? `${plural(answer.pending, "run")} still to be read for this search.` : ""),
};
