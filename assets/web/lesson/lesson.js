/* A guided tour beside an inspector of its own; questions are asked before the trace tells. */

import { button, closest, copyLink, framed, h, icon, replace } from "specviz/base/dom.js";
import { clamp } from "specviz/base/numbers.js";
import { Presenter } from "specviz/base/present.js";
import { sentence } from "specviz/base/json.js";
import { Inspector } from "specviz/inspect/inspector.js";
import { wholeFeet } from "specviz/inspect/sight.js";
import { headline } from "specviz/inspect/summary.js";
import { before } from "specviz/lesson/asked.js";
import { WAITING, looks, panelsMet, withoutOracle } from "specviz/lesson/panels.js";
import { drawEnd, paragraphs, question } from "specviz/lesson/words.js";

const SIZES = [1.6, 1.42, 1.25, 1.12, 1, 0.94, 0.88, 0.82, 0.76, 0.7, 0.64];
const [LEAST_SIZE, MOST_SIZE] = [0.82, 1]; // beside the views

const [RIM, BELOW] = [8, 20]; // pixels: of a mark; where nothing of the whole run is told below the views

/** A stop with a question: its dot's class, and what is said of it. */
const DOTS = { ask: ["ask", "a question"], right: ["right", "predicted"], wrong: ["wrong", "missed"] };

export class Lesson {
  /** What is drawn: a run, and whether as it stood before a stop. */
  shown = "";
  /** Of the stop that is shown: a run that comes later is drawn no more. */
  ticket = 0;
  /** The button back to the stop's step. @type {HTMLElement | null} */
  away = null;
  /** Whether all panels are shown, those too that no stop was about yet. */
  everything = false;
  /** @param {KeyboardEvent} event */
  onKey = (event) => this.key(event);

  /** @param {HTMLElement} host @param {LessonText} lesson @param {LessonOptions} options */
  constructor(host, lesson, options) {
    this.host = host;
    this.lesson = lesson;
    this.options = options;
    /** The chosen option by stop. @type {Record<string, number>} */
    this.answers = { ...options.answers };
    /** The stop, from 0; behind the last one: the end. */
    this.at = clamp(Number(options.at) || 0, 0, lesson.stops.length);
    this.root = h("div.sv.sv-lesson", { tabindex: "-1" });
    this.presenter = new Presenter(this.root, {
      changed: () =>
        requestAnimationFrame(() => {
          this.zoom();
          this.spot(true); // the views have another place, and another height
        }),
    });
    /** @type {(label: string, act: () => void, ...inside: Child[]) => HTMLElement} */
    const tool = (label, act, ...inside) => button(label, { onclick: act }, ...inside);
    this.dots = h("div.sv-dots.ui-row", { role: "group", "aria-label": "Stops of this lesson" });
    const back = options.leave ? tool("All lessons", options.leave, icon("previous"), "Lessons") : null;
    const { link } = options;
    const label = h("span", "Copy link");
    const copy = () => copyLink(new URL(link?.(this.at) ?? "", location.href).href, label);
    const share = link ? tool("Copy link to this stop", copy, icon("link"), label) : null;
    this.all = tool("Show everything", () => this.showEverything(), "Show everything");
    const present = tool("Present F", () => this.presenter.toggle(), "Present ", h("kbd", "F"));
    const head = h(
      "header.sv-lesson-head.ui-row",
      back,
      h("h2.sv-lesson-title", lesson.title),
      this.dots,
      h("span.sv-lesson-tools.ui-line", this.all, share, present),
    );
    this.words = h("div.sv-lesson-words.ui-stack", { "aria-live": "polite" });
    this.nav = h("nav.sv-lesson-nav", { "aria-label": "Lesson" });
    this.text = h("article.sv-card.sv-lesson-text", this.words, this.nav);
    this.stage = h("div");
    this.problem = h("p.sv-message", { role: "alert", hidden: true });
    this.root.append(head, h("div.sv-lesson-body", this.text, h("div.sv-lesson-view", this.problem, this.stage)));
    this.host.replaceChildren(this.root);
    this.inspector = new Inspector(this.stage, { actions: false, present: false, drawer: false });
    this.feet = wholeFeet(this.root);
    const again = framed(() => (this.mark(), this.feet()));
    this.inspector.on("step", (/** @type {{ step: number }} */ { step }) => (this.strayed(step), again()));
    this.inspector.on("resized", again); // there may be other rows of candidates
    this.inspector.candidates.body.addEventListener("scroll", again, { passive: true });
    document.addEventListener("keydown", this.onKey, true);
    if (options.present) this.presenter.set(true);
    this.ready = this.show();
  }

