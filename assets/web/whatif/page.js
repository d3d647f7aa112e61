/* What if: the step shown, drafted again by the server with another method, other parameters or another candidate. */

import { on } from "specviz/base/bus.js";
import { button, card, format, h, icon, plural } from "specviz/base/dom.js";
import { field } from "specviz/base/field.js";
import { getJson, postJson } from "specviz/base/json.js";
import { Model } from "specviz/base/model.js";
import { TreeView } from "specviz/inspect/tree.js";
import { open } from "specviz/shell/open.js";
import { refreshRuns } from "specviz/shell/runs.js";
import { app } from "specviz/shell/state.js";

const REST_MS = 250; // after the last change, before the server is asked
const NO_PICKER = { on: false, choose() {}, choice: () => null, isChosen: () => false, preview() {}, walk() {} };

/** Prompt tokens per node of a redraft's only step. */
function hung({ probes }) {
  const found = new Map();
  probes.parent.forEach((parent, row) => {
    if (probes.kind[row] !== "prompt") return;
    if (!found.has(parent)) found.set(parent, new Set());
    found.get(parent).add(probes.offset[row]);
  });
  return found;
}

/** What a tree needs of an inspector, for the trace of one step: its places are those of the run itself. */
function ownerOf(inspector, trace) {
  const owner = Object.create(inspector);
  const probes = hung(trace);
  owner.model = new Model(trace);
  owner.prompts = { on: probes.size > 0, count: (node) => (probes.get(node) || new Set()).size };
  Object.defineProperty(owner, "picker", { value: NO_PICKER });
  owner.paneOf = (position) => inspector.paneOf(position);
  owner.where = (...given) => inspector.where(...given);
  owner.reveal = (...given) => inspector.reveal(...given);
  owner.light = (...given) => inspector.light(...given);
  return owner;
}

/** The inspector itself, but that its trees in this panel choose nothing. */
function quiet(inspector) {
  const owner = Object.create(inspector);
  Object.defineProperty(owner, "picker", { value: NO_PICKER });
  return owner;
}

export class WhatIf {
  constructor(inspector) {
    this.inspector = inspector;
    this.reason = "Looking whether this run can be drafted again …";
    this.catalog = null;
    this.fields = [];
    this.kept = {}; // method → its parameters as they were set here
    this.shown = false;
    this.ticket = 0;
    this.build();
    inspector.addPanel(this.element);
    inspector.tree.bar.insertBefore(this.button, inspector.tree.choices);
    inspector.on("step", () => this.stepped());
    on("current", () => this.look());
    on("runs", () => this.look());
    on("model", () => this.look(true));
    this.look();
  }

  // ---- the panel ------------------------------------------------------------------------------------------------

  build() {
    this.button = button(
      "Draft this step again",
      { class: "sv-button sv-quiet svw-open", "aria-expanded": "false", onclick: () => this.toggle() },
      "What if …",
    );
    this.inspector.tip.add(this.button, () => [
      this.reason || "Draft this step again with another method, other parameters or another place.",
    ]);
    Object.assign(this, card("whatif", "What if"));
    this.element.classList.add("svw");
    this.element.hidden = true;
    this.note.setAttribute("role", "status");
    const shut = button(
      "Close",
      { class: "sv-button sv-square sv-quiet", onclick: () => this.toggle(false) },
      icon("close"),
    );
    this.again = h(
      "button",
      { type: "button", class: "sv-button sv-quiet svw-again", onclick: () => this.ask() },
      "Draft again",
    );
    this.goOn = h(
      "button",
      { type: "button", class: "sv-button sv-quiet", onclick: () => this.continue() },
      "Continue from here",
    );
    this.inspector.tip.add(this.goOn, () => [
      "A new run with this method: it starts with what was written before this step.",
    ]);
    this.bar.append(this.again, this.goOn, shut);
    this.select = h("select", {
      class: "svp-select",
      "aria-label": "Method to draft this step with",
      onchange: () => this.chosen(),
    });
    this.byHand = h("option", { value: "" });
    this.parameters = h(
      "details",
      { class: "svw-params" },
      h("summary", {}, "Parameters"),
      h("div", { class: "svw-fields" }),
    );
    this.words = h("p", { class: "svw-words" });
    this.notes = h("ul", { class: "svw-notes" });
    const lane = (name) => {
      const title = h("h4", {});
      const place = h("div", { class: "svw-tree" });
      return {
        name,
        title,
        place,
        element: h(
          "section",
          { class: `svw-lane svw-${name}`, "aria-label": name === "was" ? "Recorded" : "What if" },
          title,
          place,
        ),
      };
    };
    this.was = lane("was");
    this.would = lane("would");
    this.lanes = h("div", { class: "svw-lanes" }, this.was.element, this.would.element);
    this.body.append(
      h("div", { class: "svw-choose" }, h("label", {}, "Method ", this.select), this.parameters),
      this.words,
      this.notes,
      this.lanes,
    );
    this.recorded = new TreeView(quiet(this.inspector));
    this.redrawn = new TreeView(quiet(this.inspector));
    for (const [place, tree] of [
      [this.was, this.recorded],
      [this.would, this.redrawn],
    ]) {
      tree.element.classList.add("svw-card");
      tree.heading.remove();
      place.place.append(tree.element);
    }
  }

