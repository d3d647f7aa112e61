/* The opening: plain decoding against a run for five seconds, its best step, a miss and why, then your turn. */

import { on } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { getJson, traceUrl } from "specviz/base/json.js";
import { BASELINE } from "specviz/base/methods.js";
import { plural } from "specviz/base/numbers.js";
import { stored } from "specviz/base/storage.js";
import { offerModel } from "specviz/shell/made_with.js";
import { RaceCard } from "specviz/opening/card.js";
import { bestStep, cold, firstMiss, lanes } from "specviz/opening/race.js";
import { why } from "specviz/opening/why.js";
import { empty } from "specviz/prompt/draft.js";
import { early, FIRST } from "specviz/shell/early.js";
import { editing } from "specviz/shell/request.js";
import { host } from "specviz/shell/stage.js";
import { app, params } from "specviz/shell/state.js";

const SEEN = "opening";
const LESSON = "1-drafting";

/** @typedef {ReturnType<typeof lanes>} Race */

/** What is shown now, so that another one takes its place. @type {Opening | null} */
let shown = null;

/** Starts by itself where somebody comes for the first time and asked for nothing, once the runs are listed. */
export function begin() {
  if (early.id !== FIRST || !cold(params.toString(), location.hash, stored.get(SEEN))) return;
  let waits = true;
  const busy = () => { // who begins by himself needs no opening
    if (waits) simplify(false);
    waits = false;
  };
  for (const name of ["keydown", "pointerdown"]) document.addEventListener(name, busy, { once: true, capture: true });
  const start = () => {
    const record = app.runs.find((run) => run.id === app.shown);
    const fit = record?.kind === "gallery" && record.method_name !== BASELINE && app.tab === "inspect";
    if (waits && fit && !app.inspector?.presenter?.on) {
      waits = false;
      simplify(true);
      play();
    } else busy();
  };
  const soon = () => waits && (window.requestIdleCallback ?? setTimeout)(start, { timeout: 1500 });
  if (app.runs.length) soon(); // they were listed before this module was there
  on("runs", soon);
}

/** What a newcomer sees: the steps, the text and why; a button brings all else. @param {boolean} on */
function simplify(on) {
  const { inspector } = app;
  const before = document.body.classList.contains("sv-simple"); // or since the page began
  document.body.classList.toggle("sv-simple", on);
  if (!on) document.body.classList.remove("sv-awaits");
  document.querySelector(".svo-everything")?.remove();
  if (on) {
    const all = h("button.ui-button.svo-everything", { onclick: () => simplify(false) }, "Show everything");
    inspector?.root.querySelector(".sv-step-row")?.append(all);
  }
  if (before === on) return;
  if (inspector && !on) inspector.unseen = true; // the texts were hidden while steps were walked
  requestAnimationFrame(() => inspector?.resized());
}

/** The race of the run that is shown, from its start. */
export async function play() {
  const { inspector } = app;
  const run = inspector?.model?.run;
  if (!inspector || !run?.complete || !inspector.model.stepCount) {
    return inspector?.say("A race is shown of a run that is over.");
  }
  if (run.method.name === BASELINE) return inspector.say("This is plain decoding itself: open another method's run.");
  shown?.close();
  const id = app.shown;
  const { trace } = inspector.model;
  const plain = await recorded(id);
  if (app.shown !== id) return;
  stored.set(SEEN, "1");
  shown = new Opening(lanes(trace, plain));
  document.body.classList.remove("sv-awaits");
}

/** Plain decoding of the same prompt by the same model, where it was recorded. @param {string} id */
async function recorded(id) {
  const own = app.runs.find((run) => run.id === id);
  const same = app.runs.find(
    (run) => own?.prompt && run.prompt === own.prompt && run.method_name === BASELINE && run.kind !== "live",
  );
  if (!same || same.id === id) return null;
  /** @type {Trace | null} */
  const trace = await getJson(traceUrl(same.id)).catch(() => null);
  return trace?.tokens ? trace : null;
}

