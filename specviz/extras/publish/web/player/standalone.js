/* The player: a run's output token by token, its steps one by one, the draft of each. Small enough for any page. */

import { button, closest, h, icon, must, replace } from "specviz/base/dom.js";
import { file } from "specviz/site/files.js";
import { NOT_RECORDED, Model } from "specviz/base/model.js";
import { clamp, plural, probability } from "specviz/base/numbers.js";
import { markOverrides } from "specviz/base/overrides.js";
import { followSystem } from "specviz/base/system.js";
import { safe } from "specviz/base/text.js";
import { lines } from "specviz/player/tree.js";
import { unfold } from "specviz/player/unfold.js";

const BEAT = 900; // ms a step is shown while it plays
const MOST_LINES = 24;
/** @type {Record<string, [sign: string, words: string]>} */
const STATUS = {
  accepted: ["✓", "accepted"],
  rejected: ["✗", "rejected"],
  unreached: ["·", "not reached"],
  own: ["+", "the target's own"],
};

class Player {
  at = 0;
  timer = 0;
  /** By output token its cell. @type {HTMLElement[]} */
  cells = [];

  /** @param {HTMLElement} host @param {Trace} trace @param {string} inspector where the whole run is */
  constructor(host, trace, inspector) {
    this.model = new Model(trace);
    const { run, stepCount: count } = this.model;
    const written = this.model.tokenCount - this.model.promptLength;
    const facts = [run.method.title || run.method.name, run.model?.name, plural(written, "token")];
    const perStep = (this.accepted() + count) / count;
    if (count) facts.push(`${plural(count, "step")}, ${perStep.toFixed(2)} tokens per step`);
    /** @type {(label: string, sign: "previous" | "next", by: number) => HTMLButtonElement} */
    const go = (label, sign, by) => button(label, { onclick: () => (this.pause(), this.go(this.at + by)) }, icon(sign));
    this.play = button("Play", { onclick: () => this.toggle() }, icon("play"));
    this.slider = h("input.svq-slider", { type: "range", min: 0, max: Math.max(0, count - 1), "aria-label": "Step" });
    this.slider.addEventListener("input", () => (this.pause(), this.go(Number(this.slider.value))));
    this.place = h("span.svq-place");
    this.text = h("code.svq-text", { role: "group", "aria-label": "Output", tabindex: "0" });
    this.sentence = h("p.svq-sentence", { role: "status" });
    this.tree = h("div.svq-tree", { role: "group", "aria-label": "Draft of this step", tabindex: "0" });
    const more = h("a", { href: inspector, target: "_blank", rel: "noopener" }, "Open in the inspector ↗");
    const [back, forward] = [go("Step back", "previous", -1), go("Step forward", "next", 1)];
    const controls = [back, this.play, forward, this.slider, this.place];
    this.root = h(
      "div.sv.svq",
      h("header", h("h1", { dir: "auto" }, safe(run.title || "A run")), h("p", facts.filter(Boolean).join(" · "))),
      this.text,
      h("div.svq-controls.ui-row", controls),
      this.sentence,
      this.tree,
      h("footer", legend(), more),
    );
    this.write();
    host.replaceChildren(this.root);
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.text.addEventListener("click", (event) => {
      const step = Number(closest(event, "[data-step]")?.dataset.step ?? -1);
      if (step >= 0) (this.pause(), this.go(step));
    });
    this.go(clamp(run.opens ?? 0, 0, Math.max(0, count - 1)));
  }

  accepted() {
    return this.model.steps.accepted.reduce((sum, one) => sum + one, 0);
  }

  /** The output's cells, each with the step that wrote it. */
  write() {
    const { model } = this;
    const { id, step, kind } = model.trace.tokens;
    this.cells = [];
    for (const { start, stop, text } of model.pieces.cells(id, model.promptLength)) {
      const shown = id[start] === NOT_RECORDED ? "▢" : model.pieces.special(id[start]) ? "" : safe(text);
      const cell = h("span", { class: `svq-${kind[start]}`, "data-step": step[start] }, shown);
      for (let position = start; position < stop; position++) this.cells.push(cell);
      this.text.append(cell);
    }
    if (!this.cells.length) this.text.append("This run wrote nothing.");
  }

  /** Shows a step. @param {number} to */
  go(to) {
    const { model } = this;
    this.at = clamp(to, 0, Math.max(0, model.stepCount - 1));
    for (const cell of this.cells) {
      const step = Number(cell.dataset.step);
      cell.classList.toggle("svq-now", step === this.at);
      cell.classList.toggle("svq-later", step > this.at);
    }
    const first = this.cells.find((cell) => Number(cell.dataset.step) === this.at);
    if (first) this.text.scrollTop = first.offsetTop - this.text.offsetTop - this.text.clientHeight / 3;
    this.slider.value = String(this.at);
    this.place.textContent = model.stepCount ? `Step ${this.at + 1} of ${model.stepCount}` : "No steps";
    this.slider.setAttribute("aria-valuetext", this.place.textContent);
    this.sentence.textContent = model.stepCount ? this.words() : "";
    this.drawTree();
  }

