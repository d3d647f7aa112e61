/* Runs that go on: their events, one feed per run, drawn once per frame. */

import { emit } from "specviz/base/bus.js";
import { getJson } from "specviz/base/json.js";
import { over, refreshRuns } from "specviz/shell/runs.js";
import { say, show } from "specviz/shell/stage.js";
import { app } from "specviz/shell/state.js";

/** Says how far it is. */
export function busy(feed) {
  if (!feed || app.current !== feed.id) return;
  if (feed.state === "queued") {
    const ahead = feed.ahead;
    say(ahead > 0 ? `Waiting: ${ahead} ${ahead === 1 ? "run" : "runs"} before yours.` : "Waiting to start.", "busy");
  } else {
    say(
      feed.tokens ? `Running: ${feed.tokens} tokens in ${feed.steps} steps.` : "Running: reading the prompt.",
      "busy",
    );
  }
}

/** A feed of a run's events; `live` is {state, seq, ahead} of a snapshot, or of nothing yet (seq -1). */
export function follow(id, live) {
  const old = app.feeds.get(id);
  if (old) {
    if (live.seq > old.seq) Object.assign(old, { state: live.state, ahead: live.ahead });
    return old;
  }
  const source = new EventSource(`api/live/${encodeURIComponent(id)}?after=${live.seq}`);
  const feed = {
    id,
    source,
    seq: live.seq,
    state: live.state,
    ahead: live.ahead || 0,
    base: -1,
    tokens: 0,
    steps: 0,
    loading: 0,
    pending: [],
    frame: 0,
    over: false,
  };
  app.feeds.set(id, feed);
  source.onmessage = (message) => receive(feed, JSON.parse(message.data));
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) end(feed, null); // the server says it is over
  };
  return feed;
}

/** Shows a snapshot; events up to its number are in it, and only later ones are added. */
export function draw(feed, trace, at) {
  const last = trace.steps.context.length - 1;
  if (!feed) return show(trace, at);
  if (app.shown === feed.id && trace.live && trace.live.seq < feed.base) return; // an older answer came later
  const had = app.shown === feed.id ? app.inspector.state() : null;
  const followed = !had || had.step >= app.inspector.model.stepCount - 1;
  show(trace, { step: at.step ?? (followed ? last : had.step), pins: at.pins ?? had?.pins });
  feed.base = trace.live ? trace.live.seq : Infinity;
  feed.pending = feed.pending.filter((event) => event.seq > feed.base);
  feed.steps = trace.steps.context.length;
  feed.tokens = trace.tokens.id.length - trace.run.prompt_length;
  flush(feed);
}

function receive(feed, event) {
  if (event.seq <= feed.seq && !event.reload && !event.done) return;
  const gap = event.seq > feed.seq + 1;
  feed.seq = Math.max(feed.seq, event.seq);
  if (event.done) return end(feed, event);
  if (event.state) {
    feed.state = event.state;
    feed.ahead = event.ahead || 0;
    busy(feed);
  }
  if (event.reload || gap || event.state === "running") return reload(feed);
  if (event.delta) {
    feed.pending.push(event);
    if (!feed.frame) feed.frame = requestAnimationFrame(() => flush(feed));
  }
}

/** Everything that came since the last frame, as one append. */
function flush(feed) {
  feed.frame = 0;
  if (feed.over || feed.loading || app.current !== feed.id || app.shown !== feed.id || feed.base < 0) return;
  // others are in what is shown already: the run may be over
  feed.pending = feed.pending.filter((event) => event.seq > feed.base);
  if (!feed.pending.length) return;
  const delta = {};
  const run = {};
  for (const event of feed.pending) {
    Object.assign(run, event.run || {});
    for (const [table, columns] of Object.entries(event.delta)) {
      const mine = (delta[table] ??= {});
      for (const [name, values] of Object.entries(columns)) (mine[name] ??= []).push(...values);
    }
  }
  feed.base = feed.pending[feed.pending.length - 1].seq;
  feed.pending = [];
  app.inspector.append(delta, run);
  feed.steps += delta.steps ? delta.steps.context.length : 0;
  feed.tokens += delta.tokens ? delta.tokens.id.length : 0;
  busy(feed);
}

/** The whole run again, where events were missed (or when it begins). */
export async function reload(feed) {
  if (app.current !== feed.id) return;
  const ticket = ++feed.loading;
  try {
    const trace = await getJson(`api/traces/${encodeURIComponent(feed.id)}`);
    if (feed.over || ticket !== feed.loading || app.current !== feed.id || !trace.tokens) return;
    feed.loading = 0;
    draw(feed, trace, {});
    busy(feed);
  } catch (problem) {
    say(problem.message, "error");
  } finally {
    if (ticket === feed.loading) feed.loading = 0;
  }
}

async function end(feed, event) {
  if (feed.over) return;
  flush(feed); // so that a view that follows the run is at its last step
  feed.over = true;
  feed.source.close();
  cancelAnimationFrame(feed.frame);
  app.feeds.delete(feed.id);
  over(feed.id);
  refreshRuns();
  if (app.current !== feed.id) return;
  if (event && event.started === false) {
    say(event.error, event.stop === "cancelled" ? "info" : "error");
    if (event.stop !== "cancelled") emit("refused", event.error);
    if (app.shown) app.current = app.shown;
    return;
  }
  try {
    const trace = await getJson(`api/traces/${encodeURIComponent(feed.id)}`);
    if (app.current !== feed.id) return;
    draw(feed, trace, {});
    const count = trace.tokens.id.length - trace.run.prompt_length;
    if (trace.run.error) say(trace.run.error, "error");
    else if (trace.run.stop === "cancelled") say(`Stopped by you after ${count} tokens.`);
    else if (trace.run.stop === "context full") say(`Stopped after ${count} tokens: the model's context is full.`);
    else say("");
  } catch (problem) {
    say(problem.message, "error");
  }
}