class Opening extends RaceCard {
  /** @param {Race} race */
  constructor(race) {
    super(race, host);
    this.inspector = /** @type {Inspector} */ (app.inspector);
    this.trace = app.shown;
    this.question = h("b.svo-question");
    this.miss = -1; // the step that is shown as one
    this.inspector.on("step", () => (this.miss >= 0 ? this.tellMiss() : this.question.isConnected && this.tell()));
    const { signal } = this.leave;
    for (const name of ["specviz:tab", "specviz:current"])
      document.addEventListener(name, () => this.left() && this.close(), { signal });
    this.start();
  }

  left() {
    return app.tab !== "inspect" || app.current !== this.trace;
  }

  /** The race is over: who needed what, and (``goes``: at it) the best step. @param {boolean} goes */
  ask(goes) {
    super.ask(goes);
    this.miss = -1;
    if (goes && this.best >= 0) this.inspector.setStep(this.best);
    this.words.replaceChildren(this.result, this.question);
    this.tell();
    const miss = firstMiss(this.inspector.model.steps);
    const next = miss >= 0 && h("button.svp-button.svp-call", { onclick: () => this.answer(miss) }, "Next: a miss");
    const simple = document.body.classList.contains("sv-simple"); // few things to press: ▶ Race comes with all else
    this.buttons.replaceChildren(...(next ? [next] : []), this.turn,
      ...(simple ? [] : [h("button.svp-button", { onclick: play }, "↻ Race again")]));
  }

  get best() {
    return bestStep(this.inspector.model.steps);
  }

  /** What the best step came to, and a way there from another. */
  tell() {
    const { best, inspector } = this;
    const kept = plural(inspector.model.steps.accepted[best] ?? 0, "drafted token");
    const said = best < 0 ? "No draft of it was accepted." : `Step ${best + 1}, its best: ${kept} accepted.`;
    const there = best < 0 || inspector.number === best;
    this.question.replaceChildren(said, ...(there ? [] : [" ", this.way(best)]));
  }

  /** A link to a step. @param {number} step */
  way(step) {
    return h("button.ui-link", { onclick: () => this.inspector.setStep(step) }, "Show it");
  }

  /** To a prompt of one's own. */
  get turn() {
    const go = () => {
      this.close();
      empty();
      editing.value = true;
    };
    return h("button.svp-button", { onclick: go }, "Your turn");
  }

  /** A step of which nothing was accepted: what came of it, and why. @param {number} step */
  answer(step) {
    this.miss = step;
    this.inspector.setStep(step);
    this.tellMiss();
    const whatIf = h("button.svp-button", { onclick: () => this.whatIf() }, "What if …");
    whatIf.title = "Draft this step again with another method";
    const { turn } = this;
    turn.classList.add("svp-call");
    this.buttons.replaceChildren(turn, whatIf, this.lesson());
    turn.focus({ preventScroll: true });
  }

  /** The miss and its reason; from another step the way back to it. */
  tellMiss() {
    const { inspector, miss } = this;
    const view = inspector.model.step(miss);
    const missed = `Step ${miss + 1} drafted ${plural(view.drafted, "token")}, and none was accepted. `;
    this.words.replaceChildren(h("b", missed), inspector.number === miss ? why(inspector, view) : this.way(miss));
  }

  /** Opens What if; where this run cannot be drafted again, says why, and offers the model that made it. */
  whatIf() {
    simplify(false);
    if (app.whatif && !app.whatif.reason) return app.whatif.toggle(true);
    const made = h("p", { hidden: true });
    this.words.replaceChildren(app.whatif?.reason || "What if is still being opened: try again.", made);
    offerModel(made, this.trace);
  }

  lesson() {
    const go = async () => {
      const { learn } = await import("specviz/lesson/page.js");
      this.close();
      learn(LESSON);
    };
    return h("button.svp-button", { onclick: go }, "Lesson 1: what drafting is");
  }

  close() {
    super.close();
    simplify(false);
    if (shown === this) shown = null;
  }
}
