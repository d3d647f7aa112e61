/* Ranking regret over a run: the steps where the ranking chose badly, by how much, the worst first. */

import { h, heads, level, replace, tabled } from "specviz/base/dom.js";
import { format, plural } from "specviz/base/numbers.js";
import { explain } from "specviz/base/terms.js";
import { Panel } from "specviz/inspect/panel.js";

const FIRST = 12; // rows shown before the rest is asked for
const KEY = "ranking_regret";
const HEADS = ["Step", "Copied after", "The chosen place accepts", "The best would have", "Tokens lost"];

export class RegretView extends Panel {
  /** @param {Inspector} owner */
  constructor(owner) {
    super(owner, "regrets", "Ranking regret");
    /** The steps that lost tokens, the worst first. @type {Regret[]} */
    this.worst = [];
    this.whole = false;
    /** @type {HTMLElement | null} */
    this.marked = null;
    this.element.hidden = true;
    this.table = h("table.sv-regret-table", { "aria-label": "Steps by ranking regret, the worst first" });
    const all = () => {
      this.whole = true;
      this.draw();
    };
    this.more = h("button.sv-button.sv-quiet", { onclick: all });
    this.none = h("p.sv-empty", "At no step would another place have accepted more.");
    this.body.append(this.table, this.more, this.none);
    owner.tip.add(this.note, () => explain(owner, KEY));
    /** Step → its button. @type {Map<number, HTMLElement>} */
    this.buttons = new Map();
  }

  /** A trace was loaded, or has grown. */
  describe() {
    const { model } = this.owner;
    const { value, regret, ranked } = model.metric(KEY);
    this.element.hidden = !model.run.complete || !ranked;
    if (this.element.hidden) return;
    this.worst = model.report?.regrets ?? [];
    this.whole = false;
    const mean = `${format(value, 2)} tokens per ranked step`;
    const where = `${plural(regret ?? 0, "token")} at ${this.worst.length} of ${plural(ranked ?? 0, "step")}`;
    this.note.textContent = this.worst.length ? `${mean} · ${where}` : "0";
    this.none.hidden = !!this.worst.length;
    this.table.hidden = !this.worst.length;
    this.draw();
  }

  draw() {
    const { model } = this.owner;
    const shown = this.whole ? this.worst : this.worst.slice(0, FIRST);
    const most = this.worst.length ? this.worst[0].tokens : 1;
    this.buttons.clear();
    const rows = shown.map((one) => {
      const go = () => {
        this.owner.pause();
        this.owner.setStep(one.step);
      };
      const button = h("button.sv-link", { onclick: go }, `Step ${one.step + 1}`);
      this.buttons.set(one.step, button);
      const root = model.trace.tokens.id[model.steps.context[one.step] - 1];
      const bar = level(one.tokens / most);
      /** @type {(event: Event) => unknown} */
      const follow = (event) => event.target !== button && go();
      return h(
        "tr",
        { onclick: follow },
        h("td", button),
        h("td", h("code.sv-token", model.pieces.label(root, 14))),
        h("td", String(one.chosen)),
        h("td", String(one.best)),
        h("td", h("span.sv-lost", bar), h("b", String(one.tokens))),
      );
    });
    replace(this.table, tabled(heads(HEADS), rows));
    const left = this.worst.length - shown.length;
    this.more.hidden = left < 1;
    this.more.textContent = `Show ${plural(left, "more step")}`;
    this.marked = null;
    this.mark(this.owner.number);
  }

  /** The step shown now. @param {number} step */
  mark(step) {
    const now = this.element.hidden ? null : this.buttons.get(step) || null;
    if (now === this.marked) return;
    this.marked?.removeAttribute("aria-current");
    now?.setAttribute("aria-current", "step");
    this.marked = now;
  }
}