  destroy() {
    this.ticket++;
    document.removeEventListener("keydown", this.onKey, true);
    if (this.presenter.on) this.presenter.set(false);
    this.presenter.destroy();
    this.inspector.destroy();
    this.host.replaceChildren();
  }

  // ---- the page -------------------------------------------------------------------------------------------------

  get stop() {
    return this.lesson.stops[this.at] || null;
  }

  /** The stop's question, while it waits for an answer. */
  get waiting() {
    return this.at in this.answers ? null : (this.stop?.ask ?? null);
  }

  // ---- moving ---------------------------------------------------------------------------------------------------

  /** @param {number} at */
  go(at) {
    const to = clamp(at, 0, this.lesson.stops.length);
    if (to === this.at) return this.ready;
    this.at = to;
    this.ready = this.show();
    this.tell();
    return this.ready;
  }

  next() {
    if (this.waiting) return this.nudge();
    if (!this.stop) return this.options.next?.go();
    return this.go(this.at + 1);
  }

  nudge() {
    /** @type {HTMLElement | null} */
    const box = this.words.querySelector(".sv-ask");
    if (!box) return;
    box.classList.remove("sv-nudge");
    void box.offsetWidth;
    box.classList.add("sv-nudge");
    box.querySelector(".sv-ask-hint")?.removeAttribute("hidden");
  }

  /** @param {number} option */
  choose(option) {
    if (!this.waiting?.options[option]) return;
    this.answers[this.at] = option;
    this.ready = this.show(true);
    this.tell();
  }

  /** Forgets the answers and begins again. */
  restart() {
    this.answers = {};
    this.at = 0;
    this.ready = this.show();
    this.tell();
  }

  tell() {
    this.options.moved?.({ at: this.at, answers: this.answers });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!this.root.isConnected || !this.root.getClientRects().length) return;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const { target } = event;
    const nowhere = target === document.body || target === document.documentElement;
    if (!nowhere && !(target instanceof Element && this.root.contains(target))) return;
    if (closest(event, "input, textarea, select, [contenteditable]")) return;
    const onButton = closest(event, "button, a, summary, [role=button]");
    const digit = /^[1-9]$/.test(event.key) ? Number(event.key) - 1 : -1;
    /** @type {(() => void) | null} */
    let act = null;
    if (event.key === "ArrowRight" || (event.key === "Enter" && !onButton)) act = () => this.next();
    else if (event.key === "ArrowLeft") act = () => this.go(this.at - 1);
    else if (event.key === "f" || event.key === "F") act = () => this.presenter.toggle();
    else if (event.key === "Escape" && this.presenter.on) act = () => this.presenter.set(false);
    else if (digit >= 0 && this.waiting) act = () => this.choose(digit);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  // ---- one stop -------------------------------------------------------------------------------------------------

  async show(revealed = false) {
    const ticket = ++this.ticket;
    this.drawDots();
    if (this.stop) this.drawStop(this.stop, revealed);
    else drawEnd(this);
    this.drawNav();
    this.text.scrollTop = 0;
    /** @type {HTMLElement | null} */
    const reveal = revealed ? this.words.querySelector(".sv-reveal") : null;
    this.fit();
    if (reveal) this.text.scrollTop = Math.max(0, reveal.offsetTop + reveal.offsetHeight + 90 - this.text.clientHeight);
    const count = this.lesson.stops.length;
    const place = this.stop ? `${this.lesson.title} · ${this.at + 1} of ${count}` : this.lesson.title;
    this.presenter.restart(place);
    this.root.classList.toggle("sv-lesson-over", !this.stop);
    if (!this.stop) this.root.dataset.ready = `${this.lesson.id || ""} end`;
    if (!this.stop) return;
    const { stop } = this;
    try {
      const trace = await this.options.load(stop.run);
      if (ticket !== this.ticket) return;
      this.draw(trace, stop);
      this.problem.hidden = true;
    } catch (problem) {
      if (ticket !== this.ticket) return;
      this.problem.textContent = sentence(problem);
      this.problem.hidden = false;
    }
    this.root.dataset.ready = `${this.lesson.id || ""} ${this.at}${this.waiting ? " asked" : ""}`;
  }

