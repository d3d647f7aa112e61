/* The views around one trace. load, append, setStep, state, on("step" | "pin"). */

import { Tooltip, framed, h, later, readColors } from "specviz/base/dom.js";
import { Listeners } from "specviz/base/listeners.js";
import { Model, POOL } from "specviz/base/model.js";
import { clamp, plural } from "specviz/base/numbers.js";
import { Presenter, zoom as presenterZoom } from "specviz/base/present.js";
import { capital } from "specviz/base/text.js";
import { CandidateTable } from "specviz/inspect/candidates.js";
import * as controls from "specviz/inspect/controls.js";
import { Details } from "specviz/inspect/details.js";
import { DiffView } from "specviz/inspect/diff.js";
import { DrafterView } from "specviz/inspect/drafter.js";
import { DraftInText } from "specviz/inspect/in_text.js";
import { keys, tokenFacts, unclaimed } from "specviz/inspect/keys.js";
import { Links } from "specviz/inspect/links.js";
import { heaviest } from "specviz/inspect/looks.js";
import * as marks from "specviz/inspect/marks.js";
import { TokenPane } from "specviz/inspect/pane.js";
import { PanelTabs } from "specviz/inspect/panel_tabs.js";
import { PoolPane } from "specviz/inspect/pool.js";
import { PromptsView } from "specviz/inspect/prompts.js";
import { arrange } from "specviz/inspect/screen.js";
import { ofNode, ofPosition } from "specviz/inspect/selection.js";
import { sentence } from "specviz/inspect/sentence.js";
import { aim, reveal } from "specviz/inspect/sight.js";
import * as words from "specviz/inspect/summary.js";
import { Timeline } from "specviz/inspect/timeline.js";
import { TreeView } from "specviz/inspect/tree.js";
import { signal } from "specviz/ui/html.js";

/** @extends {Listeners<InspectorEvents>} */
export class Inspector extends Listeners {
  /** @param {HTMLElement} host @param {InspectorOptions} [options] */
  constructor(host, options = {}) {
    super();
    this.host = host;
    this.options = options;
    this.number = 0;
    /** The step shown, for components. */
    this.at = signal(0);
    /** Grows with every trace that is loaded, and with every row that a run adds. */
    this.version = signal(0);
    /** What was selected by hand: of the text, of the tree, or both. */
    this.selection = signal(/** @type {SelectedToken | null} */ (null));
    /** The steps that the timeline brings out. */
    this.filter = signal(/** @type {StepFilter} */ ("all"));
    /** At which layer the target left a token, once the lens was asked. */
    this.layers = signal(/** @type {{ step: number, node: number, text: string } | null} */ (null));
    /** @type {Position[]} */
    this.pins = [];
    /** Nothing before ``load``. @type {Model} */
    this.model = later();
    /** @type {Colors} */
    this.colors = later();
    this.whitespace = false;
    this.heat = false;
    this.offers = false;
    this.follow = true;
    this.unseen = false; // the panes are still to be scrolled to the step
    /** Metrics that stand first. @type {string[]} */
    this.wantedMetrics = [];
    this.zoom = 1; // of what is drawn in fixed sizes
    this.sayTimer = 0;
    this.root = h("div.sv.sv-waiting", { tabindex: "-1", role: "group", "aria-label": "Inspector" });
    this.tip = new Tooltip(this.root);
    this.player = new controls.Player(this);
    this.heading = h("div.sv-headline");
    this.metrics = h("dl.sv-metrics.ui-row");
    this.sentence = h("p.sv-sentence", { "aria-live": "polite" });
    this.counter = h("span.sv-counter");
    this.legend = h("ul.sv-legend.ui-legend", { "aria-label": "Legend" });
    this.message = h("p.sv-message", { role: "status", hidden: true });
    this.pinNote = h("span.sv-pin-note.ui-line", { hidden: true });
    const { follow, heat, offers, whitespace } = controls.toggles(this);
    this.offerButton = offers;
    this.spaceButton = whitespace;
    this.playButton = controls.playButton(this);
    this.timeline = new Timeline(this);
    this.details = new Details(this);
    this.diff = new DiffView(this);
    this.text = new TokenPane(this, "text", "Prompt and output", this.pinNote);
    this.pool = new PoolPane(this);
    this.panes = [this.text, this.pool];
    this.draft = new DraftInText(this);
    this.switches = [heat, offers, follow, whitespace]; // of what the panes show
    this.tree = new TreeView(this);
    this.candidates = new CandidateTable(this);
    this.drafter = new DrafterView(this);
    this.prompts = new PromptsView(this);
    /** A page's own panel that tells of nodes while open. @type {(Picker & { owner: Inspector }) | null} */
    this.borrowed = null;
    this.links = new Links(this);
    this.tabs = new PanelTabs(this);
    this.help = arrange(this);
    const how = { hashed: !!options.actions && options.actions.link === true, changed: this.zoomed.bind(this) };
    this.presenter = options.present === false ? null : new Presenter(this.root, how);
    this.root.addEventListener("keydown", (event) => keys(this, event, true));
    /** @type {(event: KeyboardEvent) => void} */
    this.onKey = (event) => {
      if (this.root.getClientRects().length && unclaimed(this.root)) keys(this, event, false);
    };
    document.addEventListener("keydown", this.onKey);
    this.sizes = new ResizeObserver(framed(() => this.resized()));
    this.sizes.observe(this.host);
    this.themes = new MutationObserver(framed(() => this.themed()));
    for (const element of [document.documentElement, document.body])
      this.themes.observe(element, { attributes: true, attributeFilter: ["class", "data-theme"] });
    this.onScroll = framed(() => this.links.draw());
  }

