/* SpecViz.Attribution: an answer beside its sources, every copied run linked. Reads documents of specattribution/1. */
(function (SV) {
  "use strict";

  const { h, s, clamp, plural, framed } = SV;
  const { SOURCES, size, at, score, passages, parts, pieces, places } = SV.attributing;
  const COLORS = 8; // then the same colours again, with another line
  const LINES = 3;
  const OTHER = { prompt: "prompt", output: "answer" };
  const COUNTED = { whole: "Whole quotations", drafted: "Drafted tokens" };
  const WHY = {
    whole: "A drafted run with the words beside it that its source has too, whoever wrote them.",
    drafted: "Only tokens that were drafted from a source and stood: PLD+'s own signal.",
  };
  const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");
  const score3 = (value) => (value === null ? "–" : value.toFixed(3).replace(/^0/, ""));

  // ---- names and looks -------------------------------------------------------------------------------------------

  const tag = (source) => OTHER[source.kind] || `${source.kind === "pool" ? "pool " : "P"}${source.passage + 1}`;

  /** A source's colour and line by its place in the list; what is no passage has none of its own. */
  function look(source, index) {
    if (!SOURCES.includes(source.kind)) return "sv-a-c sv-a-other";
    return `sv-a-c sv-a-c${index % COLORS} sv-a-l${Math.floor(index / COLORS) % LINES}`;
  }

  /** Text as it is shown: line ends and blanks as they are, what is never drawn raw named. */
  const shown = (text) => SV.safe(text);

  // ---- the view --------------------------------------------------------------------------------------------------

  class Attribution {
    /** ``options.tools``: elements beside the title. */
    constructor(host, options) {
      this.host = host;
      this.options = options || {};
      this.listeners = {};
      this.signals = [];
      this.active = 0;
      this.minRun = 2;
      this.counted = "whole";
      this.rest = true;
      this.hovered = 0;
      this.pinned = 0;
      this.opened = new Map();
      this.build();
    }

    build() {
      this.root = h("div", { class: "sv sv-attr", tabindex: "-1", role: "group", "aria-label": "Attribution" });
      this.tip = new SV.Tooltip(this.root);
      this.heading = h("div", { class: "sv-a-title" });
      this.summary = h("div", { class: "sv-a-summary" });
      this.slider = h("input", {
        type: "range",
        min: 1,
        max: 12,
        step: 1,
        class: "sv-a-range",
        "aria-label": "Shortest run shown, in tokens",
        oninput: () => this.set({ minRun: Number(this.slider.value) }),
      });
      this.sliderText = h("output", { class: "sv-a-now" });
      this.lengths = s("svg", { class: "sv-a-lengths", "aria-hidden": "true", preserveAspectRatio: "none" });
      this.countedBox = h("div", { class: "sv-a-seg", role: "radiogroup", "aria-label": "What counts as copied" });
      for (const [name, label] of Object.entries(COUNTED)) {
        const one = SV.button(label, {
          class: "sv-button sv-quiet",
          role: "radio",
          "data-counted": name,
          onclick: () => this.set({ counted: name }),
        });
        one.append(label);
        this.countedBox.append(this.tip.add(one, () => [WHY[name]]));
      }
      this.restButton = SV.button("Mark what nobody copied", {
        class: "sv-button sv-toggle",
        onclick: () => this.set({ rest: !this.rest }),
      });
      this.restButton.append("Mark what nobody copied");
      this.tip.add(this.restButton, () => ["Mark what was copied from nowhere: the answer's own words."]);
      const controls = h(
        "div",
        { class: "sv-a-controls" },
        h(
          "label",
          { class: "sv-a-min" },
          h("span", {}, "min_run ", this.sliderText),
          h("span", { class: "sv-a-slide" }, this.lengths, this.slider),
        ),
        this.countedBox,
        this.restButton,
      );
      this.lanes = h("div", { class: "sv-a-lanes" });
      this.answer = SV.card("a-answer", "Answer");
      this.sources = SV.card("a-sources", "Sources");
      this.layer = s("svg", { class: "sv-a-links", "aria-hidden": "true" });
      const tools = h("div", { class: "sv-a-tools" }, this.options.tools);
      this.root.append(
        h("header", { class: "sv-a-head" }, this.heading, tools),
        h(
          "section",
          { class: "sv-card sv-a-board", "aria-label": "What was copied" },
          this.summary,
          controls,
          this.lanes,
        ),
        h("div", { class: "sv-a-grid" }, this.answer.element, this.sources.element),
        h("p", { class: "sv-a-keys" }, ...keys()),
        this.layer,
      );
      this.host.replaceChildren(this.root);
      this.watch();
    }

    watch() {
      const { root } = this;
      const runOf = (event) => Number(event.target.closest?.("[data-run]")?.dataset.run.split(" ")[0] || 0);
      root.addEventListener("pointerover", (event) => {
        const number = runOf(event);
        this.hover(number);
        const element = event.target.closest?.("[data-side]");
        if (element) this.tip.later(element, () => this.facts(this.found.links[number - 1]));
      });
      root.addEventListener("pointerleave", () => this.hover(0));
      root.addEventListener("click", (event) => {
        const element = event.target.closest?.("[data-run]");
        if (element) this.pick(runOf(event), element);
      });
      root.addEventListener("focusin", (event) => {
        if (event.target.dataset?.run && event.target.matches(":focus-visible")) this.hover(runOf(event));
      });
      root.addEventListener("keydown", (event) => this.key(event));
      const redraw = framed(() => this.drawLinks());
      root.addEventListener("scroll", redraw, true);
      new ResizeObserver(redraw).observe(this.host);
    }

    on(name, fn) {
      this.listeners[name] = fn;
      return this;
    }

    /** Shows signals of one answer: [{title, method, views: {whole, drafted}, gold}], the first or ``active`` chosen. */
    load(signals, { minRun, counted, active } = {}) {
      this.signals = signals;
      this.active = clamp(active || 0, 0, Math.max(0, signals.length - 1));
      if (minRun) this.minRun = Math.max(1, Math.round(minRun));
      if (counted in COUNTED) this.counted = counted;
      this.pinned = this.hovered = 0;
      this.draw();
      return this;
    }

    get signal() {
      return this.signals[this.active];
    }

    get doc() {
      return this.signal.views[this.counted];
    }

    set(changes) {
      const run = this.pinned ? this.found.links[this.pinned - 1] : null;
      Object.assign(this, changes);
      this.hovered = this.pinned = 0;
      this.draw();
      const same = run && this.found.links.find((link) => link.output_tokens.join() === run.output_tokens.join());
      if (same) this.pin(same.number);
      this.listeners.change?.({ minRun: this.minRun, counted: this.counted, active: this.active });
    }

    draw() {
      if (!this.signals.length) return;
      const { doc } = this;
      this.gold = this.signals.map((one) => one.gold).find(Boolean) || null;
      this.found = at(doc, this.minRun);
      this.drawHead();
      this.drawSummary();
      this.drawControls();
      this.drawLanes();
      this.drawAnswer();
      this.drawSources();
      this.drawLinks();
      this.root.dataset.drawn = `${this.signal.method} ${this.counted} ${this.minRun}`;
    }

    drawHead() {
      const { run } = this.doc;
      const by = h("div", { class: "sv-by" }, h("b", {}, run.method_title), h("span", {}, run.model));
      if (run.forced) {
        const chip = h("span", { class: "sv-chip", tabindex: "0" }, "answer given");
        by.append(
          this.tip.add(chip, () => [
            "The model did not write this answer: it was given, and each draft was kept where it agreed.",
          ]),
        );
      }
      if (run.signal === "attention") by.append(h("span", { class: "sv-chip" }, "by where the draft model looked"));
      this.heading.replaceChildren(h("h2", { class: "sv-title" }, this.signal.title || "Untitled answer"), by);
    }

    drawSummary() {
      const { doc, found } = this;
      const all = doc.output_tokens;
      const rest = all - found.copied_tokens;
      const wrong = found.links.filter((link) => !link.verbatim).length;
      const bar = h("div", { class: "sv-a-bar", role: "img" });
      const list = h("ul", { class: "sv-a-shares" });
      const row = (name, text, count, number) => {
        if (!count) return;
        bar.append(h("i", { class: name, style: `flex:${count}` }));
        const line = h(
          "li",
          {},
          h("span", { class: `sv-a-key ${name}` }, number),
          ` ${text} `,
          h("b", {}, percent(count, all)),
        );
        list.append(line);
      };
      found.sources.forEach((mine, k) => {
        const source = doc.sources[k];
        row(look(source, k), SOURCES.includes(source.kind) ? "" : source.name, mine.copied_tokens, tag(source));
      });
      row("sv-a-none", "copied from nowhere", rest, "–");
      bar.setAttribute("aria-label", [...list.children].map((line) => line.textContent).join(", "));
      const used = found.sources.filter((mine, k) => mine.links && SOURCES.includes(doc.sources[k].kind)).length;
      const given = doc.sources.filter((source) => SOURCES.includes(source.kind)).length;
      const runs = plural(found.links.length, "run");
      const facts = [
        `${found.copied_tokens} of ${plural(all, "token")}`,
        runs,
        given ? `${used} of ${plural(given, "passage")} used` : "no passages",
      ];
      const check = !found.links.length
        ? null
        : wrong
          ? `≠ ${wrong} of ${runs} not verbatim`
          : "✓ every run verbatim";
      const verdict = check && h("span", { class: wrong ? "sv-a-wrong" : "sv-a-right", tabindex: "0" }, check);
      if (verdict) this.tip.add(verdict, () => ["Verbatim: the source's tokens, or their text, are the run's."]);
      this.summary.replaceChildren(
        h("div", { class: "sv-a-big" }, h("b", {}, percent(found.copied_tokens, all)), h("span", {}, "copied")),
        h("div", { class: "sv-a-how" }, h("p", {}, facts.join(" · "), verdict ? " · " : "", verdict), bar, list),
        this.gold ? this.goldBox() : "",
      );
    }

    /** Precision, recall and F1 where the quotes are known. */
    goldBox() {
      const numbers = score(this.found.links, this.gold.tokens);
      const cells = [
        ["precision", "found and quoted ÷ found"],
        ["recall", "found and quoted ÷ quoted"],
        ["f1", "their harmonic mean"],
      ];
      const box = h("dl", { class: "sv-a-gold-box", "aria-label": "Against the known quotes" });
      for (const [name, formula] of cells) {
        const cell = h(
          "div",
          { tabindex: "0" },
          h("dt", {}, name === "f1" ? "F1" : name),
          h("dd", {}, score3(numbers[name])),
        );
        box.append(
          this.tip.add(cell, () => [`Tokens ${formula}. Quoted: the known quotes, drawn with a line above.`]),
        );
      }
      return box;
    }

    drawControls() {
      const { doc } = this;
      const longest = Math.max(0, ...doc.links.map(size));
      const most = clamp(longest + 1, 8, 24);
      this.slider.max = Math.max(most, this.minRun);
      this.slider.value = this.minRun;
      this.slider.setAttribute("aria-valuetext", plural(this.minRun, "token"));
      this.sliderText.textContent = String(this.minRun);
      const counts = new Array(Number(this.slider.max)).fill(0);
      for (const link of doc.links) counts[Math.min(size(link), counts.length) - 1] += 1;
      const top = Math.max(1, ...counts);
      this.lengths.setAttribute("viewBox", `0 0 ${counts.length - 1} 20`); // from the middle of the first bar
      this.lengths.replaceChildren(
        ...counts.flatMap((count, k) => {
          const height = count ? 3 + (17 * count) / top : 0;
          const kept = k + 1 >= this.minRun ? "sv-a-kept" : "";
          return count ? [s("rect", { x: k - 0.4, width: 0.8, y: 20 - height, height, class: kept })] : [];
        }),
      );
      for (const one of this.countedBox.children) {
        const on = one.dataset.counted === this.counted;
        one.setAttribute("aria-checked", String(on));
      }
      this.restButton.setAttribute("aria-pressed", String(this.rest));
      this.root.classList.toggle("sv-a-rest", this.rest);
    }

    // ---- signals side by side --------------------------------------------------------------------------------------

    drawLanes() {
      const length = this.doc.output_tokens;
      const ours = passages(this.found.links, length);
      const several = this.signals.length > 1 || this.gold;
      this.lanes.hidden = !several;
      if (!several) return;
      const rows = this.signals.map((signal, k) => this.lane(signal, k, ours));
      if (this.gold) rows.unshift(this.goldLane(length));
      const head = h(
        "div",
        { class: "sv-a-lane sv-a-lane-head", "aria-hidden": "true" },
        h("span", {}, "signal"),
        h("span", {}, `the answer, ${plural(length, "token")}`),
        h("span", {}, "copied"),
        h("span", {}, this.gold ? "F1" : "agrees"),
      );
      this.lanes.replaceChildren(head, ...rows);
    }

    strip(length, spans) {
      const svg = s("svg", {
        class: "sv-a-strip",
        viewBox: `0 0 ${Math.max(1, length)} 10`,
        preserveAspectRatio: "none",
        "aria-hidden": "true",
      });
      for (const [a, b, name, run] of spans)
        svg.append(s("rect", { x: a, y: 0, width: b - a, height: 10, class: name, "data-run": run }));
      return svg;
    }

    lane(signal, k, ours) {
      const doc = signal.views[this.counted];
      const chosen = k === this.active;
      const { links, copied_tokens: copied } = chosen ? this.found : at(doc, this.minRun);
      const length = doc.output_tokens;
      const spans = links.map((link) => [
        ...link.output_tokens,
        look(doc.sources[link.source_index], link.source_index),
        chosen ? link.number : null,
      ]);
      const theirs = passages(links, length);
      const same = theirs.filter((passage, i) => passage === ours[i]).length;
      const last = this.gold ? score3(score(links, this.gold.tokens).f1) : chosen ? "" : percent(same, length);
      const name = doc.run.method_title.split(":")[0];
      const none = doc.run.signal ? "" : "no source recorded";
      const text = `${name}: ${none || `${percent(copied, length)} copied in ${plural(links.length, "run")}`}${chosen ? ", shown" : `, ${percent(same, length)} of the tokens as the one shown`}`;
      const row = h(
        "button",
        {
          type: "button",
          class: "sv-a-lane",
          "aria-pressed": String(chosen),
          "aria-label": text,
          onclick: () => this.set({ active: k }),
        },
        h("span", { class: "sv-a-lane-name" }, name),
        none ? h("span", { class: "sv-faint" }, none) : this.strip(length, spans),
        h("span", {}, percent(copied, length)),
        h("span", {}, last),
      );
      return this.tip.add(row, () => [text]);
    }

    goldLane(length) {
      const spans = [];
      this.gold.tokens.forEach((passage, i) => {
        const last = spans[spans.length - 1];
        if (passage < -1) return;
        if (last && last[1] === i && last[3] === passage) last[1] = i + 1;
        else
          spans.push([i, i + 1, passage < 0 ? "sv-a-c sv-a-other" : look({ kind: "context" }, passage), passage]);
      });
      for (const span of spans) span[3] = null;
      const quoted = this.gold.tokens.filter((passage) => passage >= -1).length;
      return h(
        "div",
        {
          class: "sv-a-lane sv-a-lane-gold",
          role: "img",
          "aria-label": `Known quotes: ${percent(quoted, length)} of the answer`,
        },
        h("span", { class: "sv-a-lane-name" }, "known quotes"),
        this.strip(length, spans),
        h("span", {}, percent(quoted, length)),
        h("span", {}),
      );
    }

    // ---- the two sides ---------------------------------------------------------------------------------------------

    drawAnswer() {
      const { doc, found, gold } = this;
      const place = places(doc.output);
      const slice = (a, b) => shown(doc.output.slice(place(a), place(b)));
      const quotes = gold ? gold.quotes : [];
      const inside = (a, b) =>
        quotes.length
          ? pieces(quotes, a, b).map(([x, y, of]) =>
              of.length ? h("span", { class: "sv-a-gold" }, slice(x, y)) : slice(x, y),
            )
          : slice(a, b);
      const length = [...doc.output].length;
      const body = h("div", { class: "sv-a-text" });
      this.root.classList.toggle("sv-a-code", /```|\n {2,}\S|\n\t/.test(doc.output));
      for (const [a, b, link] of parts(found.links, length)) {
        if (!link) body.append(h("span", { class: "sv-a-own" }, inside(a, b)));
        else body.append(this.mark(link, inside(a, b)));
      }
      if (!length)
        body.append(h("p", { class: "sv-empty" }, "This run wrote nothing, so there is nothing to attribute."));
      else if (!doc.run.signal)
        body.prepend(
          h(
            "p",
            { class: "sv-a-nothing" },
            `${doc.run.method_title} records no source of its drafts: choose another signal to attribute this answer.`,
          ),
        );
      const top = this.answer.body.scrollTop;
      this.answer.body.replaceChildren(body);
      this.answer.body.scrollTop = top;
      this.answer.note.textContent = `${plural(doc.output_tokens, "token")}, ${doc.output_tokens - found.copied_tokens} copied from nowhere`;
    }

    /** A run in the answer: its number, its passage, its text. */
    mark(link, inside) {
      const source = this.doc.sources[link.source_index];
      const name = `${look(source, link.source_index)} sv-a-run`;
      const first = link.number === 1 ? 0 : -1;
      const label = `Run ${link.number}, ${plural(size(link), "token")}, from ${source.name}${link.verbatim ? "" : ", not verbatim"}: ${link.text}`;
      const element = h(
        "span",
        {
          class: name,
          role: "button",
          tabindex: first,
          "data-run": link.number,
          "data-side": "answer",
          "aria-label": label,
        },
        h(
          "sup",
          { class: "sv-a-num", "aria-hidden": "true" },
          `${link.number}${link.verbatim ? "" : "≠"}`,
          h("i", {}, tag(source)),
        ),
        inside,
      );
      return element;
    }

    facts(link) {
      const source = this.doc.sources[link.source_index];
      const text = (of) => (of.length > 160 ? `${of.slice(0, 157)}…` : of);
      return [
        SV.facts([
          [`Run ${link.number}`, plural(size(link), "token")],
          ["from", `${source.name}, characters ${link.source[0]}–${link.source[1]}`],
          ["verbatim", link.verbatim ? "yes" : "no: the source says"],
        ]),
        h("div", { class: "sv-a-quote" }, shown(text(link.source_text.trim()))),
      ];
    }

    drawSources() {
      const { doc, found } = this;
      const tops = new Map(
        [...this.sources.body.querySelectorAll(".sv-a-passage")].map((card) => [
          card.dataset.source,
          card.lastChild.scrollTop,
        ]),
      );
      const top = this.sources.body.scrollTop;
      const listed = doc.sources
        .map((source, k) => [source, k])
        .filter(([source, k]) => SOURCES.includes(source.kind) || found.sources[k].links);
      this.sources.body.replaceChildren(...listed.map(([source, k]) => this.passage(source, k)));
      for (const card of this.sources.body.querySelectorAll(".sv-a-passage"))
        card.lastChild.scrollTop = tops.get(card.dataset.source) || 0;
      this.sources.body.scrollTop = top;
      const used = found.sources.filter((mine) => mine.links).length;
      this.sources.note.textContent = listed.length ? `${used} of ${listed.length} used` : "";
      if (!listed.length)
        this.sources.body.append(
          h("p", { class: "sv-empty" }, "This prompt has no passages, and nothing was copied from the rest of it."),
        );
    }

    /** A source: its share, where it was used, its text with the runs marked. */
    passage(source, index) {
      const mine = this.found.sources[index];
      const links = this.found.links.filter((link) => link.source_index === index);
      const key = `${source.kind} ${source.passage}`;
      const open = this.opened.get(key) ?? mine.links > 0;
      const place = places(source.text);
      const count = [...source.text].length;
      const body = h("div", { class: "sv-a-text sv-a-passage-text", tabindex: open && count > 600 ? 0 : null });
      for (const [a, b, of] of pieces(
        links.map((link) => link.source),
        0,
        count,
      )) {
        const text = shown(source.text.slice(place(a), place(b)));
        if (!of.length) body.append(text);
        else
          body.append(
            this.origin(
              source,
              index,
              of.map((k) => links[k]),
              a,
              text,
            ),
          );
      }
      const used = percent(mine.used_tokens, source.tokens);
      const note = mine.links
        ? `${mine.copied_tokens} tokens in ${plural(mine.links, "run")}, longest ${mine.longest}`
        : "not used";
      const map = s("svg", {
        class: "sv-a-map",
        viewBox: `0 0 ${Math.max(1, count)} 6`,
        preserveAspectRatio: "none",
        "aria-hidden": "true",
      });
      for (const link of links)
        map.append(
          s("rect", {
            x: link.source[0],
            width: Math.max(count / 100, link.source[1] - link.source[0]),
            height: 6,
          }),
        );
      const flip = () => {
        this.opened.set(key, !open);
        this.drawSources();
        this.drawLinks();
        this.sources.body.querySelector(`[data-source="${key}"] button`).focus();
      };
      const head = h(
        "button",
        { type: "button", class: "sv-a-passage-head", "aria-expanded": String(open), onclick: flip },
        h("span", { class: "sv-a-key" }, tag(source)),
        h("b", { class: "sv-a-passage-name" }, source.name),
        h("span", { class: "sv-a-note" }, note),
        h("b", { class: "sv-a-used" }, used),
        map,
      );
      this.tip.add(head, () => [
        `${mine.used_tokens} of its ${plural(source.tokens, "token")} were copied (${used}). ${open ? "Click to fold it." : "Click to read it."}`,
      ]);
      return h(
        "article",
        {
          class: `sv-a-passage ${look(source, index)}${open ? "" : " sv-a-folded"}`,
          "data-source": key,
          "aria-label": `${source.name}: ${used} used, ${note}`,
        },
        head,
        body,
      );
    }

    /** A part of a source that runs were copied from. */
    origin(source, index, runs, start, text) {
      const numbers = runs.filter((link) => link.source[0] === start).map((link) => link.number);
      const label = `Source of ${runs.length > 1 ? "runs" : "run"} ${runs.map((link) => link.number).join(", ")}: ${text}`;
      const element = h(
        "span",
        {
          class: `sv-a-run ${runs.length > 1 ? "sv-a-twice" : ""}`,
          role: "button",
          tabindex: -1,
          "data-run": runs.map((link) => link.number).join(" "),
          "data-side": "source",
          "aria-label": label,
        },
        numbers.length ? h("sup", { class: "sv-a-num", "aria-hidden": "true" }, numbers.join(",")) : null,
        text,
      );
      return element;
    }

    // ---- one run ---------------------------------------------------------------------------------------------------

    elements(number, side) {
      const wanted = String(number);
      return [...this.root.querySelectorAll(`[data-side="${side}"]`)].filter((one) =>
        one.dataset.run.split(" ").includes(wanted),
      );
    }

    hover(number) {
      if (number === this.hovered) return;
      this.hovered = number;
      this.light();
    }

    light() {
      for (const one of this.root.querySelectorAll(".sv-a-lit")) one.classList.remove("sv-a-lit");
      const number = this.hovered || this.pinned;
      if (number)
        for (const side of ["answer", "source"])
          for (const one of this.elements(number, side)) one.classList.add("sv-a-lit");
      for (const one of this.lanes.querySelectorAll(`rect[data-run="${number}"]`)) one.classList.add("sv-a-lit");
      this.drawLinks();
    }

    pin(number) {
      this.pinned = number;
      this.light();
    }

    /** A click: pins the run and brings its other end into sight; a second click lets go. */
    pick(number, element) {
      if (this.pinned === number && this.lastSide === element.dataset.side) return this.pin(0);
      this.lastSide = element.dataset.side;
      this.reveal(
        number,
        element.dataset.side === "source" ? ["answer"] : element.dataset.side ? ["source"] : ["answer", "source"],
      );
    }

    reveal(number, sides) {
      const link = this.found.links[number - 1];
      const source = this.doc.sources[link.source_index];
      const key = `${source.kind} ${source.passage}`;
      if (this.opened.get(key) === false) {
        this.opened.set(key, true);
        this.drawSources();
      }
      this.pin(number);
      for (const side of sides) {
        const [element] = this.elements(number, side);
        for (const box of [element?.closest(".sv-a-passage-text"), element?.closest(".sv-body")])
          if (box) into(element, box);
      }
      this.drawLinks();
    }

    /** Left and right walk the runs, Enter goes to the other end, Escape lets go. */
    key(event) {
      const element = event.target.closest?.("[data-side]");
      if (event.key === "Escape" && this.pinned) return this.pin(0);
      if (!element || event.ctrlKey || event.metaKey || event.altKey) return;
      const number = Number(element.dataset.run.split(" ")[0]);
      const { side } = element.dataset;
      const last = this.found.links.length;
      const next = { ArrowRight: number + 1, ArrowLeft: number - 1, Home: 1, End: last }[event.key];
      const turned = side === "answer" ? "source" : "answer";
      if (event.key === "Enter" || event.key === " ") this.focusRun(number, turned);
      else if (next >= 1 && next <= last) this.focusRun(next, side);
      else if (next === undefined) return;
      event.preventDefault();
    }

    focusRun(number, side) {
      this.hovered = 0;
      this.reveal(number, ["answer", "source"]);
      const [element] = this.elements(number, side);
      for (const one of this.elements(number, "answer").slice(0, 1)) {
        for (const other of this.answer.body.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
        one.tabIndex = 0;
      }
      element?.focus({ preventScroll: true });
    }

    // ---- lines -----------------------------------------------------------------------------------------------------

    get stacked() {
      const [a, b] = [this.answer.element, this.sources.element].map((one) => one.getBoundingClientRect());
      return b.left < a.right - 4;
    }

    /** The line of the run that is hovered or pinned; none where the two sides stand one above the other. */
    drawLinks() {
      const number = this.hovered || this.pinned;
      if (!number || this.stacked) return this.layer.firstChild && this.layer.replaceChildren();
      const [from] = this.elements(number, "answer");
      const tos = this.elements(number, "source");
      if (!from || !tos.length) return this.layer.replaceChildren();
      const frame = this.root.getBoundingClientRect();
      const a = end(from, [this.answer.body], "right", frame);
      const b = end(tos[0], [tos[0].closest(".sv-a-passage-text"), this.sources.body], "left", frame);
      const middle = (a.edge + b.edge) / 2;
      const d = `M${a.edge} ${a.y} C${middle} ${a.y} ${middle} ${b.y} ${b.edge} ${b.y}`;
      const ends = `M${a.x} ${a.y} H${a.edge} M${b.edge} ${b.y} H${b.x}`; // thin: they pass over text
      this.layer.setAttribute(
        "class",
        `sv-a-links ${tos[0].closest(".sv-a-passage").className.replace(/sv-a-(passage|folded)\b/g, "")}`,
      );
      const dots = [a, b].map(({ x, y, hidden }) =>
        hidden
          ? s("path", {
              d: `M${x - 5} ${y - 4 * hidden} L${x} ${y + 3 * hidden} L${x + 5} ${y - 4 * hidden}`,
              class: "sv-a-line",
            })
          : s("circle", { cx: x, cy: y, r: 2.5 }),
      );
      this.layer.replaceChildren(
        s("path", { d: ends, class: "sv-a-line sv-a-thin" }),
        s("path", { d, class: "sv-a-line-back" }),
        s("path", { d, class: "sv-a-line" }),
        ...dots,
      );
    }
  }

  /** Where a run begins or ends on the page, kept inside the boxes that scroll. */
  function end(element, boxes, side, frame) {
    const rects = [...element.getClientRects()];
    const box = rects.find((one) => one.width > 1) || element.getBoundingClientRect();
    let top = -Infinity,
      bottom = Infinity;
    for (const one of boxes) {
      const view = one.getBoundingClientRect();
      top = Math.max(top, view.top + 6);
      bottom = Math.min(bottom, view.bottom - 6);
    }
    const outer = boxes[boxes.length - 1].getBoundingClientRect();
    const y = clamp(box.bottom - 1, top, Math.max(top, bottom));
    const hidden = box.bottom - 1 > bottom ? 1 : box.bottom - 1 < top ? -1 : 0;
    const x = hidden
      ? side === "right"
        ? outer.right - 14
        : outer.left + 16
      : side === "right"
        ? box.right
        : box.left;
    const edge = side === "right" ? outer.right : outer.left;
    return { x: x - frame.left, y: y - frame.top, edge: edge - frame.left, hidden };
  }

  /** Scrolls a box, and nothing around it, so that an element is in its middle third. */
  function into(element, box) {
    const [one] = element.getClientRects();
    const view = box.getBoundingClientRect();
    if (!one || box.scrollHeight <= box.clientHeight) return;
    if (one.top >= view.top + 24 && one.bottom <= view.bottom - 24) return;
    box.scrollTop += one.top - view.top - view.height / 3;
  }

  function keys() {
    const key = (name) => h("kbd", {}, name);
    return [
      key("Tab"),
      " to the runs, ",
      key("←"),
      " ",
      key("→"),
      " walk them, ",
      key("Enter"),
      " to the other end and back, ",
      key("Esc"),
      " lets go. Click a run to hold its line.",
    ];
  }

  SV.Attribution = Attribution;
})((window.SpecViz = window.SpecViz || {}));