  /** Shows the panels that no stop was about yet, or hides them again. */
  showEverything() {
    this.everything = !this.everything;
    this.ready = this.show();
  }

  /** Hides the panels that are still to come. @param {Set<string>} met */
  unfold(met) {
    const later = WAITING.filter((name) => !met.has(name));
    for (const name of WAITING) this.inspector.root.classList.toggle(`sv-later-${name}`, later.includes(name));
    this.inspector.root.classList.toggle("sv-later-switches", later.length > 0);
    this.all.setAttribute("aria-pressed", String(this.everything));
    this.all.hidden = !later.length && !this.everything;
  }

  /** @type {(run: Trace, stop: LessonStop) => void} */
  draw(run, stop) {
    const { inspector, waiting } = this;
    const open = Boolean(waiting);
    const met = this.everything ? new Set(WAITING) : panelsMet(this.lesson.stops, this.at);
    if (open) met.delete("prompts"); // they come of the verdict
    const trace = withoutOracle(run, met);
    const key = (open ? `${stop.run} before ${this.at}` : stop.run) + (trace === run ? "" : " without its oracle");
    this.unfold(met);
    inspector.root.classList.toggle("sv-open", open);
    inspector.root.classList.toggle("sv-open-ranking", waiting?.kind === "candidate");
    inspector.tree.alone = !met.has("drafter") && !met.has("prompts");
    const view = { step: stop.step, pins: [] };
    if (waiting) inspector.load(before(trace, stop.step, waiting.kind, waiting.scores), view);
    else if (key !== this.shown) inspector.load(trace, view);
    else inspector.setStep(stop.step);
    const { nodes, depth, drafted } = inspector.model.step(stop.step);
    inspector.root.style.setProperty("--sv-rows", String(depth > 1 ? Math.max(depth + 2, drafted / 2) : depth));
    const { classList } = inspector.root;
    for (const [name, on] of Object.entries(looks(nodes.slice(1)))) classList.toggle(`sv-${name}`, on);
    if (!inspector.drafter.on) classList.add("sv-later-drafter"); // it was met in another run
    if (!inspector.prompts.on) classList.add("sv-later-prompts");
    this.shown = key;
    this.zoom();
    this.strayed(stop.step);
    this.spot(true);
  }

  zoom() {
    this.inspector.zoomed(this.presenter.on);
  }

  drawDots() {
    const dots = this.lesson.stops.map(({ title, ask }, k) => {
      const answered = k in this.answers;
      const right = answered && this.answers[k] === ask?.answer;
      const [state, told] = !ask ? [] : !answered ? DOTS.ask : right ? DOTS.right : DOTS.wrong;
      return button(`Stop ${k + 1}: ${title}${told ? `, ${told}` : ""}`, {
        class: `sv-dot ${state ? `sv-dot-${state}` : ""}`,
        title,
        "aria-current": k === this.at && "step",
        onclick: () => this.go(k),
      });
    });
    this.dots.replaceChildren(...dots);
  }

  /** @type {(stop: LessonStop, revealed: boolean) => void} */
  drawStop({ title, text, ask, run, step }, revealed) {
    const quiet = "sv-button sv-quiet";
    const back = { class: `${quiet} sv-away`, hidden: true, onclick: () => this.inspector.setStep(step) };
    this.away = button("Back to this stop's step", back, `back to step ${step + 1}`);
    const { open } = this.options;
    const go = { class: quiet, onclick: () => open?.(run, step) };
    const place = h("span", `${this.at + 1} of ${this.lesson.stops.length}`);
    replace(this.words, [
      h("p.sv-lesson-place.ui-row.ui-soft", place, this.away, open && button("Open in Inspect", go, "Open in Inspect")),
      h("h3.sv-lesson-stop", title),
      paragraphs(text),
      ask && question(this, ask, revealed),
    ]);
  }

