/* SpecViz.Inspector: the page's views around one trace. load, append, setStep, state, on("step" | "pin"). */
(function (SV) {
  "use strict";

  const { h, button, icon, clamp, framed } = SV;
  const SPEEDS = [1, 2, 4, 8, 16, 32];

  class Inspector {
    /**
     * ``options``: live (follow a run that goes on), autofocus, actions {link, downloads}.
     * ``actions.link`` is a URL, a function of the state that gives one, or true (this page's address);
     * ``actions.downloads`` maps a name (trace, html, csv, …) to a URL or a function of the state.
     */
    constructor(host, options) {
      this.host = host;
      this.options = options || {};
      this.listeners = {};
      this.number = 0;
      this.pins = [];
      this.model = null;
      this.rate = 4;
      this.whitespace = false;
      this.heat = true;
      this.offers = false;
      this.follow = true;
      this.build();
      this.watch();
    }

    // ---- the page -------------------------------------------------------------------------------------------------

    build() {
      this.root = h("div", { class: "sv", tabindex: "-1", role: "group", "aria-label": "Inspector" });
      this.tip = new SV.Tooltip(this.root);
      this.heading = h("div", { class: "sv-headline" });
      this.metrics = h("dl", { class: "sv-metrics" });
      this.timeline = new SV.Timeline(this);
      this.sentence = h("p", { class: "sv-sentence", "aria-live": "polite" });
      this.legend = h("ul", { class: "sv-legend", "aria-label": "Legend" });
      this.heatButton = this.toggle("Score heat", "heat", "Shade the places compared this step by their score");
      this.offerButton = this.toggle("Losing offers", "offers", "Show what the candidates that lost would have offered (O)");
      this.prompt = new SV.TokenPane(this, "prompt", "Prompt", this.heatButton, this.offerButton);
      this.pinNote = h("span", { class: "sv-pin-note", hidden: true });
      this.output = new SV.TokenPane(this, "output", "Output", this.pinNote);
      this.panes = [this.prompt, this.output];
      this.tree = new SV.TreeView(this);
      this.candidates = new SV.CandidateTable(this);
      this.links = new SV.Links(this);
      this.message = h("p", { class: "sv-message", role: "status", hidden: true });
      this.help = h("div", { class: "sv-help", role: "dialog", "aria-label": "Keyboard help", hidden: true }, SV.words.help());
      const head = h("header", { class: "sv-head" }, this.heading, this.metrics, this.actions());
      const steps = h("section", { class: "sv-card sv-steps", "aria-label": "Steps" }, this.controls(), this.timeline.element,
        this.sentence, this.legend);
      this.views = h("div", { class: "sv-views" },
        h("div", { class: "sv-grid" }, this.prompt.element, this.output.element),
        h("div", { class: "sv-grid sv-grid-low" }, this.tree.element, this.candidates.element));
      this.root.prepend(head, this.message, steps, this.views, this.links.layer, this.help);
      this.host.replaceChildren(this.root);
      this.root.classList.add("sv-waiting");
    }

    toggle(label, name, help) {
      const flip = () => {
        this[name] = !this[name];
        one.setAttribute("aria-pressed", String(this[name]));
        if (!this.model) return;
        if (name === "whitespace") this.redrawTokens();
        this.paint(this.model.step(this.number));
      };
      const one = button(label, { class: "sv-button sv-toggle", "aria-pressed": String(this[name]), onclick: flip }, label);
      return this.tip.add(one, () => [help]);
    }

    actions() {
      const wrap = h("div", { class: "sv-actions" });
      const { link } = this.options.actions || {};
      if (link) {
        this.linkLabel = h("span", {}, "Copy link");
        wrap.append(button("Copy a link to this step", { onclick: () => this.copyLink(link) }, icon("link"), this.linkLabel));
      }
      if (this.options.actions !== false) wrap.append(SV.downloads.menu(this));
      return wrap;
    }

    controls() {
      const keyed = (label, key, act, ...inside) => {
        const one = button(label, { class: `sv-button ${inside.length > 1 ? "" : "sv-square"}`, onclick: act }, ...inside);
        return this.tip.add(one, () => [label, " ", h("kbd", {}, key)]);
      };
      this.playButton = keyed("Play", "Space", () => (this.timer ? this.pause() : this.play()), icon("play"));
      this.playButton.classList.add("sv-primary");
      this.counter = h("span", { class: "sv-counter" });
      const speed = h("select", { class: "sv-select", "aria-label": "Playback speed", onchange: (e) => this.setRate(e) },
        SPEEDS.map((n) => h("option", { value: n, selected: n === this.rate }, `${n} ${n === 1 ? "step" : "steps"}/s`)));
      this.spaceButton = this.toggle("Whitespace", "whitespace", "Show spaces, tabs and line ends as glyphs (W)");
      const follow = this.toggle("Follow", "follow", "Scroll the panes to each step");
      const ask = keyed("Keyboard help", "?", () => this.showHelp(this.help.hidden), h("span", {}, "?"));
      return h("div", { class: "sv-controls", role: "toolbar", "aria-label": "Step controls" },
        keyed("Previous step", "←", () => this.go(-1), icon("previous")), this.playButton,
        keyed("Next step", "→", () => this.go(1), icon("next")), this.counter, speed,
        h("span", { class: "sv-pair" },
          keyed("Previous miss", "[", () => this.miss(-1), h("kbd", {}, "["), h("span", { class: "sv-wide" }, "miss")),
          keyed("Next miss", "]", () => this.miss(1), h("span", { class: "sv-wide" }, "miss"), h("kbd", {}, "]"))),
        h("span", { class: "sv-grow" }), follow, this.spaceButton, ask);
    }

    watch() {
      this.root.addEventListener("keydown", (event) => SV.keys(this, event, true));
      this.onKey = (event) => {
        const nowhere = !document.activeElement || document.activeElement === document.body;
        if (nowhere && this.root.offsetParent !== null) SV.keys(this, event, false);
      };
      document.addEventListener("keydown", this.onKey);
      this.onResize = framed(() => this.resized());
      this.sizes = new ResizeObserver(this.onResize);
      this.sizes.observe(this.host);
      this.onTheme = framed(() => this.themed());
      this.themes = new MutationObserver(this.onTheme);
      for (const element of [document.documentElement, document.body]) {
        this.themes.observe(element, { attributes: true, attributeFilter: ["class", "data-theme"] });
      }
      this.onScroll = framed(() => this.links.draw());
    }

    destroy() {
      this.pause();
      this.sizes.disconnect();
      this.themes.disconnect();
      document.removeEventListener("keydown", this.onKey);
      this.host.replaceChildren();
    }

    readColors() {
      const style = getComputedStyle(this.root);
      const read = (name) => style.getPropertyValue(`--sv-${name}`).trim();
      this.colors = {};
      for (const name of ["accepted", "rejected", "own", "ghost", "line", "faint", "card", "source", "heat", "pin", "mono"]) {
        this.colors[name] = read(name);
      }
      this.font = read("sans");
    }

    // ---- the trace ------------------------------------------------------------------------------------------------

    /** Shows a trace; ``view`` is {step, pins} as state() gives it. Throws where the trace is not one. */
    load(trace, view) {
      const { step = 0, pins = [] } = view || {};
      this.pause();
      this.model = new SV.Model(trace);
      this.readColors();
      this.root.classList.remove("sv-waiting");
      this.number = clamp(Number(step) || 0, 0, Math.max(0, this.model.stepCount - 1));
      this.pins = [];
      this.redrawTokens();
      this.describe();
      this.timeline.draw();
      this.measure();
      if (this.model.stepCount) this.show();
      else this.waiting();
      this.setPins(pins, false);
      if (this.options.autofocus) this.root.focus({ preventScroll: true });
      return this;
    }

    /** Adds the rows of a step to a run that goes on; follows it if the newest step was shown. */
    append(delta, run) {
      if (!this.model) return;
      const last = this.model.stepCount - 1;
      const following = this.number >= last && !this.timer;
      this.model.append(delta, run);
      this.output.extend(this.model.tokenCount);
      this.describe();
      this.timeline.draw();
      if (!this.model.stepCount) return;
      if (following || last < 0) this.number = this.model.stepCount - 1;
      this.show(!following && last >= 0);
    }

    waiting() {
      this.counter.textContent = "no step yet";
      this.sentence.textContent = this.model.run.complete ? "This run has no step." : "Waiting for the first step…";
    }

    describe() {
      this.heading.replaceChildren(...SV.words.heading(this));
      SV.words.metrics(this, this.metrics);
      this.legend.replaceChildren(...SV.words.legend(this));
      const ranked = this.model.trace.candidates.step.length > 0 || (this.model.run.terms || []).length > 0;
      this.root.classList.toggle("sv-chains", !this.model.isTree);
      this.root.classList.toggle("sv-unranked", !ranked);
      this.prompt.note.textContent = SV.plural(this.model.promptLength, "token");
    }

    redrawTokens() {
      const { model } = this;
      const tops = this.panes.map((pane) => pane.body.scrollTop);
      this.prompt.fill(0, model.promptLength);
      this.output.fill(model.promptLength, model.tokenCount);
      this.panes.forEach((pane, k) => {
        pane.resized();
        pane.body.scrollTop = tops[k];
      });
      this.links.pin(this.pins);
    }

    // ---- the step -------------------------------------------------------------------------------------------------

    setStep(number) {
      if (!this.model || !this.model.stepCount) return;
      const next = clamp(Math.round(Number(number)) || 0, 0, this.model.stepCount - 1);
      if (next === this.number) return;
      this.number = next;
      this.show();
      this.emit("step", { step: next });
    }

    go(by) {
      this.pause();
      this.setStep(this.number + by);
    }

    /** Draws the current step everywhere; ``still`` leaves the panes where they are. */
    show(still) {
      const view = this.model.step(this.number);
      this.links.hover(-1);
      this.paint(view);
      this.timeline.move(view.number);
      this.counter.replaceChildren("Step ", h("b", {}, String(view.number + 1)), ` of ${this.model.stepCount.toLocaleString("en")}`,
        h("span", { class: "sv-wide" }, ` · ${SV.format(this.timeline.total(view.number))} ms`));
      this.sentence.replaceChildren(...SV.words.sentence(this, view));
      this.output.note.textContent = `${(view.end - this.model.promptLength).toLocaleString("en")} of ${SV.plural(
        this.model.tokenCount - this.model.promptLength, "token")}`;
      this.tree.draw(view);
      this.candidates.draw(view);
      if (this.follow && !still) {
        this.output.reveal(Math.max(view.context, view.end - 1));
        const source = view.spans.length ? view.spans[0].start : view.chosen ? view.chosen.position : -1;
        if (source >= 0 && source < this.model.promptLength) this.prompt.reveal(source);
      }
      this.tree.settle();
      this.drawMaps(view);
      if (this.links.pinned.length) this.links.draw();
    }

    /** The step's marks on the tokens. */
    paint(view) {
      const items = [[view.context - 1, "sv-root"]];
      const written = view.context + view.accepted;
      for (let position = view.context; position < view.end; position++) items.push([position, "sv-now"]);
      for (const span of view.spans) items.push([span.start, "sv-numbered", { span: span.number }]);
      for (const node of view.nodes) {
        if (node.source >= 0) items.push([node.source, node.status === "accepted" ? "sv-source" : "sv-offered"]);
      }
      let position = view.context;
      for (const node of view.path) {
        const parent = view.nodes[node.parent];
        if (node.span && parent.span !== node.span && position < written) items.push([position, "sv-numbered", { span: node.span }]);
        position++;
      }
      if (view.chosen) items.push([view.chosen.position, "sv-anchor"]);
      const heat = this.heat ? this.heats(view) : [];
      const ghosts = this.offers ? this.ghosts(view) : [];
      this.output.showUntil(view.end);
      for (const pane of this.panes) {
        pane.paint("step", items);
        pane.paint("heat", heat);
        pane.paint("ghost", ghosts);
      }
    }

    heats(view) {
      const list = view.candidates.filter((one) => typeof one.score === "number");
      const scores = list.map((one) => one.score);
      const high = Math.max(...scores);
      const low = Math.min(0, ...scores);
      return list.map((one) => {
        const share = high > low ? (one.score - low) / (high - low) : 1;
        return [one.position, "sv-heat", { "--heat": (0.12 + 0.6 * share * share).toFixed(2) }];
      });
    }

    ghosts(view) {
      const items = [];
      for (const one of view.candidates.slice(0, 60)) {
        if (one.chosen) continue;
        for (let k = 1; k <= one.length; k++) {
          items.push([one.position + k, "sv-ghost", k === 1 ? { rank: `#${one.rank + 1}` } : undefined]);
        }
      }
      return items;
    }

    drawMaps(view) {
      const { colors, model } = this;
      const marks = [[], []];
      const add = (from, to, color, wide, alpha) => marks[from < model.promptLength ? 0 : 1].push({ from, to, color, wide, alpha });
      for (const run of model.runs) if (run.stop <= view.end) add(run.start, run.stop, colors.accepted, false, 0.35);
      if (this.heat) {
        for (const one of view.candidates.slice(0, 500)) add(one.position, one.position + 1, colors.heat, true, one.chosen ? 1 : 0.45);
      }
      for (const span of view.spans) add(span.start, span.stop, colors.source, true);
      if (view.end > view.context) add(view.context, view.end, colors.accepted, true);
      for (const run of this.links.pinned) {
        add(run.source, run.source + run.stop - run.start, colors.pin, true);
        add(run.start, run.stop, colors.pin, true);
      }
      this.panes.forEach((pane, k) => pane.drawMap(marks[k]));
    }

    /** Steps to the next (or previous) draft of which nothing was accepted. */
    miss(by) {
      this.pause();
      const { drafted, accepted } = this.model.steps;
      for (let k = this.number + by; k >= 0 && k < drafted.length; k += by) {
        if (drafted[k] > 0 && accepted[k] === 0) return this.setStep(k);
      }
      this.say(by > 0 ? "No later miss." : "No earlier miss.");
    }

    play() {
      if (!this.model || this.timer) return;
      if (this.number >= this.model.stepCount - 1) this.setStep(0);
      const tick = () => {
        if (this.number >= this.model.stepCount - 1) return this.pause();
        this.setStep(this.number + 1);
      };
      this.timer = setInterval(tick, 1000 / this.rate);
      this.playState();
    }

    pause() {
      if (!this.timer) return;
      clearInterval(this.timer);
      this.timer = 0;
      this.playState();
    }

    playState() {
      this.playButton.replaceChildren(icon(this.timer ? "pause" : "play"));
      this.playButton.setAttribute("aria-label", this.timer ? "Pause" : "Play");
      // while playing, a screen reader would never come to rest
      this.sentence.setAttribute("aria-live", this.timer ? "off" : "polite");
    }

    setRate(event) {
      this.rate = Number(event.target.value);
      if (!this.timer) return;
      this.pause();
      this.play();
    }

    // ---- tokens ---------------------------------------------------------------------------------------------------

    paneOf(position) {
      return position < this.model.promptLength ? this.prompt : this.output;
    }

    /** "line 4", "line 4 of the output". */
    where(position, capital) {
      const inside = position >= this.model.promptLength;
      const text = `line ${this.paneOf(position).line(position)}${inside ? " of the output" : ""}`;
      return capital ? text.charAt(0).toUpperCase() + text.slice(1) : text;
    }

    /** The same in a narrow column: L4, out 4. */
    short(position) {
      const line = this.paneOf(position).line(position);
      return position < this.model.promptLength ? `L${line}` : `out ${line}`;
    }

    hoverToken(position, element) {
      if (!this.model) return;
      this.links.hover(position);
      const token = position >= 0 && element && element.closest(".sv-t");
      if (token) this.tip.later(token, () => SV.tokenFacts(this, position));
      else this.tip.hide();
    }

    pickToken(position, several) {
      const had = this.pins.includes(position);
      const others = several ? this.pins.filter((pin) => pin !== position) : [];
      this.setPins(had ? others : [...others, position]);
      if (!had && this.model.stepOf(position) >= 0) {
        this.pause();
        this.setStep(this.model.stepOf(position));
      }
      const [link] = this.model.links(position);
      if (!had && link) this.reveal(position === link.source || position < link.start ? link.start : link.source);
    }

    /** Positions whose copies stay marked. */
    setPins(pins, tell = true) {
      const known = (pin) => Number.isInteger(pin) && pin >= 0 && pin < this.model.tokenCount;
      this.pins = [...new Set((pins || []).map(Number).filter(known))];
      this.links.pin(this.pins);
      this.drawPinNote();
      if (this.model.stepCount) this.drawMaps(this.model.step(this.number));
      if (tell) this.emit("pin", { pins: [...this.pins] });
    }

    drawPinNote() {
      this.pinNote.hidden = !this.pins.length;
      if (!this.pins.length) return;
      const runs = this.links.pinned;
      const size = runs.reduce((sum, run) => sum + run.stop - run.start, 0);
      const text = runs.length ? `${SV.plural(runs.length, "pinned copy", "pinned copies")}, ${SV.plural(size, "token")}` : "pinned, not copied";
      const clear = button("Unpin", { class: "sv-button sv-square sv-quiet", onclick: () => this.setPins([]) }, icon("close"));
      this.pinNote.replaceChildren(text, clear);
    }

    /** Marks positions while something that offers them is hovered. */
    light(positions) {
      for (const pane of this.panes) pane.paint("light", positions.map((position) => [position, "sv-light"]));
    }

    reveal(position, always) {
      if (position >= 0) this.paneOf(position).reveal(position, always);
      this.drawMaps(this.model.step(this.number));
      this.links.draw();
    }

    stacked() {
      return this.prompt.element.offsetTop !== this.output.element.offsetTop;
    }

    scrolled(pane) {
      pane.drawView();
      if (this.links.pinned.length || this.links.hovered.length) this.onScroll();
    }

    // ---- the rest -------------------------------------------------------------------------------------------------

    measure() {
      for (const pane of this.panes) {
        pane.resized();
        pane.drawView();
      }
      this.candidates.resized();
      this.tree.resized();
    }

    resized() {
      if (!this.model) return;
      this.timeline.draw();
      if (!this.model.stepCount) return;
      this.measure();
      this.timeline.move(this.number);
      this.drawMaps(this.model.step(this.number));
      this.links.draw();
    }

    themed() {
      this.readColors();
      this.resized();
    }

    showHelp(open) {
      this.help.hidden = !open;
    }

    say(text) {
      this.message.textContent = text;
      this.message.hidden = !text;
      clearTimeout(this.sayTimer);
      this.sayTimer = setTimeout(() => (this.message.hidden = true), 4000);
    }

    async copyLink(link) {
      const url = typeof link === "function" ? link(this.state()) : link === true ? this.address() : link;
      try {
        await navigator.clipboard.writeText(new URL(url, location.href).href);
        this.linkLabel.textContent = "Copied";
      } catch {
        window.prompt("Copy this link:", new URL(url, location.href).href);
      }
      setTimeout(() => (this.linkLabel.textContent = "Copy link"), 1500);
    }

    /** This page's address with the step and the pins in its hash. */
    address() {
      const pins = this.pins.length ? `&pins=${this.pins.join(",")}` : "";
      return `${location.href.split("#")[0]}#step=${this.number}${pins}`;
    }

    state() {
      return { trace: this.model ? this.model.run.id : null, step: this.number, pins: [...this.pins] };
    }

    on(event, listener) {
      (this.listeners[event] = this.listeners[event] || []).push(listener);
      return this;
    }

    emit(event, detail) {
      for (const listener of this.listeners[event] || []) listener(detail);
    }
  }

  SV.Inspector = Inspector;
})((window.SpecViz = window.SpecViz || {}));
