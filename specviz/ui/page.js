/* The page around the renderer: opening runs, following live ones, the method form, notes. Text only enters as text nodes. */
(function () {
  "use strict";

  const params = new URLSearchParams(location.search);
  const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content || "";
  const app = {
    stage: null, banner: null, host: null, inspector: null,
    current: "", shown: "", ticket: 0, runsTicket: 0,
    feeds: new Map(), promptOf: new Map(), tries: [], mine: new Set(), ended: new Set(), runs: [], model: { state: "loading", text: "" },
    listeners: [], tab: params.get("tab") || "inspect",
  };

  // --- small helpers ---

  function h(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
    return element;
  }

  async function getJson(url, asked) {
    let answer;
    try {
      answer = await (asked || fetch(url));
    } catch {
      throw new Error("The server does not answer: is it still running?");
    }
    let payload = null;
    try {
      payload = await answer.json();
    } catch {
      payload = null;
    }
    if (!answer.ok || payload === null) throw Object.assign(new Error(payload?.error || `The server answered with an error (${answer.status}).`), { status: answer.status });
    return payload;
  }

  const postJson = (url, asked) => getJson(url, fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(asked) }));

  let plotlyLoading = null;
  /** plotly.js, which this server has at `url`: loaded when a chart is first drawn. */
  function plotly(url) {
    plotlyLoading ??= new Promise((done, failed) => {
      if (window.Plotly) return done(window.Plotly);
      const script = h("script", { src: url });
      script.onload = () => done(window.Plotly);
      script.onerror = () => {
        plotlyLoading = null;
        failed(new Error("The charts' script could not be loaded: is the server still running?"));
      };
      document.head.append(script);
    });
    return plotlyLoading;
  }

  const stored = {
    get(key) { try { return localStorage.getItem(`specviz-${key}`); } catch { return null; } },
    set(key, value) { try { localStorage.setItem(`specviz-${key}`, value); } catch { /* private mode */ } },
  };
  const on = (name, fn) => document.addEventListener(`specviz:${name}`, (event) => fn(event.detail));
  const emit = (name, detail) => document.dispatchEvent(new CustomEvent(`specviz:${name}`, { detail }));

  // --- light and dark ---

  function dark() {
    const asked = params.get("__theme") || stored.get("theme");
    if (asked === "dark" || asked === "light") return asked === "dark";
    return matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function paint() {
    document.body.classList.toggle("dark", dark());
  }

  // --- the address: trace, step, pins, tab ---

  let addressTimer = 0;
  function address() {
    clearTimeout(addressTimer);
    addressTimer = setTimeout(() => history.replaceState(history.state, "", link()), 150);
  }

  function link() {
    const url = new URL(location.href);
    const put = (key, value) => (value === null || value === "" || value === undefined ? url.searchParams.delete(key) : url.searchParams.set(key, value));
    put("trace", app.current);
    if (app.inspector && app.shown === app.current) {
      const state = app.inspector.state();
      put("step", String((state.step || 0) + 1));
      put("pins", state.pins.join(","));
    }
    put("tab", app.tab === "inspect" ? null : app.tab);
    return url.href;
  }

  function fromAddress() {
    const step = Number.parseInt(params.get("step") || "", 10);
    const pins = (params.get("pins") || "").split(",").filter(Boolean).map(Number);
    return { step: Number.isFinite(step) && step > 0 ? step - 1 : undefined, pins };
  }

  // --- the stage: a banner and the inspector ---

  function stage() {
    if (!app.stage) {
      app.banner = h("div", { class: "svp-banner", role: "status", hidden: true });
      app.host = h("div", { class: "svp-host" });
      app.stage = h("div", { class: "svp-stage" }, app.banner, app.host);
    }
    return app.stage;
  }

  function say(text, kind = "info") {
    stage();
    app.banner.hidden = !text;
    app.banner.dataset.kind = kind;
    app.banner.setAttribute("role", kind === "error" ? "alert" : "status");
    const stop = kind === "busy" && app.mine.has(app.current);
    const words = app.banner.querySelector(".svp-words");
    if (words && kind === "busy" && app.bannerHad === `${kind} ${stop}`) {
      words.textContent = text; // in place: the button next to it may be under a finger
      return;
    }
    app.bannerHad = `${kind} ${stop}`;
    const parts = [];
    if (kind === "busy") parts.push(h("span", { class: "svp-spin", "aria-hidden": "true" }));
    if (text) parts.push(h("span", { class: "svp-words" }, text));
    if (stop) {
      parts.push(h("button", { type: "button", class: "svp-stop", onclick: () => document.getElementById("sv-stop").click() }, "Stop"));
    }
    if (text && kind !== "busy") parts.push(h("button", { type: "button", class: "svp-x", "aria-label": "Dismiss", onclick: () => say("") }, "×"));
    app.banner.replaceChildren(...parts);
  }

  function show(trace, at) {
    const id = trace.run.id;
    const link_ = (format) => `api/traces/${encodeURIComponent(id)}/download?format=${format}`;
    const downloads = {
      trace: link_("trace"),
      html: (state) => `${link_("html")}&step=${state.step || 0}`,
      "Steps (CSV)": link_("csv-steps"),
      "Tokens (CSV)": link_("csv-tokens"),
    };
    const attribute = () => (app.goTo ? app.goTo("attribution") : (app.tab = "attribution")); // or when the tabs are there
    if (!app.inspector) {
      app.strip = h("div", { class: "svp-tries", hidden: true });
      app.inspector = new SpecViz.Inspector(app.host, { live: true, actions: { link, downloads, attribute }, strip: app.strip });
      app.inspector.on("step", address);
      app.inspector.on("pin", address);
      emit("inspector", app.inspector);
    }
    app.inspector.options.actions = { link, downloads, attribute };
    app.inspector.load(trace, at || {});
    app.shown = id;
    app.host.dataset.ready = id;
    if (!app.drawn) app.drawn = performance.now(); // ms since the navigation began: the first view
    app.host.hidden = false;
    keepTry(trace);
    address();
  }

  // --- what this page ran on one prompt, one row per run ---

  const TRIED = [["quality_f1", "F1", 100, "%"], ["quality_rouge_l", "ROUGE-L", 100, "%"], ["quality_edit", "edit similarity", 100, "%"], ["tokens_per_step", "tokens/step", 1, ""], ["tokens_per_s", "tokens/s", 1, ""], ["speedup", "speedup", 1, "×"]];

  function keepTry(trace) {
    const { run } = trace;
    const prompt = app.promptOf.get(run.id);
    if (prompt && run.complete && !app.tries.some((one) => one.id === run.id)) {
      const labels = Object.fromEntries((run.method.controls || []).map((c) => [c.name, c.label]));
      app.tries.push({ id: run.id, prompt, method: run.method.title || run.method.name, params: run.method.params || {}, labels, metrics: run.metrics || {} });
    }
    drawTries(prompt);
  }

  /** The method and the parameters by which runs differ (of the threshold δ always), and what came of them. */
  function drawTries(prompt) {
    const tries = app.tries.filter((one) => one.prompt === prompt);
    app.strip.hidden = !prompt || tries.length < 2;
    if (app.strip.hidden) return;
    const names = [...new Set(tries.flatMap((one) => Object.keys(one.params)))];
    const differs = (name) => new Set(tries.map((one) => JSON.stringify(one.params[name]))).size > 1;
    const shown = names.filter((name) => name === "delta" || differs(name));
    const methods = new Set(tries.map((one) => one.method)).size > 1;
    const label = (name) => (name === "delta" ? "δ" : tries.find((one) => one.labels[name])?.labels[name] || name);
    const number = (value, scale, unit) => (typeof value === "number" ? `${(value * scale).toFixed(scale === 1 ? 2 : 1)}${unit}` : "–");
    const columns = TRIED.filter(([key]) => tries.some((one) => typeof one.metrics[key] === "number"));
    const setting = (value) => (value === undefined ? "–" : value === null ? "off" : value === true ? "on" : value === false ? "off" : String(value));
    const head = h("tr", {}, h("th", { scope: "col" }, "run"), methods ? h("th", { scope: "col" }, "method") : null, shown.map((name) => h("th", { scope: "col" }, label(name))), columns.map(([, name]) => h("th", { scope: "col" }, name)));
    const rows = tries.map((one, k) =>
      h("tr", { class: one.id === app.shown ? "svp-now" : null, onclick: () => open(one.id) },
        h("td", {}, h("button", { type: "button", class: "svp-link", "aria-label": `Open run ${k + 1} of this prompt`, onclick: (event) => { event.stopPropagation(); open(one.id); } }, `${k + 1}`)),
        methods ? h("td", {}, one.method) : null,
        shown.map((name) => h("td", {}, setting(one.params[name]))),
        columns.map(([key, , scale, unit]) => h("td", {}, number(one.metrics[key], scale, unit)))));
    app.strip.replaceChildren(h("table", { class: "svp-tried", "aria-label": "Runs of this prompt" }, h("thead", {}, head), h("tbody", {}, rows)));
  }

  let againTimer = 0;
  /** Runs again with what the form has now, in place of the run of this page that goes on. */
  function again() {
    clearTimeout(againTimer);
    againTimer = setTimeout(() => {
      const button = document.getElementById("sv-run");
      if (!button || button.disabled) return;
      if (app.mine.size) document.getElementById("sv-stop").click();
      button.click();
    }, 350);
  }

  /** Open a run: fetch it once; follow it where it is not over. */
  async function open(id, at = {}) {
    if (!id) return;
    const ticket = ++app.ticket;
    const before = app.current;
    try {
      const early = app.early && app.early.id === id ? app.early.promise : null;
      app.early = null;
      const trace = await (early || getJson(`api/traces/${encodeURIComponent(id)}`));
      if (ticket !== app.ticket) return;
      app.current = id;
      const feed = trace.live ? follow(id, trace.live) : null;
      if (!feed) over(id);
      if (trace.tokens) {
        draw(feed, trace, at);
        if (feed) busy(feed);
        else if (trace.run.error) say(trace.run.error, "error");
        else say("");
      } else {
        app.host.hidden = !app.shown;
        busy(feed);
      }
      address();
      emit("current", id);
    } catch (problem) {
      over(id);
      if (ticket !== app.ticket) return;
      say(problem.message, "error");
      const first = meta("specviz-first");
      if (!before && first && first !== id) {
        await open(first);
        say(`${problem.message} Here is a run from the gallery instead.`, "error");
      }
    }
  }

  // --- live runs ---

  function busy(feed) {
    if (!feed || app.current !== feed.id) return;
    if (feed.state === "queued") {
      const ahead = feed.ahead;
      say(ahead > 0 ? `Waiting: ${ahead} ${ahead === 1 ? "run" : "runs"} before yours.` : "Waiting to start.", "busy");
    } else {
      say(feed.tokens ? `Running: ${feed.tokens} tokens in ${feed.steps} steps.` : "Running: reading the prompt.", "busy");
    }
  }

  /** A feed of a run's events; `live` is {state, seq, ahead} of a snapshot, or of nothing yet (seq -1). */
  function follow(id, live) {
    const old = app.feeds.get(id);
    if (old) {
      if (live.seq > old.seq) Object.assign(old, { state: live.state, ahead: live.ahead });
      return old;
    }
    const source = new EventSource(`api/live/${encodeURIComponent(id)}?after=${live.seq}`);
    const feed = { id, source, seq: live.seq, state: live.state, ahead: live.ahead || 0, base: -1, tokens: 0, steps: 0, loading: 0, pending: [], frame: 0, over: false };
    app.feeds.set(id, feed);
    source.onmessage = (message) => receive(feed, JSON.parse(message.data));
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) end(feed, null); // the server says it is over
    };
    return feed;
  }

  /** Shows a snapshot; events up to its number are in it, and only later ones are added. */
  function draw(feed, trace, at) {
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
    feed.pending = feed.pending.filter((event) => event.seq > feed.base); // others are in what is shown: the run may be over
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
  async function reload(feed) {
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
      if (event.stop !== "cancelled") atButton(event.error);
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

  /** A run that could not begin says why beside the button too, where the form is. */
  function atButton(text) {
    const box = document.querySelector("#sv-run-note .svp-note");
    if (!box) return;
    box.textContent = text;
    box.classList.add("svp-error");
    box.setAttribute("role", "alert");
  }

  /** A run has ended, or was over before one could follow it. */
  function over(id) {
    app.mine.delete(id);
    app.ended.add(id);
    running();
  }

  function running() {
    document.body.classList.toggle("sv-running", app.mine.size > 0);
  }

  // --- lists of runs ---

  async function refreshRuns() {
    const ticket = ++app.runsTicket;
    try {
      const answer = await getJson("api/runs");
      if (ticket !== app.runsTicket) return;
      app.runs = answer.runs;
      app.room = answer.room;
      for (const run of app.runs) {
        // this page was loaded again (an answer may be older than the end it was told of)
        if (run.kind === "live" && run.id === app.current && !app.ended.has(run.id)) app.mine.add(run.id);
      }
      running();
      emit("runs", app.runs);
    } catch {
      /* the model's pill tells when the server is gone */
    }
  }

  const KINDS = { live: "Running now", run: "Your runs", opened: "Opened files", gallery: "Gallery", recovered: "Recovered after a crash", earlier: "Earlier runs" };

  const brief = (run) =>
    [run.title, run.method + (run.lossless === false ? " (lossy)" : ""), run.tokens_per_step === null || run.tokens_per_step === undefined ? "" : `${run.tokens_per_step.toFixed(2)} tokens/step`].filter(Boolean).join(" · ");

  // --- places in the page (gr.HTML components) ---

  const place = (element, name) => element.querySelector(`.svp-${name}`);

  function parse(text) {
    try {
      return JSON.parse(text || "{}") || {};
    } catch {
      return {};
    }
  }

  /** Our style sheets come after Gradio's, whose resets would win otherwise; copies first, so that nothing flickers. */
  function lastWord() {
    for (const old of document.querySelectorAll('link[rel="stylesheet"][href^="web/"]')) {
      const copy = old.cloneNode();
      copy.onload = () => old.remove();
      document.head.append(copy);
    }
  }

  function view({ element, props, watch }) {
    place(element, "view").replaceWith(stage());
    for (const old of document.querySelectorAll("#sv-boot, .svp-frame")) old.remove();
    document.body.classList.add("sv-mounted");
    paint();
    lastWord();
    watch("value", () => {
      const value = parse(props.value);
      if (!value.trace) return;
      if (value.own) {
        app.mine.add(value.trace);
        app.promptOf.set(value.trace, value.prompt || "");
        running();
        follow(value.trace, { seq: -1, state: "queued" }); // at once: its end is heard of whatever is looked at by then
        app.makeRoom?.();
      }
      open(value.trace);
      refreshRuns();
    });
    const tabs = document.getElementById("sv-tabs");
    const buttons = () => [...tabs.querySelectorAll('[role="tab"], .overflow-dropdown button')]; // the latter: tabs that found no room
    tabs.addEventListener("click", () =>
      setTimeout(() => {
        const chosen = buttons().find((b) => b.getAttribute("aria-selected") === "true" || b.matches(".overflow-dropdown .selected"));
        app.tab = chosen ? chosen.textContent.trim().toLowerCase() : "inspect";
        address();
      }),
    );
    app.goTo = (tab) => buttons().find((b) => b.textContent.trim().toLowerCase() === tab)?.click();
    if (app.tab !== "inspect") app.goTo(app.tab);
    const panel = document.getElementById("sv-panel");
    panel.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) document.getElementById("sv-run").click();
    });
    refreshRuns();
  }

  function note({ element, props, watch }) {
    const box = place(element, "note");
    function draw() {
      const value = parse(props.value);
      box.textContent = value.text || "";
      box.classList.toggle("svp-error", Boolean(value.error));
      box.setAttribute("role", value.error ? "alert" : "status");
    }
    watch("value", draw);
    if (element.closest("#sv-file-note")) on("current", () => (box.textContent = ""));
    draw();
  }

  function chooser({ element }) {
    const box = place(element, "chooser");
    const fold = h("button", { type: "button", class: "svp-button", "aria-controls": "sv-panel" });
    const wide = () => innerWidth >= 1100;
    let folded = stored.get("panel") ? stored.get("panel") === "folded" : !wide();
    if (!wide()) folded = true;
    function apply() {
      document.body.classList.toggle("sv-folded", folded);
      fold.setAttribute("aria-expanded", String(!folded));
      fold.textContent = folded ? "New run ▸" : "◂ Hide";
      fold.classList.toggle("svp-call", folded);
      fold.title = folded ? "Show the prompt and the method" : "Hide the prompt: more room for the views";
    }
    app.makeRoom = () => {
      if (wide()) return;
      folded = true; // on a small screen the views would be below the form
      apply();
      scrollTo({ top: 0 });
    };
    fold.addEventListener("click", () => {
      folded = !folded;
      stored.set("panel", folded ? "folded" : "open");
      apply();
    });
    const select = h("select", { class: "svp-select", "aria-label": "Recorded run", onchange: () => open(select.value) });
    function draw() {
      const groups = new Map();
      for (const run of app.runs) {
        if (!groups.has(run.kind)) groups.set(run.kind, []);
        groups.get(run.kind).push(h("option", { value: run.id }, brief(run)));
      }
      const known = app.runs.some((run) => run.id === app.current);
      const parts = [...groups].map(([kind, options]) => h("optgroup", { label: KINDS[kind] || kind }, options));
      if (!known) parts.unshift(h("option", { value: app.current, disabled: true }, app.current ? "A run from a link" : "No recorded run yet"));
      select.replaceChildren(...parts);
      select.value = app.current;
    }
    on("runs", draw);
    on("current", draw);
    box.append(fold, select);
    apply();
    draw();
  }

  function brand({ element, props, watch, tell }) {
    let session = "", telling = null;
    watch("value", () => {
      session = parse(props.value).session || "";
      emit("session", session);
    });
    /** This open page's name, asked of the server once: runs with it end when the page is closed. "" after 2 s of silence. */
    app.session = () => {
      if (session) return Promise.resolve(session);
      telling ??= new Promise((done) => {
        on("session", done);
        setTimeout(() => done(session), 2000);
        tell();
      }).finally(() => { telling = null; });
      return telling;
    };
    const pill = h("span", { class: "svp-pill", role: "status" });
    const theme = h("button", { type: "button", class: "svp-button", title: "Light or dark", "aria-label": "Switch between light and dark" }, "◐");
    theme.addEventListener("click", () => {
      const next = dark() ? "light" : "dark";
      stored.set("theme", next);
      params.delete("__theme");
      const url = new URL(location.href);
      url.searchParams.delete("__theme");
      history.replaceState(history.state, "", url);
      paint();
    });
    const user = h("span", { class: "svp-user", hidden: true });
    async function signOut() {
      await fetch("logout", { method: "POST" }).catch(() => {});
      location.reload(); // it leads to the page where one signs in
    }
    const marks = { loading: "…", ready: "✓", failed: "!", none: "○", gone: "!", out: "!" };
    function draw() {
      const model = app.model;
      pill.dataset.state = model.state;
      const words = { loading: `Loading ${model.name || "the model"}`, failed: "Model failed", none: "Viewing only", gone: "No answer from the server", out: "Signed out: load the page again" };
      const text = model.state === "ready" ? model.text : words[model.state] || model.text;
      const [short, ...rest] = text.split(" · ");
      const more = rest.length ? h("span", { class: "svp-more" }, ` · ${rest.join(" · ")}`) : null;
      pill.replaceChildren(h("b", { "aria-hidden": "true" }, marks[model.state] || "·"), h("span", {}, short, more || ""));
      pill.title = model.text || "";
    }
    let misses = 0;
    async function poll() {
      let wait = 15000;
      try {
        const { model, user: name, rules } = await getJson("api/status");
        misses = 0;
        app.rules = rules;
        if (name && user.hidden) {
          user.replaceChildren(h("b", {}, name), h("button", { type: "button", class: "svp-button", onclick: signOut }, "Log out"));
          user.hidden = false;
        }
        const changed = model.state !== app.model.state;
        app.model = model;
        if (model.state === "loading") wait = 700;
        if (changed) emit("model", model);
        draw();
      } catch (problem) {
        if (problem.status === 401) {
          app.model = { ...app.model, state: "out", text: problem.message };
          draw();
        } else if (++misses > 1) {
          app.model = { ...app.model, state: "gone", text: "The server does not answer: is it still running?" };
          draw();
        }
        wait = 3000;
      }
      setTimeout(poll, wait);
    }
    place(element, "brand").append(h("span", { class: "svp-name", role: "heading", "aria-level": 1 }, h("b", {}, "spec"), "viz"), h("span", { class: "svp-grow" }), pill, user, theme);
    draw();
    poll();
  }

  // --- the method form ---

  function field(control, value, changed, released) {
    const id = `svf-${control.name}`;
    const hint = `${id}-help`;
    let read, wrong = "";
    const parts = [];
    const whole = control.kind === "int";
    if (control.kind === "bool") {
      const box = h("input", { type: "checkbox", id, "aria-describedby": hint });
      box.checked = Boolean(value);
      box.addEventListener("change", changed);
      read = () => box.checked;
      parts.push(box);
    } else if (control.kind === "choice") {
      const select = h("select", { id, class: "svp-select", "aria-describedby": hint, onchange: changed }, control.choices.map((c) => h("option", { value: c }, c)));
      if (control.optional) select.prepend(h("option", { value: "" }, "off"));
      select.value = value ?? "";
      read = () => (select.value === "" ? null : select.value);
      parts.push(select);
    } else {
      const number = control.kind !== "str";
      const low = control.low, high = control.high;
      const step = control.step ?? (whole ? 1 : "any");
      const input = h("input", { id, type: number ? "number" : "text", class: "svp-input", "aria-describedby": hint, min: number ? low : null, max: number ? high : null, step: number ? (whole ? 1 : "any") : null });
      const start = value ?? control.default;
      input.value = start === null || start === undefined ? "" : String(start);
      let slider = null;
      if (number && low !== null && high !== null && high - low <= 1000) {
        const grain = step === "any" ? (high - low) / 100 : step;
        slider = h("input", { type: "range", class: "svp-range", min: low, max: high, step: grain, tabindex: -1, "aria-hidden": "true" });
        slider.value = input.value === "" ? String(low) : input.value;
        slider.addEventListener("input", () => { input.value = slider.value; mark(); changed(); });
        if (released) slider.addEventListener("change", released);
        input.addEventListener("input", () => { slider.value = input.value; });
      }
      wrong = h("span", { class: "svp-wrong", role: "alert" });
      function mark() {
        const off = enable && !enable.checked;
        let text = "";
        if (!off && number) {
          const range = low !== null && high !== null ? `from ${low} to ${high}` : low !== null ? `of at least ${low}` : high !== null ? `of at most ${high}` : "";
          const n = Number(input.value);
          if (input.value === "" || !Number.isFinite(n) || (whole && !Number.isInteger(n)) || (low !== null && n < low) || (high !== null && n > high)) text = `Needs a ${whole ? "whole " : ""}number ${range}.`;
        }
        wrong.textContent = text;
        input.setAttribute("aria-invalid", text ? "true" : "false");
      }
      let enable = null;
      if (control.optional) {
        enable = h("input", { type: "checkbox", "aria-label": `Use ${control.label}` });
        enable.checked = value !== null && value !== undefined;
        const able = () => { input.disabled = !enable.checked; if (slider) slider.disabled = !enable.checked; mark(); };
        enable.addEventListener("change", () => { if (enable.checked && input.value === "") input.value = slider ? slider.value : String(low ?? 0); able(); changed(); });
        parts.push(enable);
        able();
      }
      input.addEventListener("input", () => { mark(); changed(); });
      if (slider) parts.push(slider);
      parts.push(input);
      read = () => (enable && !enable.checked ? null : input.value);
    }
    const row = h("div", { class: `svf-row svf-${control.kind}` }, h("label", { for: id }, control.label), h("div", { class: "svf-value" }, parts), wrong, h("p", { id: hint, class: "svf-help" }, control.help));
    return { row, read, name: control.name };
  }

  function form({ element, props, tell }) {
    const box = place(element, "form");
    const kept = {}; // method → its values, so that changing the method back and forth loses nothing
    let catalog = { methods: [], settings: [], reason: "Looking for methods …" };
    let chosen = stored.get("method") || "";
    const reason = h("p", { class: "svf-reason", role: "status", hidden: true }); // beside the button it concerns
    const lossy = h("p", { class: "svf-may-differ", hidden: true });
    document.getElementById("sv-go").prepend(reason, lossy);
    let fields = [], common = [], commonValues = null, readyTold = false;

    /** Run is off where nothing can run: also where the button comes later than the catalog, or is drawn anew. */
    let guarded = null;
    const watcher = new MutationObserver(() => guardRun());
    function guardRun() {
      const run = document.getElementById("sv-run");
      if (!run) return requestAnimationFrame(guardRun);
      if (run !== guarded) watcher.observe((guarded = run), { attributes: true, attributeFilter: ["disabled"] });
      if (run.disabled !== Boolean(catalog.reason)) run.disabled = Boolean(catalog.reason);
      run.title = catalog.reason || "Ctrl+Enter";
    }

    function changed() {
      const collect = (list) => Object.fromEntries(list.map((f) => [f.name, f.read()]));
      kept[chosen] = collect(fields);
      commonValues = { ...commonValues, ...collect(common) };
      const method = catalog.methods.find((m) => m.name === chosen);
      props.value = JSON.stringify({ method: chosen, params: kept[chosen], settings: commonValues, pooled: Boolean(method?.pooled) });
    }

    function draw() {
      const method = catalog.methods.find((m) => m.name === chosen) || catalog.methods.find((m) => m.name === "pld+h" && !m.missing) || catalog.methods.find((m) => !m.missing) || catalog.methods[0];
      guardRun();
      reason.textContent = catalog.reason;
      reason.hidden = !catalog.reason;
      if (!method) return box.replaceChildren();
      chosen = method.name;
      const option = (m) => h("option", { value: m.name, disabled: Boolean(m.missing) }, m.title + (m.lossless ? "" : " (lossy)") + (m.missing ? " — not available" : ""));
      const lossless = catalog.methods.filter((m) => m.lossless && !m.missing), lenient = catalog.methods.filter((m) => !m.lossless && !m.missing), missing = catalog.methods.filter((m) => m.missing);
      const select = h("select", { id: "svf-method", class: "svp-select", "aria-describedby": "svf-summary" }, [
        h("optgroup", { label: "Lossless: the output is plain decoding's" }, lossless.map(option)),
        lenient.length ? h("optgroup", { label: "Lossy: the output may differ" }, lenient.map(option)) : null,
        missing.length ? h("optgroup", { label: "Not available here" }, missing.map(option)) : null,
      ].filter(Boolean));
      select.value = chosen;
      select.addEventListener("change", () => { chosen = select.value; stored.set("method", chosen); draw(); document.getElementById("svf-method").focus(); });
      const values = kept[chosen] || {};
      document.body.classList.toggle("sv-pooled-method", Boolean(method.pooled));
      lossy.textContent = method.lossless ? "" : `≈ lossy: ${method.title.split(":")[0]} may answer otherwise than the model by itself; plain decoding runs too, to compare.`;
      lossy.hidden = method.lossless;
      // a lossy threshold is there to be tried: letting go of its slider runs again
      const tried = (c) => !method.lossless && c.name === "delta";
      fields = method.controls.map((c) => field(tried(c) ? { ...c, help: `${c.help} Letting go of the slider runs.` } : c, c.name in values ? values[c.name] : c.default, changed, tried(c) ? again : null));
      const plain = method.name === "plain", upFront = (c) => c.name === "max_new_tokens" || (c.name === "compare" && method.lossless && !plain);
      const first = catalog.settings.filter(upFront), rest = catalog.settings.filter((c) => !upFront(c) && c.name !== "compare");
      const had = commonValues || {};
      const make = (c) => field(c, c.name in had ? had[c.name] : c.default, changed);
      const length = first.map(make), sampling = rest.map(make);
      common = [...length, ...sampling];
      const wasOpen = box.querySelector("details.svf-sampling")?.open, paramsOpen = box.querySelector("details.svf-params")?.open ?? true;
      box.replaceChildren(
        h("label", { for: "svf-method", class: "svf-title" }, "Method"), select,
        h("p", { id: "svf-summary", class: "svf-summary" },
          h("span", { class: `svf-badge ${method.lossless ? "svf-lossless" : "svf-lossy"}`, title: method.lossless ? "Its output is exactly what plain decoding gives." : "Its output may differ from plain decoding's." }, method.lossless ? "= lossless" : "≈ lossy"), " ", method.summary, method.paper ? h("span", { class: "svf-paper" }, ` ${method.paper}`) : null),
        missing.length ? h("details", { class: "svf-missing" }, h("summary", {}, `${missing.length} not available here`), missing.map((m) => h("p", {}, h("b", {}, m.title), `: ${m.missing}`))) : "",
        fields.length ? h("details", { class: "svf-params", open: paramsOpen }, h("summary", {}, "Parameters of the method"), fields.map((f) => f.row)) : "",
        ...length.map((f) => f.row),
        rest.length ? h("details", { class: "svf-sampling", open: wasOpen }, h("summary", {}, "Sampling"), sampling.map((f) => f.row)) : "",
      );
      changed();
    }

    async function load() {
      try {
        catalog = await getJson("api/methods");
        draw();
        if (catalog.state === "ready" && !readyTold) {
          readyTold = true;
          tell();
        }
      } catch (problem) {
        reason.textContent = problem.message;
        reason.hidden = false;
      }
    }
    on("model", load);
    draw();
    load();
  }

  // --- start: draw before Gradio is there ---

  window.SpecVizApp = {
    view, note, chooser, brand, form, field, open, link, app, h, getJson, postJson, plotly, on, emit, parse, place, stored, KINDS, refreshRuns,
    mode(mode) { document.body.dataset.svMode = mode; },
    stopping() {
      const id = app.mine.has(app.current) ? app.current : [...app.mine].pop() || "";
      if (id) say("Stopping after this step …", "busy");
      return JSON.stringify({ stop: id });
    },
  };

  paint();
  document.body.dataset.svMode = "segments";
  const id = params.get("trace") || meta("specviz-first");
  if (id) app.early = { id, promise: getJson(`api/traces/${encodeURIComponent(id)}`, window.specvizEarly?.answer) };
  app.early?.promise.catch(() => {});
  const folded = innerWidth < 1100 || stored.get("panel") === "folded";
  document.body.classList.toggle("sv-folded", folded);
  const frame = (...inside) => h("div", { class: "svp-frame", "aria-hidden": "true" }, inside);
  const name = () => h("span", { class: "svp-name" }, h("b", {}, "spec"), "viz");
  document.body.append(frame(name()), frame("Loading the editor …"), h("div", { id: "sv-boot" }, stage()));
  if (id) open(id, fromAddress());
  else say("There is no recorded run yet: type a prompt on the left, choose a method and press Run.", "info");
})();
