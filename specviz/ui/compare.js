/* Page "Compare": methods side by side on one prompt, as a race, by output position, in numbers and in charts. Text nodes only. */
(function () {
  "use strict";

  const { h, getJson, on } = SpecVizApp;
  const { Lane, Ruler, format, plural, clamp } = SpecViz;
  const MARKS = ["P", "A", "B", "C", "D", "E"]; // P is plain decoding
  const DEFAULTS = ["pld", "pld+h", "adapld"];
  const CLOCKS = { time: "Time", step: "Forwards", position: "Output position" };
  const LASTS = [5, 10, 20, 40]; // seconds a race lasts
  const SHOWN_TEXT = 260; // characters of a lane's text
  const PREFERRED = ["plain", "pld", "pld+h", "adapld", "glide"]; // of the recorded runs of one prompt
  const BETTER = { tokens_per_step: 1, speedup: 1, tokens_per_s: 1, draft_efficiency: 1, steps: -1 };
  const VERDICTS = {
    identical: ["✓", "identical to plain decoding"], "near tie": ["≈", "near tie"], "lossy by design": ["≈", "lossy by design"],
    "other draws": ["↺", "other draws"], bug: ["⚠", "bug"], unknown: ["○", "not checked"], checking: ["…", "checking"], waiting: ["…", "not over yet"],
  };
  const page = {
    box: null, data: null, catalog: null, session: "", form: null, wanted: [], common: {}, lanes: [], clock: "time", at: 0, live: false,
    lasts: 10, playing: 0, mark: null, parts: new Map(), numbers: {}, lens: {}, stretches: [], ticket: 0, title: "", loading: null, kept: {},
  };

  /** A part of the page by its class; those of the results are looked up once per comparison. */
  function part(name) {
    const known = page.parts.get(name);
    if (known?.isConnected) return known;
    const found = page.box.querySelector(`.svc-${name}`);
    if (found) page.parts.set(name, found);
    return found;
  }

  const post = (what, body) => getJson(`api/compare/${what}`, fetch(`api/compare/${what}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }));
  const short = (title) => title.split(":")[0];
  const seconds = (ms) => (ms >= 9950 ? `${(ms / 1000).toFixed(1)} s` : ms >= 100 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(0)} ms`);
  const mark = (lane) => h("b", { class: "sv-lane-mark", "aria-hidden": "true" }, lane.mark);

  function address() {
    const url = new URL(location.href);
    const ids = page.lanes.filter((lane) => lane.id).map((lane) => lane.id);
    if (ids.length) url.searchParams.set("lanes", ids.join(","));
    else url.searchParams.delete("lanes");
    history.replaceState(history.state, "", url);
  }

  // --- what is asked: the prompt ---

  const MODES = { segments: "Segments", chat: "Chat", text: "Plain text" };
  const FIELDS = {
    segments: [["instruction", "Instruction", 2], ["context", "Context", 7], ["question", "Question", 1]],
    chat: [["text", "Text", 9]],
    text: [["text", "Text", 9]],
  };

  function prompt() {
    if (page.form.choice === "trace") return { trace: SpecVizApp.app.shown };
    const { mode, values } = page.form;
    const example = page.data.examples.find((one) => one.id === page.form.choice);
    const asked = { mode, reference: values.reference || "" };
    for (const [name] of FIELDS[mode]) asked[name] = values[name] || "";
    const same = example && example.prompt.mode === mode && FIELDS[mode].every(([name]) => (example.prompt[name] || "") === asked[name]);
    if (same) asked.title = example.label;
    return asked;
  }

  function choosePrompt(choice) {
    const example = page.data.examples.find((one) => one.id === choice);
    page.form.choice = choice;
    if (example) Object.assign(page.form, { mode: example.prompt.mode, values: { ...example.prompt } });
    drawPrompt();
    drawGo();
  }

  function drawPrompt() {
    const { form, data } = page;
    const select = h("select", { class: "svp-select", id: "svc-prompt" },
      h("optgroup", { label: "Examples" }, data.examples.map((one) => h("option", { value: one.id }, one.label))),
      h("option", { value: "own" }, "Your own prompt"),
      h("option", { value: "trace" }, "The run open on Inspect"));
    select.value = form.choice;
    select.addEventListener("change", () => choosePrompt(select.value));
    const parts = [h("label", { for: "svc-prompt", class: "svf-title" }, "Prompt"), select];
    if (form.choice === "trace") {
      const run = SpecVizApp.app.inspector?.model?.run;
      parts.push(h("p", { class: "svc-help" }, run ? `“${run.title}”: its prompt, token by token.` : "No run is open on Inspect yet."));
    } else {
      const modes = Object.entries(MODES).map(([mode, label]) => {
        const radio = h("input", { type: "radio", name: "svc-mode", value: mode });
        radio.checked = mode === form.mode;
        radio.addEventListener("change", () => { form.mode = mode; drawPrompt(); });
        return h("label", {}, radio, label);
      });
      parts.push(h("fieldset", { class: "svc-modes" }, h("legend", { class: "svc-unseen" }, "The prompt's form"), modes));
      for (const [name, label, rows] of FIELDS[form.mode]) {
        const id = `svc-${name}`;
        const area = h("textarea", { id, rows, class: "svc-area", spellcheck: "false", placeholder: name === "context" ? "The text to work on. Put --- on a line of its own between passages." : null });
        area.value = form.values[name] || "";
        area.addEventListener("input", () => { form.values[name] = area.value; });
        parts.push(h("label", { for: id }, label), area);
      }
      const note = data.examples.find((one) => one.id === form.choice)?.note;
      if (note) parts.push(h("p", { class: "svc-help" }, note));
    }
    part("prompt-form").replaceChildren(...parts);
  }

  // --- what is asked: the lanes ---

  function usable() {
    return page.catalog.methods.filter((m) => !m.missing && m.name !== "plain");
  }

  function addLane(name) {
    const taken = page.wanted.map((one) => one.method);
    const found = usable().find((m) => m.name === name) || usable().find((m) => !taken.includes(m.name)) || usable()[0];
    if (found) page.wanted.push({ method: found.name, read: () => ({}), open: false });
  }

  function drawLanes() {
    const { methods } = page.catalog;
    const baseline = methods.find((m) => m.name === "plain");
    const cards = page.wanted.map((one, n) => laneCard(one, n));
    const add = page.wanted.length < page.data.most && usable().length
      ? h("button", { type: "button", class: "svp-button svc-add", onclick: () => { addLane(); drawLanes(); drawGo(); } }, "+ Add a method")
      : null;
    part("lane-forms").replaceChildren(
      h("div", { class: "svc-form-card svc-base" }, colored(h("b", { class: "sv-lane-mark", "aria-hidden": "true" }, MARKS[0]), 0), h("b", {}, baseline ? baseline.title : "Plain decoding"), h("span", { class: "svc-help" }, "always runs: the baseline")),
      ...cards, ...(add ? [add] : []));
  }

  const colored = (element, n) => { element.style.setProperty("--sv-lane", `var(--svc-lane-${n})`); return element; };

  function laneCard(one, n) {
    const { methods } = page.catalog;
    const method = methods.find((m) => m.name === one.method);
    const kept = (page.kept[`${n} ${one.method}`] ??= {});
    const option = (m) => h("option", { value: m.name, disabled: Boolean(m.missing) }, m.title + (m.lossless ? "" : " (lossy)") + (m.missing ? " — not available" : ""));
    const can = methods.filter((m) => m.name !== "plain"), there = can.filter((m) => !m.missing), missing = can.filter((m) => m.missing);
    const lossy = there.filter((m) => !m.lossless);
    const select = h("select", { class: "svp-select", id: `svc-method-${n}`, "aria-label": `Method of lane ${MARKS[n + 1]}` },
      h("optgroup", { label: "Lossless" }, there.filter((m) => m.lossless).map(option)),
      lossy.length ? h("optgroup", { label: "Lossy" }, lossy.map(option)) : null,
      missing.length ? h("optgroup", { label: "Not available here" }, missing.map(option)) : null);
    select.value = one.method;
    select.addEventListener("change", () => { one.method = select.value; drawLanes(); document.getElementById(`svc-method-${n}`).focus(); });
    const rows = method.controls.map((control) =>
      SpecVizApp.field({ ...control, name: `lane${n}-${control.name}` }, control.name in kept ? kept[control.name] : control.default, () => { kept[control.name] = rows.find((row) => row.name === `lane${n}-${control.name}`)?.read(); }));
    one.read = () => Object.fromEntries(method.controls.map((control, k) => [control.name, rows[k].read()]));
    one.wrong = () => rows.some((row) => row.row.querySelector('[aria-invalid="true"]'));
    const details = rows.length ? h("details", { open: one.open }, h("summary", {}, "Parameters"), rows.map((row) => row.row)) : null;
    details?.addEventListener("toggle", () => { one.open = details.open; });
    return h("div", { class: "svc-form-card" },
      h("div", { class: "svc-form-head" }, colored(h("b", { class: "sv-lane-mark", "aria-hidden": "true" }, MARKS[n + 1]), n + 1), select,
        h("span", { class: `svf-badge ${method.lossless ? "svf-lossless" : "svf-lossy"}` }, method.lossless ? "= lossless" : "≈ lossy"),
        page.wanted.length > 1 ? h("button", { type: "button", class: "svp-x svc-remove", "aria-label": `Remove lane ${MARKS[n + 1]}`, title: "Remove", onclick: () => { page.wanted.splice(n, 1); drawLanes(); drawGo(); } }, "×") : null),
      h("p", { class: "svc-help" }, method.summary), details);
  }

  function drawSettings() {
    const shown = page.catalog.settings.filter((c) => c.name !== "compare");
    const make = (c) => SpecVizApp.field({ ...c, name: `lanes-${c.name}` }, c.name in page.common ? page.common[c.name] : c.default, () => { page.common[c.name] = rows.find((row) => row.name === `lanes-${c.name}`)?.read(); });
    const rows = shown.map(make);
    page.readSettings = () => Object.fromEntries(shown.map((c, k) => [c.name, rows[k].read()]));
    const length = rows.filter((row) => row.name === "lanes-max_new_tokens"), rest = rows.filter((row) => row.name !== "lanes-max_new_tokens");
    const missing = page.catalog.methods.filter((m) => m.missing);
    part("settings").replaceChildren(...length.map((row) => row.row),
      rest.length ? h("details", {}, h("summary", {}, "Sampling"), rest.map((row) => row.row)) : "",
      missing.length ? h("details", { class: "svf-missing" }, h("summary", {}, `${missing.length} not available here`), missing.map((m) => h("p", {}, h("b", {}, m.title), `: ${m.missing}`))) : "");
  }

  const going = () => page.lanes.some((lane) => ["waiting", "running"].includes(lane.state));

  function drawGo() {
    const live = going() && page.lanes.some((lane) => lane.mine);
    const reason = page.catalog.reason;
    const run = part("run"), stop = part("stop");
    run.disabled = Boolean(reason) || live || !page.wanted.length;
    run.textContent = `Run ${plural(page.wanted.length + 1, "lane")}`;
    if (stop) stop.hidden = !live;
    part("reason").textContent = reason ? `${reason} Recorded runs can be compared all the same.` : "";
    part("reason").hidden = !reason;
  }

  function note(text, error) {
    const place = part("note");
    place.textContent = text || "";
    place.classList.toggle("svp-error", Boolean(text && error));
    place.setAttribute("role", error ? "alert" : "status");
  }

  async function run() {
    if (part("run").disabled) return;
    if (page.wanted.some((one) => one.wrong?.())) return note("A parameter is out of its range: it is marked red.", true);
    part("run").disabled = true;
    note("");
    try {
      const asked = { prompt: prompt(), lanes: page.wanted.map((one) => ({ method: one.method, params: one.read() })), settings: page.readSettings(), session: page.session };
      const answer = await post("start", asked);
      begin(answer.lanes.map((lane) => ({ ...lane, mine: true })));
      page.box.querySelector(".svc-setup").open = false;
    } catch (problem) {
      note(problem.message, true);
    }
    drawGo();
  }

  function stop() {
    page.stopping = true;
    post("stop", { ids: page.lanes.filter((lane) => lane.id).map((lane) => lane.id) }).catch((problem) => note(problem.message, true));
  }

  // --- recorded runs of one prompt ---

  function groups() {
    const found = new Map();
    for (const one of SpecVizApp.app.runs) {
      if (!one.prompt || one.kind === "live" || !one.tokens) continue;
      if (!found.has(one.prompt)) found.set(one.prompt, []);
      found.get(one.prompt).push(one);
    }
    const rank = (runs) => (runs.some((r) => r.kind !== "gallery") ? 0 : 1);
    return [...found.values()].filter((runs) => runs.length > 1).sort((a, b) => rank(a) - rank(b) || b.length - a.length);
  }

  /** The usual methods first, five at most, plain decoding at the front. */
  function picked(runs) {
    const order = (r) => { const at = PREFERRED.indexOf(r.method_name); return at < 0 ? PREFERRED.length : at; };
    const first = new Map();
    for (const r of [...runs].sort((a, b) => order(a) - order(b))) if (!first.has(r.method_name)) first.set(r.method_name, r);
    const chosen = [...first.values()].slice(0, page.data.most + 1);
    return chosen.length > 1 ? chosen : runs.slice(0, page.data.most + 1);
  }

  function example() {
    const gallery = groups().map((runs) => runs.filter((r) => r.kind === "gallery")).sort((a, b) => b.length - a.length);
    return gallery.length && gallery[0].length > 1 ? picked(gallery[0]) : null;
  }

  function drawRecorded() {
    const place = part("recorded"), found = groups();
    if (!found.length) return place.replaceChildren(h("p", { class: "svc-help" }, "Runs of one prompt by several methods appear here when there are any."));
    page.group = found.some((runs) => runs[0].prompt === page.group) ? page.group : found[0][0].prompt;
    const runs = found.find((one) => one[0].prompt === page.group);
    const select = h("select", { class: "svp-select", id: "svc-group", "aria-label": "Prompt with recorded runs" }, found.map((one) => h("option", { value: one[0].prompt }, `${one[0].title} · ${one.length} runs${one[0].kind === "gallery" ? " · gallery" : ""}`)));
    select.value = page.group;
    select.addEventListener("change", () => { page.group = select.value; drawRecorded(); });
    const first = picked(runs);
    const boxes = runs.map((one) => {
      const box = h("input", { type: "checkbox", value: one.id });
      box.checked = first.includes(one);
      box.addEventListener("change", able);
      return h("label", {}, box, h("span", {}, one.method), h("small", {}, [one.tokens_per_step === null ? "" : `${one.tokens_per_step.toFixed(2)} tokens/step`, one.lossless ? "" : "lossy", one.kind === "gallery" ? "" : when(one.created)].filter(Boolean).join(" · ")));
    });
    const go = h("button", { type: "button", class: "svp-button svc-open", onclick: () => openRuns(chosen()) }, "Compare these runs");
    const chosen = () => boxes.map((label) => label.firstChild).filter((box) => box.checked).map((box) => box.value);
    function able() {
      const count = chosen().length;
      go.disabled = count < 2 || count > page.data.most + 1;
      go.title = go.disabled ? `Choose 2 to ${page.data.most + 1} runs` : "";
    }
    able();
    place.replaceChildren(select, h("div", { class: "svc-boxes" }, boxes), go);
  }

  const when = (text) => { const date = new Date(text); return Number.isNaN(+date) ? "" : date.toLocaleString([], { dateStyle: "short", timeStyle: "short" }); };

  function openRuns(ids) {
    begin(ids.map((id) => ({ id })));
    page.box.querySelector(".svc-setup").open = false;
  }

  // --- lanes: fetched once, followed while they go on ---

  function begin(given) {
    pause();
    const ticket = ++page.ticket;
    for (const lane of page.lanes) lane.source?.close();
    page.lanes = given.map((one) => ({ id: one.id || "", method: one.method || "", mark: "", n: -1, color: "", state: one.error ? "failed" : "waiting", error: one.error || "", mine: Boolean(one.mine), lane: null, ahead: 0 }));
    Object.assign(page, { numbers: {}, lens: {}, stretches: [], mark: null, at: 0, live: true, stopping: false, title: "" });
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
    const settled = page.lanes.filter((lane) => lane.id).map(async (lane) => {
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
  function adopt() {
    const ids = page.lanes.filter((lane) => ["waiting", "running"].includes(lane.state)).map((lane) => lane.id);
    const ask = () => post("adopt", { ids, session: page.session }).then(({ done }) => {
      if (!done) return;
      for (const lane of page.lanes) if (ids.includes(lane.id)) lane.mine = true;
      drawGo();
    }, () => {});
    if (page.session) ask();
    else page.onSession = ask;
  }

  function take(lane, trace, ticket) {
    if (ticket !== page.ticket) return;
    if (trace.tokens) {
      if (lane.lane) lane.lane.load(trace);
      else lane.lane = new Lane(trace);
      lane.method = trace.run.method.name;
      page.title ||= trace.run.title;
    }
    lane.seq = trace.live ? trace.live.seq : Infinity;
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
          Object.assign(lane, { state: page.stopping ? "stopped" : "failed", error: page.stopping ? "Stopped before it began." : lane.error || problem.message });
        }
        if (ticket === page.ticket) changed();
      };
      const flush = SpecViz.framed(() => {
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
        if (ticket !== page.ticket) { source.close(); return resolve(); }
        const event = JSON.parse(message.data);
        if (event.done) { lane.error = event.error || lane.error; return end(); }
        if (event.state === "queued") { lane.ahead = event.ahead || 0; changed(); }
        if (event.reload || event.state === "running" || event.seq > seen + 1) again();
        else if (event.delta) { delta.push(event); flush(); }
        seen = Math.max(seen, event.seq);
      };
      source.onerror = () => { if (source.readyState === EventSource.CLOSED) end(); };
    });
  }

  const drawn = () => page.lanes.filter((lane) => lane.lane && lane.lane.steps);

  /** Everybody is done: numbers, the check against plain decoding, where they differ. */
  function over(ticket) {
    page.live = false;
    page.at = limit();
    drawGo();
    SpecVizApp.refreshRuns();
    changed();
    page.stretches = findStretches();
    drawStretches();
    numbers(ticket);
    lens(ticket);
  }

  const keys = () => drawn().filter((lane) => lane.id).map((lane) => lane.id);

  async function numbers(ticket) {
    const ids = keys();
    if (!ids.length) return;
    try {
      const answer = await getJson(`api/compare/numbers?runs=${ids.map(encodeURIComponent).join(",")}`);
      if (ticket !== page.ticket) return;
      page.numbers = answer;
      drawTable();
      drawCharts();
    } catch (problem) {
      if (ticket === page.ticket) part("table").replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
    }
  }

  async function lens(ticket) {
    const ids = keys();
    if (!ids.length) return;
    try {
      const answer = await getJson(`api/compare/lens?runs=${ids.map(encodeURIComponent).join(",")}`);
      if (ticket !== page.ticket) return;
      page.lens = answer;
      drawLens();
      if (Object.values(answer).some((one) => one.state === "checking")) setTimeout(() => ticket === page.ticket && lens(ticket), 700);
    } catch (problem) {
      if (ticket === page.ticket) part("lens-rows").replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
    }
  }

  // --- alignment ---

  /** The lane that the others are aligned with: plain decoding, else the longest lossless one. */
  function reference() {
    const lanes = drawn();
    const lossless = lanes.filter((lane) => lane.lane.run.method.lossless !== false);
    const plain = lanes.find((lane) => lane.method === "plain");
    const longest = (found) => found.reduce((a, b) => (b.lane.length > a.lane.length ? b : a));
    if (plain && lossless.every((lane) => lane.lane.length <= plain.lane.length)) return plain;
    return lanes.length ? longest(lossless.length ? lossless : lanes) : null;
  }

  function align() {
    const first = reference();
    for (const lane of drawn()) lane.aligned = lane === first ? lane.lane.length : SpecViz.firstDifference(first.lane.output, lane.lane.output);
  }

  function findStretches() {
    let lanes = drawn().filter((lane) => lane.aligned > 1);
    const methods = lanes.filter((lane) => lane.method !== "plain");
    if (methods.length > 1) lanes = methods;
    if (lanes.length < 2) return [];
    const upto = Math.min(...lanes.map((lane) => lane.aligned));
    return SpecViz.stretches(lanes.map((lane) => lane.lane), upto).map((one) => ({ ...one, lanes }));
  }

  // --- the results' frame ---

  function card(name, title, help, ...inside) {
    return h("section", { class: `svc-card svc-card-${name}`, "aria-label": title }, h("header", {}, h("h3", {}, title), help ? h("span", { class: "svc-help" }, help) : null), inside);
  }

  function frame() {
    const clocks = Object.entries(CLOCKS).map(([clock, label]) => {
      const radio = h("input", { type: "radio", name: "svc-clock", value: clock });
      radio.checked = clock === page.clock;
      radio.addEventListener("change", () => setClock(clock));
      return h("label", {}, radio, h("span", {}, label));
    });
    const lasts = h("select", { class: "svp-select svc-lasts", "aria-label": "How long the race lasts" });
    lasts.addEventListener("change", () => { page.lasts = lasts.value === "real" ? "real" : Number(lasts.value); });
    const slider = h("input", { type: "range", class: "svc-slider", min: 0, max: 1, step: 1, value: 0, "aria-label": "Clock of the race" });
    slider.addEventListener("input", () => { pause(); seek(Number(slider.value)); });
    page.ruler = new Ruler((position) => { pause(); if (page.clock !== "position") setClock("position", position); seek(position); });
    const play = h("button", { type: "button", class: "svp-button svc-play", onclick: toggle, "aria-label": "Play the race", title: "Space" }, "▶ Race");
    part("results").replaceChildren(h("div", { class: "sv svc", role: "group", tabindex: "-1", "aria-label": "Comparison" },
      h("header", { class: "svc-head" }, h("h2", {}), h("span", { class: "svc-about" }), h("button", { type: "button", class: "svp-button svc-stop", hidden: true, onclick: stop }, "■ Stop all lanes"), h("button", { type: "button", class: "svp-button svc-link", onclick: copyLink }, "Copy link")),
      card("race", "Race", "Every lane as it was recorded, on one clock.",
        h("div", { class: "svc-controls" }, play, h("fieldset", { class: "svc-clocks" }, h("legend", { class: "svc-unseen" }, "Clock"), clocks), slider, h("output", { class: "svc-at" }), lasts),
        h("ol", { class: "svc-lanes" })),
      card("ruler", "By output position", null, h("ul", { class: "svc-key", "aria-label": "Legend" },
        h("li", {}, h("i", { class: "svc-k-acc" }), "accepted draft, in one forward"), h("li", {}, h("i", { class: "svc-k-own" }), "the target's own token"),
        h("li", {}, h("b", {}, "12"), "the 12th forward"), h("li", {}, h("i", { class: "svc-k-off" }), "writes something else")), page.ruler.element, h("p", { class: "svc-reached", "aria-live": "off" })),
      h("div", { class: "svc-pair" },
        card("stretches", "Where do they differ most?", "Stretches in which one method needs fewer forwards than all others.", h("div", { class: "svc-stretches" }, h("p", { class: "svc-help" }, "Known when all lanes are over."))),
        card("lens", "Against plain decoding", "Is every output what the target writes by itself?", h("div", { class: "svc-lens-rows" }, h("p", { class: "svc-help" }, "Checked when all lanes are over.")))),
      card("numbers", "Numbers", "Hover or focus a name for its formula.", h("div", { class: "svc-table svl-scroll" }, h("p", { class: "svc-help" }, "Known when all lanes are over."))),
      h("div", { class: "svc-charts" })));
    const root = part("results").firstChild;
    page.tip = new SpecViz.Tooltip(root);
    root.addEventListener("keydown", key);
    page.framed = true;
    page.colors = null;
    drawLasts();
  }

  function readColors() {
    const root = page.box.querySelector(".sv.svc");
    const style = getComputedStyle(root);
    const read = (name) => style.getPropertyValue(name).trim();
    page.colors = { ...SpecViz.readColors(root), ink: read("--sv-ink"), raised: read("--sv-raised"), on: read("--svc-on") };
    for (const lane of page.lanes) lane.color = read(`--svc-lane-${lane.n}`);
  }

  /** Plain decoding is P; the others are A, B, … in their order. Whether anything changed. */
  function letters() {
    let next = 0, moved = false;
    for (const lane of page.lanes) {
      const n = lane.method === "plain" ? 0 : ++next;
      moved ||= n !== lane.n;
      Object.assign(lane, { n, mark: MARKS[n] });
    }
    return moved;
  }

  /** The lanes grew: what is drawn of all of them, once per frame. */
  function changed() {
    if (!page.framed) return;
    if (letters()) {
      part("lanes").replaceChildren();
      page.colors = null;
    }
    if (!page.colors) readColors();
    align();
    const known = drawn();
    part("head").querySelector("h2").textContent = page.title || "Comparison";
    const model = known[0]?.lane.run.model;
    part("about").textContent = model ? [model.name, `${format(model.parameters ? model.parameters / 1e6 : null)}M parameters`, model.dtype, model.device, known[0].lane.run.created?.slice(0, 10)].filter((t) => t && !String(t).startsWith("–")).join(" · ") : "";
    drawRows();
    const first = reference();
    if (first) page.ruler.set(known.map((lane) => ({ lane: lane.lane, color: lane.color, name: name(lane), mark: lane.mark, aligned: lane.aligned })), first.lane, page.colors);
    const slider = part("slider");
    slider.max = limit();
    slider.step = page.clock === "time" ? Math.max(0.1, limit() / 2000) : 1;
    if (page.live) page.at = limit();
    paint();
    drawGo();
  }

  const name = (lane) => short(lane.lane?.run.method.title || page.catalog?.methods.find((m) => m.name === lane.method)?.title || lane.method || "A run");

  /** Parameters in which lanes of one method differ from one another, or else those that are set. */
  function settings(lane) {
    const method = lane.lane?.run.method;
    if (!method) return "";
    const labels = Object.fromEntries((method.controls || []).map((c) => [c.name, c.label]));
    const text = (v) => (v === true ? "on" : v === false ? "off" : v === null ? "off" : String(v));
    const twins = drawn().filter((other) => other !== lane && other.method === lane.method);
    const entries = Object.entries(method.params || {}).filter(([key, value]) =>
      twins.length ? twins.some((other) => JSON.stringify(other.lane.run.method.params?.[key]) !== JSON.stringify(value)) : typeof value === "number");
    return entries.slice(0, 3).map(([key, value]) => `${labels[key] || key} ${text(value)}`).join(" · ");
  }

  const STATES = { waiting: "waiting", running: "running", failed: "failed", stopped: "stopped" };

  function drawRows() {
    const list = part("lanes");
    if (list.children.length !== page.lanes.length) {
      list.replaceChildren(...page.lanes.map((lane) => {
        lane.parts = {
          name: h("b", { class: "svc-name" }), settings: h("span", { class: "svc-params" }), verdict: h("span", { class: "svc-verdict" }),
          fill: h("i", { class: "svc-fill" }), own: h("span", { class: "svc-numbers" }), text: h("code", { class: "svc-text" }), state: h("span", { class: "svc-state", role: "status" }),
          inspect: h("button", { type: "button", class: "svp-link svc-inspect", onclick: () => inspect(lane) }, "Inspect ↗"),
        };
        const p = lane.parts;
        return colored(h("li", { class: "svc-lane" },
          h("div", { class: "svc-who" }, mark(lane), p.name, p.settings, p.state, p.verdict, p.inspect),
          h("div", { class: "svc-track", "aria-hidden": "true" }, p.fill), p.own, p.text), lane.n);
      }));
    }
    for (const lane of page.lanes) {
      const p = lane.parts;
      p.name.textContent = name(lane);
      p.settings.textContent = settings(lane);
      p.state.textContent = lane.state === "waiting" && lane.ahead > 0 ? `waiting: ${plural(lane.ahead, "run")} before it` : STATES[lane.state] || "";
      p.state.dataset.state = lane.state;
      p.inspect.hidden = !lane.lane;
      p.inspect.setAttribute("aria-label", `Open ${name(lane)} on Inspect at this step`);
      if (lane.error && ["failed", "stopped"].includes(lane.state)) {
        p.error ??= h("p", { class: "svc-error", role: "alert" });
        p.error.textContent = lane.error;
        if (!p.error.isConnected) p.text.after(p.error);
      }
    }
  }

  function inspect(lane, step) {
    const now = lane.lane.done(page.clock, page.at);
    SpecVizApp.app.goTo("inspect");
    SpecVizApp.open(lane.id, { step: step ?? Math.max(0, now - 1) });
    scrollTo({ top: 0 });
  }

  // --- the clock ---

  function limit(clock = page.clock) {
    const lanes = drawn().map((lane) => lane.lane);
    return Math.max(0, ...lanes.map((lane) => (clock === "time" ? lane.ms : clock === "step" ? lane.steps : lane.length)));
  }

  /** Another clock: at a position, or where the lane that is furthest stands now. */
  function setClock(clock, position) {
    const before = page.clock, lanes = drawn().map((lane) => lane.lane);
    const end = page.at >= limit(before);
    const lead = lanes.reduce((a, b) => (!a || b.done(before, page.at) / b.steps > a.done(before, page.at) / a.steps ? b : a), null);
    const k = lead ? lead.done(before, page.at) : 0;
    page.clock = clock;
    page.at = position ?? (end || !lead ? limit() : clock === "time" ? (k ? lead.times[k - 1] : 0) : clock === "step" ? k : lead.start(k));
    for (const radio of page.box.querySelectorAll('input[name="svc-clock"]')) radio.checked = radio.value === clock;
    const slider = part("slider");
    slider.max = limit();
    slider.step = clock === "time" ? Math.max(0.1, limit() / 2000) : 1;
    drawLasts();
    paint();
  }

  function seek(value) {
    page.at = clamp(value, 0, limit());
    page.live = false;
    paint();
  }

  function drawLasts() {
    const select = part("lasts");
    select.replaceChildren(...LASTS.map((n) => h("option", { value: n }, `in ${n} s`)), ...(page.clock === "time" ? [h("option", { value: "real" }, "in real time")] : []));
    if (page.clock !== "time" && page.lasts === "real") page.lasts = 10;
    select.value = String(page.lasts);
  }

  function toggle() {
    if (page.playing) return pause();
    if (page.at >= limit()) page.at = 0;
    page.live = false;
    let before = 0;
    const tick = (now) => {
      if (!page.playing) return;
      const rate = page.lasts === "real" ? 1 : limit() / (page.lasts * 1000);
      if (before) page.at = Math.min(limit(), page.at + (now - before) * rate);
      before = now;
      paint();
      if (page.at >= limit()) return pause();
      page.playing = requestAnimationFrame(tick);
    };
    page.playing = requestAnimationFrame(tick);
    part("play").textContent = "❚❚ Pause";
    part("play").setAttribute("aria-label", "Pause the race");
  }

  function pause() {
    if (!page.playing) return;
    cancelAnimationFrame(page.playing);
    page.playing = 0;
    part("play").textContent = "▶ Race";
    part("play").setAttribute("aria-label", "Play the race");
  }

  /** One step of the clock: the next (or the last) moment at which something happens. */
  function nudge(by) {
    pause();
    if (page.clock !== "time") return seek(Math.floor(page.at) + by);
    const times = drawn().flatMap(({ lane }) => {
      const k = lane.done("time", page.at);
      const at = by > 0 ? k + by - 1 : lane.times[k - 1] < page.at ? k + by : k - 1 + by;
      return at >= 0 && at < lane.steps ? [lane.times[at]] : [];
    });
    if (!times.length) return seek(by > 0 ? limit() : 0);
    seek(by > 0 ? Math.min(...times) : Math.max(...times));
  }

  function key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("select, textarea, summary, .js-plotly-plot")) return;
    if (event.key === " " && event.target.closest("button, a, input[type=radio], input[type=checkbox]")) return;
    if (event.target.matches("input[type=radio]") && event.key.startsWith("Arrow")) return;
    const far = event.shiftKey ? 10 : 1;
    const acts = {
      ArrowRight: () => nudge(far), ArrowUp: () => nudge(far), ArrowLeft: () => nudge(-far), ArrowDown: () => nudge(-far), PageUp: () => nudge(10), PageDown: () => nudge(-10),
      Home: () => { pause(); seek(0); }, End: () => { pause(); seek(limit()); }, " ": toggle,
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  // --- everything that moves with the clock ---

  function paint() {
    const lanes = drawn();
    const done = lanes.map(({ lane }) => (page.live ? lane.steps : lane.done(page.clock, page.at)));
    const written = lanes.map(({ lane }, n) => lane.start(done[n]));
    const open = lanes.filter((one) => one.state === "running").map(({ lane }) => lane.run.max_new_tokens);
    const most = Math.max(1, ...lanes.map(({ lane }) => lane.length), ...(lanes.some((one) => one.state === "done") ? [] : open));
    const order = lanes.map((_, n) => n).filter((n) => done[n] === lanes[n].lane.steps && lanes[n].state === "done");
    const cost = (n) => (page.clock === "step" ? lanes[n].lane.steps : lanes[n].lane.ms);
    order.sort((a, b) => cost(a) - cost(b));
    lanes.forEach((one, n) => {
      const { lane, parts } = one;
      const ended = one.state === "done" && done[n] === lane.steps && !page.live;
      parts.fill.style.transform = `scaleX(${written[n] / most})`;
      const place = ended && page.clock !== "position" ? ` · ${["1st", "2nd", "3rd", "4th", "5th"][order.indexOf(n)]}` : "";
      const numbers = `${plural(written[n], "token")} · ${plural(done[n], "forward")} · ${seconds(done[n] ? lane.times[done[n] - 1] : 0)}${ended ? " ✓" : ""}${place}`;
      if (parts.own.textContent !== numbers) parts.own.textContent = numbers;
      if (one.shown !== done[n] || one.shownLane !== lane.steps) {
        parts.text.replaceChildren(...latest(lane, done[n]));
        one.shown = done[n];
        one.shownLane = lane.steps;
      }
    });
    const position = page.clock === "position" ? Math.floor(page.at) : Math.max(0, ...written);
    const said = told(lanes, position);
    if (lanes.length) page.ruler.draw(position, done, page.mark, said);
    part("reached").textContent = said;
    const slider = part("slider");
    slider.value = page.at;
    const at = page.clock === "time" ? seconds(page.at) : page.clock === "step" ? plural(Math.floor(page.at), "forward") : plural(Math.floor(page.at), "token");
    if (part("at").textContent !== at) part("at").textContent = at;
    slider.setAttribute("aria-valuetext", at);
  }

  /** At the position that is furthest: how many forwards each method needed, and who has it inside one draft. */
  function told(lanes, position) {
    if (!position || !lanes.length) return "Nothing is written yet.";
    const parts = lanes.filter((one) => position <= one.aligned).map(({ mark: letter, lane }) => {
      const k = lane.stepOf[position - 1], inside = lane.trace.steps.accepted[k] > position - 1 - lane.start(k);
      const from = lane.start(k) + 1;
      return `${letter} ${(k + 1).toLocaleString("en")}${inside ? ` (in a draft of tokens ${from}–${lane.start(k) + lane.trace.steps.accepted[k]})` : ""}`;
    });
    return parts.length ? `Token ${position.toLocaleString("en")} was reached in forwards: ${parts.join(", ")}.` : `Token ${position.toLocaleString("en")}: the outputs differ here.`;
  }

  /** The end of what a lane has written: accepted tokens and the target's own apart. */
  function latest(lane, done) {
    const stop = lane.start(done), { accepted } = lane.trace.steps;
    let from = stop, size = 0;
    for (let k = done - 1; k >= 0 && size < SHOWN_TEXT; k--) {
      from = lane.start(k);
      size = 0;
      for (let p = from; p < stop && size < SHOWN_TEXT; p++) size += lane.pieces.get(lane.output[p]).text.length;
      if (stop - from > 80) break;
    }
    const spans = [];
    let text = "", kind = -1, step = -1;
    const flush = () => {
      if (text) spans.push(kind === 1 ? h("span", { class: `svc-acc${step === done - 1 ? " svc-new" : ""}` }, text) : kind === 0 ? h("span", { class: `svc-own${step === done - 1 ? " svc-new" : ""}` }, text) : text);
      text = "";
    };
    for (const cell of lane.pieces.cells(lane.output, from, stop)) {
      const k = lane.stepOf[cell.start], drafted = cell.start - lane.start(k) < accepted[k] ? 1 : 0;
      if (drafted !== kind || k !== step) flush();
      kind = drafted;
      step = k;
      text += SpecViz.safe(lane.pieces.special(lane.output[cell.start]) ? "" : cell.text);
    }
    flush();
    if (from > 0) spans.unshift("… ");
    return spans;
  }

  // --- stretches ---

  function drawStretches() {
    const place = part("stretches");
    if (!page.stretches.length) {
      return place.replaceChildren(h("p", { class: "svc-help" }, drawn().length < 2 ? "There is only one run." : "No method wins a stretch of the output that all of them share."));
    }
    place.replaceChildren(...page.stretches.map((one) => {
      const winner = one.lanes[one.lane];
      const text = winner.lane.pieces.phrase(winner.lane.output.slice(one.from, one.to), 90);
      const others = one.lanes.map((lane, n) => [lane, one.forwards[n]]).filter(([lane]) => lane !== winner).map(([lane, n]) => `${lane.mark} ${n}`).join(", ");
      return colored(h("div", { class: "svc-stretch" },
        h("button", { type: "button", class: "svc-go", onclick: () => show(one), "aria-label": `Tokens ${one.from + 1} to ${one.to}: ${name(winner)} needs ${one.forwards[one.lane]} forwards, ${one.gain} fewer than the next` },
          mark(winner), h("span", { class: "svc-gain" }, h("b", {}, `−${one.gain}`), ` ${one.gain === 1 ? "forward" : "forwards"}`),
          h("span", { class: "svc-where" }, `tokens ${(one.from + 1).toLocaleString("en")}–${one.to.toLocaleString("en")}: ${name(winner)} ${one.forwards[one.lane]}, ${others}`), h("code", {}, text)),
        h("button", { type: "button", class: "svp-link", onclick: () => inspect(winner, winner.lane.stepOf[one.from]), "aria-label": `Open ${name(winner)} on Inspect at token ${one.from + 1}` }, "Inspect ↗")), winner.n);
    }));
  }

  function show(one) {
    pause();
    page.mark = { from: one.from, to: one.to };
    if (page.clock !== "position") setClock("position", one.to);
    seek(one.to);
    page.ruler.element.scrollIntoView({ block: "nearest" });
  }

  // --- the lens ---

  function verdict(lane) {
    const found = page.lens[lane.id];
    if (!found) return "waiting";
    return found.state === "differs" ? found.verdict : found.state;
  }

  const token = (lane, id) => (id === null || id === undefined ? "the end" : lane.lane.pieces.known.has(id) ? `“${lane.lane.pieces.label(id, 30)}”` : labelElsewhere(id));
  const labelElsewhere = (id) => { const other = drawn().find((one) => one.lane.pieces.known.has(id)); return other ? `“${other.lane.pieces.label(id, 30)}”` : `token ${id}`; };
  const share = (p) => (p === null || p === undefined ? "" : ` (p ${SpecViz.probability(p)})`);

  function drawLens() {
    const rows = drawn().map((lane) => {
      const state = verdict(lane), found = page.lens[lane.id] || {};
      const [sign, words] = VERDICTS[state] || VERDICTS.unknown;
      lane.parts.verdict.textContent = lane.method === "plain" && state === "identical" ? "" : `${sign} ${words}`;
      lane.parts.verdict.dataset.verdict = state;
      const baseline = lane.method === "plain" && state === "identical";
      const more = [];
      if (baseline) more.push("the reference");
      else if (state === "identical") more.push(`all ${plural(found.tokens, "token")}`);
      else if (found.text) more.push(found.text);
      else if (found.state === "differs") {
        const at = found.position;
        more.push(h("button", { type: "button", class: "svp-link", onclick: () => show({ from: at, to: at + 1 }) }, `token ${(at + 1).toLocaleString("en")}`),
          `: wrote ${token(lane, found.got)}${share(found.got_prob)}, plain decoding ${token(lane, found.expected)}${share(found.expected_prob)}.`,
          found.gap === null ? "" : h("span", { title: "Difference of the target's two best logits there" }, ` Top-2 gap ${format(found.gap)}`),
          found.gap === null || !["near tie", "bug"].includes(state) ? "" : h("span", { title: "What rounding may do in this dtype: within it, both tokens are right" }, `; rounding allows ${format(found.tolerance)} in ${lane.lane.run.model.dtype}`),
          found.gap === null ? "" : ".",
          found.source === "recorded" ? " By what the run recorded; load its model for a second opinion." : "");
      }
      const row = colored(h("div", { class: "svc-lens-row", "data-verdict": state }, mark(lane), h("b", {}, name(lane)), h("span", { class: "svc-verdict", "data-verdict": state }, `${sign} ${baseline ? "plain decoding" : words}`), h("span", { class: "svc-more" }, more)), lane.n);
      return [row, found.state === "differs" ? diff(lane, found) : null];
    });
    part("lens-rows").replaceChildren(...rows.flat().filter(Boolean),
      h("p", { class: "svc-help" }, "A near tie: neither token, nor any later one, lies more than rounding below the best logit. A bug: a lossless method wrote what the target would not have."));
  }

  /** The lane's output against plain decoding's, folded until asked for. */
  function diff(lane, found) {
    const holder = h("details", { class: "svc-diff sv-compared" }, h("summary", {}, `${name(lane)} and plain decoding, token by token`));
    holder.addEventListener("toggle", () => {
      if (!holder.open || holder.querySelector(".sv-diff")) return;
      const pieces = Object.create(lane.lane.pieces, { known: { value: new Map([...drawn().flatMap((one) => [...one.lane.pieces.known]), ...lane.lane.pieces.known]) } });
      const model = { trace: { tokens: lane.lane.trace.tokens, plain: { id: found.plain } }, promptLength: lane.lane.promptLength, pieces };
      const view = new SpecViz.DiffView({ root: holder, model });
      holder.append(view.element);
      view.draw();
    });
    return holder;
  }

  // --- the table ---

  function cell(metric, value) {
    if (value === null || value === undefined) return "–";
    if (metric.unit === "share") return `${(100 * value).toFixed(value && value < 0.1 ? 1 : 0)} %`;
    if (metric.unit === "ms") return format(value);
    return metric.unit === "×" ? `${value.toFixed(2)}×` : format(value);
  }

  function drawTable() {
    const lanes = drawn().filter((lane) => page.numbers[lane.id]);
    const value = (lane, metric) => page.numbers[lane.id].metrics[metric.key];
    const rows = page.data.metrics.filter((metric) => lanes.some((lane) => value(lane, metric) !== null && value(lane, metric) !== undefined)).map((metric) => {
      const sign = BETTER[metric.key] || 0;
      const known = lanes.filter((lane) => lane.method !== "plain" && typeof value(lane, metric) === "number");
      const best = sign && known.length > 1 ? Math.max(...known.map((lane) => sign * value(lane, metric))) : null;
      const head = h("th", { scope: "row", tabindex: "0" }, metric.label, metric.unit && metric.unit !== "share" && metric.unit !== "×" ? h("small", {}, ` ${metric.unit}`) : null);
      page.tip.add(head, () => [h("b", {}, metric.label), h("div", {}, `= ${metric.formula}`), h("div", { class: "svc-help" }, metric.help)]);
      return h("tr", {}, head, lanes.map((lane) => {
        const wins = best !== null && lane.method !== "plain" && sign * value(lane, metric) === best;
        return h("td", { class: `svp-num${wins ? " svc-best" : ""}` }, cell(metric, value(lane, metric)), wins ? h("span", { class: "svc-star", title: "best of the methods", "aria-label": ", best of the methods" }, " ★") : null);
      }));
    });
    const depth = h("th", { scope: "row", tabindex: "0" }, "Acceptance by depth");
    page.tip.add(depth, () => [h("b", {}, "Acceptance by depth"), h("div", {}, "= accepted ÷ reached"), h("div", { class: "svc-help" }, "A depth is reached by a step where the node above was accepted and has a child to try; siblings are one decision.")]);
    rows.push(h("tr", {}, depth, lanes.map((lane) => h("td", { class: "svc-depths" }, depths(lane)))));
    part("table").replaceChildren(h("table", { class: "svp-grid" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "svc-unseen" }, "Number")), lanes.map((lane) => colored(h("th", { scope: "col", class: "svp-num" }, mark(lane), " ", name(lane), settings(lane) && drawn().some((o) => o !== lane && o.method === lane.method) ? h("small", {}, ` ${settings(lane)}`) : null), lane.n)))),
      h("tbody", {}, rows)));
  }

  /** A bar per depth, the first ten, and the numbers for those who listen. */
  function depths(lane) {
    const found = page.numbers[lane.id].depths;
    if (!found.length) return h("span", { class: "svc-help" }, "–");
    const said = found.slice(0, 10).map(([d, reached, accepted]) => `${d}: ${Math.round((100 * accepted) / reached)} %`).join(", ");
    const bars = h("span", { class: "svc-bars", role: "img", tabindex: "0", "aria-label": `Acceptance by depth ${said}` }, found.slice(0, 10).map(([, reached, accepted]) => {
      const bar = h("i", {}, h("i", {}));
      bar.firstChild.style.height = `${(100 * accepted) / reached}%`;
      return bar;
    }));
    page.tip.add(bars, () => [h("b", {}, name(lane)), SpecViz.facts(found.slice(0, 12).map(([d, reached, accepted]) => [`depth ${d}`, `${Math.round((100 * accepted) / reached)} % (${accepted} of ${reached})`]))]);
    return colored(bars, lane.n);
  }

  // --- charts ---

  function plotly() {
    page.loading ??= new Promise((done, failed) => {
      if (window.Plotly) return done(window.Plotly);
      const script = h("script", { src: page.data.plotly });
      script.onload = () => done(window.Plotly);
      script.onerror = () => { page.loading = null; failed(new Error("The charts' script could not be loaded: is the server still running?")); };
      document.head.append(script);
    });
    return page.loading;
  }

  const DASHES = ["dot", "solid", "dash", "dashdot", "longdash", "longdashdot"];
  const SHAPES = ["", "", "/", "x", ".", "-"];

  function charts() {
    const lanes = drawn().filter((lane) => page.numbers[lane.id]);
    const label = (lane) => `${lane.mark} ${name(lane)}`;
    const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
    const methods = lanes.filter((lane) => lane.method !== "plain");
    const cumulative = lanes.map((lane) => ({ x: [0, ...lane.lane.times.map((t) => t / 1000)], y: [0, ...lane.lane.ends], type: "scatter", mode: "lines", name: escape(label(lane)), line: { color: lane.color, dash: DASHES[lane.n], shape: "hv", width: 2 }, hovertemplate: "%{y} tokens after %{x:.3f} s" }));
    const lengths = methods.map((lane) => {
      const all = page.numbers[lane.id].lengths, counts = [];
      for (const n of all) counts[n] = (counts[n] || 0) + 1;
      return { x: [...counts.keys()], y: Array.from(counts, (c) => (c || 0) / all.length), type: "bar", name: escape(label(lane)), marker: { color: lane.color, pattern: { shape: SHAPES[lane.n], fillmode: "overlay", fgcolor: page.colors.card, size: 5, solidity: 0.3 } }, hovertemplate: "%{x} accepted: %{y:.0%} of the steps with a draft" };
    });
    const steps = methods.map((lane) => ({ x: lane.lane.ends.map((_, k) => k + 1), y: [...lane.lane.trace.steps.accepted], type: "scatter", mode: "lines+markers", name: escape(label(lane)), marker: { color: lane.color, size: 4, symbol: lane.n }, line: { color: lane.color, width: 1, dash: DASHES[lane.n], shape: "hvh" }, hovertemplate: "forward %{x}: %{y} accepted" }));
    const parts = [["prefill", "reading the prompt", page.colors.line], ["draft", "drafting", page.colors.heat], ["verify", "verify forwards", page.colors.accepted], ["commit", "keeping", page.colors.faint]];
    const times = parts.map(([key, text, color], n) => ({ y: lanes.map((lane) => escape(label(lane))), x: lanes.map((lane) => page.numbers[lane.id].times[key]), type: "bar", orientation: "h", name: text, marker: { color, pattern: { shape: ["", "/", "", "x"][n], fillmode: "overlay", fgcolor: page.colors.card, size: 5, solidity: 0.3 } }, hovertemplate: "%{x:.1f} ms" }));
    return [
      { key: "cumulative", title: "Tokens written over time", x: "seconds of decoding", y: "tokens", data: cumulative },
      { key: "times", title: "Where the time went", x: "ms", y: "", data: times, stack: true },
      methods.length ? { key: "lengths", title: "Accepted per step with a draft", x: "accepted draft tokens", y: "share of the steps", data: lengths, percent: true } : null,
      methods.length ? { key: "steps", title: "Accepted, step by step", x: "forward", y: "accepted draft tokens", data: steps } : null,
    ].filter(Boolean);
  }

  async function drawCharts() {
    if (!Object.keys(page.numbers).length || !page.box.offsetWidth) return;
    const ticket = page.ticket, grid = part("charts");
    let Plotly;
    try {
      Plotly = await plotly();
    } catch (problem) {
      return grid.replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
    }
    if (ticket !== page.ticket) return;
    const wanted = charts();
    while (grid.children.length < wanted.length) {
      const plot = h("div", { class: "svc-plot", role: "img" });
      grid.append(h("figure", { class: "svc-card" }, plot));
      new ResizeObserver(() => { if (plot.data && plot.offsetWidth) Plotly.Plots.resize(plot); }).observe(plot);
    }
    while (grid.children.length > wanted.length) { Plotly.purge(grid.lastChild.firstChild); grid.lastChild.remove(); }
    const { ink, card: face, line } = page.colors;
    wanted.forEach((chart, n) => {
      const plot = grid.children[n].firstChild;
      plot.dataset.chart = chart.key;
      plot.setAttribute("aria-label", `${chart.title}; its numbers are in the table and the race`);
      const axis = { gridcolor: "rgba(128,128,128,.25)", zeroline: false, automargin: true };
      Plotly.react(plot, chart.data, {
        title: { text: chart.title, font: { size: 14 }, x: 0.02, xanchor: "left" }, height: 300, margin: { l: 52, r: 14, t: 44, b: 78 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: "system-ui, sans-serif", size: 12, color: ink }, xaxis: { ...axis, title: { text: chart.x, standoff: 6 } }, yaxis: { ...axis, title: { text: chart.y }, autorange: chart.stack ? "reversed" : true, tickformat: chart.percent ? ".0%" : "" },
        barmode: chart.stack ? "stack" : "group", legend: { orientation: "h", y: -0.3, x: 0, traceorder: "normal" }, hoverlabel: { bgcolor: face, bordercolor: line, font: { color: ink, size: 12.5 } },
      }, { displaylogo: false, displayModeBar: false, responsive: false });
    });
  }

  async function copyLink() {
    const label = part("link");
    try {
      await navigator.clipboard.writeText(location.href);
      label.textContent = "Copied";
    } catch {
      window.prompt("Copy this link:", location.href);
    }
    setTimeout(() => { label.textContent = "Copy link"; }, 1500);
  }

  // --- the page ---

  function layout() {
    page.box.replaceChildren(
      h("div", { class: "svc-empty" },
        h("p", {}, "A comparison runs several methods on one prompt and plays them back as a race, aligned by output position."),
        h("button", { type: "button", class: "svl-run svc-example", hidden: true, onclick: () => openRuns(example().map((one) => one.id)) }, "")),
      h("details", { class: "svc-setup", open: true },
        h("summary", {}, h("h2", {}, "Compare methods on one prompt"), h("span", { class: "svc-help" }, "Two to four methods draft for the same model on the same prompt, beside plain decoding: see who needs how many forwards for which part of the output.")),
        h("div", { class: "svc-columns" },
          h("div", { class: "svc-prompt-form" }),
          h("div", { class: "svc-lane-column" }, h("div", { class: "svc-lane-forms" }), h("div", { class: "svc-settings svp-form" }),
            h("p", { class: "svf-reason svc-reason", role: "status", hidden: true }),
            h("p", { class: "svp-note svc-note", role: "status" }),
            h("div", { class: "svc-row" }, h("button", { type: "button", class: "svl-run svc-run", onclick: run }, "Run"))),
          h("div", { class: "svc-recorded-column" }, h("h3", {}, "Recorded runs"), h("p", { class: "svc-help" }, "Of one prompt; no model is needed."), h("div", { class: "svc-recorded" })))),
      h("div", { class: "svc-results" }));
  }

  function drawExample() {
    const button = part("example"), found = example();
    button.hidden = !found;
    if (found) button.textContent = `Show an example: ${found.map((one) => short(one.method)).join(", ")}`;
  }

  async function catalog() {
    page.catalog = await getJson("api/methods");
    page.wanted = page.wanted.filter((one) => page.catalog.methods.some((m) => m.name === one.method));
    if (!page.wanted.length) for (const method of DEFAULTS) if (usable().some((m) => m.name === method)) addLane(method);
    if (!page.wanted.length) addLane();
    drawLanes();
    drawSettings();
    drawGo();
  }

  async function load(tell) {
    page.box.replaceChildren(h("p", { class: "svp-empty" }, "Looking for methods …"));
    try {
      page.data = await getJson("api/compare");
      layout();
      page.form = { choice: "own", mode: "segments", values: {} };
      choicesReady();
      await catalog();
    } catch (problem) {
      page.box.replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
      return;
    }
    tell();
    if (!SpecVizApp.app.runs.length) await SpecVizApp.refreshRuns();
    drawRecorded();
    drawExample();
    on("runs", () => { if (!part("recorded").contains(document.activeElement)) drawRecorded(); drawExample(); }); // not under a hand
    on("model", () => catalog().catch((problem) => note(problem.message, true)).then(() => { if (page.lanes.length && !going()) lens(page.ticket); }));
    on("current", () => { if (page.form.choice === "trace") drawPrompt(); });
    const ids = (new URLSearchParams(location.search).get("lanes") || "").split(",").filter(Boolean).slice(0, page.data.most + 1);
    if (ids.length) openRuns(ids);
    page.box.dataset.ready = "yes";
  }

  function choicesReady() {
    const first = page.data.examples[0];
    if (first) Object.assign(page.form, { choice: first.id, mode: first.prompt.mode, values: { ...first.prompt } });
    drawPrompt();
  }

  function compare({ element, props, watch, tell }) {
    page.box = element.querySelector(".svp-compare");
    watch("value", () => {
      page.session = SpecVizApp.parse(props.value).session || "";
      page.onSession?.();
      page.onSession = null;
    });
    let asked = false, wide = 0;
    const seen = new ResizeObserver(() => {
      if (!page.box.offsetWidth) return pause();
      if (!asked) {
        asked = true;
        load(tell);
      } else if (page.framed && page.box.offsetWidth !== wide) {
        changed();
        if (!part("charts").children.length) drawCharts();
      }
      wide = page.box.offsetWidth;
    });
    seen.observe(page.box);
    new MutationObserver(() => {
      if (!page.framed) return;
      page.colors = null;
      changed();
      if (part("charts").children.length) drawCharts();
    }).observe(document.body, { attributeFilter: ["class"] });
  }

  Object.assign(SpecVizApp, { compare, compareState: page });
})();
