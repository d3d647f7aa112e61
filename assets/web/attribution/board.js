/* The head, a tile per kind of proof; and, folded, the thresholds and every signal's spans along the answer. */

import {
  SOURCES, agreement, at, look, ranked, size, sourceKey, strength, tag, usage,
} from "specviz/attribution/links.js";
import { append, button, h, replace, s, stretched } from "specviz/base/dom.js";
import { inLine } from "specviz/base/text.js";
import { clamp, percent, plural, short, thousandths } from "specviz/base/numbers.js";

/** @type {Record<Counted, string>} */
export const COUNTED = { words: "Whole words", whole: "Whole quotations", drafted: "Drafted tokens" };
/** @type {Record<Counted, string>} */
const WHY = {
  words: "Whole quotations, cut back to whole words and numbers: no word comes from two places.",
  whole: "A drafted span with the words beside it that its source has too, whoever wrote them.",
  drafted: "Only tokens that were drafted from a source and stood: PLD+'s own signal.",
};

const MOST_NAMED = 6; // numbers and names that stand in no source
const RANKED = 3; // sources named in a lane
export const MOST_BITS = 80; // of the slider of rarity
const RARITY =
  "Rarity of a span: the sum over its tokens of −log₂ p, p = 1 ÷ (rank in the vocabulary · ln its size). " +
  "“in order to” has some 40 bits, a name of four tokens 60. Brighter is rarer.";
const NO_SIGNAL = "It records no source of its drafts: the text alone tells.";
const IN_TEXT = "Whether a source says them of the same thing is not checked.";

/** The head above an answer and its sources, and the fold below; ``view`` is the Attribution they belong to. */
export class Board {
  /** @param {import("specviz/attribution/view.js").Attribution} view */
  constructor(view) {
    this.view = view;
    this.element = h("section.sv-a-summary.ui-tiles", { "aria-label": "What is known of this answer" });
    const shortest = { type: "range", min: 1, max: 12, step: 1, "aria-label": "Shortest span shown, in tokens" };
    this.slider = h("input.sv-a-range", shortest);
    this.slider.addEventListener("input", () => this.view.set({ minRun: Number(this.slider.value) }));
    this.sliderText = h("output.sv-a-now");
    const bits = { type: "range", min: 0, max: MOST_BITS, step: 5, "aria-label": "Rarity of the spans shown, in bits" };
    this.rarity = h("input.sv-a-bits", bits);
    this.rarity.addEventListener("input", () => this.view.set({ minBits: Number(this.rarity.value) }));
    this.rarityText = h("output.sv-a-now");
    this.lengths = s("svg.sv-a-lengths", { "aria-hidden": "true", preserveAspectRatio: "none" });
    this.countedButtons = /** @type {Counted[]} */ (Object.keys(COUNTED)).map((counted) => {
      const attributes = { class: "sv-quiet", role: "radio", "data-counted": counted };
      const choose = () => this.view.set({ counted });
      const one = button(COUNTED[counted], { ...attributes, onclick: choose }, COUNTED[counted]);
      return this.view.tip.add(one, WHY[counted]);
    });
    const rest = "Mark what nobody copied";
    const toggle = { class: "sv-toggle", onclick: () => this.view.set({ rest: !this.view.rest }) };
    this.restButton = button(rest, toggle, rest);
    this.view.tip.add(this.restButton, "Mark what was not found in the sources: the answer's own words.");
    const controls = h(
      "div.ui-row",
      h(
        "label.sv-a-min.ui-line.ui-words",
        h("span", "minimum length ", this.sliderText),
        h("span.sv-a-slide", this.lengths, this.slider),
      ),
      this.view.tip.add(
        h(
          "label.sv-a-min.ui-line.ui-words",
          h("span", "hide what anybody could have written ", this.rarityText),
          this.rarity,
        ),
        RARITY,
      ),
      h("div.ui-row", // in one row with each other
        h("div.ui-seg", { role: "radiogroup", "aria-label": "What counts as copied" }, this.countedButtons),
        this.restButton),
    );
    this.lanes = h("div.sv-a-lanes");
    this.fold = h("details.sv-card.sv-a-board.ui-fold", h("summary", "Thresholds, and signals side by side"));
    append(this.fold, [controls, this.lanes]);
  }

  draw() {
    this.drawSummary();
    this.drawControls();
    this.drawLanes();
  }

