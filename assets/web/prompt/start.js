/* A run begins: one request with what the form holds, then its events. */

import { emit, on } from "specviz/base/bus.js";
import { postJson } from "specviz/base/json.js";
import { fault, ready, sent } from "specviz/prompt/draft.js";
import { follow } from "specviz/shell/live.js";
import { openStarted } from "specviz/shell/open.js";
import * as request from "specviz/shell/request.js";
import { begun } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";
import { signal } from "specviz/ui/html.js";

/** Whether the server is asked to begin a run. */
export const starting = signal(false);

/** Begins the run that the form describes; where it cannot be, ``fault`` says why and nothing typed is lost. */
export async function run() {
  const card = request.method.value;
  if (!card || request.catalog.value.reason || starting.value) return;
  starting.value = true;
  fault.value = null;
  try {
    await ready(); // the prompt of the run that is shown, where nobody has looked at it yet
    if (fault.peek()) return;
    /** @type {{ run: RunRecord, prompt: string }} */
    const answer = await postJson("api/runs", {
      prompt: sent(card.pooled),
      method: card.name,
      params: request.params[card.name] ?? {},
      settings: request.settings,
      session: await app.session(),
    });
    const { id } = answer.run;
    app.mine.add(id);
    app.promptOf.set(id, answer.prompt);
    app.held = id;
    // at once: its end is heard of whatever is looked at by then
    const feed = follow(id, { seq: -1, state: "queued", ahead: 0 });
    begun(answer.run);
    emit("started", id);
    openStarted(feed);
  } catch (problem) {
    const { message, place = "" } = /** @type {Error & { place?: string }} */ (problem);
    fault.value = { place, text: message };
  } finally {
    starting.value = false;
  }
}

on("run", run);
on("refused", (text) => (fault.value = { place: "", text })); // a run that could not begin
on("current", () => {
  if (fault.value?.place === "file") fault.value = null;
});