  drawNav() {
    const { next } = this.options;
    const key = (/** @type {string} */ name) => h("kbd", name);
    const backs = { disabled: this.at === 0, onclick: () => this.go(this.at - 1) };
    /** @type {HTMLElement[]} */
    const inside = [button("Back", backs, key("←"), " Back")];
    const grow = h("span.sv-grow");
    const primary = "sv-button ui-call";
    if (!this.stop) {
      inside.push(button("Begin again", { onclick: () => this.restart() }, "Begin again"), grow);
      const on = { class: primary, onclick: () => next?.go() };
      if (next) inside.push(button(`Next lesson: ${next.title}`, on, `Next: ${next.title} `, key("→")));
    } else {
      const words = this.at === this.lesson.stops.length - 1 ? "Finish" : "Next";
      const on = this.waiting ? { "aria-disabled": "true" } : { class: primary };
      inside.push(grow, button(words, { ...on, onclick: () => this.next() }, `${words} `, key("→")));
    }
    this.nav.replaceChildren(...inside);
  }

  // ---- the inspector's places -----------------------------------------------------------------------------------

  /** Another step than the stop's is shown: a way back. @param {number} step */
  strayed(step) {
    if (this.away && this.stop) this.away.hidden = step === this.stop.step;
  }

  /** The card of one of the inspector's panels. @type {(name: string) => Element | undefined} */
  panel(name) {
    /** @type {Record<string, any>} */
    const views = this.inspector;
    if (["prompt", "output"].includes(name)) return views.text.code.querySelector(`.sv-${name}`) ?? undefined;
    const view = views[name] ?? views.tree[name]; // the lattice is the tree's
    return view?.element || view;
  }

  /** What may be shown while the answer is open: panels, and the last token. */
  get places() {
    const shown = this.stop?.show ?? [];
    if (!this.waiting) return shown;
    return shown.filter((one) => one.kind === "panel" && one.name !== "diff" && one.name !== "metrics");
  }

  /** Brings the stop's places into view, and marks them. */
  spot(fresh = false) {
    const { inspector, stop } = this;
    if (!stop || !inspector.model || !inspector.model.stepCount) return;
    const view = inspector.model.step(stop.step);
    for (const small of this.words.querySelectorAll("small")) {
      const offer = view.candidates.find(({ position }) => position === Number(small.dataset.position));
      if (offer) small.textContent = inspector.short(inspector.model.placeOf(offer)); // as the table of candidates
    }
    inspector.wantedMetrics = this.places.flatMap((one) => (one.kind === "metric" ? [one.key] : []));
    headline(inspector, inspector.metrics);
    this.mark();
    if (!fresh) return;
    this.fit();
    inspector.timeline.draw(), this.room(), inspector.resized(); // its parts have other sizes beside one another
    const root = view.context - 1;
    if (!this.waiting && inspector.number === stop.step) inspector.scroll(view);
    // in the prompt the source is looked at
    if (this.waiting && root >= inspector.model.promptLength) inspector.reveal(root);
    for (const one of this.places) {
      if (one.kind === "node") {
        const box = inspector.tree.boxOf(one.node);
        if (box && inspector.picker.on) inspector.picker.choose(inspector.picker.choice(box.item));
        if (box) inspector.tree.window.reach(box.group);
      }
      if (one.kind === "tokens" && one.at.length) inspector.reveal(one.at[0]);
      if (one.kind === "panel" && one.name === "diff") {
        const { body } = inspector.diff;
        const changed = body.querySelector(".sv-diff-changed");
        const pane = body.getBoundingClientRect();
        if (changed) body.scrollTop += changed.getBoundingClientRect().top - pane.top - pane.height / 2;
      }
      if (one.kind === "candidate") {
        const { body, row } = inspector.candidates;
        const top = one.row * row;
        if (top > body.scrollTop + body.clientHeight - 70) body.scrollTop = top - body.clientHeight / 2;
      }
    }
    this.mark();
    requestAnimationFrame(() => (this.bring(), this.feet()));
  }

  /** All words of a stop are in sight, with its question: smaller where there are many, then without other options. */
  fit() {
    const { style, classList } = this.words;
    const beside = SIZES.filter((factor) => factor >= LEAST_SIZE && factor <= MOST_SIZE);
    for (const few of [false, true]) {
      classList.toggle("sv-few-options", few);
      for (const size of this.presenter.on ? SIZES : beside) {
        style.setProperty("--sv-fit", String(size));
        if (this.text.scrollHeight <= this.text.clientHeight + 2) return;
      }
    }
  }