  destroy() {
    this.pause();
    this.presenter?.destroy();
    this.sizes.disconnect();
    this.themes.disconnect();
    document.removeEventListener("keydown", this.onKey);
    this.host.replaceChildren();
  }

  /** Shows a trace; ``view`` is {step, pins} as state() gives it. Throws where the trace is not one. */
  /** @param {Trace} trace @param {{ step?: number | string, pins?: Position[] } | null} [view] */
  load(trace, view) {
    const { step = trace.run.opens ?? 0, pins = [] } = view || {};
    this.pause();
    this.tip.hide();
    this.unseen = !this.host.clientWidth;
    this.model = new Model(trace);
    this.colors = readColors(this.root);
    this.root.classList.remove("sv-waiting");
    this.number = clamp(Number(step) || 0, 0, Math.max(0, this.model.stepCount - 1));
    this.pins = [];
    this.selection.value = null;
    this.redrawTokens();
    this.describe();
    this.timeline.draw();
    this.measure();
    this.root.classList.toggle("sv-stepless", !this.model.stepCount);
    if (this.model.stepCount) this.show();
    else this.waiting();
    this.setPins(pins, false);
    if (this.options.autofocus) this.root.focus({ preventScroll: true });
    this.presenter?.begin(this.options);
    return this;
  }

  /** Adds the rows of a step to a run that goes on; follows it if the newest step was shown. @type {Model["append"]} */
  append(delta, run) {
    if (!this.model) return;
    const last = this.model.stepCount - 1;
    const following = this.number >= last && !this.player.timer;
    this.model.append(delta, run);
    this.draft.clear();
    this.text.extend(this.model.tokenCount);
    this.drawPool();
    this.describe();
    this.timeline.draw();
    if (!this.model.stepCount) return;
    this.root.classList.remove("sv-stepless");
    if (following || last < 0) {
      this.number = this.model.stepCount - 1;
      this.show();
    } else this.count(this.model.step(this.number));
  }

  /** The numbers that change while a run grows, though the step shown does not. @param {StepView} view */
  count(view) {
    this.timeline.move(view.number);
    this.text.showUntil(view.end);
    this.counter.replaceChildren(
      h("span.svp-unseen", "Step "),
      h("b", String(view.number + 1)),
      h("span.svp-unseen", " of "),
      h("span.sv-of", this.model.stepCount.toLocaleString("en")),
    );
  }

  /** A run without a step: nothing of an earlier trace stays on the page. @param {string} [news] of one that goes on */
  waiting(news = "Waiting for the first step …") {
    this.counter.textContent = "no step yet";
    this.sentence.textContent = this.model.run.complete ? "This run has no step." : news;
    this.draft.hide();
    for (const panel of [this.tree, this.candidates, this.drafter, this.prompts]) panel.clear();
    for (const pane of this.panes) pane.drawMap([]);
  }

  describe() {
    this.prompts.describe();
    this.heading.replaceChildren(...words.heading(this));
    words.headline(this, this.metrics);
    this.legend.replaceChildren(...words.legend(this));
    this.details.describe();
    this.drafter.describe();
    this.diff.draw();
    this.version.value = this.version.peek() + 1;
    this.tabs.suit();
  }

