/* A step in two or three sentences: where the draft is from, what the model made of it, what came of it. */

import { append, h } from "specviz/base/dom.js";
import { NOT_RECORDED, OPEN, POOL } from "specviz/base/model.js";
import { format, nth, plural, short } from "specviz/base/numbers.js";
import * as terms from "specviz/base/terms.js";
import { numberOf, quoted as token } from "specviz/inspect/drafting.js";
import * as imported from "specviz/inspect/imported.js";
import { goTo } from "specviz/inspect/looks.js";
import { follows } from "specviz/inspect/prompt_marks.js";
import { ended, forbidder } from "specviz/inspect/tree_words.js";

/** The step in sentences, as nodes. @type {(owner: Inspector, view: StepView) => Node[]} */
export const sentence = (owner, view) => [...append(h("span"), sentences(owner, view)).childNodes];

/** @type {(owner: Inspector, view: StepView) => Child[]} */
function sentences(owner, view) {
  if (view.bonus === OPEN) return undecided(owner, view);
  const partly = imported.step(owner, view);
  if (partly) return partly;
  const next = owner.prompts.on ? follows(owner, view) : [];
  if (!view.drafted) {
    const wrote = ended(view) ? " The answer ends here." : [" The model wrote ", own(owner, view), " itself."];
    const why = (view.reason || "the method offered nothing").replace(/\.$/, "");
    return ["Nothing was drafted: ", why, ".", wrote, ...next];
  }
  return [...source(owner, view), ...verdict(owner, view), ...more(owner, view), ...next];
}

/** The target's own token. @type {(owner: Inspector, view: StepView) => HTMLElement} */
const own = (owner, view) => terms.term(owner, "step_bonus", token(owner, view.bonus));

/** The tokens of the copy that was drafted in one line from the root on. @param {StepView} view */
export function copyOf(view) {
  const copy = [];
  for (const node of view.nodes) {
    const last = copy.at(-1)?.index ?? 0;
    if (node.index && node.parent === last && node.source >= 0) copy.push(node);
  }
  return copy;
}

/** A drafter's name in a sentence: its method's title, as far as that is a name. @param {Inspector} owner */
const drafter = ({ model }) => short(model.run.method.title || model.run.method.name);

/** What ranked a candidate, and what that is: "hidden cosine 0.93". */
/** @type {(owner: Inspector, candidate: Candidate) => [words: string, term?: RunTerm]} */
export function evidence(owner, candidate) {
  const { model } = owner;
  for (const term of model.run.terms || []) {
    const value = model.term(candidate, term.key);
    if (typeof value !== "number") continue;
    const label = term.label || term.key;
    return [`${label.charAt(0).toLowerCase()}${label.slice(1)} ${format(value, 2)}`, term];
  }
  return [typeof candidate.score === "number" ? `score ${format(candidate.score, 2)}` : ""];
}

/** "line 30", which leads there. @type {(owner: Inspector, position: Position) => HTMLElement} */
const line = (owner, position) => goTo(owner, position, owner.where(position));

/** "chosen of 8 places (hidden cosine 0.93)"; nothing where there was one. */
/** @type {(owner: Inspector, view: StepView) => Child[]} */
function ranked(owner, view) {
  const { candidates, chosen, unlisted = 0 } = view;
  const count = candidates.length + unlisted;
  if (!chosen || count < 2) return [];
  const places = terms.term(owner, "step_candidates", plural(count, "place"));
  const [score, term] = evidence(owner, chosen);
  const told = term && { label: term.label, help: term.help };
  const explained = () => owner.tip.explained("span.sv-term", () => terms.explain(owner, "step_score", told), score);
  return [", chosen of ", places, ...(score ? [" by its ", explained()] : [])];
}