  drawSummary() {
    const { cause, found } = this.view;
    const tiles = [this.verbatim(), this.linked(), cause.tile, this.absent(), found.score && this.goldBox(found.score)];
    replace(this.element, tiles);
  }

  /** What stands in the sources by its text alone. */
  verbatim() {
    const { doc, signal, minRun } = this.view;
    const all = doc.output_tokens;
    const stands = at(signal.verbatim, minRun);
    const given = signal.verbatim.given_sources;
    const bar = h("div.sv-a-bar.ui-bar", { role: "img", tabindex: "0" });
    /** @type {string[]} */
    const shares = [];
    /** @type {(name: string, text: string, count: number, key?: string) => void} */
    const part = (name, text, count, key) => {
      if (!count) return;
      bar.append(h("i", { class: name, style: `flex:${count}`, "data-source": key }));
      shares.push(`${text} ${percent(count, all)}`);
    };
    stands.sources.forEach((mine, k) => {
      const source = signal.verbatim.sources[k];
      const plain = SOURCES.includes(source.kind) || (source.kind === "prompt" && !given);
      part(look(source, k), plain ? tag(source) : source.name, mine.copied_tokens, sourceKey(source));
    });
    part("sv-a-none", "not word for word in the sources", stands.own_tokens);
    bar.setAttribute("aria-label", shares.join(", "));
    this.view.tip.add(bar, () => shares);
    const longest = Math.max(0, ...stands.links.map(size));
    const where = given ? usage(signal.verbatim, stands.used_sources) : "the prompt, which has no passages";
    const text = `${stands.copied_tokens} of the answer's ${plural(all, "token")} stand in ${where}` +
      (longest ? `: ${plural(stands.links.length, "quotation")}, the longest of ${longest}.` : ".");
    const about = "Tokens of the answer whose words stand in the sources in the same order, two words or more, ÷ all " +
      "tokens. By the text alone: no method, no signal.";
    return tile("Word for word", [
      this.view.tip.add(h("b.sv-a-big", { tabindex: "0" }, percent(stands.copied_tokens, all)), about),
      h("p", text),
      bar,
    ]);
  }

  /** What the chosen signal links, and whether the sources really say it. */
  linked() {
    const { doc, found, text } = this.view;
    const title = `Signal: ${short(doc.run.method_title)}`;
    if (!doc.run.signal) return tile(title, [h("p", NO_SIGNAL)]);
    if (text) return tile(title, [h("p", "What is marked stands in the sources by its text alone.")]);
    const wrong = found.not_verbatim;
    const spans = found.links.length;
    const all = plural(doc.output_tokens, "token");
    const { quoted, more, less, beside } = this.apart();
    const of = `${found.copied_tokens} of ${quoted && !less && !beside ? `these ${plural(quoted, "token")}` : all}`;
    const from = usage(doc, found.used_sources);
    const own = found.links.some(({ kind }) => kind === "output") ? " and the answer" : "";
    const to = !from ? "" : !beside ? `, to ${from}`
      : `: ${found.copied_tokens - beside} to ${from}, ${beside} to the rest of the prompt${own}`;
    const linked = `${of}, in ${plural(spans, "span")}${to}.`;
    const check = wrong ? `≠ ${wrong} of ${plural(spans, "span")} not verbatim` : "✓ verbatim";
    const verdict = spans > 0 && h("b", { class: wrong ? "sv-a-wrong" : "sv-a-right", tabindex: "0" }, check);
    if (verdict) this.view.tip.add(verdict, "Verbatim: the source's tokens, or their text, are the span's.");
    return tile(title, [
      h("p.sv-a-signal", `Its drafts linked ${linked} `, verdict),
      less > 0 && h("p.ui-soft",
        `${plural(less, "token")} linked to passages ${less === 1 ? "stands" : "stand"} in no quotation of two words`,
        more > 0 && `; ${plural(more, "quoted token")} ${more === 1 ? "is" : "are"} not linked`, "."),
    ]);
  }

  /** How many tokens the text has as quotations, ``more`` than the signal links, and of those that it links to
      passages ``less``; ``beside``: those linked to what is no passage. */
  apart() {
    const { found, minRun, signal } = this.view;
    /** @param {SourceLink[]} links */
    const placesOf = (links) =>
      new Set(links.flatMap(({ output_tokens: [a, b] }) => Array.from({ length: b - a }, (_, k) => a + k)));
    const passages = found.links.filter(({ kind }) => SOURCES.includes(kind));
    const [quoted, linked, given] = [at(signal.verbatim, minRun).links, found.links, passages].map(placesOf);
    const more = [...quoted].filter((place) => !linked.has(place)).length;
    const less = [...given].filter((place) => !quoted.has(place)).length;
    return { quoted: quoted.size, more, less, beside: linked.size - given.size };
  }

