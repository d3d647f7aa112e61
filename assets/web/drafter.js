/* A draft model's step: how sure it was, its say beside the target's, what decided, what replaced it, where it looked. */
(function (SV) {
  "use strict";

  const { h, format, plural, probability } = SV;
  const LEAST = 0.001; // a token below this for both is folded away, unless it was drafted or written
  const PLACES = 6; // places looked at that are named
  const TENTHS = 10;

  const quoted = (owner, id) =>
    h("code", { class: "sv-token" }, id < 0 ? "stop" : owner.model.pieces.label(id, 24));
  const beside = (node) => node.origin === "expansion";
  const nth = (n) => `${n}${n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] || "th"}`;

  /** A node's number of the given name, null where the method records none. */
  function numberOf(owner, node, key) {
    const column = owner.model.trace.nodes[`term:${key}`];
    const value = column && node ? column[node.row] : null;
    return typeof value === "number" ? value : null;
  }

  /** Whether a trace has anything of a draft model's to show; a live one that will have is known by its numbers. */
  function present(model) {
    const { guesses, attention } = model.trace;
    const rows = (table) => (table ? table.step.length : 0);
    const own = model.run.attention && model.run.attention.probes ? 0 : rows(attention); // else the prompt tokens'
    return (
      rows(guesses) + own > 0 || (!!guesses && model.nodeTerms.some(({ key }) => key === "overlap"))
    );
  }

  /** Whether a step's tree has leaves beside a main chain: [chain, expansions], null where it has not. */
  function lanes(view) {
    const extra = view.nodes.filter(beside).length;
    return extra ? [view.drafted - extra, extra] : null;
  }

  /** Node → tokens with both probabilities, in the order of the drafter's ranks. */
  function guesses(model, step) {
    const table = model.trace.guesses;
    const found = new Map();
    const [from, to] = model.rows("guesses", step);
    for (let row = from; row < to; row++) {
      const node = table.node[row];
      if (!found.has(node)) found.set(node, []);
      found.get(node).push({
        token: table.token[row],
        rank: table.rank[row],
        q: table.draft_prob[row],
        p: table.prob[row],
        residual: table.residual[row],
      });
    }
    return found;
  }

  /** The row of a step's attention: [{position, weight}], heaviest first. */
  function looks(model, step, node, layer, head) {
    const table = model.trace.attention;
    const found = [];
    const [from, to] = model.rows("attention", step);
    for (let row = from; row < to; row++) {
      if (table.node[row] === node && table.layer[row] === layer && table.head[row] === head)
        found.push({ position: table.position[row], weight: table.weight[row] });
    }
    return found.sort((a, b) => b.weight - a.weight);
  }

  /** The attention's switch and selects, in a panel with ``look``, ``refresh`` and ``bring``. */
  function lookTools(panel, help) {
    Object.assign(panel, { shading: true, head: -1, layer: -1, look: [] });
    panel.shadeButton = SV.button(
      "Attention heat",
      {
        class: "sv-button sv-toggle",
        "aria-pressed": "true",
        onclick: () => {
          panel.shading = !panel.shading;
          panel.shadeButton.setAttribute("aria-pressed", String(panel.shading));
          if (panel.view) SV.marks.shade(panel.owner, panel.view);
        },
      },
      "Attention heat",
    );
    panel.owner.tip.add(panel.shadeButton, () => [help]);
    const select = (label, pick) => {
      const change = (event) => {
        pick(Number(event.target.value));
        panel.refresh();
        panel.bring();
      };
      return h("select", { class: "sv-select sv-look-select", "aria-label": label, onchange: change });
    };
    panel.heads = select("Attention head", (value) => (panel.head = value));
    panel.layers = select("Attention layer", (value) => (panel.layer = value));
    panel.bar.append(panel.shadeButton, panel.layers, panel.heads);
  }

  /** Their choices for a run: ``attention`` is what it recorded, if anything. */
  function offerLooks(panel, attention) {
    for (const one of [panel.shadeButton, panel.layers, panel.heads]) one.hidden = !attention;
    if (!attention) return;
    const { layers, heads } = attention;
    if (!layers.includes(panel.layer)) panel.layer = layers[layers.length - 1];
    if (!(panel.head < heads)) panel.head = -1;
    const option = (value, label, chosen) => h("option", { value, selected: value === chosen }, label);
    panel.layers.hidden = layers.length < 2;
    panel.layers.replaceChildren(...layers.map((n) => option(n, `layer ${n}`, panel.layer)));
    panel.heads.replaceChildren(
      option(-1, `mean of ${heads} heads`, panel.head),
      ...Array.from({ length: heads }, (_, n) => option(n, `head ${n}`, panel.head)),
    );
  }

  /** The place in the prompt's own text that was looked at most, -1 if none is known. */
  function heaviest({ owner, shading, look }) {
    const { segment } = owner.model.trace.tokens;
    const most = shading && look.find(({ position }) => segment[position] && segment[position] !== "template");
    return most ? most.position : -1;
  }

  /** The heaviest places, to go to, under a title. */
  function lookedAt({ owner, head, layer, look }, words) {
    const { attention } = owner.model.run;
    const of = head < 0 ? "mean of its heads" : `head ${head}`;
    const title = h("h4", { tabindex: "0" }, words);
    owner.tip.add(title, () => [
      h("b", {}, attention.label),
      h("div", {}, `Layer ${layer} of the target, ${of}. Small weights are not recorded.`),
    ]);
    const box = h("div", { class: "sv-looked" }, title);
    if (!look.length) return SV.append(box, [h("p", { class: "sv-faint" }, "No large weight was recorded.")]);
    const list = h("ul", {});
    for (const one of look.slice(0, PLACES)) {
      const go = h(
        "button",
        { type: "button", class: "sv-go", onclick: () => owner.reveal(one.position, true) },
        h("span", { class: "sv-place" }, owner.short(one.position)),
        " ",
        h("code", {}, label(owner, owner.model.id(one.position), 10)),
        " ",
        probability(one.weight),
      );
      go.addEventListener("pointerenter", () => owner.light([one.position]));
      go.addEventListener("pointerleave", () => owner.light([]));
      list.append(h("li", {}, go));
    }
    return SV.append(box, [list]);
  }

  // ---- words ------------------------------------------------------------------------------------------------------

  const beams = (view) => view.route.startsWith("beam");

  /** "a main chain of 4 tokens and 6 expansions beside it" */
  function offered(view) {
    const [chain, extra] = lanes(view);
    const others = beams(view) ? `${plural(extra, "token")} of other beams` : plural(extra, "expansion");
    return `a main chain of ${plural(chain, "token")} with ${others} beside it`;
  }

  /** Which part of a widened draft stood, as nodes; ``own`` says what made it stand. */
  function stood(owner, view, own) {
    const main = view.path.filter((node) => !beside(node));
    const extra = view.path.slice(main.length);
    const count = (n) => (n === 1 ? "first token" : `first ${n} tokens`);
    const all = main.length === lanes(view)[0];
    const parts = [];
    if (all) parts.push(`and the whole main chain was ${own}`);
    else if (main.length)
      parts.push(`the ${count(main.length)} of the main chain ${main.length === 1 ? "was" : "were"} ${own}`);
    if (!extra.length) return parts;
    parts.push(main.length ? "; then " : "and ");
    if (beams(view))
      return [
        ...parts,
        `${plural(extra.length, "token")} of another beam ${extra.length > 1 ? "were" : "was"} accepted`,
      ];
    const rank = numberOf(owner, extra[0], "draft_rank");
    const chain = view.nodes.find((node) => node.parent === extra[0].parent && node.index && !beside(node));
    parts.push(
      `an expansion${rank === null ? "" : ` (rank ${rank + 1})`} was accepted, `,
      quoted(owner, extra[0].token),
    );
    if (chain) parts.push(" in place of the main chain's ", quoted(owner, chain.token));
    return parts;
  }

  // ---- the panel --------------------------------------------------------------------------------------------------

  class DrafterView {
    constructor(owner) {
      this.owner = owner;
      Object.assign(this, SV.card("drafter", "Drafter"));
      this.strip = h("div", { class: "sv-places", role: "group", "aria-label": "Drafted positions" });
      this.parts = h("div", { class: "sv-drafter-parts" });
      this.body.append(this.parts);
      this.body.before(this.strip);
      this.shading = true;
      this.head = -1;
      this.layer = -1;
      this.chosen = this.shown = null; // {parent, node: index or −1, token}
      this.rare = false;
      this.look = [];
      this.chain = [];
      this.guesses = new Map();
      this.strip.addEventListener("keydown", (event) => this.key(event));
      lookTools(this, "Shade the text by where the draft model looked for this token");
    }

    /** What depends on the run alone. */
    describe() {
      const { model } = this.owner;
      this.on = present(model);
      this.owner.root.classList.toggle("sv-drafted", this.on);
      offerLooks(this, model.run.attention);
    }

    /** A step; it opens on its first rejected token of the chain, else on the last one. */
    draw(view) {
      this.view = view;
      this.look = [];
      if (!this.on) return;
      this.guesses = guesses(this.owner.model, view.number);
      this.chain = view.nodes.filter((node) => node.index && !beside(node));
      const first = this.chain.find((node) => node.status === "rejected") || this.chain[this.chain.length - 1];
      this.chosen = first ? this.of(first) : null;
      this.shown = this.chosen;
      this.rare = false;
      this.buildStrip();
      this.fill();
    }

    of(node) {
      return { parent: node.parent, node: node.index, token: node.token };
    }

    /** The choice an item of the tree stands for; null where the draft model said nothing there. */
    choice(item) {
      if (!item || !this.on) return null;
      if (item.kind === "node" && item.node.index) return this.of(item.node);
      const said = item.kind === "bonus" && this.guesses.has(this.view.last);
      return said ? { parent: this.view.last, node: -1, token: this.view.bonus } : null;
    }

    isChosen(item) {
      const one = this.choice(item);
      return !!one && !!this.chosen && one.parent === this.chosen.parent && one.node === this.chosen.node;
    }

    /** Shows an item of the tree for as long as it is hovered; null: what was chosen again. */
    preview(item) {
      if (!this.on || !this.view) return;
      const one = this.choice(item) || this.chosen;
      if (same(one, this.shown)) return;
      this.shown = one;
      this.refresh();
    }

    choose(one) {
      if (!one) return;
      if (!same(one, this.chosen)) this.rare = false;
      this.chosen = this.shown = one;
      this.owner.tree.mark();
      this.refresh();
      this.bring();
    }

    /** Scrolls the prompt to the place looked at most, unless the panes are to stay where they are. */
    bring() {
      if (this.owner.follow) this.owner.reveal(heaviest(this));
    }

    refresh() {
      if (!this.view) return;
      this.markStrip();
      this.fill();
      SV.marks.shade(this.owner, this.view);
    }

    /** Up and down: the positions of the draft. */
    key(event) {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!by) return;
      event.preventDefault();
      const at = this.chain.findIndex((node) => node.parent === this.shown.parent);
      const next = this.chain[SV.clamp(at + by, 0, this.chain.length - 1)];
      this.choose(this.of(next));
      this.strip.children[this.chain.indexOf(next)].focus({ preventScroll: false });
    }

    /** Down and up in the tree: from position to position, there from the chain's token to those beside it. */
    walk(by) {
      const order = (node) => node.depth * 1e4 + (beside(node) ? 1 : 0) * 1e3 + node.index / 1e3;
      const all = this.view.nodes.filter((node) => node.index).sort((a, b) => order(a) - order(b));
      const at = all.findIndex((node) => this.chosen && node.index === this.chosen.node);
      const next = all[SV.clamp(at + by, 0, all.length - 1)];
      if (next) this.choose(this.of(next));
    }

    // ---- positions ------------------------------------------------------------------------------------------------

    /** One button per position of the chain: its token, how sure the draft model was, what became of it. */
    buildStrip() {
      const { model } = this.owner;
      this.strip.hidden = !this.chain.length;
      this.strip.replaceChildren(
        ...this.chain.map((node) => {
          const confidence = numberOf(this.owner, node, "confidence");
          const siblings = this.view.nodes.filter((one) => one.parent === node.parent && one !== node);
          const taken = siblings.find((one) => one.status === "accepted");
          const rank = numberOf(this.owner, taken, "draft_rank");
          const level = h("i", { style: `width:${Math.round(100 * (confidence || 0))}%` });
          const token = h("code", { class: `sv-state-${node.status}` }, model.pieces.label(node.token, 12));
          const instead = taken && [
            " ",
            h("code", { class: "sv-state-accepted" }, model.pieces.label(taken.token, 12)),
            h("b", { class: "sv-mark-e" }, `E${rank === null ? "" : rank + 1}`),
          ];
          const more = siblings.length && !taken ? h("small", {}, ` +${siblings.length}`) : null;
          const said = taken ? `; an expansion${rank === null ? "" : ` (rank ${rank + 1})`} was accepted` : "";
          const label =
            `Position ${node.depth}: ${model.pieces.label(node.token)}, confidence ${probability(confidence)}, ` +
            `${STATES[node.status]}${said}`;
          return h(
            "button",
            {
              type: "button",
              class: "sv-place-of",
              "aria-label": label,
              onclick: () => this.choose(this.of(node)),
            },
            h("span", { class: "sv-place-text" }, h("small", {}, `${node.depth} `), token, instead, more),
            h("span", { class: "sv-sure" }, level),
            h("span", { class: "sv-sure-number" }, probability(confidence)),
          );
        }),
      );
      this.markStrip();
    }

    markStrip() {
      this.chain.forEach((node, k) => {
        const here = !!this.shown && this.shown.parent === node.parent;
        this.strip.children[k].setAttribute("aria-pressed", String(here));
        this.strip.children[k].tabIndex = here || (k === 0 && !this.onChain()) ? 0 : -1;
      });
    }

    onChain() {
      return !!this.shown && this.chain.some((node) => node.parent === this.shown.parent);
    }

    // ---- one position ---------------------------------------------------------------------------------------------

    fill() {
      const { shown, view } = this;
      if (!shown) {
        const why = view.reason || "the draft model was not asked";
        this.look = [];
        this.note.textContent = "no draft this step";
        this.parts.replaceChildren(h("p", { class: "sv-empty" }, `No draft this step: ${why.replace(/\.$/, "")}.`));
        return;
      }
      this.node = view.nodes[shown.node] || null;
      // what holds of a position is recorded with any of its tokens
      this.any = this.node || view.nodes.find((node) => node.index && node.parent === shown.parent);
      const after = shown.parent ? view.nodes[shown.parent].token : view.root;
      this.note.replaceChildren("what follows ", h("code", {}, label(this.owner, after, 14)));
      const { attention } = this.owner.model.run;
      this.look = attention ? looks(this.owner.model, view.number, shown.parent, this.layer, this.head) : [];
      const list = this.guesses.get(shown.parent) || [];
      this.parts.replaceChildren(
        h("div", { class: "sv-drafter-side" }, this.verdict(), this.sureness(), this.looked()),
        h("div", { class: "sv-drafter-main" }, this.pairs(list), this.residual(list)),
      );
    }

    /** What became of the token, in a sentence. */
    verdict() {
      const { owner, node, view, shown } = this;
      const line = h("p", { class: "sv-verdict" });
      const say = (...words) => SV.append(line, words);
      const after = shown.parent ? view.nodes[shown.parent].token : view.root;
      if (!node)
        return say("After ", quoted(owner, after), " the target wrote ", quoted(owner, shown.token), " itself.");
      if (view.bonus === SV.OPEN) return say(quoted(owner, node.token), ": not checked yet.");
      const status = h("b", { class: `sv-state-${node.status}` }, STATES[node.status]);
      const part = beside(node)
        ? beams(view)
          ? "another beam"
          : "an expansion"
        : lanes(view)
          ? "the main chain"
          : "the draft";
      const rank = numberOf(owner, node, "draft_rank");
      const which = beside(node) && rank !== null ? `${part} (rank ${rank + 1})` : part;
      const draw = numberOf(owner, node, "draw");
      const ratio = numberOf(owner, node, "accept_ratio");
      if (draw !== null && ratio !== null) {
        const stands = node.status === "accepted";
        const words = h("span", { class: "sv-draw", tabindex: "0" });
        SV.append(words, [`draw ${format(draw, 2)} ${stands ? "<" : "≥"} p/q ${format(ratio, 2)}: `, status]);
        if (!stands)
          SV.append(words, ["; the residual gave “", view.bonus < 0 ? "stop" : label(owner, view.bonus), "”"]);
        owner.tip.add(words, () => [
          h("div", { class: "sv-formula" }, "accept ratio = min(1, p ÷ q)"),
          h("div", {}, "A uniform number below it lets the drawn token stand."),
        ]);
        return say(quoted(owner, node.token), ` of ${which}, `, words, ".");
      }
      say(quoted(owner, node.token), ` of ${which}: `, status, ". ");
      if (node.status === "unreached") return say("The target refused a token before it.");
      if (node.status !== "rejected") return line;
      const instead = view.nodes.find((one) => one.parent === node.parent && one.status === "accepted");
      if (instead && beside(instead)) {
        const place = numberOf(owner, instead, "draft_rank");
        return say(
          `Here an expansion${place === null ? "" : ` (rank ${place + 1})`} was accepted: `,
          quoted(owner, instead.token),
          ".",
        );
      }
      return instead
        ? say("Here the main chain's ", quoted(owner, instead.token), " was accepted.")
        : say("The target wrote ", quoted(owner, view.bonus), " instead.");
    }

    /** Confidence and its tenth, the candidates there, ranks, overlap and delay. */
    sureness() {
      const { owner, view, shown, any, node } = this;
      const confidence = numberOf(owner, any, "confidence");
      if (confidence === null) return null;
      const bin = numberOf(owner, any, "bin");
      const here = view.nodes.filter((one) => one.index && one.parent === shown.parent);
      const extra = here.filter(beside).length;
      const tenths = h("span", { class: "sv-tenths", "aria-hidden": "true" });
      for (let k = 0; k < TENTHS; k++) tenths.append(h("i", { class: k === bin ? "sv-this" : "" }));
      tenths.append(h("b", { style: `width:${(100 * confidence).toFixed(1)}%` }));
      const granted =
        view.route === "cape"
          ? `${nth(bin + 1)} tenth: CAPE grants ${plural(here.length, "candidate")}`
          : `${nth(bin + 1)} tenth; ${plural(here.length, "candidate")} here`;
      const parts = extra ? ` (${plural(extra, "expansion")})` : "";
      const box = h(
        "div",
        { class: "sv-sureness", tabindex: "0" },
        h("span", {}, "Confidence ", h("b", {}, probability(confidence))),
        tenths,
        bin === null ? null : h("span", { class: "sv-faint" }, granted + parts),
      );
      owner.tip.add(box, () => [
        h("b", {}, "Confidence"),
        h("div", { class: "sv-formula" }, `= max q = ${format(confidence)}`),
        h("div", {}, "The draft model's highest probability here. CAPE puts more candidates where it is lower."),
      ]);
      const rank = numberOf(owner, node, "draft_rank");
      const theirs = node && node.rank >= 0 ? `, the target's no. ${node.rank + 1}` : "";
      const choices = rank === null ? null : h("p", {}, `The drafter's no. ${rank + 1}${theirs}.`);
      return h("div", { class: "sv-drafter-facts" }, box, choices, this.origin(), this.delay());
    }

    /** How a draft model with prompt tokens of its own came to the token. */
    origin() {
      const forward = numberOf(this.owner, this.node, "draft_forward");
      if (forward === null) return null;
      const by = numberOf(this.owner, this.node, "distance");
      if (by !== null)
        return h("p", {}, `Guessed by the drafter's prompt token ${by}, and confirmed in its forward ${forward}.`);
      return h("p", {}, forward ? `Written by the drafter's forward ${forward}.` : "Known from an earlier step.");
    }

    /** "Saw the target's keys up to position 174 (line 12); 2 positions behind." */
    delay() {
      const late = numberOf(this.owner, this.any, "kv_delay");
      if (late === null) return null;
      const newest = this.view.context - 2 + this.any.depth - late;
      const words = h("p", { tabindex: "0" });
      if (newest < 0) words.append("No key of the target was there to read.");
      else
        words.append(
          `Saw the target's keys up to position ${newest.toLocaleString("en")} (${this.owner.where(newest)}); `,
          h("b", {}, `${plural(late, "position")} behind`),
          ".",
        );
      return this.owner.tip.add(words, () => [
        h("b", {}, "KV delay"),
        h("div", {}, "From the newest of the target's keys it saw to the last token the draft model read."),
      ]);
    }

    looked() {
      return this.owner.model.run.attention ? lookedAt(this, "Where the draft model looked") : null;
    }

    // ---- draft against target ---------------------------------------------------------------------------------------

    /** Both distributions, token by token: a shared part, and what only one of them gives. */
    pairs(list) {
      if (!list.length)
        return h(
          "p",
          { class: "sv-empty" },
          "The draft model did not go on from here: there is nothing to compare.",
        );
      const { owner } = this;
      const drawn = this.view.route === "drawn";
      const key = (name, text) => h("span", {}, h("i", { class: `sv-pair-key sv-pair-${name}` }), text);
      const head = h(
        "div",
        { class: "sv-pairs-head" },
        h("h4", {}, "Draft model against target"),
        h("span", { class: "sv-pair-keys" }, key("q", "drafter q"), key("p", "target p"), key("both", "shared")),
      );
      owner.tip.add(head, () => [
        drawn ? "Probabilities after the run's temperature, top-k and top-p." : "Probabilities at temperature 1.",
      ]);
      const table = h("div", { class: "sv-pairs", role: "table", "aria-label": "Draft model against target" });
      table.append(
        h(
          "div",
          { class: "sv-pair-row sv-pair-top", role: "row" },
          ["#", "token", "", "q", "p"].map((name) => h("span", { role: "columnheader" }, name)),
        ),
      );
      const beta = numberOf(owner, this.any, "overlap");
      const tokens = list.map((one) => this.state(one));
      const rare = tokens.filter((one) => !one.role && one.q < LEAST && one.p < LEAST);
      for (const one of tokens) if (this.rare || !rare.includes(one)) table.append(this.pair(one));
      const more = rare.length
        ? h(
            "button",
            {
              type: "button",
              class: "sv-go sv-rare",
              "aria-expanded": String(this.rare),
              onclick: () => {
                this.rare = !this.rare;
                this.fill();
                this.parts.querySelector(".sv-rare").focus();
              },
            },
            this.rare ? "fewer" : `${plural(rare.length, "more token")} below ${probability(LEAST)}`,
          )
        : null;
      return h("section", {}, head, beta === null ? null : this.overlap(beta), table, more);
    }

    /** β: how far the two distributions overlap. */
    overlap(beta) {
      const share = (value) => `${(100 * value).toFixed(1)}%`;
      const box = h(
        "div",
        { class: "sv-beta", tabindex: "0" },
        h("span", {}, "overlap β ", h("b", {}, probability(beta))),
        h(
          "span",
          { class: "sv-pair-bars", "aria-hidden": "true" },
          h("i", { class: "sv-pair-q", style: "width:100%" }),
          h("i", { class: "sv-pair-p", style: "width:100%" }),
          h("i", { class: "sv-pair-both", style: `width:${share(beta)}` }),
        ),
      );
      return this.owner.tip.add(box, () => [
        h("b", {}, "Overlap β"),
        h("div", { class: "sv-formula" }, `= Σ min(p, q) = ${format(beta)}`),
        h("div", {}, "Over the whole vocabulary: how likely a token drawn from the drafter is accepted here."),
      ]);
    }

    /** A guess with what it was in this step: {…, role, words, node}. */
    state(one) {
      const { view, shown } = this;
      const node =
        view.nodes.find((it) => it.index && it.parent === shown.parent && it.token === one.token) || null;
      if (node) {
        const rank = numberOf(this.owner, node, "draft_rank");
        const name = beside(node) ? `E${rank === null ? "" : rank + 1}` : lanes(view) ? "chain" : "drafted";
        return { ...one, node, role: node.status, words: STATES[node.status], name };
      }
      if (shown.parent === view.last && one.token === view.bonus) {
        const redrawn = one.residual !== null;
        return { ...one, node, role: "own", words: redrawn ? "drawn from the residual" : "written by the target" };
      }
      return { ...one, node, role: "", words: "" };
    }

    pair(one) {
      const { owner, shown } = this;
      const width = (value) => `width:${Math.max(value > 0 ? 0.4 : 0, 100 * value).toFixed(1)}%`;
      const both = Math.min(one.p, one.q);
      const tag = one.role ? h("small", { class: `sv-role sv-role-${one.role}` }, one.words) : null;
      const name = one.name
        ? h("small", { class: `sv-role-name ${one.name[0] === "E" ? "sv-mark-e" : ""}` }, one.name)
        : null;
      const row = h(
        "div",
        { class: `sv-pair-row${one.token === shown.token ? " sv-this" : ""}`, role: "row" },
        h("span", { class: "sv-pair-rank", role: "cell" }, String(one.rank + 1)),
        h(
          "span",
          { class: "sv-pair-token", role: "cell" },
          h("code", { class: one.role ? `sv-state-${one.role}` : "" }, label(owner, one.token, 16)),
          name,
          tag,
        ),
        h(
          "span",
          { class: "sv-pair-bars", role: "cell", "aria-hidden": "true" },
          h("i", { class: "sv-pair-q", style: width(one.q) }),
          h("i", { class: "sv-pair-p", style: width(one.p) }),
          both >= 0.002 ? h("i", { class: "sv-pair-both", style: width(both) }) : null,
        ),
        h("span", { class: "sv-pair-number", role: "cell" }, probability(one.q)),
        h("span", { class: "sv-pair-number", role: "cell" }, probability(one.p)),
      );
      return owner.tip.add(row, () => [
        h("code", { class: "sv-token" }, label(owner, one.token)),
        SV.facts([
          ["drafter", `q = ${format(one.q)}, its choice no. ${one.rank + 1}`],
          ["target", `p = ${format(one.p)}`],
          ["shared", `min(p, q) = ${format(both)}`],
          ["residual", one.residual === null ? "" : format(one.residual)],
          ["here", one.words],
        ]),
      ]);
    }

    /** What a rejected draw was replaced from. */
    residual(list) {
      const some = list.filter(
        (one) => one.residual >= LEAST || (one.residual !== null && this.state(one).role === "own"),
      );
      if (!some.length) return null;
      const { owner, view } = this;
      const beta = numberOf(owner, this.any, "overlap");
      const title = h("h4", { tabindex: "0" }, "Residual, that replaced the rejected draw");
      owner.tip.add(title, () => [
        h("div", { class: "sv-formula" }, "= max(0, p − q) ÷ Σ max(0, p − q)"),
        h(
          "div",
          {},
          `What the target gives beyond the drafter${beta === null ? "" : `: 1 − β = ${format(1 - beta)}`}.`,
        ),
      ]);
      const table = h("div", { class: "sv-pairs sv-residual", role: "table", "aria-label": "Residual" });
      for (const one of some.sort((a, b) => b.residual - a.residual).slice(0, 8)) {
        const taken = one.token === view.bonus;
        table.append(
          h(
            "div",
            { class: `sv-pair-row${taken ? " sv-this" : ""}`, role: "row" },
            h("span", { class: "sv-pair-rank", role: "cell" }, String(one.rank + 1)),
            h(
              "span",
              { class: "sv-pair-token", role: "cell" },
              h("code", { class: taken ? "sv-state-own" : "" }, label(owner, one.token, 16)),
              taken ? h("small", { class: "sv-role sv-role-own" }, "drawn") : null,
            ),
            h(
              "span",
              { class: "sv-pair-bars", role: "cell", "aria-hidden": "true" },
              h("i", { class: "sv-pair-left", style: `width:${(100 * one.residual).toFixed(1)}%` }),
            ),
            h("span", { class: "sv-pair-number", role: "cell" }, probability(one.residual)),
          ),
        );
      }
      return h("section", {}, title, table);
    }

    clear() {
      this.view = this.chosen = this.shown = null;
      this.look = [];
      this.chain = [];
      this.guesses = new Map();
      this.strip.replaceChildren();
      this.parts.replaceChildren();
    }
  }

  const STATES = { accepted: "accepted", rejected: "rejected", unreached: "never checked" };

  const label = (owner, id, most) => owner.model.pieces.label(id, most);

  const same = (a, b) =>
    a === b || (!!a && !!b && a.parent === b.parent && a.node === b.node && a.token === b.token);

  Object.assign(SV, { DrafterView, drafting: { lanes, offered, stood, looks, lookTools, offerLooks, heaviest, lookedAt } });
})((window.SpecViz = window.SpecViz || {}));