  /** The views end where the window does, whatever stands above them, and below. */
  room() {
    const [views, root] = [this.root.querySelector(".sv-views"), this.inspector.root];
    const scrolled = this.presenter.on ? this.root : document.documentElement;
    const { style } = this.root;
    style.setProperty("--sv-above-views", "0px"); // longer than the window, so that all below them counts
    const { top = 0, bottom = 0 } = views?.getBoundingClientRect() ?? {};
    const told = root.classList.contains("sv-tells-diff"); // it is seen with what stands above it
    const more = !told && (root.querySelector(".sv-whole")?.clientHeight ?? 0) > BELOW;
    const whole = more ? root.getBoundingClientRect().bottom : bottom;
    const above = top + scrolled.scrollTop;
    const below = scrolled.scrollHeight - scrolled.scrollTop - whole;
    style.setProperty("--sv-above-views", `${Math.ceil(above + below) + 1}px`);
  }

  /** Scrolls the page to what the stop is about, where it is beside the text; to its first panel if not all fits. */
  bring() {
    if (this.presenter.on || this.text.getBoundingClientRect().right > this.stage.getBoundingClientRect().left) return;
    const marked = this.root.querySelectorAll(".sv-lesson-view .sv-spot, .sv-lesson-view [data-spot]");
    const all = Array.from(marked, (one) => one.closest(".sv-card") || one);
    if (!all.length) return;
    const boxes = all.map((one) => one.getBoundingClientRect());
    const top = Math.min(...boxes.map((box) => box.top)), bottom = Math.max(...boxes.map((box) => box.bottom));
    if (top >= 0 && bottom <= window.innerHeight) return;
    const [place] = this.places;
    const listed = place?.kind === "panel" && this.panel(place.name);
    const first = all.find((one) => one === listed) ?? all[0];
    if (bottom - top <= window.innerHeight) window.scrollBy(0, top < 0 ? top - RIM : bottom + RIM - window.innerHeight);
    else first.scrollIntoView({ block: first.clientHeight > window.innerHeight ? "start" : "nearest" });
  }

  /** The marks themselves; called again whenever something was drawn anew. */
  mark() {
    const { inspector, stop } = this;
    const panel = this.places.map((one) => (one.kind === "panel" ? one.name : `${one.kind}s`));
    const tab = ["candidates", "lattice", "drafter", "prompts"].find((name) => panel.includes(name));
    if (tab) inspector.tabs.open(tab);
    for (const old of inspector.root.querySelectorAll(".sv-spot")) old.classList.remove("sv-spot");
    for (const old of inspector.root.querySelectorAll("[data-spot]")) old.removeAttribute("data-spot");
    const here = stop && inspector.number === stop.step;
    /** @type {number[]} */
    const positions = [];
    /** @type {Set<Element | null | undefined>} */
    const cards = new Set();
    for (const one of here ? this.places : []) {
      if (one.kind === "node") inspector.tree.unfold(one.node);
      if (one.kind === "panel") cards.add(this.panel(one.name));
      else if (one.kind === "tokens") positions.push(...one.at);
      else if (one.kind === "metric") cards.add(inspector.metrics.querySelector(`[data-key="${one.key}"]`));
      else if (one.kind === "node") inspector.tree.boxOf(one.node)?.group.setAttribute("data-spot", "");
      else inspector.candidates.rows.querySelector(`[data-k="${one.row}"]`)?.setAttribute("data-spot", "");
    }
    for (const card of cards) card?.classList.add("sv-spot");
    for (const pane of inspector.panes)
      pane.paint("spot", positions.map((position) => [position, "sv-spot-token"]));
    const home = { node: "tree", candidate: "candidates", tokens: "texts", metric: "metrics" };
    const told = new Set(this.places.map((one) => (one.kind === "panel" ? one.name : home[one.kind])));
    inspector.timeline.numbered = told.has("timeline");
    for (const name of ["tree", "candidates", "lattice", "drafter", "prompts", "diff", "metrics", "texts"]) {
      const texts = name === "texts" && (told.has("prompt") || told.has("output") || told.has("pool"));
      inspector.root.classList.toggle(`sv-tells-${name}`, told.has(name) || texts);
    }
  }
}
