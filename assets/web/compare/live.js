/* Page "Compare", its lanes: fetched once, followed while they go on, counted and checked when they are over. */

import { framed, h } from "specviz/base/dom.js";
import { listen, poll, sentence, within } from "specviz/base/json.js";
import { stored } from "specviz/base/storage.js";
import { changed, frame } from "specviz/compare/frame.js";
import { Lane } from "specviz/compare/lane.js";
import { limit, pause, toggle } from "specviz/compare/race.js";
import { ask, repeat } from "specviz/compare/repeat.js";
import { drawLens, drawStretches } from "specviz/compare/results.js";
import { drawn, going, page, part } from "specviz/compare/state.js";

/** @param {CompareLane[]} lanes */
const idsOf = (lanes) => lanes.filter((lane) => lane.id).map((lane) => lane.id);
/** @param {CompareLane} lane */
const unfinished = (lane) => ["waiting", "running"].includes(lane.state);
const NEVER = { state: "stopped", error: "Stopped before it began." };
/** What every comparison begins with. */
const FRESH = {
  numbers: {}, lens: {}, stretches: [], claim: null, repeating: false, mark: null, at: 0, live: true, moved: false,
  stopping: false, title: "", framed: false,
};
/** A lane of which nothing is known yet. @type {CompareLane} */
const UNKNOWN = {
  id: "", method: "", mark: "", n: -1, color: "", state: "waiting", error: "", mine: false, lane: null, ahead: 0,
  aligned: 0, seq: -1, source: null, parts: null, shown: "",
};

/** Another comparison: of runs that are there, or of new lanes. @param {Partial<CompareLane>[]} lanes */
export function begin(lanes) {
  pause();
  const ticket = ++page.ticket;
  for (const lane of page.lanes) lane.source?.close();
  page.lanes = lanes.map((one) => ({ ...UNKNOWN, ...one, state: one.error ? "failed" : "waiting" }));
  Object.assign(page, FRESH);
  part("results").replaceChildren();
  part("empty").hidden = page.lanes.length > 0;
  page.host.begun(idsOf(page.lanes));
  if (!page.lanes.length) return page.host.changed();
  frame();
  part("again").onclick = () => repeat();
  follow(ticket);
}

/** Lane after lane, as the worker takes them. @param {number} ticket */
async function follow(ticket) {
  const mine = idsOf(page.lanes.filter((lane) => lane.mine));
  const settled = page.lanes
    .filter((lane) => lane.id)
    .map(async (lane) => {
      try {
        take(lane, await page.host.trace(lane.id), ticket);
      } catch (problem) {
        if (ticket === page.ticket) Object.assign(lane, { state: "failed", error: sentence(problem) });
      }
    });
  await Promise.all(settled);
  if (ticket !== page.ticket) return;
  if (!mine.length && going()) adopt();
  changed();
  const watched = page.lanes.filter(unfinished).length > 1;
  const start = performance.now();
  for (const lane of page.lanes) {
    if (ticket !== page.ticket) return;
    if (unfinished(lane)) await watch(lane, ticket);
  }
  if (ticket !== page.ticket) return;
  if (mine.length && page.lanes.every((lane) => lane.mine && lane.state === "done"))
    stored.set("lanes-took", JSON.stringify({ lanes: mine.length, ms: performance.now() - start }));
  over(ticket);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches || page.stopping || drawn().length < 2;
  if (watched && !still && page.box.offsetWidth) toggle();
}

/** After a reload the runs end with this page, not with the one before. */
async function adopt() {
  const ids = page.lanes.filter(unfinished).map((lane) => lane.id);
  try {
    if (!(await page.host.adopt(ids))) return;
    for (const lane of page.lanes) if (ids.includes(lane.id)) lane.mine = true;
    page.host.changed();
  } catch {
    /* they end with the page that began them */
  }
}

