/* The name, the model in use (a click picks another one), light or dark; asks for the page's session and for a tab. */

import { emit, on } from "specviz/base/bus.js";
import { h, place, write } from "specviz/base/dom.js";
import { parse, stored } from "specviz/base/storage.js";
import { app } from "specviz/shell/state.js";
import { watch as watchStatus } from "specviz/shell/status.js";
import { tabsReady } from "specviz/shell/tabs.js";
import { turn } from "specviz/shell/theme.js";

/** @type {Record<ModelInfo["state"], string>} */
const MARKS = { loading: "…", ready: "✓", failed: "!", none: "○", gone: "!", out: "!" };

/** @type {Record<Backend["state"], string>} */
const SAID = {
  starting: "starting", free: "free", busy: "at work", lost: "lost, is started again", failed: "given up",
};
const MOST_SHOWN = 4; // backends, a dot each; of more, how many are busy

/** Whether the server answers. @param {ModelInfo} model */
const there = ({ state }) => state !== "gone" && state !== "out";

/** ``value`` is {"session"} after "named" was triggered, and {"session", "tab"} where "go" asks for a tab. */
/** @param {Part} part */
export function mount({ element, props, watch, trigger }) {
  let session = "";
  /** @type {Promise<string> | null} */
  let telling = null;
  watch("value", () => {
    session = parse(props.value).session || "";
    if (session) emit("session", session);
  });
  // the open page's name, asked of the server once: runs with it end when the page is closed; "" after 2 s of silence
  app.session = () => {
    if (session) return Promise.resolve(session);
    telling ??= new Promise((done) => {
      on("session", done);
      setTimeout(() => done(session), 2000);
      trigger("named");
    }).finally(() => {
      telling = null;
    });
    return telling;
  };
  tabsReady((tab) => {
    props.value = JSON.stringify({ session, tab });
    trigger("go");
  });
  const mark = h("b", { "aria-hidden": "true" });
  const name = h("span.svp-model");
  const said = h("span.svp-unseen", { role: "status" });
  /** @type {() => boolean} */
  const pick = () => emit("models", pill);
  const what = h("span.svp-what", "New runs: "); // the run shown may be another model's
  const pill = h("button.svp-pill", { "aria-haspopup": "dialog", disabled: true, onclick: pick }, mark, what, name);
  const turns = { title: "Light or dark", "aria-label": "Switch between light and dark", onclick: turn };
  const user = h("span.svp-user", { hidden: true });
  const behind = h("ul.svp-backends", { hidden: true, "aria-label": "Backends" });
  async function signOut() {
    await fetch("logout", { method: "POST" }).catch(() => {});
    stored.forget();
    location.reload(); // it leads to the page where one signs in
  }
  function draw() {
    const model = app.model;
    pill.dataset.state = model.state;
    what.hidden = model.state !== "ready";
    const words = {
      loading: model.text || "Loading the model",
      ready: model.text,
      failed: "Model failed",
      none: "Viewing only",
      gone: "No answer from the server",
      out: "Signed out: load the page again",
    };
    const [short, ...rest] = words[model.state].split(" · ");
    const coming = there(model) && model.coming;
    const more = coming
      ? h("span", ` → ${coming.text}`)
      : rest.length > 0 && h("span.svp-more", ` · ${rest[0]}`); // all of it is in the title, and in the picker
    name.replaceChildren(short, ...(more ? [more] : []));
    mark.textContent = coming ? MARKS.loading : MARKS[model.state];
    pill.title = model.text || "";
    pill.disabled = !app.picks || !there(model);
    const loads = coming ? coming.name : model.state === "loading" && "The model";
    write(said, loads ? `${loads} is being loaded` : short); // how far it is, is not said aloud
  }
  /** @param {Backend[]} backends */
  function drawBackends(backends) {
    behind.hidden = backends.length === 0;
    const told = backends.map(({ name, state, text }) => `${name}: ${SAID[state]}${text ? `, ${text}` : ""}`);
    const few = backends.length > MOST_SHOWN ? [] : backends;
    const dots = few.map(({ state }, n) =>
      h("li", { title: told[n], "data-state": state }, h("span.svp-unseen", told[n])));
    const busy = backends.filter(({ state }) => state === "busy").length;
    const lost = backends.filter(({ state }) => state === "lost" || state === "failed").length;
    const counts = `${busy} of ${backends.length} busy${lost ? `, ${lost} lost` : ""}`;
    behind.replaceChildren(...dots, h(few.length ? "li.svp-counted" : "li", { title: told.join("\n") }, counts));
  }
  on("status", (status) => {
    if (status) drawBackends(status.backends ?? []);
    if (status?.user && user.hidden) {
      user.replaceChildren(h("b", status.user), h("button.svp-button", { onclick: signOut }, "Log out"));
      user.hidden = false;
      const last = stored.get("user");
      if (last !== null && last !== status.user) { // somebody whose session ended was here before
        stored.forget();
        location.reload();
      }
      stored.set("user", status.user);
    }
    draw();
  });
  place(element, "brand").append(
    h("span.svp-name", { role: "heading", "aria-level": 1 }, h("b", "spec"), "viz"),
    h("span.svp-grow"),
    behind,
    pill,
    said,
    user,
    h("button.svp-button.svp-theme", turns, "◐"),
  );
  draw();
  watchStatus();
  app.session(); // before a run needs it
}