  redrawTokens() {
    const { model } = this;
    const tops = this.panes.map((pane) => pane.body.scrollTop);
    this.draft.clear();
    this.root.classList.toggle("sv-uncopied", model.run.complete && !words.copied(model).length);
    this.text.fill(0, model.tokenCount);
    this.drawPool(true);
    this.panes.forEach((pane, k) => {
      pane.resized();
      pane.body.scrollTop = tops[k];
    });
    this.links.pin(this.pins);
  }

  /** The pool's text, where it was recorded; a run that goes on may add to it. */
  drawPool(fresh = false) {
    const { model } = this;
    this.root.classList.toggle("sv-pooled", model.pooled > 0);
    if (!fresh && this.pool.shownCount === model.pooled) return;
    this.pool.refill();
    const { label, tokens = model.pooled, passages = 0 } = model.run.pool || {};
    const all = plural(tokens, "token");
    const part = tokens > model.pooled ? ` (${model.pooled.toLocaleString("en")} shown)` : "";
    this.pool.note.textContent = [label, all + part, passages > 1 && plural(passages, "passage")]
      .filter(Boolean)
      .join(" · ");
  }

  /** @param {number | string} number */
  setStep(number) {
    if (!this.model || !this.model.stepCount) return;
    const next = clamp(Math.round(Number(number)) || 0, 0, this.model.stepCount - 1);
    if (next === this.number) return;
    this.number = next;
    if (this.selection.peek() && this.selection.peek()?.step !== next) this.deselect();
    this.show();
    this.emit("step", { step: next });
  }

  /** @param {number} by */
  go(by) {
    this.pause();
    this.setStep(this.number + by);
  }

  /** Draws the current step everywhere. */
  show() {
    const view = this.model.step(this.number);
    this.links.hover(-1);
    this.drafter.draw(view);
    this.prompts.draw(view);
    marks.paint(this, view);
    this.count(view);
    this.sentence.replaceChildren(...sentence(this, view));
    this.details.facts.draw(view);
    this.tree.draw(view);
    this.candidates.draw(view);
    this.at.value = this.number;
    this.draft.draw(view); // it reads the layout: after all that writes
    this.scroll(view);
    this.tree.settle();
    marks.drawMaps(this, view);
    if (this.links.pinned.length) this.links.draw();
    this.presenter?.restart(`Step ${view.number + 1} of ${this.model.stepCount}`);
  }

  /** Scrolls to what a step drafted and wrote; so that its source is seen too, where both have room. */
  /** @param {StepView} view @param {boolean} [always] */
  scroll(view, always = false) {
    if (!this.follow && !always) return;
    const copy = this.draft.copied(view);
    const source = copy?.from[0] ?? (view.chosen ? view.chosen.position : heaviest(this.picker));
    const [from, to] = [Math.max(0, view.context - 1), Math.max(view.context, view.end - 1)];
    aim(this.text, from, to, source < POOL ? source : -1, () => this.draft.reserve(view));
    const pooled = view.spans[0]?.start ?? source;
    if (pooled >= POOL) reveal(this.pool, pooled);
    this.draft.arc();
  }

  pause() {
    this.player.pause();
  }

  /** The panel that tells about a chosen node of the tree. @returns {Picker & { owner: Inspector }} */
  get picker() {
    return this.borrowed ?? (this.prompts.on ? this.prompts : this.drafter);
  }

  /** @param {Position} position */
  paneOf(position) {
    return position >= POOL ? this.pool : this.text;
  }

  /** "line 4", "line 4 of the pool". @param {Position} position */
  where(position, atStart = false) {
    const text = this.paneOf(position).where(position);
    return atStart ? capital(text) : text;
  }

  /** The same in a narrow column: L4, pool 4. @param {Position} position */
  short(position) {
    if (position >= POOL) return `pool ${(position - POOL).toLocaleString("en")}`;
    return `L${this.text.line(position)}`;
  }

  /** @type {(position: Position, element?: Element) => void} */
  hoverToken(position, element) {
    if (!this.model) return;
    this.links.hover(position);
    const token = position >= 0 && element?.closest(".sv-t");
    if (token) this.tip.later(token, () => tokenFacts(this, position));
    else this.tip.hide();
  }

