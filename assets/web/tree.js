/* The draft tree of a step, as SVG: accepted path straight, the rest below it, the target's own token at the end. */
(function (SV) {
  "use strict";

  const { h, s, probability, plural, facts, format } = SV;
  const NODE = 38;
  const ROW = 48;
  const GAP = 20;
  const MARGIN = 10;
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

  /** The items to draw: nodes, the target's own token, and chips that stand for folded nodes. */
  function items(view, opened) {
    const children = view.nodes.map(() => []);
    for (const node of view.nodes) if (node.parent >= 0) children[node.parent].push(node);
    const fold = view.nodes.length > FOLD_OVER;
    const size = (node) => 1 + children[node.index].reduce((sum, child) => sum + size(child), 0);
    const chip = (nodes, depth, key, what) => {
      const count = nodes.reduce((sum, node) => sum + size(node), 0);
      return { kind: "chip", count, depth, key, what, children: [] };
    };
    const build = (node) => {
      const item = { kind: "node", node, depth: node.depth, children: [] };
      const mine = children[node.index];
      const taken = mine.filter((child) => child.status === "accepted");
      const rest = mine.filter((child) => child.status !== "accepted");
      if (node.index === view.last) item.children.push({ kind: "bonus", depth: node.depth + 1, children: [] });
      item.children.push(...taken.map(build));
      if (!rest.length) return item;
      const below = `under ${node.index}`;
      const beside = `beside ${node.index}`;
      const deep = node.status === "rejected" || node.status === "unreached";
      if (fold && deep && size(node) > FEW && !opened.has(below)) {
        item.children.push(chip(rest, node.depth + 1, below, "never checked"));
      } else if (fold && rest.length > SIBLINGS + 1 && !opened.has(beside)) {
        item.children.push(...rest.slice(0, SIBLINGS).map(build));
        item.children.push(chip(rest.slice(SIBLINGS), node.depth + 1, beside, "more"));
      } else {
        item.children.push(...rest.map(build));
      }
      return item;
    };
    return build(view.nodes[0]);
  }

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
      for (const one of line.reverse()) {
        let below = row;
        for (const child of one.children.slice(1)) {
          child.after = below;
          const last = chain(child);
          let next = below + 1;
          const blocked = () => !free(next, child.depth, last[last.length - 1].depth) || crosses(next, child.depth);
          while (blocked() && next < 4000) next++;
          place(child, next);
          below = next;
        }
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
      const height = rows * ROW - (ROW - NODE) + 2 * MARGIN;
      for (const item of placed) {
        item.x = lefts[item.depth];
        item.y = MARGIN + item.row * ROW;
      }
      const svg = s("svg", {
        class: "sv-tree-svg",
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        role: "group",
      });
      // one path per status, the accepted one last, so that it lies on top
      const paths = { chip: "", unreached: "", rejected: "", bonus: "", accepted: "" };
      for (const item of placed)
        for (const child of item.children) paths[this.status(child)] += this.edge(item, child);
      for (const [status, d] of Object.entries(paths))
        if (d) svg.append(s("path", { d, class: `sv-edge sv-edge-${status}` }));
      svg.setAttribute("aria-label", `Draft tree of step ${view.number + 1}`);
      for (const item of placed) svg.append(this.box(item, view));
      this.svg = svg;
      this.body.replaceChildren(svg);
      const deep = view.depth === view.drafted ? "" : `, ${view.depth} deep`;
      this.note.textContent = view.drafted
        ? `${view.drafted} drafted${deep} · ${view.accepted} accepted`
        : "no draft this step";
      this.drawChoices(view);
      const end = placed.find((item) => item.kind === "bonus");
      const right = end ? end.x + end.width + MARGIN : 0;
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
        item.small = item.what;
      } else if (item.kind === "bonus") {
        item.token = view.bonus;
        const choice = (view.targets.get(view.last) || []).findIndex((one) => one.token === view.bonus);
        item.rank = choice;
        item.prob = choice >= 0 ? view.targets.get(view.last)[choice].prob : null;
        item.text = view.bonus < 0 ? "■ stop" : pieces.label(view.bonus, LABEL);
        item.small = item.prob === null || view.bonus < 0 ? "" : `${probability(item.prob)} #${choice + 1}`;
      } else {
        const { node } = item;
        item.text = pieces.label(node.token, LABEL);
        item.prob = node.prob;
        const draft =
          node.draftProb === null || node.draftProb === undefined ? "" : ` q${probability(node.draftProb)}`;
        item.small = node.index ? `${probability(node.prob)} #${node.rank + 1}${draft}` : "root";
      }
      item.width = Math.max(46, Math.ceil(this.measure(item.text)) + 16, item.small.length * 5.6 + 12);
      item.middle = item.width / 2;
    }

    status(item) {
      return item.kind === "node" ? item.node.status : item.kind;
    }

    edge(from, to) {
      // a trunk grows from sibling to sibling, so that dashes never lie on dashes
      const y1 = to.row > from.row && to.after > from.row ? MARGIN + to.after * ROW + NODE / 2 : from.y + NODE / 2;
      const y2 = to.y + NODE / 2;
      const turn = to.x - GAP / 2;
      const start = from.x + from.width;
      return from.row === to.row
        ? `M${start} ${y1}H${to.x}`
        : `M${turn} ${y1}V${y2 - 6}Q${turn} ${y2} ${turn + 6} ${y2}H${to.x}`;
    }

    box(item, view) {
      const status = this.status(item);
      const group = s("g", { class: `sv-node sv-node-${status}`, transform: `translate(${item.x} ${item.y})` });
      group.append(
        s("rect", { class: "sv-box", width: item.width, height: NODE, rx: item.kind === "chip" ? NODE / 2 : 6 }),
      );
      if (status === "bonus") {
        group.append(
          s("rect", { class: "sv-box sv-inner", x: 2.5, y: 2.5, width: item.width - 5, height: NODE - 5, rx: 4 }),
        );
      }
      const label = s("text", { class: "sv-label", x: item.middle, y: 17 });
      label.append(item.text);
      group.append(label);
      const small = s("text", { class: "sv-small", x: item.middle, y: 30 });
      small.append(item.small);
      group.append(small);
      if (item.prob && item.kind === "node" && item.node.index) {
        group.append(
          s("rect", {
            class: "sv-level",
            x: 6,
            y: 33.5,
            width: Math.max(1, (item.width - 12) * item.prob),
            height: 2,
          }),
        );
      }
      if (item.kind === "node" && item.node.span) this.badge(group, item.node);
      if (item.kind === "node") this.mark(group, item);
      this.arm(group, item, view);
      return group;
    }

    /** The number of the source span a copied token came from; only where a span begins. */
    badge(group, node) {
      const parent = this.view.nodes[node.parent];
      if (parent && parent.span === node.span) return;
      group.append(s("circle", { class: "sv-badge", cx: 3, cy: 3, r: 7 }));
      const text = s("text", { class: "sv-badge-text", x: 3, y: 6 });
      text.append(String(node.span));
      group.append(text);
    }

    /** A letter where a part of the tree begins that is not the main copy: B branch, S successor, … */
    mark(group, item) {
      const { origin, parent } = item.node;
      const above = this.view.nodes[parent];
      if (origin === "main" || origin === "root" || (above && above.origin === origin)) return;
      const text = s("text", { class: "sv-origin", x: item.width - 3, y: 8 });
      text.append(origin.charAt(0).toUpperCase());
      group.append(text);
    }

    arm(group, item, view) {
      if (item.kind === "chip") {
        const label = `Show ${plural(item.count, "folded node")}`;
        Object.entries({ tabindex: 0, role: "button", "aria-label": label }).forEach(([k, v]) =>
          group.setAttribute(k, v),
        );
        const open = (event) => {
          if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          event.stopPropagation();
          const { scrollLeft, scrollTop } = this.body;
          this.opened.add(item.key);
          this.draw(view, true);
          this.body.scrollLeft = scrollLeft;
          this.body.scrollTop = scrollTop;
          this.body.focus({ preventScroll: true });
        };
        group.addEventListener("click", open);
        group.addEventListener("keydown", open);
        this.owner.tip.add(group, () => [`${label} (${item.what})`]);
        return;
      }
      const { pieces } = this.owner.model;
      const token = item.kind === "bonus" ? view.bonus : item.node.token;
      group.setAttribute("role", "img");
      group.setAttribute("aria-label", `${token < 0 ? "stop" : pieces.label(token)}: ${STATUS[this.status(item)]}`);
      this.owner.tip.add(group, () => this.explain(item, view));
      const source = item.kind === "node" ? item.node.source : -1;
      if (source < 0) return;
      group.classList.add("sv-copied");
      group.addEventListener("pointerenter", () => this.owner.light([source]));
      group.addEventListener("pointerleave", () => this.owner.light([]));
      group.addEventListener("click", () => this.owner.reveal(source, true));
    }

    explain(item, view) {
      const { pieces } = this.owner.model;
      const status = this.status(item);
      const node = item.kind === "node" ? item.node : null;
      const token = node ? node.token : view.bonus;
      if (token < 0) return ["A stop token ended the run here."];
      const rows = [
        [
          "status",
          STATUS[status] + (node && node.index && node.reason && node.reason !== status ? ` (${node.reason})` : ""),
        ],
        [
          "target",
          item.prob === null || item.prob === undefined
            ? ""
            : `${format(item.prob)}, its choice no. ${(node ? node.rank : item.rank) + 1}`,
        ],
        ["drafter", node && node.draftProb !== null ? format(node.draftProb) : ""],
        ["origin", node && node.index ? node.origin : ""],
        ["copied from", node && node.source >= 0 ? this.owner.where(node.source) : ""],
        ["token", `${token} · bytes ${pieces.bytes(token)}`],
      ];
      const parts = [h("code", { class: "sv-token" }, pieces.label(token)), facts(rows)];
      const asked = node ? view.targets.get(node.parent) : view.targets.get(view.last);
      if (asked && asked.length)
        parts.push(h("div", { class: "sv-tip-head" }, "The target's first choices here"), this.bars(asked, token));
      return parts;
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

  SV.TreeView = TreeView;
})((window.SpecViz = window.SpecViz || {}));