/** Where the draft is from. @type {(owner: Inspector, view: StepView) => Child[]} */
function source(owner, view) {
  const { chosen } = view;
  const copy = copyOf(view);
  const drafted = (/** @type {string} */ words) => terms.term(owner, "step_drafted", h("b", words));
  if (copy.length) {
    const beside = view.drafted - copy.length;
    const others = beside ? `, with ${plural(beside, "other token")} beside it` : "";
    const from = line(owner, owner.model.placeOf({ position: copy[0].source - 1, length: copy.length }));
    return [drafted(plural(copy.length, "token")), " copied from ", from, ...ranked(owner, view), others, ". "];
  }
  if (chosen) {
    const same = view.candidates.every((one) => owner.model.id(one.position) === view.root);
    const root = token(owner, view.root);
    const first = view.nodes.filter(({ parent }) => parent === 0).length;
    const likely = drafted(plural(first, "next token"));
    const behind = view.drafted > first ? `, with ${plural(view.drafted - first, "token")} behind them` : "";
    const place = line(owner, owner.model.placeOf(chosen));
    if (same) return [root, " stands at ", place, ...ranked(owner, view), ": ", likely,
      ` taken from what the model found likely there${behind}. `];
    return [root, " stands nowhere earlier. Most like it in meaning is ", place,
      ...ranked(owner, view), ". The model had found ", likely, ` likely there: the draft${behind}. `];
  }
  const deep = view.depth < view.drafted ? `, ${view.depth} deep` : "";
  const all = drafted(plural(view.drafted, "token"));
  if (owner.prompts.on) return ["Trained prompt tokens made the model guess ahead of itself: ", all, `${deep}. `];
  return [`${drafter(owner)} drafted ${deep && "a tree of "}`, all, deep, ". "];
}

/** Who decided, and the verb for it. @type {(owner: Inspector) => [who: string, kept: string]} */
function judge({ model }) {
  if (model.run.forced) return ["The given answer", "agreed with"];
  if (model.run.imported) return ["The server", "kept"];
  return ["The model", "kept"];
}

/** @param {number} count */
const leading = (count) => (count === 1 ? "only the first" : `the first ${count}`);

/** What was kept of a copy, and of the tokens beside it. @type {(view: StepView, copy: TreeNode[]) => string} */
export function ofCopy({ path, accepted }, copy) {
  const copied = path.filter((node) => copy.includes(node)).length;
  const beside = accepted - copied;
  const own = copied === copy.length ? `all ${copied} copied` : beside && copied === 1 ? "the first" : leading(copied);
  return beside ? `${copied ? `${own} and ` : ""}${beside === 1 ? "one" : beside} of the others` : own;
}