  toggle(open = !this.shown) {
    if (open && this.reason) return this.inspector.say(this.reason);
    this.shown = open;
    this.element.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
    if (!open) return this.button.focus({ preventScroll: true });
    if (!this.picked) this.fill();
    this.ask();
    this.element.scrollIntoView({ block: "nearest", behavior: "smooth" });
  }

  /** Whether the run shown can be drafted again; asked for once per run and state of the model. */
  async look(anew) {
    const { model } = this.inspector;
    const id = app.shown;
    const known = `${id} ${model && model.run.complete} ${app.model.state}`;
    if (!id || (!anew && known === this.known)) return;
    const other = id !== this.id;
    this.known = known;
    this.id = id;
    if (other) this.reset();
    let reason = "";
    try {
      ({ reason } = await getJson(`api/whatif/${encodeURIComponent(id)}`));
      if (!reason) this.catalog = await getJson("api/methods");
    } catch (problem) {
      reason = problem.message;
    }
    if (id !== this.id) return;
    this.reason = reason;
    this.button.setAttribute("aria-disabled", String(!!reason));
    this.inspector.candidates.offer(reason ? null : (candidate) => this.pick(candidate));
    if (reason) this.toggle(false);
    else if (this.shown) this.fill();
  }

  /** Another run is shown: nothing of the last one stays. */
  reset() {
    this.ticket++;
    this.picked = null;
    this.kept = {};
    this.method = "";
    this.result = null;
    this.shown = false;
    this.element.hidden = true;
    this.button.setAttribute("aria-expanded", "false");
  }

  // ---- what is asked --------------------------------------------------------------------------------------------

  /** The methods to choose from, the run's own first. */
  fill() {
    const own = this.inspector.model.run.method.name;
    const methods = [...this.catalog.methods].sort((a, b) => (b.name === own) - (a.name === own));
    const option = (m) =>
      h(
        "option",
        { value: m.name, disabled: Boolean(m.missing) },
        m.title +
          (m.name === own ? " (this run's own)" : "") +
          (m.lossless ? "" : " (lossy)") +
          (m.missing ? " — not available" : ""),
      );
    this.select.replaceChildren(...methods.map(option));
    const able = methods.filter((m) => !m.missing && m.name !== "plain");
    this.method = able.some((m) => m.name === this.method)
      ? this.method
      : (able.find((m) => m.name !== own) || methods[0]).name;
    this.select.value = this.method;
    this.controls();
    this.handed();
  }

  /** Whether a place was picked by hand: the choice of a method then rests. */
  handed() {
    const { picked } = this;
    this.byHand.textContent = picked ? `Place ${picked.rank + 1} of the ranking, picked by hand` : "";
    if (picked && !this.byHand.parentNode) this.select.prepend(this.byHand);
    if (!picked) this.byHand.remove();
    this.select.value = picked ? "" : this.method;
    this.goOn.hidden = !!picked;
    this.parameters.hidden = !!picked || !this.fields.length;
  }

  chosen() {
    this.picked = null;
    this.method = this.select.value;
    this.handed();
    this.controls();
    this.soon();
  }

  controls() {
    const { run } = this.inspector.model;
    const method = this.catalog.methods.find((m) => m.name === this.method);
    const recorded = method.name === run.method.name ? run.method.params : {};
    const values = { ...recorded, ...this.kept[method.name] };
    const changed = () => {
      this.kept[method.name] = Object.fromEntries(this.fields.map((f) => [f.name, f.read()]));
      this.soon();
    };
    this.fields = method.controls.map((c) => field(c, c.name in values ? values[c.name] : c.default, changed));
    for (const { row } of this.fields) {
      // the form of the panel has fields of the same names
      for (const one of row.querySelectorAll("[id]")) one.id = `svw-${one.id}`;
      for (const one of row.querySelectorAll("[for]")) one.htmlFor = `svw-${one.htmlFor}`;
      for (const one of row.querySelectorAll("[aria-describedby]"))
        one.setAttribute("aria-describedby", `svw-${one.getAttribute("aria-describedby")}`);
    }
    this.parameters.hidden = !this.fields.length;
    this.parameters.lastElementChild.replaceChildren(...this.fields.map((f) => f.row));
  }