/** Takes a lane's run as it stands. @type {(lane: CompareLane, trace: Trace | WaitingTrace, ticket: number) => void} */
function take(lane, trace, ticket) {
  const seq = trace.live ? trace.live.seq : Infinity;
  if (ticket !== page.ticket || seq < lane.seq) return; // an older answer came later
  if (trace.tokens) {
    lane.lane = new Lane(trace);
    lane.method = trace.run.method.name;
    page.title ||= trace.run.title || "";
  }
  lane.seq = seq;
  lane.ahead = trace.live ? trace.live.ahead : 0;
  lane.state = trace.live ? (trace.live.state === "queued" ? "waiting" : "running") : "done";
  if (trace.live || !trace.tokens) return;
  const { stop, error } = trace.run;
  lane.state = stop === "error" ? "failed" : stop === "cancelled" ? "stopped" : "done";
  lane.error = error || "";
}

/** Resolves when a run is over. @type {(lane: CompareLane, ticket: number) => Promise<void>} */
function watch(lane, ticket) {
  return new Promise((resolve) => {
    /** @type {LiveEvent[]} */
    let events = [];
    /** There is no such run. @param {string} why */
    const fail = (why) =>
      Object.assign(lane, page.stopping ? NEVER : { state: "failed", error: lane.error || why });
    const again = async () => {
      try {
        take(lane, await page.host.trace(lane.id), ticket);
      } catch (problem) {
        fail(sentence(problem));
      }
      if (ticket === page.ticket) changed();
      flush(); // what came while the answer was on its way, and is not in it
    };
    const flush = framed(() => {
      if (ticket !== page.ticket || !lane.lane) return;
      for (const { seq, delta, run } of events) {
        if (seq <= lane.seq) continue;
        lane.lane.append(delta ?? {}, run);
        lane.seq = seq;
      }
      events = [];
      changed();
    });
    let seen = lane.seq;
    /** @param {LiveEvent} [event] undefined: the server closed */
    const end = async (event) => {
      source.close();
      if (event?.started !== false) await again();
      else {
        fail(""); // it is nowhere, so it is not asked for
        changed();
      }
      resolve();
    };
    /** @param {LiveEvent} event */
    const received = (event) => {
      if (ticket !== page.ticket) {
        source.close();
        return resolve();
      }
      if (event.done) {
        lane.error = event.error || lane.error;
        return end(event);
      }
      if (event.state === "queued") {
        lane.ahead = event.ahead || 0;
        changed();
      }
      if (event.reload || event.state === "running" || event.seq > seen + 1) again();
      else if (event.delta) {
        events.push(event);
        flush();
      }
      seen = Math.max(seen, event.seq);
    };
    const source = (lane.source = listen(lane.id, lane.seq, received, end));
  });
}

/** What the server makes of the runs that are over; says in ``place`` what went wrong. */
/** @type {(what: string, ticket: number, place: string, draw: (answer: any) => void) => Promise<void>} */
async function asked(what, ticket, place, draw) {
  const wanted = () => ticket === page.ticket;
  const answer = await within(part(place), () => page.host.ask(what, idsOf(drawn())), wanted);
  if (answer) draw(answer);
}

/** The check of every run against plain decoding, asked for until it is done. @param {number} ticket */
export async function lens(ticket) {
  if (!idsOf(drawn()).length) return;
  const wanted = () => ticket === page.ticket;
  const ask = () => page.host.ask("lens", idsOf(drawn()));
  await within(part("lens-rows"), () => poll(ask, 700, wanted, (answer) => {
    page.lens = answer;
    drawLens();
    return Object.values(page.lens).some((one) => one.state === "checking");
  }), wanted);
}

/** Everybody is done: numbers, the check against plain decoding, where they differ. @param {number} ticket */
function over(ticket) {
  page.live = false;
  page.at = limit();
  page.host.over();
  changed();
  if (!idsOf(drawn()).length) {
    part("setup", HTMLDetailsElement).open = true; // the way on
    for (const name of ["stretches", "table", "lens-rows"])
      part(name).replaceChildren(h("p.svc-help.ui-soft", "No lane wrote anything."));
    return;
  }
  asked("stretches", ticket, "stretches", ({ stretches }) => {
    page.stretches = stretches;
    drawStretches();
  });
  const mine = page.lanes.some((lane) => lane.mine) && page.lanes.every((lane) => lane.state === "done");
  const wanted = () => ticket === page.ticket;
  ask(wanted).then(() => {
    if (mine && wanted()) repeat({ quiet: true });
  });
  lens(ticket);
}
