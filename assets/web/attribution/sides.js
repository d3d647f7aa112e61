/* An answer and its sources side by side: every copied span marked on both. */

import {
  SOURCES, look, parts, pieces, places, size, sourceKey, strength, tag, usage,
} from "specviz/attribution/links.js";
import { card, facts, h, s, stretched } from "specviz/base/dom.js";
import { percent, plural } from "specviz/base/numbers.js";
import { safe } from "specviz/base/text.js";

const FOLDED = 400; // characters of a source that is folded: two lines are in sight

/** Both cards; ``view`` is the Attribution they belong to. */
export class Sides {
  /** @param {import("specviz/attribution/view.js").Attribution} view */
  constructor(view) {
    this.view = view;
    this.answer = card("a-answer", "Answer");
    this.sources = card("a-sources", "Sources");
    /** Source → whether its text is shown, where somebody chose. @type {Map<string, boolean>} */
    this.opened = new Map();
    /** Sources as they were drawn last: those that did not change are not drawn anew. */
    /** @type {Map<string, { source: AttributedSource, state: string, element: HTMLElement }>} */
    this.drawn = new Map();
    /** Where a source was scrolled to; asking an element for it lays out its text. @type {Map<string, number>} */
    this.tops = new Map();
    /** @param {Event} event */
    const scrolled = ({ target }) => {
      const source = target instanceof Element && target.closest("[data-source]")?.getAttribute("data-source");
      if (source) this.tops.set(source, target.scrollTop);
    };
    this.sources.body.addEventListener("scroll", scrolled, true);
  }

  draw() {
    this.drawAnswer();
    this.drawSources();
  }