  /** The numbers, dates and names that stand in no source. */
  absent() {
    const { claims, verbatim } = this.view.signal;
    if (!claims.length || !verbatim.given_sources) return null;
    const characters = [...verbatim.output];
    const absent = claims.filter(({ is_given }) => !is_given);
    const names = [...new Set(absent.map(({ start, stop }) => characters.slice(start, stop).join("")))];
    const marked = names.slice(0, MOST_NAMED).flatMap((name) => [h("span.sv-a-absent", inLine(name)), ", "]);
    const more = names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : "";
    const all = claims.length < 3 ? ["The only one", "Both"][claims.length - 1] : `All ${claims.length}`;
    const stands = `${all} ${claims.length === 1 ? "occurs" : "occur"} in the sources.`;
    const text = h("p.sv-a-absents");
    append(text, names.length ? ["Not in the sources: ", ...marked.slice(0, -1), more] : [stands]);
    return tile("Numbers, dates and names", [text, h("p.ui-soft", IN_TEXT)]);
  }

  /** Precision, recall and F1 where the quotes are known. @param {QuoteScore} score */
  goldBox(score) {
    /** @type {(name: string, formula: string, value: number) => HTMLElement} */
    const cell = (name, formula, value) =>
      this.view.tip.add(
        h("div", { tabindex: "0" }, h("dt.ui-soft", name), h("dd", thousandths(value))),
        `Tokens ${formula}. Quoted: the known quotes, drawn with a line above.`,
      );
    const cells = [
      cell("precision", "found and quoted ÷ found", score.precision),
      cell("recall", "found and quoted ÷ quoted", score.recall),
      cell("F1", "their harmonic mean", score.f1),
    ];
    return tile("Against the known quotes", [h("dl.sv-a-gold-box.ui-line", cells)]);
  }

  drawControls() {
    const { doc, minRun } = this.view;
    const longest = Math.max(0, ...doc.links.map(size));
    const most = clamp(longest + 1, 8, 24);
    this.slider.max = String(Math.max(most, minRun));
    this.slider.value = String(minRun);
    this.slider.setAttribute("aria-valuetext", plural(minRun, "token"));
    this.sliderText.textContent = String(minRun);
    const { found, minBits } = this.view;
    const hidden = found.links.filter((link) => strength(link, minBits).common).length;
    this.rarity.value = String(minBits);
    this.rarity.setAttribute("aria-valuetext", `${minBits} bits`);
    this.rarityText.textContent = minBits ? `below ${minBits} bits: ${hidden} of ${found.links.length}` : "off";
    const counts = new Array(Number(this.slider.max)).fill(0);
    for (const link of doc.links) counts[Math.min(size(link), counts.length) - 1] += 1;
    const top = Math.max(1, ...counts);
    this.lengths.setAttribute("viewBox", `0 0 ${counts.length - 1} 20`); // from the middle of the first bar
    this.lengths.replaceChildren(
      ...counts.flatMap((count, k) => {
        const height = count ? 3 + (17 * count) / top : 0;
        const kept = k + 1 >= minRun ? "sv-a-kept" : "";
        return count ? [s("rect", { x: k - 0.4, width: 0.8, y: 20 - height, height, class: kept })] : [];
      }),
    );
    for (const one of this.countedButtons)
      one.setAttribute("aria-checked", String(one.dataset.counted === this.view.counted));
    this.restButton.setAttribute("aria-pressed", String(this.view.rest));
    this.view.root.classList.toggle("sv-a-rest", this.view.rest);
  }

  // ---- signals side by side --------------------------------------------------------------------------------------

  drawLanes() {
    const { doc, found, gold, signals } = this.view;
    const length = doc.output_tokens;
    const rows = [this.textLane(found.links), ...signals.map((signal, k) => this.lane(signal, k, found.links))];
    if (gold) rows.unshift(this.goldLane(gold, length));
    const head = h(
      "div.sv-a-lane.sv-a-lane-head",
      { "aria-hidden": "true" },
      h("span", "signal"),
      h("span", `the answer, ${plural(length, "token")}`),
      h("span", "sources, most first"),
      h("span", "linked"),
      h("span", gold ? "F1" : "agrees"),
    );
    this.lanes.replaceChildren(head, ...rows);
  }