/** What the model made of it, and what came of it. @type {(owner: Inspector, view: StepView) => Child[]} */
function verdict(owner, view) {
  const { accepted: n, drafted, depth, refused } = view;
  const [who, kept] = judge(owner);
  const chain = depth === drafted;
  const copy = copyOf(view);
  const told = owner.model.run.forced || owner.model.run.imported;
  const read = told ? "" : `read ${drafted === 1 ? "it" : chain ? "them" : "all of it"} in one go and `;
  /** @type {(words: string) => HTMLElement} */
  const yes = (words) => terms.term(owner, "step_accepted", h("b.sv-stood", words));
  const also = refused.length > 1 ? ` or ${plural(refused.length - 1, "other")}` : "";
  const [first] = refused;
  const unknown = first?.token === NOT_RECORDED;
  const banned = first && forbidder(owner.model, first);
  const why = banned && refused.length === 1 ? `, which ${banned} forbids` : "";
  const lost = first && !unknown ? [token(owner, first.token), also, why] : [];
  const open = unknown ? "What it refused is not recorded. " : "";
  const drawn = view.route === "drawn" && !view.nodes.some(({ reason }) => reason === "match" || reason === "mismatch");
  const wrote = drawn && lost.length ? "drew" : "wrote";
  if (!n) {
    const none = [`${who} ${read}`, h("b.sv-fell", kept === "kept" ? "kept none" : "agreed with none")];
    if (ended(view)) return [...none, ". Here the answer ends. "];
    const instead = lost.length ? [", not ", ...lost] : [];
    const rest = drawn ? " from what was left" : "";
    return [...none, ": after ", token(owner, view.root), ` it ${wrote} `, own(owner, view), rest, ...instead,
      `. ${open}This pass wrote one token, as plain decoding does. `];
  }
  const what = n === drafted ? (n === 1 ? "it" : `all ${n}`) : copy.length ? ofCopy(view, copy)
    : chain ? leading(n) : n === 1 ? "one" : `a path of ${n}`;
  const turn = fork(owner, view);
  const alone = n === 1 && n < drafted && !turn.length ? [", ", token(owner, view.path[0].token)] : [];
  const stood = [`${who} ${read}`, yes(`${kept} ${what}`), ...alone, ...turn];
  if (ended(view)) return [...stood, ". Here the answer ends. "];
  const itself = own(owner, view);
  const many = ` itself. So one pass wrote ${plural(view.emitted, "token")} instead of one. `;
  if (n === drafted && chain) return [...stood, ", then added ", itself, many];
  if (!lost.length) return [...stood, ". Then it added ", itself, ` itself. ${open}`];
  const left = drawn ? " from what was left," : "";
  return [...stood, `. Then it ${wrote} `, itself, `${left} where the draft had `, ...lost, ". "];
}

/** Where the kept path left the drafter's first guess. @type {(owner: Inspector, view: StepView) => Child[]} */
function fork(owner, view) {
  if (copyOf(view).length || view.depth === view.drafted) return [];
  for (const node of view.path) {
    const siblings = view.nodes.filter(({ parent, index }) => parent === node.parent && index);
    const order = [...siblings].sort((a, b) => (b.draftProb ?? 0) - (a.draftProb ?? 0));
    const place = siblings.every(({ draftProb }) => draftProb !== null) ? order.indexOf(node) : siblings.indexOf(node);
    if (place < 1) continue;
    const rank = numberOf(owner, node, "draft_rank") ?? place;
    const first = (place === siblings.indexOf(node) ? siblings : order)[0];
    return [": ", token(owner, node.token), `, its ${nth(rank + 1)} guess, not `, token(owner, first.token)];
  }
  return [];
}

/** What can be done about it: a better source, a rule that let a token stand; at most one of them. */
/** @type {(owner: Inspector, view: StepView) => Child[]} */
function more(owner, view) {
  const { chosen, best, path } = view;
  const other = imported.otherwise(owner, view);
  if (other.length) return other;
  const loose = owner.model.lossy ? path.find(({ rank }) => rank > 0) : null;
  const [first] = loose ? view.targets.get(loose.parent) ?? [] : [];
  if (loose && first)
    return ["The rule let ", token(owner, loose.token), " stand where the model's own first choice was ",
      token(owner, first.token), ": here it changes the text. "];
  if (!chosen || !best || chosen.would < 0 || best.would <= Math.max(view.accepted, chosen.would)) return [];
  const lost = terms.term(owner, "step_regret", `would have kept ${best.would}`);
  return [h("span.sv-regret", "Copying from ", line(owner, best.position), " ", lost, ".")];
}

/** What an undecided step says: what is offered, and no more. @type {(owner: Inspector, view: StepView) => Child[]} */
function undecided(owner, view) {
  const { candidates, unlisted = 0 } = view;
  if (candidates.length && !candidates.some((one) => one.chosen)) {
    const where = candidates.every(({ position }) => position >= POOL) ? "place in the pool" : "earlier place";
    return [token(owner, view.root), ` stands at ${plural(candidates.length + unlisted, where)}. Which is copied?`];
  }
  if (!view.drafted) return ["Nothing is drafted after ", token(owner, view.root), "."];
  return [...source(owner, view), "What will the model keep?"];
}
