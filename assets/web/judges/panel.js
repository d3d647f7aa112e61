/* The panel "Rules": the step shown under every rule, beside where the mass of p and q lies. Text nodes only. */

import { card, h, heads, replace } from "specviz/base/dom.js";
import { percentage, plural, probability } from "specviz/base/numbers.js";
import { guesses, label } from "specviz/inspect/drafting.js";
import { mass } from "specviz/inspect/mass.js";
import { visited } from "specviz/generated/terms.js";
import { agreement, otherwise, parting, pathOf, range, rowsOf } from "specviz/judges/rules.js";

const HEADS = ["rule", "accepted → next"];
const LENGTH = "Tokens of this step, over the rule's own draws: 1 + Σ of each drafted token's chance of acceptance.";
const OTHER =
  "Σ TV(p′, p) over the positions that are reached, p′ the rule's next token, TV = ½ Σ |p′ − p|. " +
  "Greedy: accepted tokens that are not the target's first choice.";
const CHANCE = "How likely the token of the chosen position was to be accepted, over the rule's own draws.";
const MEANT = "All rules see the same probabilities and random numbers. " +
  "Length: tokens that this step writes, on average. " +
  "Other: how many of these the target would have written otherwise. ";
/** @type {[lossless: boolean, title: string, about: string][]} */
const KINDS = [
  [true, "lossless", "the text has the target's own distribution"],
  [false, "lossy", "the text may differ from the target's own"],
];
const SHOWN = 3; // tokens of a path: those before them are counted

/** A reason, where it says more than whether the token is the target's. @param {string} why */
const saidBeside = (why) => (["match", "mismatch"].includes(why) ? "" : why);

/** The drafted token that the run refused behind those it accepted. @param {StepView} view */
const refused = ({ nodes, last }) => nodes.find(({ status, parent }) => status === "rejected" && parent === last);

/** How a rule leaves a draft: the nodes that stand, and the one that it refused behind them. */
/** @type {(view: StepView, rule: JudgedStepRule) => [stood: number[], fell: TreeNode | undefined]} */
function ends({ nodes }, { nodes: judged }) {
  const stood = judged.filter(([, stands]) => stands).map(([node]) => node);
  const fell = judged.find(([node, stands]) => !stands && nodes[node].parent === (stood.at(-1) ?? 0));
  return [stood, fell && nodes[fell[0]]];
}

export class JudgesPanel {
  /** @param {Inspector} owner */
  constructor(owner) {
    this.owner = owner;
    const { element, body, note } = card("judges", "Rules");
    this.element = element;
    this.body = body;
    this.note = note;
    note.setAttribute("role", "status");
    /** The rules' cards and the steps by number. @type {{ cards: JudgedCard[], steps: Map<number, JudgedStep> }} */
    this.run = { cards: [], steps: new Map() };
    this.words = "";
    /** Decodes the whole run's prompt under a rule, where there is a server. @type {((rule: string) => void) | null} */
    this.replay = null;
    /** The node whose position is looked at; 0: the one where the rules part. */
    this.node = 0;
    /** The path through it that stands in the strip. @type {TreeNode[]} */
    this.path = [];
    owner.on("step", () => this.draw());
    this.body.addEventListener("keydown", (event) => this.key(event));
  }

  /** Says why there is nothing, or what is waited for. @param {string} words */
  say(words) {
    this.words = words;
    this.run = { cards: [], steps: new Map() };
    this.draw();
  }

  /** @param {JudgedCard[]} cards @param {JudgedStep[]} steps */
  show(cards, steps) {
    this.words = "";
    this.run = { cards, steps: new Map(steps.map((step) => [step.step, step])) };
    this.draw();
  }

  /** The position that is looked at. @param {number} node */
  look(node) {
    this.node = node;
    this.fill();
    /** @type {HTMLElement | null} */ (this.body.querySelector("[aria-pressed=true]"))?.focus();
  }