  /** @type {(length: number, spans: [from: number, to: number, look: string, run: number | null][]) => SVGElement} */
  strip(length, spans) {
    const rects = spans.map(([a, b, name, run]) =>
      s("rect", { x: a, y: 0, width: b - a, height: 10, class: name, "data-run": run }),
    );
    return stretched("sv-a-strip", length, 10, rects);
  }

  /** What stands in the sources by its text alone. @param {SourceLink[]} ours the links shown */
  textLane(ours) {
    const choose = () => this.view.set({ text: true });
    return this.row(this.view.signal.verbatim, "Text alone", this.view.text, ours, choose);
  }

  /** A signal's spans along the answer. */
  /** @type {(signal: SignalDocument, k: number, ours: SourceLink[]) => HTMLElement} */
  lane(signal, k, ours) {
    const doc = signal.views[this.view.counted];
    const chosen = k === this.view.active && !this.view.text;
    const choose = () => this.view.set({ active: k, text: false });
    return this.row(doc, short(doc.run.method_title), chosen, ours, choose, !doc.run.signal);
  }

  /** A lane; ``ours``: the links of the one shown. */
  /** @type {(doc: AttributedView, name: string, chosen: boolean, ours: SourceLink[], onclick: () => void,
   *   none?: boolean) => HTMLElement} */
  row(doc, name, chosen, ours, onclick, none = false) {
    const { links, score, copied_tokens: copied } = chosen ? this.view.found : at(doc, this.view.minRun);
    const length = doc.output_tokens;
    /** @type {Parameters<typeof this.strip>[1]} */
    const spans = links.map((link) => {
      const common = strength(link, this.view.minBits).common ? " sv-a-common" : "";
      const name = look(doc.sources[link.source_index], link.source_index) + common;
      return [...link.output_tokens, name, chosen ? link.number : null];
    });
    const agreed = chosen ? null : agreement(ours, links, length);
    const agrees = agreed ? percent(agreed.same, agreed.shared) : chosen ? "shown" : "–";
    const last = this.view.gold ? thousandths(score?.f1) : agrees;
    const what = none ? "no source recorded" : `${percent(copied, length)} linked in ${plural(links.length, "span")}`;
    const beside = chosen
      ? "shown"
      : agreed
        ? `the same source for ${agreed.same} of ${plural(agreed.shared, "token")} that both link`
        : "no token is linked by both";
    const text = `${name}: ${what}, ${beside}`;
    const order = ranked(links);
    const best = order.slice(0, RANKED).map(({ source }) => tag(source)).join(" › ");
    const tokens = order.map(({ source, tokens: n }) => `${tag(source)} ${n}`).join(", ");
    const row = h(
      "button.sv-a-lane",
      { "aria-pressed": String(chosen), "aria-description": `${text}. Tokens by source: ${tokens || "none"}`, onclick },
      h("span.ui-clip", name),
      none ? h("span.sv-faint", "no source recorded") : this.strip(length, spans),
      h("span.ui-clip", best || "–"),
      h("span", percent(copied, length)),
      h("span", last),
    );
    return this.view.tip.add(row, () => [text]);
  }

  /** @type {(gold: KnownQuotes, length: number) => HTMLElement} */
  goldLane(gold, length) {
    /** @type {Parameters<typeof this.strip>[1]} */
    const spans = [];
    gold.tokens.forEach((passage, i) => {
      if (passage < -1) return;
      const last = spans[spans.length - 1];
      if (last?.[1] === i && gold.tokens[i - 1] === passage) last[1] = i + 1;
      else spans.push([i, i + 1, look({ kind: passage < 0 ? "prompt" : "context" }, passage), null]);
    });
    const quoted = gold.quoted_tokens;
    return h(
      "div.sv-a-lane.sv-a-lane-gold",
      { role: "img", "aria-label": `Known quotes: ${percent(quoted, length)} of the answer` },
      h("span.ui-clip", "known quotes"),
      this.strip(length, spans),
      h("span"),
      h("span", percent(quoted, length)),
      h("span"),
    );
  }
}

/** A tile of the head: its title and what is known. @type {(title: string, inside: Child[]) => HTMLElement} */
export const tile = (title, inside) => h("section.sv-a-tile.sv-card", h("h3", title), inside);
