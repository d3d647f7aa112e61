/* Page "Compare", its lanes: fetched once, followed while they go on, counted and checked when they are over. */

import { framed, h } from "specviz/base/dom.js";
import { getJson } from "specviz/base/json.js";
import { drawGo } from "specviz/compare/ask.js";
import { drawCharts } from "specviz/compare/charts.js";
import { changed, frame } from "specviz/compare/frame.js";
import { Lane, stretches } from "specviz/compare/lanes.js";
import { limit, pause } from "specviz/compare/race.js";
import { drawLens, drawStretches, drawTable } from "specviz/compare/results.js";
import { drawn, going, page, part, post } from "specviz/compare/state.js";
import { refreshRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";

function address() {
  const url = new URL(location.href);
  const ids = page.lanes.filter((lane) => lane.id).map((lane) => lane.id);
  if (ids.length) url.searchParams.set("lanes", ids.join(","));
  else url.searchParams.delete("lanes");
  history.replaceState(history.state, "", url);
}

export function begin(given) {
  pause();
  const ticket = ++page.ticket;
  for (const lane of page.lanes) lane.source?.close();
  page.lanes = given.map((one) => ({
    id: one.id || "",
    method: one.method || "",
    mark: "",
    n: -1,
    color: "",
    state: one.error ? "failed" : "waiting",
    error: one.error || "",
    mine: Boolean(one.mine),
    lane: null,
    ahead: 0,
  }));
  Object.assign(page, {
    numbers: {},
    lens: {},
    stretches: [],
    mark: null,
    at: 0,
    live: true,
    stopping: false,
    title: "",
  });
  page.framed = false;
  part("results").replaceChildren();
  part("empty").hidden = page.lanes.length > 0;
  address();
  frame();
  follow(ticket);
}

/** Lane after lane, as the worker takes them. */
async function follow(ticket) {
  const mine = page.lanes.filter((lane) => lane.mine && lane.id).map((lane) => lane.id);
  const settled = page.lanes
    .filter((lane) => lane.id)
    .map(async (lane) => {
      try {
        take(lane, await getJson(`api/traces/${encodeURIComponent(lane.id)}`), ticket);
      } catch (problem) {
        if (ticket === page.ticket) Object.assign(lane, { state: "failed", error: problem.message });
      }
    });
  await Promise.all(settled);
  if (ticket !== page.ticket) return;
  if (!mine.length && going()) adopt();
  changed();
  for (const lane of page.lanes) {
    if (ticket !== page.ticket) return;
    if (["waiting", "running"].includes(lane.state)) await watch(lane, ticket);
  }
  if (ticket !== page.ticket) return;
  over(ticket);
}

/** After a reload the runs end with this page, not with the one before. */
async function adopt() {
  const ids = page.lanes.filter((lane) => ["waiting", "running"].includes(lane.state)).map((lane) => lane.id);
  try {
    const { done } = await post("adopt", { ids, session: await app.session() });
    if (!done) return;
    for (const lane of page.lanes) if (ids.includes(lane.id)) lane.mine = true;
    drawGo();
  } catch {
    /* they end with the page that began them */
  }
}

function take(lane, trace, ticket) {
  const seq = trace.live ? trace.live.seq : Infinity;
  if (ticket !== page.ticket || seq < lane.seq) return; // an older answer came later
  if (trace.tokens) {
    if (lane.lane) lane.lane.load(trace);
    else lane.lane = new Lane(trace);
    lane.method = trace.run.method.name;
    page.title ||= trace.run.title;
  }
  lane.seq = seq;
  lane.ahead = trace.live ? trace.live.ahead : 0;
  lane.state = trace.live ? (trace.live.state === "queued" ? "waiting" : "running") : "done";
  if (!trace.live) finish(lane, trace.run);
}

function finish(lane, run) {
  lane.state = run.stop === "error" ? "failed" : run.stop === "cancelled" ? "stopped" : "done";
  lane.error = run.error || "";
}

/** Resolves when a run is over. */
function watch(lane, ticket) {
  return new Promise((resolve) => {
    let delta = [];
    const again = async () => {
      try {
        take(lane, await getJson(`api/traces/${encodeURIComponent(lane.id)}`), ticket);
      } catch (problem) {
        Object.assign(lane, {
          state: page.stopping ? "stopped" : "failed",
          error: page.stopping ? "Stopped before it began." : lane.error || problem.message,
        });
      }
      if (ticket === page.ticket) changed();
    };
    const flush = framed(() => {
      if (ticket !== page.ticket || !lane.lane) return;
      for (const event of delta) {
        if (event.seq <= lane.seq) continue;
        lane.lane.append(event.delta, event.run);
        lane.seq = event.seq;
      }
      delta = [];
      changed();
    });
    const source = new EventSource(`api/live/${encodeURIComponent(lane.id)}?after=${lane.seq ?? -1}`);
    let seen = lane.seq ?? -1;
    lane.source = source;
    const end = async () => {
      source.close();
      await again();
      resolve();
    };
    source.onmessage = (message) => {
      if (ticket !== page.ticket) {
        source.close();
        return resolve();
      }
      const event = JSON.parse(message.data);
      if (event.done) {
        lane.error = event.error || lane.error;
        return end();
      }
      if (event.state === "queued") {
        lane.ahead = event.ahead || 0;
        changed();
      }
      if (event.reload || event.state === "running" || event.seq > seen + 1) again();
      else if (event.delta) {
        delta.push(event);
        flush();
      }
      seen = Math.max(seen, event.seq);
    };
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) end();
    };
  });
}

function findStretches() {
  let lanes = drawn().filter((lane) => lane.aligned > 1);
  const methods = lanes.filter((lane) => lane.method !== "plain");
  if (methods.length > 1) lanes = methods;
  if (lanes.length < 2) return [];
  const upto = Math.min(...lanes.map((lane) => lane.aligned));
  return stretches(
    lanes.map((lane) => lane.lane),
    upto,
  ).map((one) => ({ ...one, lanes }));
}

const keys = () =>
  drawn()
    .filter((lane) => lane.id)
    .map((lane) => lane.id);

async function numbers(ticket) {
  const ids = keys();
  if (!ids.length) {
    for (const name of ["table", "lens-rows"])
      part(name).replaceChildren(h("p", { class: "svc-help" }, "No lane wrote anything."));
    return;
  }
  try {
    const answer = await getJson(`api/compare/numbers?runs=${ids.map(encodeURIComponent).join(",")}`);
    if (ticket !== page.ticket) return;
    page.numbers = answer;
    drawTable();
    drawCharts();
  } catch (problem) {
    if (ticket === page.ticket)
      part("table").replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
  }
}

export async function lens(ticket) {
  const ids = keys();
  if (!ids.length) return;
  try {
    const answer = await getJson(`api/compare/lens?runs=${ids.map(encodeURIComponent).join(",")}`);
    if (ticket !== page.ticket) return;
    page.lens = answer;
    drawLens();
    if (Object.values(answer).some((one) => one.state === "checking"))
      setTimeout(() => ticket === page.ticket && lens(ticket), 700);
  } catch (problem) {
    if (ticket === page.ticket)
      part("lens-rows").replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
  }
}

/** Everybody is done: numbers, the check against plain decoding, where they differ. */
function over(ticket) {
  page.live = false;
  page.at = limit();
  drawGo();
  refreshRuns();
  changed();
  page.stretches = findStretches();
  drawStretches();
  numbers(ticket);
  lens(ticket);
}
