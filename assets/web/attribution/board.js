/* What was copied from where, in numbers: shares, the threshold, every signal's runs along the answer. */

import { SOURCES, at, look, passages, percent, score, size, tag } from "specviz/attribution/links.js";
import { button, clamp, h, plural, s } from "specviz/base/dom.js";

export const COUNTED = { whole: "Whole quotations", drafted: "Drafted tokens" };
const WHY = {
  whole: "A drafted run with the words beside it that its source has too, whoever wrote them.",
  drafted: "Only tokens that were drafted from a source and stood: PLD+'s own signal.",
};
const score3 = (value) => (value === null ? "–" : value.toFixed(3).replace(/^0/, ""));

/** The card above an answer and its sources; ``view`` is the Attribution it belongs to. */
export class Board {
  constructor(view) {
    this.view = view;
    this.summary = h("div", { class: "sv-a-summary" });
    this.slider = h("input", {
      type: "range",
      min: 1,
      max: 12,
      step: 1,
      class: "sv-a-range",
      "aria-label": "Shortest run shown, in tokens",
      oninput: () => this.view.set({ minRun: Number(this.slider.value) }),
    });
    this.sliderText = h("output", { class: "sv-a-now" });
    this.lengths = s("svg", { class: "sv-a-lengths", "aria-hidden": "true", preserveAspectRatio: "none" });
    this.countedBox = h("div", { class: "sv-a-seg", role: "radiogroup", "aria-label": "What counts as copied" });
    for (const [name, label] of Object.entries(COUNTED)) {
      const one = button(label, {
        class: "sv-button sv-quiet",
        role: "radio",
        "data-counted": name,
        onclick: () => this.view.set({ counted: name }),
      });
      one.append(label);
      this.countedBox.append(this.view.tip.add(one, () => [WHY[name]]));
    }
    this.restButton = button("Mark what nobody copied", {
      class: "sv-button sv-toggle",
      onclick: () => this.view.set({ rest: !this.view.rest }),
    });
    this.restButton.append("Mark what nobody copied");
    this.view.tip.add(this.restButton, () => ["Mark what was copied from nowhere: the answer's own words."]);
    const controls = h(
      "div",
      { class: "sv-a-controls" },
      h(
        "label",
        { class: "sv-a-min" },
        h("span", {}, "min_run ", this.sliderText),
        h("span", { class: "sv-a-slide" }, this.lengths, this.slider),
      ),
      this.countedBox,
      this.restButton,
    );
    this.lanes = h("div", { class: "sv-a-lanes" });
    this.element = h(
      "section",
      { class: "sv-card sv-a-board", "aria-label": "What was copied" },
      this.summary,
      controls,
      this.lanes,
    );
  }

  draw() {
    this.drawSummary();
    this.drawControls();
    this.drawLanes();
  }

  drawSummary() {
    const { doc, found } = this.view;
    const all = doc.output_tokens;
    const rest = all - found.copied_tokens;
    const wrong = found.links.filter((link) => !link.verbatim).length;
    const bar = h("div", { class: "sv-a-bar", role: "img" });
    const list = h("ul", { class: "sv-a-shares" });
    const row = (name, text, count, number) => {
      if (!count) return;
      bar.append(h("i", { class: name, style: `flex:${count}` }));
      const line = h(
        "li",
        {},
        h("span", { class: `sv-a-key ${name}` }, number),
        ` ${text} `,
        h("b", {}, percent(count, all)),
      );
      list.append(line);
    };
    found.sources.forEach((mine, k) => {
      const source = doc.sources[k];
      row(look(source, k), SOURCES.includes(source.kind) ? "" : source.name, mine.copied_tokens, tag(source));
    });
    row("sv-a-none", "copied from nowhere", rest, "–");
    bar.setAttribute("aria-label", [...list.children].map((line) => line.textContent).join(", "));
    const used = found.sources.filter((mine, k) => mine.links && SOURCES.includes(doc.sources[k].kind)).length;
    const given = doc.sources.filter((source) => SOURCES.includes(source.kind)).length;
    const runs = plural(found.links.length, "run");
    const facts = [
      `${found.copied_tokens} of ${plural(all, "token")}`,
      runs,
      given ? `${used} of ${plural(given, "passage")} used` : "no passages",
    ];
    const check = !found.links.length ? null : wrong ? `≠ ${wrong} of ${runs} not verbatim` : "✓ every run verbatim";
    const verdict = check && h("span", { class: wrong ? "sv-a-wrong" : "sv-a-right", tabindex: "0" }, check);
    if (verdict) this.view.tip.add(verdict, () => ["Verbatim: the source's tokens, or their text, are the run's."]);
    this.summary.replaceChildren(
      h("div", { class: "sv-a-big" }, h("b", {}, percent(found.copied_tokens, all)), h("span", {}, "copied")),
      h("div", { class: "sv-a-how" }, h("p", {}, facts.join(" · "), verdict ? " · " : "", verdict), bar, list),
      this.view.gold ? this.goldBox() : "",
    );
  }

