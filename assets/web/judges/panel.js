/* The panel "Rules": the step shown under every rule, beside where the mass of p and q lies. Text nodes only. */

import { card, h, heads, replace } from "specviz/base/dom.js";
import { percentage, plural } from "specviz/base/numbers.js";
import { guesses, label } from "specviz/inspect/drafting.js";
import { mass } from "specviz/inspect/mass.js";
import { visited } from "specviz/generated/terms.js";
import {
  agreement, chanceOf, departure, ending, ends, otherwise, parting, pathsOf, range, reason, rowsOf,
} from "specviz/judges/rules.js";

const HEADS = ["rule", "accepted → next"];
const LENGTH = "Tokens of this step, over the rule's own draws: 1 + Σ of each drafted token's chance of acceptance.";
const OTHER =
  "Σ TV(p′, p) over the positions that are reached, p′ the rule's next token, TV = ½ Σ |p′ − p|. " +
  "Greedy: accepted tokens that are not the target's first choice.";
const CHANCE = "How likely the chosen token was to be accepted, over the rule's own draws.";
const MEANT = "Length: tokens that this step writes on average, the target's own included. " +
  "Other: how many of these the target would have written otherwise. " +
  "All rules see the same probabilities and random numbers. " +
  "In the reasons p is the target's probability of a token, q the drafter's, h a block's chance, " +
  "a draw a random number from 0 to 1.";
/** @type {[lossless: boolean, title: string, about: string][]} */
const KINDS = [
  [true, "lossless", "the text has the target's own distribution"],
  [false, "lossy", "the text may differ from the target's own"],
];
const SHOWN = 3; // tokens of a path: those before them are counted

/** The drafted token that the run refused behind those it accepted. @param {StepView} view */
const refused = ({ nodes, last }) => nodes.find(({ status, parent }) => status === "rejected" && parent === last);

/** The names of rules that share a row, each whole. @param {JudgedCard[]} cards */
export const named = (cards) =>
  cards.map(({ title }, k) => [k > 0 && " ", h("span", title, k < cards.length - 1 && ",")]);