  /** A place of the ranking that was not chosen. */
  pick(candidate) {
    if (!this.shown) {
      this.picked = candidate;
      this.fill();
    }
    this.picked = candidate;
    this.handed();
    this.shown = true;
    this.element.hidden = false;
    this.button.setAttribute("aria-expanded", "true");
    this.ask();
    this.element.scrollIntoView({ block: "nearest", behavior: "smooth" });
  }

  stepped() {
    this.picked = null;
    if (!this.shown) return;
    this.handed();
    this.soon();
  }

  soon() {
    this.stale(true);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => (this.inspector.player.timer ? this.soon() : this.ask()), REST_MS);
  }

  stale(stale) {
    this.lanes.classList.toggle("svw-stale", stale);
  }

  params() {
    return Object.fromEntries(this.fields.map((f) => [f.name, f.read()]));
  }

  async ask() {
    clearTimeout(this.timer);
    if (!this.shown) return;
    if (this.asking) return void (this.dirty = true);
    const ticket = ++this.ticket;
    const { inspector, picked } = this;
    const step = inspector.number;
    const asked = { step };
    if (picked) asked.candidate = picked.row - inspector.model.rows("candidates", step)[0];
    else Object.assign(asked, { method: this.method, params: this.params() });
    this.stale(true);
    this.asking = true;
    this.element.setAttribute("aria-busy", "true");
    const slow = setTimeout(() => (this.note.textContent = "drafting again … (a run that goes on comes first)"), 400);
    let result = null;
    let problem = null;
    try {
      result = await postJson(`api/whatif/${encodeURIComponent(this.id)}/draft`, asked);
    } catch (error) {
      problem = error;
    }
    clearTimeout(slow);
    this.asking = false;
    this.element.removeAttribute("aria-busy");
    if (this.dirty) {
      this.dirty = false;
      return this.ask();
    }
    if (ticket !== this.ticket || !this.shown) return;
    if (problem) this.failed(problem.message);
    else this.draw(result, picked);
  }

  async continue() {
    this.goOn.disabled = true;
    const run = this.id;
    try {
      const asked = {
        step: this.inspector.number,
        method: this.method,
        params: this.params(),
        session: await app.session(),
      };
      const { id } = await postJson(`api/whatif/${encodeURIComponent(run)}/continue`, asked);
      app.mine.add(id);
      await open(id);
      refreshRuns();
      scrollTo({ top: 0, behavior: "smooth" });
    } catch (problem) {
      this.failed(problem.message);
    } finally {
      this.goOn.disabled = false;
    }
  }

  // ---- what came of it ------------------------------------------------------------------------------------------

  failed(text) {
    this.note.textContent = "";
    this.words.replaceChildren(h("span", { class: "svp-error" }, text));
    this.words.hidden = false;
    this.notes.replaceChildren();
    this.lanes.hidden = true;
  }

  draw(result, picked) {
    const { inspector } = this;
    const view = inspector.model.step(result.step);
    const owner = ownerOf(inspector, result.trace);
    this.result = result;
    this.lanes.hidden = false;
    this.stale(false);
    this.note.textContent = `step ${result.step + 1}`;
    const tokens = (n) => plural(n, "token");
    const what = picked ? `the copy from ${inspector.where(picked.position)}` : result.trace.run.method.title;
    const more = result.accepted - result.recorded;
    const verdict = result.same
      ? "The same tree, and the same tokens accepted."
      : more > 0
        ? `${tokens(more)} more.`
        : more < 0
          ? `${tokens(-more)} fewer.`
          : "As many, from another draft.";
    this.words.hidden = false;
    this.words.replaceChildren(
      "Recorded ",
      h("b", {}, String(result.recorded)),
      " accepted → what if ",
      h("b", {}, tokens(result.accepted)),
      `. ${verdict} `,
      h("span", { class: "svw-time" }, this.time(result)),
    );
    this.notes.replaceChildren(...result.notes.map((text) => h("li", {}, text)));
    this.was.title.textContent = `Recorded: ${inspector.model.run.method.title}`;
    this.would.title.textContent = `What if: ${what}`;
    this.draws(this.recorded, quiet(inspector), view);
    this.draws(this.redrawn, owner, owner.model.step(0));
  }

  draws(tree, owner, view) {
    tree.owner = owner;
    tree.colors = owner.colors;
    tree.resized();
    tree.draw(view);
    tree.settle();
  }

  time({ ms, read_ms: read, trace }) {
    const count = trace.run.prompt_length.toLocaleString("en");
    const again = `Drafted again in ${format(ms)} ms, without running the ${count} tokens before it.`;
    return read ? `${again} Before, the model read the run once: ${format(read)} ms.` : again;
  }
}
