/* The draft tree of a step, as SVG: accepted path straight, the rest below it, the target's own token at the end. */
(function (SV) {
  "use strict";

  const { h, s, probability, plural, facts, format } = SV;
  const NODE = 38;
  const ROW = 48;
  const GAP = 20;
  const MARGIN = 10;
  const HUNG_ROW = 62; // of nodes with their prompt tokens below them
  const DISTANCES = 17; // above such a tree: how far ahead a column's tokens were guessed
  const LEAF = 24; // an expansion that was not accepted is smaller
  const LEAF_ROW = 30;
  const FOLD_OVER = 40; // nodes
  const FEW = 3; // a subtree up to this size is not worth a chip
  const SIBLINGS = 5; // rejected siblings shown before the rest is folded
  const LABEL = 14; // characters

  const STATUS = {
    root: "last written token",
    accepted: "accepted",
    rejected: "rejected",
    unreached: "never checked: its parent was not accepted",
    bonus: "the target's own token",
  };

  const corner = (w, h, r) =>
    `M${r} 0H${w - r}Q${w} 0 ${w} ${r}V${h - r}Q${w} ${h} ${w - r} ${h}H${r}Q0 ${h} 0 ${h - r}V${r}Q0 0 ${r} 0Z`;

  // how a node's box tells where its token came from: [letter, outline]
  const ORIGINS = {
    main: ["", (w, h) => corner(w, h, h / 6)],
    // a pointed left side: it springs from the place before it
    branch: [
      "B",
      (w, h) => `M${h / 5} 0H${w - 5}Q${w} 0 ${w} 5V${h - 5}Q${w} ${h} ${w - 5} ${h}H${h / 5}L0 ${h / 2}Z`,
    ],
    // a notched one: it goes on from a branch
    successor: ["S", (w, h) => `M0 0H${w - 5}Q${w} 0 ${w} 5V${h - 5}Q${w} ${h} ${w - 5} ${h}H0L${h / 5} ${h / 2}Z`],
    // a book's spine
    datastore: ["D", (w, h) => `M0 0H${w}V${h}H0ZM${h / 9} 0V${h}`],
    // cut corners
    expansion: ["E", (w, h) => `M7 0H${w - 7}L${w} 7V${h - 7}L${w - 7} ${h}H7L0 ${h - 7}V7Z`],
    // a dog's ear
    prompt: ["P", (w, h) => `M0 0H${w - h / 4}L${w} ${h / 4}V${h}H0ZM${w - h / 4} 0V${h / 4}H${w}`],
    drafter: ["", (w, h) => corner(w, h, h / 2.4)],
  };
  const letterOf = (origin) => (ORIGINS[origin] ? ORIGINS[origin][0] : origin.charAt(0).toUpperCase());

  /** A node's outline, by its origin. */
  const outline = (origin, width, height) => (ORIGINS[origin] || ORIGINS.main)[1](width, height);

  /** Sets what differs from the last time: an attribute costs a style pass, a string comparison does not. */
  function set(element, name, value) {
    const had = element.svSet || (element.svSet = {});
    if (had[name] === value) return;
    had[name] = value;
    if (value === null) element.removeAttribute(name);
    else element.setAttribute(name, value);
  }

  function write(element, text) {
    if (element.svText === text) return;
    element.svText = text;
    element.textContent = text;
  }

  /** The drawing of one item; used again for another item of another step. */
  class Box {
    constructor() {
      this.shape = s("path", { class: "sv-box" });
      this.label = s("text", { class: "sv-label", y: 17 });
      this.small = s("text", { class: "sv-small", y: 30 });
      this.group = s("g", {}, this.shape, this.label, this.small);
      this.group.svBox = this;
    }

    /** A part that only some items have: made when first needed, taken out where it is not. */
    part(name, wanted, make, before = null) {
      if (!wanted) {
        if (this[name] && this[name].parentNode) this[name].remove();
        return null;
      }
      if (!this[name]) this[name] = make();
      if (!this[name].parentNode) this.group.insertBefore(this[name], before);
      return this[name];
    }
  }

  /** The items to draw: nodes, the target's own token, and chips that stand for folded nodes. */
  function items(view, opened) {
    const children = view.nodes.map(() => []);
    for (const node of view.nodes) if (node.parent >= 0) children[node.parent].push(node);
    const fold = view.nodes.length > FOLD_OVER;
    const wide = !!SV.drafting.lanes(view); // a main chain straight on, its expansions in a lane below it
    const size = (node) => 1 + children[node.index].reduce((sum, child) => sum + size(child), 0);
    const chip = (nodes, depth, key, what) => {
      const count = nodes.reduce((sum, node) => sum + size(node), 0);
      return { kind: "chip", count, depth, key, what, children: [] };
    };
    const deep = (node) => node.status === "rejected" || node.status === "unreached";
    const small = (node) => wide && node.origin === "expansion" && node.status !== "accepted";
    const build = (node) => {
      const item = { kind: "node", node, depth: node.depth, children: [], small: small(node) };
      const mine = children[node.index];
      const taken = mine.filter((child) => child.status === "accepted");
      const rest = mine.filter((child) => child.status !== "accepted");
      const main = wide && rest.length && rest[0].origin !== "expansion" ? rest.splice(0, 1) : [];
      if (!deep(node)) item.children.push(...main.map(build));
      if (node.index === view.last && view.bonus !== SV.OPEN)
        item.children.push({ kind: "bonus", depth: node.depth + 1, children: [] });
      item.children.push(...taken.map(build));
      if (deep(node)) rest.unshift(...main);
      if (!rest.length) return item;
      const below = `under ${node.index}`;
      const beside = `beside ${node.index}`;
      if (fold && deep(node) && size(node) > FEW && !opened.has(below)) {
        item.children.push(chip(rest, node.depth + 1, below, "never checked"));
      } else if (fold && rest.length > SIBLINGS + 1 && !opened.has(beside)) {
        item.children.push(...rest.slice(0, SIBLINGS).map(build));
        item.children.push(chip(rest.slice(SIBLINGS), node.depth + 1, beside, "more"));
      } else {
        item.children.push(...rest.map(build));
      }
      return item;
    };
    return Object.assign(build(view.nodes[0]), { wide });
  }

  const stands = (item) => item.kind === "bonus" || (item.kind === "node" && item.node.status === "accepted");

  /** Gives every item a row; subtrees share rows where they do not meet. Returns the items in drawing order. */
  function arrange(root) {
    const rows = [];
    const placed = [];
    const chain = (item) => {
      const line = [item];
      while (line[line.length - 1].children.length) line.push(line[line.length - 1].children[0]);
      return line;
    };
    const free = (row, from, to) => !(rows[row] || []).some(([a, b]) => from <= b && to >= a);
    const crosses = (row, depth) => (rows[row] || []).some(([a, b]) => a < depth && b >= depth);
    const place = (item, row) => {
      const line = chain(item);
      (rows[row] = rows[row] || []).push([item.depth, line[line.length - 1].depth]);
      for (const one of line) {
        one.row = row;
        placed.push(one);
      }
      const below = new Map(); // item → the row its last child was given
      const taken = new Set();
      const drop = (one, child) => {
        child.after = below.get(one) || row;
        const last = chain(child);
        let next = child.after + 1;
        const blocked = () => !free(next, child.depth, last[last.length - 1].depth) || crosses(next, child.depth);
        while (blocked() && next < 4000) next++;
        place(child, next);
        below.set(one, next);
        taken.add(next);
      };
      line.reverse();
      // what was accepted or written beside a chain lies nearest to it
      for (const told of [true, false]) {
        for (const one of line)
          for (const child of one.children.slice(1)) if (stands(child) === told) drop(one, child);
        if (root.wide && told) for (const shared of taken) rows[shared].push([0, Infinity]); // for no leaves
      }
    };
    place(root, 0);
    return { placed, rows: rows.length };
  }

  class TreeView {
    constructor(owner) {
      this.owner = owner;
      Object.assign(this, SV.card("tree", "Draft tree"));
      this.choices = h("div", { class: "sv-choices" });
      this.bar.append(this.choices);
      this.opened = new Set();
      this.room = 800;
      this.settled = true;
      this.moved = false; // the user or settle() scrolled it
      this.body.addEventListener("scroll", () => (this.moved = true), { passive: true });
      this.widths = new Map();
      this.pen = document.createElement("canvas").getContext("2d");
      this.boxes = [];
      this.shown = 0;
      this.lit = null;
      this.frame();
    }

    /** The SVG: one path per status, the accepted one last, so that it lies on top; then the boxes. */
    frame() {
      this.svg = s("svg", { class: "sv-tree-svg", role: "group" });
      this.edges = {};
      this.lane = s(
        "g",
        { class: "sv-lane", "aria-hidden": "true" },
        s("rect", { rx: 8 }),
        s("text", { "text-anchor": "end" }, "expansions"),
      );
      this.distances = s("g", { class: "sv-distances", "aria-hidden": "true" });
      this.svg.append(this.lane, this.distances);
      for (const status of ["chip", "unreached", "rejected", "bonus", "accepted"]) {
        this.edges[status] = s("path", { class: `sv-edge sv-edge-${status}` });
        this.svg.append(this.edges[status]);
      }
      const boxOf = (event) => {
        const group = event.target.closest && event.target.closest(".sv-node");
        return group ? group.svBox : null;
      };
      this.svg.addEventListener("pointerover", (event) => this.hover(boxOf(event)));
      this.svg.addEventListener("pointerleave", () => this.hover(null));
      const act = (event) => {
        const box = boxOf(event);
        if (!box || (event.type === "keydown" && event.key !== "Enter" && event.key !== " ")) return;
        if (box.item.kind === "chip") return this.open(event, box.item);
        this.owner.picker.choose(this.owner.picker.choice(box.item));
        if (event.type === "click" && box.place >= 0) this.owner.reveal(box.place, true);
      };
      this.svg.addEventListener("click", act);
      this.svg.addEventListener("keydown", (event) => {
        const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        const box = boxOf(event);
        const { picker } = this.owner;
        if (!by || !box || box.item.kind === "chip" || !picker.on) return act(event);
        event.preventDefault();
        picker.walk(by);
        const to = this.boxes.slice(0, this.shown).find((one) => picker.isChosen(one.item));
        if (to) to.group.focus();
      });
    }

    /** Lights the place a node was copied from, or the anchor in whose distribution it was found. */
    hover(box) {
      if (box === this.lit) return;
      this.lit = box;
      this.owner.picker.preview(box && box.item);
      const anchored = box && box.anchored;
      this.owner.light(box && box.place >= 0 ? [box.place] : [], anchored ? "sv-light-anchor" : "sv-light");
    }

    clear() {
      this.body.replaceChildren();
      this.note.textContent = "";
      this.choices.hidden = true;
    }

    draw(view, keep) {
      if (!keep) this.opened.clear();
      this.view = view;
      const { placed, rows } = arrange(items(view, this.opened));
      const columns = [];
      for (const item of placed) {
        this.caption(item, view);
        columns[item.depth] = Math.max(columns[item.depth] || 0, item.width);
      }
      const lefts = [MARGIN];
      columns.forEach((width, depth) => (lefts[depth + 1] = lefts[depth] + (width || 0) + GAP));
      const width = lefts[columns.length] - GAP + MARGIN;
      const low = Array.from({ length: rows }, () => true); // rows of leaves alone
      for (const item of placed) if (!item.small) low[item.row] = false;
      const hangs = this.owner.prompts.on;
      const high = hangs ? HUNG_ROW : ROW;
      this.tops = [MARGIN + (hangs ? DISTANCES : 0)];
      low.forEach((leaves, row) => (this.tops[row + 1] = this.tops[row] + (leaves ? LEAF_ROW : high)));
      const height = this.tops[rows] - (hangs ? 0 : ROW - NODE) + 2 * MARGIN;
      for (const item of placed) {
        item.x = lefts[item.depth];
        item.high = item.small ? LEAF : NODE;
        // a leaf in a higher row stands in its middle, as what is joined to it does
        item.y = this.tops[item.row] + (item.small && !low[item.row] ? (NODE - LEAF) / 2 : 0);
        item.axis = item.y + item.high / 2;
      }
      this.drawLane(placed, width);
      this.drawDistances(lefts, hangs ? view.depth : 0);
      const { svg } = this;
      set(svg, "width", width);
      set(svg, "height", height);
      set(svg, "viewBox", `0 0 ${width} ${height}`);
      set(svg, "aria-label", `Draft tree of step ${view.number + 1}`);
      const paths = { chip: "", unreached: "", rejected: "", bonus: "", accepted: "" };
      for (const item of placed)
        for (const child of item.children) paths[this.status(child)] += this.edge(item, child);
      for (const [status, d] of Object.entries(paths)) set(this.edges[status], "d", d);
      this.lit = null;
      placed.forEach((item, k) => this.fill(this.boxes[k] || this.makeBox(k), item, view));
      for (let k = placed.length; k < this.shown; k++) this.boxes[k].group.remove();
      for (let k = this.shown; k < placed.length; k++) svg.append(this.boxes[k].group);
      this.shown = placed.length;
      if (svg.parentNode !== this.body) this.body.replaceChildren(svg);
      const deep = view.depth === view.drafted ? "" : `, ${view.depth} deep`;
      const stood = view.bonus === SV.OPEN ? "not checked yet" : `${view.accepted} accepted`;
      this.note.textContent = view.drafted ? `${view.drafted} drafted${deep} · ${stood}` : "no draft this step";
      this.drawChoices(view);
      const end = placed.find((item) => item.kind === "bonus");
      const right = (end ? end.x + end.width + MARGIN : 0) * this.owner.zoom;
      this.wanted = right > this.room ? right - this.room * 0.72 : 0;
      if (!keep) this.settled = false;
    }

    /** Scrolls so that the end of the accepted path is seen. Apart from draw(), as scrolling costs a layout. */
    settle() {
      if (this.settled) return;
      this.settled = true;
      if (this.wanted || this.moved) this.body.scrollTo(this.wanted, 0);
      this.moved = this.wanted > 0;
    }

    resized() {
      this.room = this.body.clientWidth;
    }

    measure(text) {
      let width = this.widths.get(text);
      if (width === undefined) {
        this.pen.font = `12.5px ${this.owner.colors.mono}`;
        width = this.pen.measureText(text).width;
        this.widths.set(text, width);
      }
      return width;
    }

    /** Sets an item's text, second line and width. */
    caption(item, view) {
      const { pieces } = this.owner.model;
      if (item.kind === "chip") {
        item.text = `+${item.count}`;
        item.line = item.what;
      } else if (item.kind === "bonus") {
        item.token = view.bonus;
        const choice = (view.targets.get(view.last) || []).findIndex((one) => one.token === view.bonus);
        item.rank = choice;
        item.prob = choice >= 0 ? view.targets.get(view.last)[choice].prob : null;
        item.text = view.bonus < 0 ? "■ stop" : pieces.label(view.bonus, LABEL);
        item.line = item.prob === null || view.bonus < 0 ? "" : `${probability(item.prob)} #${choice + 1}`;
      } else {
        const { node } = item;
        item.text = pieces.label(node.token, LABEL);
        item.prob = node.prob;
        const draft =
          node.draftProb === null || node.draftProb === undefined ? "" : ` q${probability(node.draftProb)}`;
        const verdict = view.bonus === SV.OPEN ? "" : `${probability(node.prob)} #${node.rank + 1}`;
        item.line = node.index ? `${verdict}${draft}`.trim() : "root";
        if (item.small) return this.captionLeaf(item, draft.trim());
      }
      item.width = Math.max(46, Math.ceil(this.measure(item.text)) + 16, item.line.length * 5.6 + 12);
      if (item.depth === 0 && SV.drafting.lanes(view)) item.width = Math.max(68, item.width); // the lane's name is below
      if (this.owner.prompts.on)
        item.width = Math.max(item.kind === "node" ? this.rail(item).width : 0, 62, item.width);
      item.middle = item.width / 2;
    }

    rail(item) {
      return SV.prompting.rail(this.owner.prompts.count(item.node.index));
    }

    /** Above each column of guesses: how far ahead they are. */
    drawDistances(lefts, depth) {
      while (this.distances.childElementCount < depth) this.distances.append(s("text", { y: MARGIN + 5 }));
      [...this.distances.children].forEach((text, k) => {
        set(text, "display", k < depth ? null : "none");
        if (k >= depth) return;
        set(text, "x", lefts[k + 1]);
        write(text, `distance ${k + 1}`);
      });
    }

    /** A leaf's one line: its token and the drafter's probability. */
    captionLeaf(item, draft) {
      item.line = draft;
      const text = Math.ceil(this.measure(item.text));
      const side = draft.length * 5.2;
      item.textMiddle = 9 + text / 2;
      item.sideMiddle = 13 + side / 2;
      item.width = Math.max(46, text + side + 30);
    }

    /** The lane of the expansions, behind them. */
    drawLane(placed, width) {
      const leaves = placed.filter(
        (item) => item.small || (item.kind === "node" && item.node.origin === "expansion"),
      );
      this.axes = [];
      for (const item of placed) this.axes[item.row] = item.axis;
      const shown = leaves.length > 0 && !!SV.drafting.lanes(this.view);
      set(this.lane, "display", shown ? null : "none");
      if (!shown) return;
      const top = Math.min(...leaves.map((item) => item.y)) - 8;
      const bottom = Math.max(...leaves.map((item) => item.y + item.high)) + 7;
      const left = Math.min(...leaves.map((item) => item.x)) - GAP + 2;
      const [rect, name] = this.lane.children;
      set(rect, "x", left);
      set(rect, "y", top);
      set(rect, "width", width - left - 2);
      set(rect, "height", bottom - top);
      set(name, "x", left - 8);
      set(name, "y", top + 22);
    }

    status(item) {
      return item.kind === "node" ? item.node.status : item.kind;
    }

    edge(from, to) {
      // a trunk grows from sibling to sibling, so that dashes never lie on dashes
      const y1 = to.row > from.row && to.after > from.row ? this.axes[to.after] : from.axis;
      const y2 = to.axis;
      const turn = to.x - GAP / 2;
      const start = from.x + from.width;
      return from.row === to.row
        ? `M${start} ${y1}H${to.x}`
        : `M${turn} ${y1}V${y2 - 6}Q${turn} ${y2} ${turn + 6} ${y2}H${to.x}`;
    }

    makeBox(k) {
      const box = new Box();
      this.boxes[k] = box;
      this.owner.tip.add(box.group, () => this.explain(box.item, this.view));
      return box;
    }

    fill(box, item, view) {
      const status = this.status(item);
      const node = item.kind === "node" ? item.node : null;
      const { group } = box;
      const { model } = this.owner;
      const origin = node && node.index ? node.origin : "main";
      const anchor = node && node.source < 0 ? model.anchorOf(node) : -1;
      box.item = item;
      box.anchored = anchor >= 0;
      box.place = anchor >= 0 ? anchor : node ? node.source : -1;
      const copied = box.place >= 0 ? " sv-copied" : "";
      set(
        group,
        "class",
        `sv-node sv-node-${status} sv-of-${ORIGINS[origin] ? origin : "other"}${copied}${item.small ? " sv-leaf" : ""}`,
      );
      set(group, "transform", `translate(${item.x} ${item.y})`);
      set(
        box.shape,
        "d",
        item.kind === "chip" ? corner(item.width, NODE, NODE / 2) : outline(origin, item.width, item.high),
      );
      const doubled = () => s("path", { class: "sv-box sv-inner", transform: "translate(2.5 2.5)" });
      const inner = box.part("inner", status === "bonus", doubled, box.label);
      if (inner) set(inner, "d", corner(item.width - 5, NODE - 5, 4));
      set(box.label, "x", item.small ? item.textMiddle : item.middle);
      set(box.label, "y", item.small ? 16 : 17);
      set(box.small, "x", item.small ? item.width - item.sideMiddle : item.middle);
      set(box.small, "y", item.small ? 15.5 : 30);
      write(box.label, item.text);
      write(box.small, item.line);
      const bar = () => s("rect", { class: "sv-level", y: 33.5, height: 2 });
      const level = box.part("level", item.prob && node && node.index && !item.small, bar);
      if (level) {
        set(level, "x", 8);
        set(level, "width", Math.max(1, (item.width - 14) * item.prob));
      }
      this.badge(box, node);
      this.tag(box, item, node);
      this.hang(box, item, view);
      if (item.kind === "chip") {
        set(group, "tabindex", 0);
        set(group, "role", "button");
        set(group, "aria-pressed", null);
        set(group, "aria-label", `Show ${plural(item.count, "folded node")}`);
        return;
      }
      const token = item.kind === "bonus" ? view.bonus : node.token;
      const from = node && node.index && node.origin !== "main" ? `, ${node.origin}` : "";
      const count = node && this.owner.prompts.on ? this.owner.prompts.count(node.index) : -1;
      const leads = count < 0 ? "" : `, ${plural(count, "prompt token")}: state ${count} next`;
      this.pick(box);
      set(
        group,
        "aria-label",
        `${token < 0 ? "stop" : model.pieces.label(token)}: ${STATUS[status]}${from}${leads}`,
      );
    }

    /** The prompt tokens below a node, and the state they lead to; filled where acceptance ended. */
    hang(box, item, view) {
      const wanted = item.kind === "node" && this.owner.prompts.on;
      const hung = box.part("hung", wanted, () =>
        s(
          "g",
          {},
          s("path", { class: "sv-hung-marks" }),
          s("rect", { class: "sv-hung-pill", y: 1, height: 12, rx: 6 }),
          s("text", { class: "sv-hung-state", y: 10.4 }),
        ),
      );
      if (!hung) return;
      const { d, text, x, width } = this.rail(item);
      const [marks, pill, state] = hung.children;
      set(hung, "class", `sv-hung${item.node.index === view.last ? " sv-hung-read" : ""}`);
      set(hung, "transform", `translate(0 ${NODE})`);
      set(marks, "d", d);
      set(pill, "x", x);
      set(pill, "width", width - x);
      set(state, "x", (x + width) / 2);
      write(state, text);
    }

    /** A node that a panel can show is a button; the shown one is reached by Tab, the others from there. */
    pick({ group, item }) {
      const { picker } = this.owner;
      const open = !!picker.choice(item);
      const chosen = open && picker.isChosen(item);
      set(group, "tabindex", open ? (chosen ? 0 : -1) : null);
      set(group, "role", open ? "button" : "img");
      set(group, "aria-pressed", open ? String(chosen) : null);
    }

    /** What the panel beside the tree shows has changed. */
    mark() {
      for (const box of this.boxes.slice(0, this.shown)) if (box.item.kind !== "chip") this.pick(box);
    }

    /** The number of the source span a copied token came from; only where a span begins. */
    badge(box, node) {
      const above = node && this.view.nodes[node.parent];
      const wanted = node && node.span && !(above && above.span === node.span);
      const badge = box.part("number", wanted, () =>
        s(
          "g",
          {},
          s("circle", { class: "sv-badge", cx: 3, cy: 3, r: 7 }),
          s("text", { class: "sv-badge-text", x: 3, y: 6 }),
        ),
      );
      if (badge) write(badge.lastChild, String(node.span));
    }

    /** A letter where a part of the tree begins that is not the main copy, and its rank where one was recorded. */
    tag(box, item, node) {
      const above = node && this.view.nodes[node.parent];
      const guess = node && node.origin === "prompt"; // each is a guess of its own
      const begins = node && node.index && (guess || !(above && above.index && above.origin === node.origin));
      const letter = begins ? letterOf(node.origin) : "";
      const tag = box.part("letter", letter, () =>
        s(
          "g",
          {},
          s("rect", { class: "sv-tag", y: -5, height: 13, rx: 3 }),
          s("text", { class: "sv-tag-text", y: 5 }),
        ),
      );
      if (!tag) return;
      const ranked = this.owner.model.nodeTerms.find(({ key }) => key.endsWith("_rank"));
      const rank = ranked ? this.owner.model.nodeTerm(node, ranked.key) : null;
      const text = Number.isInteger(rank) ? `${letter}${rank + 1}` : letter;
      const width = 7 + 6 * text.length;
      const shift = item.small ? `${item.width - 8} 8.5` : `${item.width - width + 4} 0`;
      set(tag, "transform", `translate(${shift})`);
      set(tag.firstChild, "width", width);
      set(tag.lastChild, "x", width / 2);
      write(tag.lastChild, text);
    }

    /** Unfolds what a chip stands for. */
    open(event, item) {
      event.preventDefault();
      event.stopPropagation();
      const { scrollLeft, scrollTop } = this.body;
      this.opened.add(item.key);
      this.draw(this.view, true);
      this.body.scrollLeft = scrollLeft;
      this.body.scrollTop = scrollTop;
      this.body.focus({ preventScroll: true });
    }

    explain(item, view) {
      const { model } = this.owner;
      const { pieces } = model;
      if (item.kind === "chip") return [`Show ${plural(item.count, "folded node")} (${item.what})`];
      const status = this.status(item);
      const node = item.kind === "node" ? item.node : null;
      const token = node ? node.token : view.bonus;
      if (token < 0) return ["A stop token ended the run here."];
      const rows = [
        [
          "status",
          view.bonus === SV.OPEN && status === "unreached"
            ? "not checked yet"
            : STATUS[status] +
              (node && node.index && node.reason && node.reason !== status ? ` (${node.reason})` : ""),
        ],
        [
          "target",
          item.prob === null || item.prob === undefined
            ? ""
            : `${format(item.prob)}, its choice no. ${(node ? node.rank : item.rank) + 1}`,
        ],
        [
          node && node.origin === "prompt" ? "prompt token" : "drafter",
          node && node.draftProb !== null ? format(node.draftProb) : "",
        ],
        ["origin", node && node.index ? node.origin : ""],
        ["copied from", node && node.source >= 0 ? this.owner.where(node.source) : ""],
        ...(node ? this.numbers(node) : []),
        ["token", `${token} · bytes ${pieces.bytes(token)}`],
      ];
      const parts = [h("code", { class: "sv-token" }, pieces.label(token)), facts(rows)];
      const asked = node ? view.targets.get(node.parent) : view.targets.get(view.last);
      if (asked && asked.length)
        parts.push(h("div", { class: "sv-tip-head" }, "The target's first choices here"), this.bars(asked, token));
      return parts;
    }

    /** The method's own numbers of a node: [label, value]. */
    numbers(node) {
      const { model } = this.owner;
      const rows = [];
      for (const { key, label } of model.nodeTerms) {
        const value = model.nodeTerm(node, key);
        if (typeof value !== "number") continue;
        let shown = format(value);
        if (key.endsWith("_anchor") && model.id(value) !== undefined)
          shown = [
            `${this.owner.where(value)}, `,
            h("code", { class: "sv-token" }, model.pieces.label(model.id(value), LABEL)),
          ];
        else if (key.endsWith("_rank")) shown = `no. ${value + 1}`;
        else if (key.endsWith("_logprob")) shown = `${format(value)} (p = ${probability(Math.exp(value))})`;
        rows.push([label || key, shown]);
      }
      return rows;
    }

    bars(choices, token) {
      const { pieces } = this.owner.model;
      const list = h("div", { class: "sv-tip-bars" });
      for (const one of choices.slice(0, 6)) {
        const level = h("i", { style: `width:${Math.round(one.prob * 100)}%` });
        const name = h("code", { class: one.token === token ? "sv-this" : "" }, pieces.label(one.token, LABEL));
        list.append(name, h("span", { class: "sv-level-bar" }, level), h("span", {}, probability(one.prob)));
      }
      return list;
    }

    /** What the target would have said after the last accepted token, likeliest first; drafted ones are struck. */
    drawChoices(view) {
      const choices = view.targets.get(view.last) || [];
      this.choices.hidden = !choices.length;
      if (!choices.length) return;
      const { pieces } = this.owner.model;
      const after = view.last ? view.nodes[view.last].token : view.root;
      const refused = new Set(view.refused.map((node) => node.token));
      const parts = [
        h(
          "span",
          { class: "sv-choices-head" },
          "After ",
          h("code", { class: "sv-token" }, pieces.label(after, LABEL)),
          " the target prefers",
        ),
      ];
      choices.slice(0, 5).forEach((one) => {
        const status =
          one.token === view.bonus ? "sv-choice-own" : refused.has(one.token) ? "sv-choice-refused" : "";
        parts.push(
          h(
            "span",
            { class: `sv-choice ${status}` },
            h("code", {}, pieces.label(one.token, LABEL)),
            ` ${probability(one.prob)}`,
          ),
        );
      });
      this.choices.replaceChildren(...parts);
    }
  }

  /** A small node as it looks in the tree, for the legend. */
  function sample(origin) {
    const letter = letterOf(origin);
    const size = { class: "sv-mini", width: 24, height: 16, viewBox: "-1 -1 26 18", "aria-hidden": "true" };
    const text = s("text", { class: "sv-mini-text", x: 13, y: 11.5 });
    text.append(letter);
    const known = ORIGINS[origin] ? origin : "other";
    return s(
      "svg",
      size,
      s("g", { class: `sv-of-${known}` }, s("path", { class: "sv-mini-box", d: outline(origin, 24, 16) }), text),
    );
  }

  Object.assign(SV, { TreeView, originSample: sample });
})((window.SpecViz = window.SpecViz || {}));