/** A token, accepted or refused, and why. @type {(model: Model, end: RuleEnd) => Child[]} */
export const because = (model, { node, stands, why }) => [
  h("span.svj-tokens", h("span.svp-unseen", stands ? "accepted " : "refused "),
    h(`code.svj-${stands ? "stands" : "fell"}`, model.pieces.label(node.token, 14))),
  `: ${why}`,
];

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
    /** The tokens that can be chosen. @type {TreeNode[]} */
    this.chain = [];
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
    const next = this.chain[this.chain.findIndex((node) => node.index === this.node) + by];
    if (next) this.look(next.index);
  }

  draw() {
    this.node = 0;
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
    const rows = rowsOf(step, this.run.cards, this.sampled());
    const paths = pathsOf(view.nodes, rows);
    this.chain = paths.flatMap(({ path }) => path);
    this.node ||= parting(step) || this.chain.find(({ status }) => status === "rejected")?.index ||
      this.chain.at(-1)?.index || 0;
    replace(this.body, [
      h("h3.svp-unseen", "The draft under every rule"),
      this.sentence(view, step),
      this.places(paths),
      h("div.svj-parts", this.table(view, step, rows), this.picture(view)),
      h("details.ui-fold.svj-limits", h("summary", "How far these numbers hold"),
        h("p.ui-soft", this.open(step), visited)),
      this.again(),
    ]);
    const [strip, chosen] = [".svj-places", ".svj-place[aria-pressed=true]"].map((one) => this.body.querySelector(one));
    if (strip && chosen instanceof HTMLElement) strip.scrollTop = chosen.offsetTop - strip.clientHeight / 2;
  }

  /** How far the rules agree. @type {(view: StepView, step: JudgedStep) => Child} */
  sentence(view, step) {
    const count = otherwise(step);
    const of = Object.keys(step.rules).length;
    return h(
      "p.svj-words",
      `${plural(view.drafted, "token")} under ${plural(of, "rule")}: `,
      h("b", agreement(step)),
      count ? "." : [`, ${view.accepted} accepted, then `, this.next(view.bonus), "."],
    );
  }

  /** What the record leaves open. @param {JudgedStep} step */
  open({ rest }) {
    const most = Math.max(...rest);
    return most > 0.01 && [
      `Only the top probabilities were recorded (up to ${percentage(most)} is missing), so some numbers `,
      "are ranges, and some tokens unknown. ", h("code.svj-option", "specviz run --first-choices N"), " records more. ",
    ];
  }

  /** A button per token of the paths: which of them is looked at, no verdict, as that is each rule's own. */
  /** @param {JudgedPath[]} paths */
  places(paths) {
    /** @param {TreeNode} node */
    const button = (node) => {
      const here = node.index === this.node;
      const onclick = () => this.look(node.index);
      const on = { "aria-pressed": String(here), tabindex: here ? 0 : -1, onclick };
      const token = h("code", label(this.owner, node.token, 14));
      return h("button.svj-place", on, h("span.svp-unseen", "Position "), h("small", String(node.depth)), " ", token);
    };
    const named = paths.length > 1;
    const rows = paths.map(({ cards, path }) => {
      const name = cards.map(({ title }) => title).join(", ") || (named ? "recorded path" : "chance of");
      return [h("small.ui-soft", name), h("div.ui-row", path.map(button))];
    });
    const about = { role: "group", "aria-label": "Position that is looked at", class: named ? "svj-paths" : null };
    return h("div.svj-places", about, rows);
  }

  /** Whether the run's tokens were drawn. */
  sampled() {
    return (this.owner.model.run.sampling?.temperature ?? 0) > 0;
  }

  /** @type {(view: StepView, step: JudgedStep, rows: JudgedRow[]) => HTMLElement} */
  table(view, step, rows) {
    rows.sort((a, b) => b.rule.differs.length - a.rule.differs.length);
    const numbers = rows.flatMap(({ rule }) => [...rule.expected, ...(rule.other ?? [])]);
    const digits = numbers.every(Number.isInteger) ? 0 : 2; // of a greedy step all are counts
    const parted = otherwise(step) > 0; // else the tokens are the same in all rows, and stand above them
    const columns = parted ? 5 : 4;
    const { method } = this.owner.model.run;
    const own = h("tbody",
      h("tr.svj-own", h("th", { scope: "row" }, "as recorded"),
        parted && h("td.svj-verdict", this.recordedTokens(view)),
        h("td.svp-num"), h("td.svp-num", String(view.accepted + 1)), h("td.svp-num")),
      h("tr.svj-own.svj-because", h("td", { colspan: columns }, method.title, this.recorded(view))));
    /** @param {JudgedRow} row */
    const lines = ({ cards, rule }) => {
      const differs = rule.differs.length > 0;
      const look = { class: differs ? "svj-differs" : null };
      const about = cards.map((card) => `${card.title}: ${card.summary} (${card.source})`).join("\n");
      const first = h(
        "tr",
        { ...look, "data-verifier": cards.map(({ name }) => name).join(" ") },
        h(
          "th",
          { scope: "row", colspan: parted && !differs ? 2 : null, title: about },
          named(cards),
          parted && !differs && h("small", " as recorded"),
        ),
        differs && h("td.svj-verdict", this.tokens(view, ...ends(view.nodes, rule), rule.bonus)),
        h("td.svp-num", range(chanceOf(rule, this.node), digits)),
        h("td.svp-num", range(rule.expected, digits, 1)),
        h("td.svp-num", rule.other ? range(rule.other, digits) : h("i", "unknown")),
      );
      return [first, h("tr.svj-because", look, h("td", { colspan: columns }, this.ending(view, rule)))];
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
    const looks = [!parted && "svj-alike", !digits && "svj-counts"].filter(Boolean).join(" ");
    const grid = h("table.svp-grid", { class: `svj-table ui-dense ${looks}` },
      h("thead", h("tr", head)), own, groups);
    return h("div", h("div.ui-scroll", { tabindex: "0", role: "region", "aria-label": label }, grid),
      h("p.ui-soft.svj-visited", this.meant(view), MEANT,
        rows.some(({ rule }) => !rule.other) && " Unknown where a rule gives no distribution of its next token."));
  }

  /** Why the tokens of a rule end where they do: of the token that fell there; else of the last. */
  /** @type {(view: StepView, rule: JudgedStepRule) => Child[]} */
  ending(view, rule) {
    const end = ending(view.nodes, rule, this.sampled());
    const [left = 0, stands = false, , why = ""] = departure(view.nodes, rule) ?? [];
    const more = [
      !end.stands && end.node.token === rule.bonus && "; then the target wrote it itself",
      rule.open && "; the record leaves this open",
    ];
    const { model } = this.owner;
    const other = left > 0 && [because(model, { node: view.nodes[left], stands, why }), "; "];
    return [other, because(model, end), more];
  }

  /** Whose chance it is: a token of a branch stands in no line above. @param {StepView} view */
  meant({ nodes }) {
    const node = this.node && nodes[this.node];
    const token = node && h("code", label(this.owner, node.token, 14));
    return token && ["Chance: that ", token, " is accepted. "];
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
    const { model } = this.owner;
    const why = fell?.index ? reason(String(model.trace.nodes.reason[fell.row] ?? ""), this.sampled()) : "";
    return fell && why ? [" · ", because(model, { node: fell, stands: fell.status !== "rejected", why })] : [];
  }

  /** The target's own token behind what was accepted. @param {number | null} bonus */
  next(bonus) {
    return h("span.svj-tokens", bonus === null
      ? h("span.svj-open", { title: "the record does not settle this draw" }, "unknown")
      : h("code.svj-follows", bonus < 0 ? "stop" : label(this.owner, bonus, 14)));
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
      h("span.svj-next", h("span.svj-then", { "aria-hidden": "true" }, "→"), h("span.svp-unseen", " then "),
        this.next(bonus)),
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
