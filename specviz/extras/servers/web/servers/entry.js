/* The button "Connect a server …" beside the prompt, and the tab "Read again" of Inspect. */

import { on } from "specviz/base/bus.js";
import { senders } from "specviz/prompt/draft.js";
import { app } from "specviz/shell/state.js";

/** @type {PromptSender["open"]} */
const open = async (opener, prompt) => (await import("specviz/servers/page.js")).open(opener, prompt);
const read = async (/** @type {Inspector} */ inspector) => {
  const { Reading } = await import("specviz/servers/reading.js");
  new Reading(inspector);
};
senders.value = [...senders.value, { label: "Connect a server …", open }];
if (app.inspector) read(app.inspector);
else on("inspector", read);