  /** @type {(position: Position, several: boolean) => void} */
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
    if (had) this.deselect();
    else this.select(ofPosition(this.model, position));
  }

  /** Selects a node of the step's tree, everywhere; -1: the target's own token. @param {number} node */
  selectNode(node) {
    this.select(ofNode(this.model.step(this.number), node));
  }

  /** One thing is selected everywhere: in the text, in the tree, in the panels. @param {SelectedToken} selection */
  select(selection) {
    this.selection.value = selection;
    const { node, position } = selection;
    for (const pane of this.panes) pane.paint("select", position < 0 ? [] : [[position, "sv-selected"]]);
    const { picker } = this;
    const item = node === null ? null : this.tree.itemOf(node);
    if (item && picker.on) picker.choose(picker.choice(item));
    this.tree.mark();
  }

  /** Lets go of what is selected. */
  deselect() {
    this.selection.value = null;
    for (const pane of this.panes) pane.paint("select", []);
    this.tree.mark();
  }

  /** Positions whose copies stay marked. @param {Position[]} pins */
  setPins(pins, tell = true) {
    const { model } = this;
    /** @type {(pin: number) => boolean} */
    const exists = (pin) =>
      Number.isInteger(pin) && pin >= 0 && (pin < model.tokenCount || model.id(pin) !== undefined);
    this.pins = [...new Set((pins || []).map(Number).filter(exists))];
    this.links.pin(this.pins);
    this.links.drawNote(this.pinNote);
    if (this.model.stepCount) marks.drawMaps(this, this.model.step(this.number));
    if (tell) this.emit("pin", { pins: [...this.pins] });
  }

  /** Marks positions while what offers them is hovered. @param {Position[]} positions */
  light(positions, name = "sv-light") {
    /** @type {Mark[]} */
    const items = positions.map((position) => [position, name]);
    for (const pane of this.panes) pane.paint("light", items);
  }

  /** @param {Position} position */
  reveal(position, always = false) {
    if (position >= 0) reveal(this.paneOf(position), position, always);
    marks.drawMaps(this, this.model.step(this.number));
    this.links.draw();
  }

  /** @param {TokenPane} pane */
  scrolled(pane) {
    pane.drawView();
    if (this.links.pinned.length || this.links.hovered.length) this.onScroll();
  }

  measure() {
    for (const pane of this.panes) pane.resized(), pane.drawView();
    this.candidates.resized();
    this.tree.resized();
    this.emit("resized", null);
  }

  resized() {
    if (!this.model) return;
    this.timeline.draw();
    if (!this.model.stepCount) return;
    this.measure();
    this.timeline.move(this.number);
    const view = this.model.step(this.number);
    this.draft.draw(view); // lines may break elsewhere now
    this.draft.arc();
    if (this.unseen && this.host.clientWidth) {
      this.scroll(view); // it was drawn before it had its place on the page
      this.unseen = false;
    }
    marks.drawMaps(this, view);
    this.links.draw();
  }

  /** Presenter mode begins or ends: what is drawn in fixed sizes grows. @param {boolean} on */
  zoomed(on) {
    const zoom = on ? presenterZoom() : 1;
    if (zoom === this.zoom) return;
    this.zoom = zoom;
    this.text.fresh = true; // its lines have another height
    this.resized();
    if (this.model && this.model.stepCount) this.show();
  }

  themed() {
    this.colors = readColors(this.root);
    this.resized();
    if (this.model?.stepCount) this.tree.window.drawMap();
  }

  /** @param {boolean} open */
  showHelp(open) {
    this.help.hidden = !open;
    if (open) this.help.focus({ preventScroll: true });
    else this.root.focus({ preventScroll: true });
  }

  /** Says it for a moment, longer where a button goes with it. @param {string} text @param {Element | null} [action] */
  say(text, action) {
    this.message.replaceChildren(text, ...(action ? [" ", action] : []));
    this.message.hidden = !text;
    clearTimeout(this.sayTimer);
    this.sayTimer = setTimeout(() => (this.message.hidden = true), action ? 15000 : 4000);
  }

  /** This page's address with the step and the pins in its hash. */
  address() {
    const pins = this.pins.length ? `&pins=${this.pins.join(",")}` : "";
    const present = this.presenter?.on ? "&present=1" : "";
    return `${location.href.split("#")[0]}#step=${this.number}${pins}${present}`;
  }

  /** @returns {InspectorState} */
  state() {
    return { trace: this.model ? this.model.run.id : null, step: this.number, pins: [...this.pins] };
  }
}