  /** Precision, recall and F1 where the quotes are known. */
  goldBox() {
    const { found, gold } = this.view;
    const numbers = score(found.links, gold.tokens);
    const cells = [
      ["precision", "found and quoted ÷ found"],
      ["recall", "found and quoted ÷ quoted"],
      ["f1", "their harmonic mean"],
    ];
    const box = h("dl", { class: "sv-a-gold-box", "aria-label": "Against the known quotes" });
    for (const [name, formula] of cells) {
      const cell = h(
        "div",
        { tabindex: "0" },
        h("dt", {}, name === "f1" ? "F1" : name),
        h("dd", {}, score3(numbers[name])),
      );
      box.append(
        this.view.tip.add(cell, () => [`Tokens ${formula}. Quoted: the known quotes, drawn with a line above.`]),
      );
    }
    return box;
  }

  drawControls() {
    const { doc, minRun } = this.view;
    const longest = Math.max(0, ...doc.links.map(size));
    const most = clamp(longest + 1, 8, 24);
    this.slider.max = Math.max(most, minRun);
    this.slider.value = minRun;
    this.slider.setAttribute("aria-valuetext", plural(minRun, "token"));
    this.sliderText.textContent = String(minRun);
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
    for (const one of this.countedBox.children) {
      const on = one.dataset.counted === this.view.counted;
      one.setAttribute("aria-checked", String(on));
    }
    this.restButton.setAttribute("aria-pressed", String(this.view.rest));
    this.view.root.classList.toggle("sv-a-rest", this.view.rest);
  }

  // ---- signals side by side --------------------------------------------------------------------------------------

  drawLanes() {
    const { doc, found, gold, signals } = this.view;
    const length = doc.output_tokens;
    const ours = passages(found.links, length);
    const several = signals.length > 1 || gold;
    this.lanes.hidden = !several;
    if (!several) return;
    const rows = signals.map((signal, k) => this.lane(signal, k, ours));
    if (gold) rows.unshift(this.goldLane(length));
    const head = h(
      "div",
      { class: "sv-a-lane sv-a-lane-head", "aria-hidden": "true" },
      h("span", {}, "signal"),
      h("span", {}, `the answer, ${plural(length, "token")}`),
      h("span", {}, "copied"),
      h("span", {}, gold ? "F1" : "agrees"),
    );
    this.lanes.replaceChildren(head, ...rows);
  }

  strip(length, spans) {
    const svg = s("svg", {
      class: "sv-a-strip",
      viewBox: `0 0 ${Math.max(1, length)} 10`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    });
    for (const [a, b, name, run] of spans)
      svg.append(s("rect", { x: a, y: 0, width: b - a, height: 10, class: name, "data-run": run }));
    return svg;
  }

  lane(signal, k, ours) {
    const { gold } = this.view;
    const doc = signal.views[this.view.counted];
    const chosen = k === this.view.active;
    const { links, copied_tokens: copied } = chosen ? this.view.found : at(doc, this.view.minRun);
    const length = doc.output_tokens;
    const spans = links.map((link) => [
      ...link.output_tokens,
      look(doc.sources[link.source_index], link.source_index),
      chosen ? link.number : null,
    ]);
    const theirs = passages(links, length);
    const same = theirs.filter((passage, i) => passage === ours[i]).length;
    const last = gold ? score3(score(links, gold.tokens).f1) : chosen ? "" : percent(same, length);
    const name = doc.run.method_title.split(":")[0];
    const none = doc.run.signal ? "" : "no source recorded";
    const what = none || `${percent(copied, length)} copied in ${plural(links.length, "run")}`;
    const beside = chosen ? "shown" : `${percent(same, length)} of the tokens as the one shown`;
    const text = `${name}: ${what}, ${beside}`;
    const row = h(
      "button",
      {
        type: "button",
        class: "sv-a-lane",
        "aria-pressed": String(chosen),
        "aria-label": text,
        onclick: () => this.view.set({ active: k }),
      },
      h("span", { class: "sv-a-lane-name" }, name),
      none ? h("span", { class: "sv-faint" }, none) : this.strip(length, spans),
      h("span", {}, percent(copied, length)),
      h("span", {}, last),
    );
    return this.view.tip.add(row, () => [text]);
  }

  goldLane(length) {
    const { gold } = this.view;
    const spans = [];
    gold.tokens.forEach((passage, i) => {
      const last = spans[spans.length - 1];
      if (passage < -1) return;
      if (last && last[1] === i && last[3] === passage) last[1] = i + 1;
      else spans.push([i, i + 1, passage < 0 ? "sv-a-c sv-a-other" : look({ kind: "context" }, passage), passage]);
    });
    for (const span of spans) span[3] = null;
    const quoted = gold.tokens.filter((passage) => passage >= -1).length;
    return h(
      "div",
      {
        class: "sv-a-lane sv-a-lane-gold",
        role: "img",
        "aria-label": `Known quotes: ${percent(quoted, length)} of the answer`,
      },
      h("span", { class: "sv-a-lane-name" }, "known quotes"),
      this.strip(length, spans),
      h("span", {}, percent(quoted, length)),
      h("span", {}),
    );
  }
}
