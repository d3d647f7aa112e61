/* Page "Compare": who won, drawn once all lanes are over; and the lanes repeated for their times. */

import { BASELINE } from "specviz/base/methods.js";
import { poll, sentence, within } from "specviz/base/json.js";
import { plural } from "specviz/base/numbers.js";
import { drawCharts } from "specviz/compare/charts.js";
import { changed } from "specviz/compare/frame.js";
import { atRest, clockText, limit, onClock } from "specviz/compare/race.js";
import { drawTable } from "specviz/compare/results.js";
import { fewest, lead } from "specviz/compare/standing.js";
import { drawn, name, page, part, put, repeated, repeats } from "specviz/compare/state.js";

const EVERY_MS = 500;
const ids = () => drawn().map(({ id }) => id);

/** The sentence, the number beside it, and how often each lane was run; before the clock is at its end what is true
    so far, and who won is not said. */
export function drawClaim() {
  if (!page.claim) return;
  const rest = atRest();
  const { sentence: words, number } = rest ? page.claim[page.by] : { sentence: standing(), number: "" };
  part("claim").hidden = false;
  part("outcome").setAttribute("aria-live", rest ? "polite" : "off"); // not frame by frame
  put(part("outcome"), words);
  put(part("number"), number);
  part("number").hidden = !number;
  if (!page.repeating) put(part("repeats"), repeats(page.claim));
  const again = part("again");
  again.hidden = !page.host.repeat || drawn().length < 2;
  put(again, page.repeating ? "Stop repeating" : "Repeat them");
}

/** How the lanes stand where the clock is. */
function standing() {
  const lanes = drawn().map((one) => {
    const steps = one.lane.done(page.clock, page.at);
    const named = one.method === BASELINE ? "plain decoding" : name(one);
    return { name: named, steps, tokens: one.lane.start(steps), over: steps === one.lane.steps };
  });
  return page.clock === "position" ? fewest(lanes, Math.floor(page.at)) : lead(lanes, clockText());
}

onClock(drawClaim);

/** Asks who won, and for every number; draws them. @param {() => boolean} wanted */
export async function ask(wanted) {
  await within(part("table"), async () => {
    const [numbers, claim] = await Promise.all(["numbers", "claim"].map((what) => page.host.ask(what, ids())));
    if (!wanted()) return;
    const end = page.at >= limit();
    Object.assign(page, { numbers, claim });
    for (const { id, lane } of drawn()) lane.setPace(numbers[id]?.pace ?? 1);
    if (end) page.at = limit();
    drawClaim();
    changed();
    drawTable();
    drawCharts();
  }, wanted);
}

/** Repeats the lanes, or stops that. @param {{ quiet?: boolean }} [how] quiet: where it cannot be, nothing is said */
export async function repeat({ quiet = false } = {}) {
  const { ticket, host } = page;
  if (page.repeating) return host.stop();
  const wanted = () => ticket === page.ticket;
  const tell = (/** @type {string} */ text) => (part("repeats").textContent = text);
  const basis = `Shown so far: ${repeated() ? "the runs before these repeats" : "the first run of each"}.`;
  page.repeating = true;
  tell(`${basis} Repeating in alternation …`);
  try {
    const begun = await host.repeat?.(ids());
    if (begun?.over) throw new Error(begun.text);
    drawClaim();
    await poll(() => host.ask("repeats", ids()), EVERY_MS, wanted, ({ over, count, of, run, text }) => {
      const lane = page.lanes.find(({ id }) => id === run);
      const now = lane ? `, now ${name(lane)}` : "";
      tell(`${basis} ${count < of ? `Repeating in alternation: ${count} of ${plural(of, "run")} done${now}.`
        : `${plural(count, "run")} done; those whose times are in doubt once more${now}.`}`);
      if (over && text) tell(text);
      return !over;
    });
    page.repeating = false;
    if (wanted()) await ask(wanted);
  } catch (problem) {
    page.repeating = false;
    if (wanted()) drawClaim();
    if (wanted() && !quiet) tell(sentence(problem));
  }
}
