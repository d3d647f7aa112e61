/* Runs that go on: their events, one feed per run, drawn once per frame. */

import { emit } from "specviz/base/bus.js";
import { getJson, listen, sentence, traceUrl } from "specviz/base/json.js";
import { plural } from "specviz/base/numbers.js";
import { over, refreshRuns } from "specviz/shell/runs.js";
import { say, show } from "specviz/shell/stage.js";
import { app } from "specviz/shell/state.js";

/** @param {string} id @returns {Promise<Trace>} */
const traceOf = (id) => getJson(traceUrl(id));

/** Says how far it is. @param {Feed} feed */
export function busy(feed) {
  if (app.current !== feed.id) return;
  const { state, ahead, tokens, steps, read } = feed;
  const part = read ? `: ${read[0].toLocaleString("en")} of ${plural(read[1], "token")}` : "";
  if (state === "running" && !tokens && app.shown === feed.id && app.inspector) {
    say("");
    app.inspector.waiting(`Reading the prompt${part} …`); // where its first step will be told
    return;
  }
  const reading = `Running: reading the prompt${part}.`;
  const words =
    state === "queued"
      ? ahead > 0 ? `Waiting: ${plural(ahead, "run")} before yours.` : "Waiting to start."
      : tokens ? `Running: ${plural(tokens, "token")} in ${plural(steps, "step")}.` : reading;
  say(words, "busy");
}

/** A feed of a run's events; ``live`` is a snapshot's, or of nothing yet (seq -1). */
/** @param {string} id @param {Live} live */
export function follow(id, live) {
  const old = app.feeds.get(id);
  if (old) {
    if (live.seq > old.seq) Object.assign(old, { state: live.state, ahead: live.ahead });
    return old;
  }
  const { seq, state, ahead } = live;
  const source = listen(id, seq, (event) => receive(feed, event), () => end(feed, null));
  const nothing = { base: -1, tokens: 0, steps: 0, read: null, loading: 0, frame: 0, over: false };
  /** @type {Feed} */
  const feed = { id, source, seq, state, ahead, pending: [], ...nothing };
  app.feeds.set(id, feed);
  return feed;
}

/** Shows a snapshot; events up to its number are in it, and only later ones are added. Without a feed: it is over. */
/** @param {Feed | null} feed @param {Trace} trace @param {At} at */
export function draw(feed, trace, at) {
  const last = trace.steps.context.length - 1;
  if (!feed) return show(trace, at);
  if (app.shown === feed.id && trace.live && trace.live.seq < feed.base) return; // an older answer came later
  const { inspector } = app;
  const had = app.shown === feed.id && inspector ? inspector.state() : null;
  const followed = !had || had.step >= (inspector?.model.stepCount ?? 0) - 1;
  show(trace, { step: at.step ?? (followed ? last : had.step), pins: at.pins ?? had?.pins });
  feed.base = trace.live ? trace.live.seq : Infinity;
  feed.pending = feed.pending.filter((event) => event.seq > feed.base);
  feed.steps = trace.steps.context.length;
  feed.tokens = trace.tokens.id.length - trace.run.prompt_length;
  flush(feed);
}

/** @param {Feed} feed @param {LiveEvent} event */
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
  if (event.read) {
    feed.read = event.read;
    busy(feed);
  }
  if (event.reload || gap || event.state === "running") return reload(feed);
  if (event.delta) {
    feed.pending.push(event);
    if (!feed.frame) feed.frame = requestAnimationFrame(() => flush(feed));
  }
}

/** The rows of several events as one. @param {LiveEvent[]} events */
function joined(events) {
  /** @type {Record<string, Record<string, unknown[]>>} */
  const tables = {};
  for (const event of events) {
    for (const [table, columns] of Object.entries(event.delta ?? {})) {
      const mine = (tables[table] ??= {});
      for (const [name, values = []] of Object.entries(columns)) (mine[name] ??= []).push(...values);
    }
  }
  /** @type {Partial<Run>} */
  const run = Object.assign({}, ...events.map((event) => event.run));
  return { delta: /** @type {TraceDelta} */ (tables), run };
}

/** Everything that came since the last frame, as one append. @param {Feed} feed */
function flush(feed) {
  feed.frame = 0;
  if (feed.over || feed.loading || app.current !== feed.id || app.shown !== feed.id || feed.base < 0) return;
  // others are in what is shown already: the run may be over
  feed.pending = feed.pending.filter((event) => event.seq > feed.base);
  if (!feed.pending.length) return;
  const { delta, run } = joined(feed.pending);
  feed.base = feed.pending[feed.pending.length - 1].seq;
  feed.pending = [];
  app.inspector?.append(delta, run);
  feed.steps += delta.steps?.context?.length ?? 0;
  feed.tokens += delta.tokens?.id?.length ?? 0;
  busy(feed);
}

/** The whole run again, where events were missed (or when it begins). @param {Feed} feed */
export async function reload(feed) {
  if (app.current !== feed.id) return;
  const ticket = ++feed.loading;
  try {
    const trace = await traceOf(feed.id);
    if (feed.over || ticket !== feed.loading || app.current !== feed.id || !trace.tokens) return;
    feed.loading = 0;
    draw(feed, trace, {});
    busy(feed);
  } catch (problem) {
    say(sentence(problem), "error");
  } finally {
    if (ticket === feed.loading) feed.loading = 0;
  }
}

/** @param {Feed} feed @param {LiveEvent | null} event null: the server closed */
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
  if (event?.started === false) {
    const { stop, error = "" } = event;
    say(error, stop === "cancelled" ? "info" : "error");
    if (stop !== "cancelled") emit("refused", error);
    if (app.shown) app.current = app.shown;
    return;
  }
  try {
    const trace = await traceOf(feed.id);
    if (app.current !== feed.id) return;
    draw(feed, trace, {});
    const count = trace.tokens.id.length - trace.run.prompt_length;
    if (trace.run.error) say(trace.run.error, "error");
    else if (trace.run.stop === "cancelled") say(`Stopped by you after ${count} tokens.`);
    else if (trace.run.stop === "context full") say(`Stopped after ${count} tokens: the model's context is full.`);
    else if (trace.run.stop === "trace full") say(trace.run.left_out?.at(-1) ?? "", "error");
    else if (event?.unsaved) say(event.unsaved, "error");
    else say("");
  } catch (problem) {
    say(sentence(problem), "error");
  }
}