  /** Left and right: the positions of the draft. @param {KeyboardEvent} event */
  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !(event.target instanceof Element && event.target.closest(".svj-places"))) return;
    event.preventDefault();
    event.stopPropagation(); // else the step changes
    const chain = this.chain();
    const at = chain.findIndex((node) => node.index === this.node);
    const next = chain[at + by];
    if (next) this.look(next.index);
  }

  /** What was accepted, and the path through the chosen node: they stay while their nodes are looked at. */
  chain() {
    if (!this.path.some(({ index }) => index === this.node)) {
      const { nodes, path } = this.owner.model.step(this.owner.number);
      const through = pathOf(nodes, this.node);
      this.path = [...path.filter((node) => node.index && !through.includes(node)), ...through];
    }
    return this.path;
  }

  draw() {
    this.node = 0;
    this.path = [];
    this.fill();
  }

  fill() {
    const { owner } = this;
    if (!owner.model?.stepCount) return;
    const view = owner.model.step(owner.number);
    const step = this.run.steps.get(view.number);
    this.note.textContent = `step ${view.number + 1}`;
    if (this.words || !step) {
      const why = this.words || (view.drafted
        ? "This step is not judged: the run holds too little of it, or too many steps stand before it."
        : "Nothing was drafted in this step: there is nothing to judge.");
      this.body.replaceChildren(h("p.sv-empty", { role: "status" }, why));
      return;
    }
    this.node ||= parting(step);
    const chain = this.chain();
    this.node ||= chain.find(({ status }) => status === "rejected")?.index || chain.at(-1)?.index || 0;
    replace(this.body, [
      h("h3.svp-unseen", "The draft under every rule"),
      this.sentence(view, step),
      this.places(chain),
      h("div.svj-parts", this.table(view, step), this.picture(view)),
      h("details.ui-fold.svj-limits", h("summary", "How far these numbers hold"),
        h("p.ui-soft", this.open(step), visited)),
      this.again(),
    ]);
    const chosen = this.body.querySelector(".svj-place[aria-pressed=true]");
    if (chosen instanceof HTMLElement && chosen.parentElement)
      chosen.parentElement.scrollTop = chosen.offsetTop - chosen.parentElement.clientHeight / 2;
  }

  /** How far the rules agree. @type {(view: StepView, step: JudgedStep) => Child} */
  sentence(view, step) {
    const count = otherwise(step);
    const of = Object.keys(step.rules).length;
    return h(
      "p.svj-words",
      `${plural(view.drafted, "token")} under ${plural(of, "rule")}: `,
      h("b", agreement(count)),
      count ? "." : [", ", this.recordedTokens(view)],
    );
  }

  /** What the record leaves open. @param {JudgedStep} step */
  open({ rest }) {
    const most = Math.max(...rest);
    return most > 0.01 && [
      `Only the top probabilities were recorded (up to ${percentage(most)} is missing), so some numbers `,
      "are ranges and some tokens open (–). ", h("code.svj-option", "specviz run --first-choices N"), " records more. ",
    ];
  }

  /** A button per position of the path: which of them is looked at, no verdict, as that is each rule's own. */
  /** @param {TreeNode[]} chain */
  places(chain) {
    const buttons = chain.map((node) => {
      const here = node.index === this.node;
      const onclick = () => this.look(node.index);
      const on = { "aria-pressed": String(here), tabindex: here ? 0 : -1, onclick };
      const token = h("code", label(this.owner, node.token, 14));
      return h("button.svj-place", on, h("span.svp-unseen", "Position "), h("small", String(node.depth)), " ", token);
    });
    const chosen = chain.some((node) => node.index === this.node);
    if (!chosen && buttons.length) buttons[0].tabIndex = 0;
    const about = { role: "group", "aria-label": "Position that is looked at" };
    return h("div.svj-places.ui-row", about, h("small.ui-soft", "chance of"), buttons);
  }

  /** @type {(view: StepView, step: JudgedStep) => HTMLElement} */
  table(view, step) {
    const rows = rowsOf(step, this.run.cards).sort((a, b) => b.rule.differs.length - a.rule.differs.length);
    const numbers = rows.flatMap(({ rule }) => [...rule.expected, ...(rule.other ?? [])]);
    const digits = numbers.every(Number.isInteger) ? 0 : 2; // of a greedy step all are counts
    const parted = otherwise(step) > 0; // else the tokens are the same in all rows, and stand above them
    const columns = parted ? 5 : 4;
    /** @param {Child[]} reason */
    const because = (reason) => reason.length > 0 && h("tr.svj-because", h("td", { colspan: columns }, reason));
    const { method } = this.owner.model.run;
    const own = h("tbody",
      h("tr.svj-own", h("th", { scope: "row" }, "as recorded"), parted && h("td", this.recordedTokens(view)),
        h("td.svp-num"), h("td.svp-num", String(view.accepted + 1)), h("td.svp-num")),
      h("tr.svj-own.svj-because", h("td", { colspan: columns }, method.title, this.recorded(view))));
    /** @param {JudgedRow} row */
    const lines = ({ cards, rule }) => {
      const chance = rule.nodes.find(([node]) => node === this.node)?.[2];
      const look = { class: rule.differs.length ? "svj-differs" : null };
      const first = h(
        "tr",
        { ...look, "data-verifier": cards.map(({ name }) => name).join(" ") },
        h(
          "th",
          { scope: "row", title: cards.map((one) => `${one.title}: ${one.summary} (${one.source})`).join("\n") },
          cards.map(({ title }, k) => [k > 0 && ", ", h("span", title)]),
        ),
        parted && h("td", rule.differs.length ? this.tokens(view, ...ends(view, rule), rule.bonus) : "as recorded"),
        h("td.svp-num", chance === undefined ? "–" : probability(chance)),
        h("td.svp-num", range(rule.expected, 1, digits)),
        h("td.svp-num", cards[0].lossless ? "0" : range(rule.other, 0, digits).replace(/\b0\./g, ".")),
      );
      const second = because(this.ending(view, rule));
      if (second && look.class) second.classList.add(look.class);
      return [first, second];
    };
    const groups = KINDS.map(([lossless, title, about]) => {
      const some = rows.filter(({ cards }) => cards[0].lossless === lossless);
      const head = h("th", { scope: "rowgroup", colspan: columns }, title, h("small", ` ${about}`));
      return some.length > 0 && h(`tbody.svj-${title}`, h("tr.svj-kind", head), some.map(lines));
    });
    /** @type {[name: string, words: string][]} */
    const heading = [["chance", CHANCE], ["length", LENGTH], ["other", OTHER]];
    const head = [
      heads(HEADS.slice(0, parted ? 2 : 1)),
      heading.map(([name, words]) => this.owner.tip.explained("th.svp-num", () => [words], name)),
    ];
    const label = "This step under every verifier";
    const grid = h("table.svp-grid", { class: `svj-table ui-dense${parted ? "" : " svj-alike"}` },
      h("thead", h("tr", head)), own, groups);
    return h("div", h("div.ui-scroll", { tabindex: "0", role: "region", "aria-label": label }, grid),
      h("p.ui-soft.svj-visited", this.meant(view), MEANT));
  }

  /** Why the tokens of a rule end where they do: of the token that fell there; else of the last. */
  /** @type {(view: StepView, rule: JudgedStepRule) => Child[]} */
  ending(view, rule) {
    const [stood, fell] = ends(view, rule);
    const end = fell ?? view.nodes[stood.at(-1) ?? 0];
    const reason = saidBeside(rule.nodes.find(([node]) => node === end.index)?.[3] ?? "");
    const words = [
      reason,
      fell && fell.token === rule.bonus && "then the target wrote the same token itself",
      rule.open && "the record leaves this open",
    ].filter(Boolean).join("; ");
    return words ? [fell ? "refused " : "accepted ", h("code", label(this.owner, end.token, 14)), ": ", words] : [];
  }

  /** Whose chance it is: a token of a branch stands in no line above. @param {StepView} view */
  meant({ nodes }) {
    const node = this.node && nodes[this.node];
    const token = node && h("code", label(this.owner, node.token, 14));
    return token && ["Chance: that ", token, " (underlined in the bars) is accepted. "];
  }

  /** Runs all of it again under a rule, where there is a server. */
  again() {
    const { replay } = this;
    if (!replay) return null;
    const rules = this.run.cards.map(({ name, title }) => h("option", { value: name }, title));
    const select = h("select.svp-select", { "aria-label": "Rule to run all of it with" }, rules);
    const run = h("button.sv-button.svj-replay", { onclick: () => replay(select.value) }, "Run all of it with");
    return h("div.ui-row", run, select);
  }

  /** Why the run's own verdict ended where it did. @param {StepView} view @returns {Child[]} */
  recorded(view) {
    const fell = refused(view) ?? view.path.at(-1);
    const reason = fell?.index ? saidBeside(String(this.owner.model.trace.nodes.reason[fell.row] ?? "")) : "";
    return fell && reason ? [fell.status === "rejected" ? " refused " : " accepted ",
      h("code", label(this.owner, fell.token, 14)), ": ", reason] : [];
  }

  /** @param {StepView} view */
  recordedTokens(view) {
    return this.tokens(view, view.path.map(({ index }) => index), refused(view), view.bonus);
  }

  /** The draft as a rule leaves it: nodes that stand, the one that fell, and the token behind them. */
  /** @type {(view: StepView, stood: number[], fell: TreeNode | undefined, bonus: number | null) => HTMLElement} */
  tokens(view, stood, fell, bonus) {
    const { owner } = this;
    const names = stood.map((index) => view.nodes[index]);
    return h(
      "span.svj-tokens",
      names.length > SHOWN && h("span", `${names.length - SHOWN} + `),
      names.slice(-SHOWN).map(({ token }) => h("code.svj-stands", label(owner, token, 14))),
      fell && h("code.svj-fell", { title: "rejected" }, label(owner, fell.token, 14)),
      h("span.svj-then", { "aria-hidden": "true" }, "→"),
      h("span.svp-unseen", " then "),
      bonus === null
        ? h("span.svj-open", { title: "the record does not settle this draw" }, "not recorded")
        : h("code.svj-follows", bonus < 0 ? "stop" : label(owner, bonus, 14)),
    );
  }

  /** The mass of p and q at the position that is looked at. @type {(view: StepView) => Child} */
  picture(view) {
    const { owner, node: index } = this;
    const node = view.nodes[index];
    if (!node?.index) return null;
    const said = guesses(owner.model, view.number).get(node.parent) ?? [];
    const overlap = owner.model.nodeTerm(node, "overlap");
    if (said.length && overlap !== null)
      return mass(owner, { view, shown: { parent: node.parent, node: index, token: node.token }, beta: overlap }, said);
    if (node.prob === null) return null;
    const choices = view.targets.get(node.parent) ?? []; // a copied token has q = 1
    const list = choices.map(({ token, prob }, rank) => ({ token, rank, q: 0, p: prob, residual: null }));
    const one = { token: node.token, rank: 0, q: 1, p: node.prob, residual: null };
    return mass(owner, { view, shown: { parent: node.parent, node: index, token: node.token }, beta: node.prob },
      [one, ...list.filter(({ token }) => token !== node.token)]);
  }
}