  /** What became of the step's draft. */
  words() {
    const { steps, run } = this.model;
    const [drafted, accepted, bonus] = [steps.drafted, steps.accepted, steps.bonus].map((column) => column[this.at]);
    const lacks = (/** @type {string} */ column) => run.unknown?.includes(column);
    const own = bonus < 0 ? "the run ends here" : `the target ${accepted ? "added" : "wrote"} ${this.label(bonus)}`;
    if (lacks("steps") || lacks("steps.accepted"))
      return `${plural(steps.emitted[this.at], "token")} came; what was drafted of them is not recorded.`;
    if (lacks("steps.drafted")) return `${plural(accepted, "drafted token")} accepted; ${own}.`;
    return drafted ? `${drafted} drafted, ${accepted} accepted; ${own}.` : `No draft; ${own}.`;
  }

  /** @param {number} id */
  label(id) {
    return id === NOT_RECORDED ? "a token that is not recorded" : `“${this.model.pieces.label(id, 24)}”`;
  }

  drawTree() {
    const nodes = this.model.stepCount ? this.model.nodes(this.at) : [];
    const rows = lines(nodes);
    const bonus = this.model.steps.bonus[this.at];
    const last = nodes.filter(({ status }) => status === "accepted").pop();
    /** @type {(id: number, status: string, title?: string) => HTMLElement} */
    const chip = (id, status, title) => {
      const [sign, words] = STATUS[status] ?? ["", status];
      const text = id === NOT_RECORDED ? "▢" : this.model.pieces.label(id, 18);
      const said = h("span.svq-unseen", ` ${words}`);
      const about = { class: `svq-is-${status}`, title: title ?? null };
      return h("span.svq-chip", about, h("i", sign), h("code", text), said);
    };
    const own = bonus >= 0 ? chip(bonus, "own") : null;
    const shown = rows.slice(0, MOST_LINES).map(({ depth, nodes: line }) =>
      h(
        "div.svq-line.ui-row",
        { style: `--depth: ${Math.min(depth, 8)}` },
        line.map((node) => {
          const p = node.prob === null ? "" : `p = ${probability(node.prob)} by the target`;
          const one = chip(node.token, node.status, p);
          return node === last && own ? [one, own] : one;
        }),
      ),
    );
    const left = rows.length - shown.length;
    replace(this.tree, [
      !last && own && h("div.svq-line.ui-row", own),
      shown,
      left > 0 && h("p", `and ${plural(left, "more branch", "more branches")}: see the inspector.`),
    ]);
  }

  toggle() {
    if (this.timer) return this.pause();
    if (this.at >= this.model.stepCount - 1) this.go(0);
    this.timer = setInterval(() => {
      this.go(this.at + 1);
      if (this.at >= this.model.stepCount - 1) this.pause();
    }, BEAT);
    this.drawPlay();
  }

  pause() {
    clearInterval(this.timer);
    this.timer = 0;
    this.drawPlay();
  }

  drawPlay() {
    this.play.setAttribute("aria-label", this.timer ? "Pause" : "Play");
    replace(this.play, [icon(this.timer ? "pause" : "play")]);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.target === this.slider && event.key !== " ") return;
    if (event.key === " " && closest(event, "button, a")) return;
    /** @type {Record<string, () => void>} */
    const acts = {
      ArrowLeft: () => (this.pause(), this.go(this.at - 1)),
      ArrowRight: () => (this.pause(), this.go(this.at + 1)),
      Home: () => (this.pause(), this.go(0)),
      End: () => (this.pause(), this.go(Infinity)),
      " ": () => this.toggle(),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }
}

const legend = () =>
  h("ul.svq-legend.ui-row", { "aria-label": "Legend" }, Object.entries(STATUS).map(([name, [sign, words]]) =>
    h("li", h("span.svq-chip", { class: `svq-is-${name}` }, h("i", sign)), " ", words)));

async function begin() {
  const host = must(document.getElementById("player"));
  const key = new URLSearchParams(location.search).get("run") ?? "";
  followSystem();
  markOverrides();
  try {
    if (!/^[0-9a-f]{16}$/.test(key)) throw new Error("There is no such run here: the address names none (?run=KEY).");
    const trace = unfold(await file(`players/${key}.js`));
    document.title = `${trace.run.title || "A run"} · specviz`;
    new Player(host, trace, `run.html?run=${key}`);
  } catch (problem) {
    host.replaceChildren(h("p.svq-problem", { role: "alert" }, problem instanceof Error ? problem.message : "?"));
  }
}

begin();
