/* Opening a run: fetched once, followed where it is not over. */

import { emit, on } from "specviz/base/bus.js";
import { getJson, sentence, traceUrl } from "specviz/base/json.js";
import { address, fromAddress, setAddress } from "specviz/shell/address.js";
import { FIRST, early } from "specviz/shell/early.js";
import { busy, draw, follow, reload } from "specviz/shell/live.js";
import { touched } from "specviz/shell/request.js";
import { over } from "specviz/shell/runs.js";
import { host, say } from "specviz/shell/stage.js";
import { app } from "specviz/shell/state.js";
import { goTo } from "specviz/shell/tabs.js";

let newest = 0; // an answer to an older question is dropped

/** Opens the run ``id`` (FIRST: the server's first); ``answer``: the server's, where it was asked before. */
/** @param {string} id @param {At} [at] @param {Promise<Response>} [answer] */
export async function open(id, at = {}, answer) {
  const ticket = ++newest;
  const before = app.current;
  app.coming = id;
  touched.clear();
  try {
    const url = id === FIRST ? "api/first" : traceUrl(id);
    /** @type {Trace} */
    const trace = await getJson(url, answer || fetch(url));
    if (ticket !== newest) return;
    app.coming = "";
    if (id === FIRST && !trace.run) {
      return say("There is no recorded run yet: press ✎ Prompt, type one and press Run.", "info");
    }
    if (id === FIRST) id = trace.run.id;
    app.current = id;
    const feed = trace.live ? follow(id, trace.live) : null;
    if (!feed) over(id);
    if (trace.tokens) {
      draw(feed, trace, at);
      if (feed) busy(feed);
      else if (trace.run.error) say(trace.run.error, "error");
      else say("");
    } else if (feed && trace.live) {
      host.hidden = !app.shown;
      busy(feed);
      if (feed.seq > trace.live.seq) reload(feed); // it began while this answer was on its way
    }
    address();
    emit("current", id);
  } catch (problem) {
    over(id);
    if (ticket !== newest) return;
    app.coming = "";
    say(sentence(problem), "error");
    setAddress({ trace: null, step: null, pins: null });
    if (before || id === FIRST) return address();
    await open(FIRST);
    say(app.current ? `${sentence(problem)} Here is a run from the gallery instead.` : sentence(problem), "error");
  }
}

/** Turns to a run that this page has just started; its events bring it. @param {Feed} feed */
export function openStarted(feed) {
  newest++;
  app.coming = "";
  app.current = feed.id;
  host.hidden = !app.shown;
  busy(feed);
  if (feed.state === "running") reload(feed);
  address();
  emit("current", feed.id);
}

/** The run that the address names, or the server's first. @param {At} at */
export const openEarly = (at) => open(early.id, at, early.answer);

/** Opens a run on the page "Inspect". @type {(id: string, at?: At) => void} */
export function onInspect(id, at) {
  goTo("inspect");
  open(id, at);
  scrollTo({ top: 0 });
}

on("open", (id) => open(id));

// Back and Forward: the page is as its address says; each tab looks after what is its own
addEventListener("popstate", () => {
  const asked = new URLSearchParams(location.search);
  const tab = asked.get("tab") || "inspect";
  const trace = asked.get("trace");
  const at = fromAddress(asked);
  if (trace && trace !== (app.coming || app.current)) open(trace, at);
  else if (trace && trace === app.shown && at.step !== undefined) app.inspector?.setStep(at.step);
  if (tab !== app.tab) goTo(tab);
  emit("address", asked);
});