  drawAnswer() {
    const { doc, found, gold } = this.view;
    const place = places(doc.output);
    /** @type {[number, number][]} */
    const absent = this.view.signal.claims.flatMap(({ start, stop, is_given }) => (is_given ? [] : [[start, stop]]));
    /** @type {(a: number, b: number) => Child} */
    const inside = (a, b) =>
      pieces(gold?.quotes ?? [], a, b).map(([x, y, quotes]) => {
        const text = pieces(absent, x, y).map(([from, to, over]) => {
          const text = this.heated(from, to, (a, b) => safe(doc.output.slice(place(a), place(b))));
          return over.length ? h("span.sv-a-absent", { title: "in no source" }, text) : text;
        });
        return quotes.length ? h("span.sv-a-gold", text) : text;
      });
    const length = [...doc.output].length;
    const body = h("div.sv-a-text");
    const { question } = this.view.signal;
    this.view.root.classList.toggle("sv-a-code", /```|\n {2,}\S|\n\t/.test(doc.output));
    for (const [a, b, link] of parts(found.links, length)) {
      if (!link) body.append(...this.own(a, b, inside));
      else body.append(this.mark(link, inside(a, b)));
    }
    if (!length) body.append(h("p.sv-empty", "This run wrote nothing, so there is nothing to attribute."));
    const top = this.answer.body.scrollTop;
    const active = document.activeElement;
    const focused = this.answer.body.contains(active) ? Number(active?.getAttribute("data-run")) : 0;
    this.answer.body.replaceChildren(...(question ? [h("p.sv-a-asked", safe(question))] : []), body);
    this.answer.body.scrollTop = top;
    if (focused) this.elements(focused, "answer")[0]?.focus({ preventScroll: true }); // the span was drawn anew
    const linked = `${doc.output_tokens - found.own_tokens} of ${plural(doc.output_tokens, "token")}`;
    this.answer.note.textContent = `${linked} ${this.view.text ? "word for word in the sources" : "linked"}`;
  }

  /** What nobody copied, by the sentences that a click may choose. */
  /** @type {(from: number, to: number, inside: (a: number, b: number) => Child) => HTMLElement[]} */
  own(from, to, inside) {
    const spans = this.view.signal.sentences.map(({ output }) => output);
    return pieces(spans, from, to).map(([a, b, over]) =>
      h("span.sv-a-own", { "data-sentence": over.length ? over[0] : null }, inside(a, b)),
    );
  }

  /** A part of the answer, its tokens under the heat of what is left out. */
  /** @type {(from: number, to: number, text: (a: number, b: number) => string) => Child} */
  heated(from, to, text) {
    const { cause, signal } = this.view;
    if (!cause.chosen) return text(from, to);
    /** @type {Child[]} */
    const parts = [];
    signal.tokens.forEach(([a, b], token) => {
      const [x, y] = [Math.max(a, from), Math.min(b, to)];
      if (y <= x) return;
      const heat = cause.heat(token);
      if (!heat) return parts.push(text(x, y));
      const { style, instead, rises } = heat;
      const said = text(x, y);
      /** @type {(words: string) => HTMLElement} */
      const word = (words) => h("span.sv-a-heat", { class: rises && "sv-a-rises", style }, words);
      if (!instead || y !== b) return parts.push(word(said));
      const words = said.trimStart() || said; // a line may end at its blank: what came instead stands over its letters
      parts.push(said.slice(0, said.length - words.length), h("ruby", word(words), h("rt", instead)));
    });
    return parts;
  }

  /** A span in the answer: its number, its passage, its text. */
  /** @type {(link: SourceLink, inside: Child) => HTMLElement} */
  mark(link, inside) {
    const { number, verbatim, source_index: index } = link;
    const source = this.view.doc.sources[index];
    const from = `${source.name}${verbatim ? "" : ", not verbatim"}`;
    const label = `Span ${number}, ${plural(size(link), "token")}, from ${from}`;
    const place = { "data-side": "answer", "data-run": number, tabindex: number === 1 ? 0 : -1 };
    const told = { ...place, "aria-description": label };
    const dim = strength(link, this.view.minBits);
    const style = `--sv-a-rare:${Math.round(100 * dim.share)}%`;
    return h(
      "span.sv-a-run",
      { class: `${look(source, index)} ${dim.common ? "sv-a-common" : ""}`, style, role: "button", ...told },
      h("sup.sv-a-num", { "aria-hidden": "true" }, `${number}${verbatim ? "" : "≠"}`, h("i", tag(source))),
      inside,
    );
  }

  /** @param {SourceLink} link */
  facts(link) {
    const source = this.view.doc.sources[link.source_index];
    const text = link.source_text.trim();
    return [
      facts([
        [`Span ${link.number}`, plural(size(link), "token")],
        ["rarity", `${Math.round(link.bits)} bits`],
        ["from", `${source.name}, characters ${link.source[0]}–${link.source[1]}`],
        ["verbatim", link.verbatim ? "yes" : "no: the source says"],
      ]),
      h("div.sv-a-quote", safe(text.length > 160 ? `${text.slice(0, 157)}…` : text)),
    ];
  }

  drawSources() {
    const { doc, found } = this.view;
    const listed = doc.sources.flatMap((source, k) =>
      SOURCES.includes(source.kind) || found.sources[k].links ? [this.passage(source, k)] : [],
    );
    const { body } = this.sources;
    const top = body.scrollTop;
    listed.forEach((element, k) => {
      const old = body.children[k];
      if (!old) body.append(element);
      else if (old !== element) old.replaceWith(element);
    });
    while (body.children.length > listed.length) body.lastElementChild?.remove();
    for (const element of listed) {
      const y = this.tops.get(element.getAttribute("data-source") ?? "");
      const text = y ? element.querySelector(".sv-a-passage-text") : null;
      if (text && y) text.scrollTop = y;
    }
    if (top) body.scrollTop = top;
    const used = usage(doc, found.used_sources);
    this.sources.note.textContent = used && `${used} ${this.view.text ? "quoted word for word" : "linked"}`;
    if (!listed.length)
      this.sources.body.append(
        h("p.sv-empty", "This prompt has no passages, and nothing was copied from the rest of it."),
      );
  }

  /** A source, as it was drawn before where nothing in it has changed. */
  /** @type {(source: AttributedSource, index: number) => HTMLElement} */
  passage(source, index) {
    const { view } = this;
    const links = view.found.links.filter((link) => link.source_index === index);
    const key = sourceKey(source);
    const open = this.opened.get(key) ?? links.length > 0;
    const marks = links.map((link) => [link.number, strength(link, view.minBits).common]);
    const chip = view.cause.chip(source);
    const state = JSON.stringify([open, index, view.text, chip && chip.textContent, marks]);
    const before = this.drawn.get(key);
    if (before?.state === state && before.source === source) return before.element;
    const element = this.drawPassage(source, index, links, open, chip);
    this.drawn.set(key, { source, state, element });
    return element;
  }

  /** A source: its share, where it was used, its text with the spans marked. */
  /** @type {(source: AttributedSource, index: number, links: SourceLink[], open: boolean, chip: Child) =>
   *   HTMLElement} */
  drawPassage(source, index, links, open, chip) {
    const mine = this.view.found.sources[index];
    const key = sourceKey(source);
    const { place, count } = measured(source);
    const body = h("div.sv-a-text.sv-a-passage-text", { tabindex: open && count > 600 ? 0 : null });
    const spans = links.map((link) => link.source);
    const shown = open || links.length ? count : Math.min(count, FOLDED);
    for (const [a, b, over] of pieces(spans, 0, shown)) {
      const text = safe(source.text.slice(place(a), place(b)));
      const runs = over.map((k) => links[k]);
      const common = runs.every((link) => strength(link, this.view.minBits).common);
      body.append(runs.length ? origin(runs, a, text, common) : text);
    }
    const used = percent(mine.used_tokens, source.tokens);
    const note = mine.links
      ? `${plural(mine.copied_tokens, "token")} in ${plural(mine.links, "span")}, longest ${mine.longest}` : "";
    const thin = count / 100;
    const marks = links.map(({ source: [x, stop] }) => s("rect", { x, width: Math.max(thin, stop - x), height: 6 }));
    const flip = () => {
      this.opened.set(key, !open);
      this.drawSources();
      this.view.drawLinks();
      /** @type {HTMLElement | null} */ (this.sources.body.querySelector(`[data-source="${key}"] button`))?.focus();
    };
    const head = h(
      "button.sv-a-passage-head",
      { "aria-expanded": String(open), onclick: flip },
      h("span.sv-a-key", tag(source)),
      h("b.sv-a-passage-name", source.name),
      h("span.sv-a-note.ui-clip", note, chip),
      h("b.sv-a-used", used, this.view.text ? " quoted" : " linked"),
      stretched("sv-a-map", count, 6, marks),
    );
    this.view.tip.add(
      head,
      `${mine.used_tokens} of its ${plural(source.tokens, "token")} were ` +
        `copied (${used}). ${open ? "Click to fold it." : "Click to read it."}`,
    );
    const told = { "data-source": key, "aria-label": `${source.name}: ${used} used, ${note}` };
    const looks = `${look(source, index)} ${open ? "" : "sv-a-folded"}`;
    return h("article.sv-a-passage.ui-box", { class: looks, ...told }, head, body);
  }

  /** @type {(number: number, side: string) => HTMLElement[]} */
  elements(number, side) {
    return [...this.view.root.querySelectorAll(`[data-side="${side}"][data-run~="${number}"]`)].filter(
      (one) => one instanceof HTMLElement,
    );
  }

  /** Shows the text of a source that was folded away. @param {AttributedSource} source */
  unfold(source) {
    const key = sourceKey(source);
    if (this.opened.get(key) !== false) return;
    this.opened.set(key, true);
    this.drawSources();
  }
}

/** @type {WeakMap<AttributedSource, { place: (index: number) => number, count: number }>} */
const lengths = new WeakMap();

/** A source's places in its string, and its length in code points, counted once. @param {AttributedSource} source */
function measured(source) {
  const known = lengths.get(source) ?? { place: places(source.text), count: [...source.text].length };
  lengths.set(source, known);
  return known;
}

/** A part of a source that spans were copied from; the numbers of those that begin there stand before it. */
/** @type {(runs: SourceLink[], start: number, text: string, common: boolean) => HTMLElement} */
function origin(runs, start, text, common) {
  const numbers = runs.map((link) => link.number);
  const begun = runs.filter((link) => link.source[0] === start).map((link) => link.number);
  const label = `Source of ${runs.length > 1 ? "spans" : "span"} ${numbers.join(", ")}`;
  const told = { "data-run": numbers.join(" "), "data-side": "source", "aria-description": label };
  return h(
    "span.sv-a-run",
    { class: common ? "sv-a-common" : runs.length > 1 && "sv-a-twice", role: "button", tabindex: -1, ...told },
    begun.length > 0 && h("sup.sv-a-num", { "aria-hidden": "true" }, begun.join(",")),
    text,
  );
}
