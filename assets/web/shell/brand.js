/* The name, the model's state and the switch between light and dark; asks for the page's session and for a tab. */

import { emit, on } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { SILENT, getJson } from "specviz/base/json.js";
import { parse } from "specviz/base/storage.js";
import { place } from "specviz/shell/place.js";
import { app } from "specviz/shell/state.js";
import { tabsReady } from "specviz/shell/tabs.js";
import { turn } from "specviz/shell/theme.js";

/** @type {Record<ModelInfo["state"], string>} */
const MARKS = { loading: "…", ready: "✓", failed: "!", none: "○", gone: "!", out: "!" };

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
  const pill = h("span.svp-pill", { role: "status" });
  const turns = { title: "Light or dark", "aria-label": "Switch between light and dark", onclick: turn };
  const user = h("span.svp-user", { hidden: true });
  async function signOut() {
    await fetch("logout", { method: "POST" }).catch(() => {});
    location.reload(); // it leads to the page where one signs in
  }
  function draw() {
    const model = app.model;
    pill.dataset.state = model.state;
    const words = {
      loading: model.text || "Loading the model",
      ready: model.text,
      failed: "Model failed",
      none: "Viewing only",
      gone: "No answer from the server",
      out: "Signed out: load the page again",
    };
    const [short, ...rest] = words[model.state].split(" · ");
    const more = rest.length > 0 && h("span.svp-more", ` · ${rest.join(" · ")}`);
    pill.replaceChildren(h("b", { "aria-hidden": "true" }, MARKS[model.state]), h("span", short, more));
    pill.title = model.text || "";
  }
  let misses = 0;
  async function poll() {
    let wait = 15000;
    try {
      /** @type {Status} */
      const { model, user: name, rules } = await getJson("api/status");
      misses = 0;
      app.rules = rules;
      if (name && user.hidden) {
        user.replaceChildren(h("b", name), h("button.svp-button", { onclick: signOut }, "Log out"));
        user.hidden = false;
      }
      const changed = model.state !== app.model.state;
      app.model = model;
      if (model.state === "loading") wait = 700;
      if (changed) emit("model", model);
      draw();
    } catch (problem) {
      const out = problem instanceof Error && "status" in problem && problem.status === 401;
      if (out) app.model = { ...app.model, state: "out", text: problem.message };
      else if (++misses > 1) app.model = { ...app.model, state: "gone", text: SILENT };
      draw();
      wait = 3000;
    }
    setTimeout(poll, wait);
  }
  place(element, "brand").append(
    h("span.svp-name", { role: "heading", "aria-level": 1 }, h("b", "spec"), "viz"),
    h("span.svp-grow"),
    pill,
    user,
    h("button.svp-button", turns, "◐"),
  );
  draw();
  poll();
}
