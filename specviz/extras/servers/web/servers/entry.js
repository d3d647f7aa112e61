/* The button "Connect a server …" beside the prompt. */

import { senders } from "specviz/prompt/draft.js";

/** @type {PromptSender["open"]} */
const open = async (opener, prompt) => (await import("specviz/servers/page.js")).open(opener, prompt);
senders.value = [...senders.value, { label: "Connect a server …", open }];
