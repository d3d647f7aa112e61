import assert from "node:assert/strict";
import { test } from "node:test";

import { agreement, at, parts, pieces, places, ranked } from "specviz/attribution/links.js";
import { Model, OPEN } from "specviz/base/model.js";
import { percent } from "specviz/base/numbers.js";
import { firstDifference } from "specviz/compare/lane.js";
import { oracleWords, spans } from "specviz/inspect/oracle.js";
import { difference } from "specviz/inspect/diff.js";
import { stretches } from "specviz/inspect/assistant.js";
import { chainOf } from "specviz/inspect/drafting.js";
import { massOf } from "specviz/inspect/mass.js";
import { csv } from "specviz/inspect/downloads.js";
import { draftDifference, onlyRecorded, overlaid } from "specviz/inspect/ghosts.js";
import { inWords, latticeOf } from "specviz/inspect/lattice.js";
import { beside, marked } from "specviz/inspect/links.js";
import { branchWords, mapOf } from "specviz/inspect/by_place.js";
import { drafters, isOwn, namesIn, sector } from "specviz/inspect/proposers.js";
import { depthsBefore, prunedNodes } from "specviz/inspect/pruned.js";
import { ofNode, ofPosition, why } from "specviz/inspect/selection.js";
import { ofCopy } from "specviz/inspect/sentence.js";
import { routes } from "specviz/inspect/shares.js";
import { FILTERS } from "specviz/inspect/timeline.js";
import {
  along, arrange, chainBars, dips, items, lowest, position, rowHeight, under,
} from "specviz/inspect/tree_layout.js";
import { ended, forbidder, statusWords } from "specviz/inspect/tree_words.js";
import {
  agreement as decided, chanceOf, departure, ending, otherwise, parting, pathsOf, range as judgedRange, recordedPath,
  rowsOf,
} from "specviz/judges/rules.js";
import { before } from "specviz/lesson/asked.js";
import { earlier } from "specviz/whatif/lens_chart.js";

import { frozen, small } from "./traces.mjs";

const applied = (edits, a, b) => [
  edits.filter(([sign]) => sign !== "−").map(([, k]) => a[k]),
  edits.filter(([sign]) => sign !== "+").map(([, , k]) => b[k]),
];

test("a downloaded table counts steps and ranks from 1, as the page and the server's tables do", () => {
  const [head, ...rows] = csv(new Model(small()), "nodes").trimEnd().split("\r\n").map((line) => line.split(","));
  const column = (name) => rows.map((row) => Number(row[head.indexOf(name)]));
  const { step, rank, parent } = small().nodes;
  assert.deepEqual(column("step"), step.map((n) => n + 1));
  assert.deepEqual(column("rank"), rank.map((n) => (n < 0 ? n : n + 1)));
  assert.deepEqual(column("parent"), parent);
});

test("an edit script gives both lists back, and is the shortest", () => {
  for (const [a, b, size] of [
    [[1, 2, 3], [1, 2, 3], 0],
    [[], [1, 2], 2],
    [[1, 2, 3, 4], [1, 3, 4], 1],
    [[1, 2, 3, 1, 2, 2, 1], [3, 2, 1, 2, 1, 3], 5],
    [[9, 1, 2, 3], [1, 2, 3, 9], 2],
  ]) {
    const edits = difference(a, b);
    assert.deepEqual(applied(edits, a, b), [a, b]);
    assert.equal(edits.filter(([sign]) => sign !== "=").length, size);
    assert.ok(edits.every(([sign, i, j]) => sign !== "=" || a[i] === b[j]));
  }
});

test("lists without anything in common count as replaced", () => {
  const a = Array.from({ length: 900 }, (_, k) => k);
  const edits = difference(a, a.map((k) => -k - 1));
  assert.deepEqual([edits.length, edits.some(([sign]) => sign === "=")], [1800, false]);
});

test("what was left out hangs on the tree, or on what was left out before it", () => {
  const trace = small();
  trace.pruned = {
    step: [0, 0, 0],
    token: [3, 3, 1],
    parent: [2, 0, 5],
    draft_prob: [0.2, 0.1, 0.5],
    score: [-2, -3, -4],
  };
  const model = new Model(trace);
  const rows = prunedNodes(model, model.step(0));
  // nodes 0 to 3 are the tree's; row 1 of what was left out is node 5
  assert.deepEqual(rows.map((row) => row.path), [[1, 2, 3], [3], [3, 1]]);
  assert.deepEqual(rows.map((row) => row.wrote), [true, false, false]);
  assert.deepEqual(prunedNodes(model, model.step(1)), []);
  assert.deepEqual(prunedNodes(new Model(small()), model.step(0)), []);
  assert.deepEqual(depthsBefore(model), [0, 0]); // the head ranked them too low
  trace.pruned.why = ["cost", "cost"];
  assert.deepEqual(depthsBefore(new Model(trace)).slice(0, 1), [Math.max(...rows.map((row) => row.path.length))]);
});

test("who proposed a node of a merged draft is read from its mask, and drawn as parts of a disc", () => {
  const trace = small();
  trace.nodes["term:who"] = [null, 3, 2, 1, null];
  assert.deepEqual(drafters(new Model(trace)), []); // the method did not declare it
  trace.run.node_terms = ["who", "q1", "estimate"].map((key) => ({ key, label: key, help: "", low: 0, high: 0 }));
  for (const key of ["q1", "estimate"]) trace.nodes[`term:${key}`] = trace.nodes["term:who"];
  trace.run.method.params = { drafters: "pld+h, eagle3" };
  const model = new Model(trace);
  const names = drafters(model);
  assert.deepEqual(model.nodes(0).map(({ who }) => namesIn(names, who)), ["", "pld+h and eagle3", "eagle3", "pld+h"]);
  model.run.method.drafters = ["PLD+ by hidden states", "EAGLE-3: a head"];
  assert.equal(namesIn(drafters(model), 3), "PLD+ by hidden states and EAGLE-3");
  assert.deepEqual(["who", "q1", "estimate"].map((key) => isOwn(model, key)), [true, true, false]);
  const asked = before(trace, 0, "accepted", false); // a learner is asked what is kept, and sees who proposed it
  assert.deepEqual(asked.nodes["term:who"].slice(0, 4), [null, 3, 2, 1]);
  const ends = (k, count = 2) => sector(count, k, 6).match(/-?[\d.]+ -?[\d.]+(?=A|Z)/g);
  assert.deepEqual(ends(0), ["0.00 6.00", "0.00 -6.00"].map((end, k) => (k ? "-0.00 -6.00" : end)));
  assert.deepEqual([0, 1, 2].map((k) => ends(k, 3)[1]), [0, 1, 2].map((k) => ends((k + 1) % 3, 3)[0]));
});

test("tokens that stand alike are one item only where the same drafters proposed them", () => {
  const node = (index, who, forbidden = false) => ({
    index, who, forbidden, parent: index - 1, depth: index, status: index ? "unreached" : "root", origin: "main",
  });
  const shown = (nodes) => {
    const view = { nodes, drafted: 5, last: 0, bonus: OPEN };
    return arrange(items(view, new Set(), 2)).placed.map(({ kind }) => kind);
  };
  const alike = [0, 1, 2, 3, 4].map((k) => node(k, k && 1));
  assert.deepEqual(shown(alike), ["node", "stretch"]);
  assert.equal(shown(alike.with(2, node(2, 3))).length, 5);
  assert.equal(shown(alike.with(3, node(3, 1, true))).length, 5);
});

test("who forbids a token is named by its reason, or is the only processor of the run", () => {
  const node = { forbidden: true, reason: "forbidden by GrammarProcessor" };
  const run = { processing: { names: ["NoRepeatNGramLogitsProcessor"] } };
  assert.equal(forbidder({ run }, node), "the grammar");
  assert.equal(forbidder({ run }, { ...node, reason: "parent rejected" }), "NoRepeatNGram");
  assert.equal(forbidder({ run: { processing: { names: ["A", "B"] } } }, { ...node, reason: "" }), "a logits processor");
  assert.equal(forbidder({ run }, { ...node, forbidden: false }), "");
});

test("acceptance by depth and rank has a cell for every place that was judged", () => {
  const cells = [{ depth: 1, rank: 0 }, { depth: 3, rank: 1 }];
  assert.deepEqual(mapOf(cells), [[cells[0], undefined, undefined], [undefined, undefined, cells[1]]]);
  assert.deepEqual(mapOf([]), []);
  const counts = { misses: 8, with_sibling: 6, sibling: 4, with_child: 2, child: 1 };
  assert.match(branchWords(counts), /8 places.* right at 4 of them \(\.50\).* At 1 of those \(\.25\), a token behind it/);
  assert.match(branchWords({ ...counts, sibling: 0 }), /other guesses at 6 of them, and none was right/);
  assert.match(branchWords({ ...counts, with_child: 0 }), /None of those had a token behind it/);
  assert.match(branchWords({ ...counts, with_sibling: 0 }), /no other guess/);
  assert.match(branchWords({ ...counts, misses: 0 }), /never refused/);
});

test("tokens of two vocabularies stand side by side where both begin and end together", () => {
  const trace = small();
  const hex = [" la", "mp", " museum", "x"].map((text) => Buffer.from(text).toString("hex"));
  // two of one node; one of two; one that was left out
  trace.assistant = {
    step: [0, 0, 0, 0], token: [7, 8, 9, 6], hex, draft_prob: [0.5, 0.9, 1, 0.2], first: [1, 1, 2, -1], last: [1, 1, 3, -1],
  };
  const model = new Model(trace);
  assert.deepEqual(stretches(model, 0), [
    { own: ["␣la", "mp"], sure: [0.5, 0.9], nodes: [1] },
    { own: ["␣museum"], sure: [1], nodes: [2, 3] },
    { own: ["x"], sure: [0.2], nodes: [] },
  ]);
  assert.deepEqual(stretches(model, 1), []);
  assert.deepEqual(stretches(new Model(small()), 0), []);
});

test("a chain runs down one column, the target's own token at its end", () => {
  const view = new Model(small()).step(0);
  const { placed, columns } = arrange(items(view, new Set()));
  assert.equal(columns, 2);
  assert.deepEqual(placed.map((item) => [item.kind, item.column, item.depth]), [
    ["node", 0, 0],
    ["node", 0, 1],
    ["node", 0, 2],
    ["bonus", 0, 3],
    ["node", 1, 3],
  ]);
  for (const item of placed) item.width = 50;
  const { row, width, height } = position(placed, columns, false, 400);
  assert.deepEqual([row, width, height], [50, 124, 194]);
  assert.ok(placed[4].x > placed[3].x && placed[4].y === placed[3].y && placed[3].x === placed[0].x);
});

test("rows are as high as the panel allows: a long path fits, a short one is not lost", () => {
  assert.deepEqual([2, 20, 31, 200].map((depth) => rowHeight(depth, 656)), [50, 30, 24, 24]);
});

const node = (index, parent, depth, status = "rejected", origin = "main") =>
  ({ index, parent, depth, status, origin, beside: origin === "expansion" });

test("a broad tree is folded, and opens", () => {
  const nodes = [node(0, -1, 0, "root"), ...Array.from({ length: 60 }, (_, k) => node(k + 1, 0, 1))];
  const view = { nodes, drafted: 60, last: 0, bonus: 1 };
  const chip = arrange(items(view, new Set())).placed.find((item) => item.kind === "chip");
  assert.deepEqual([chip.count, chip.key], [52, "beside 0"]);
  assert.equal(arrange(items(view, new Set([chip.key]))).placed.length, 62);
});

test("a path that is too long is folded in its middle, by as little as it takes, and opens as a whole", () => {
  const nodes = Array.from({ length: 31 }, (_, k) => node(k, k - 1, k, k ? "accepted" : "root"));
  const view = { nodes, drafted: 30, last: 30, bonus: 1 };
  /** The rows of a drawing, and the tokens that its folds stand for. */
  const shown = (rows, opened = new Set()) => {
    const { placed } = arrange(items(view, opened, rows));
    return [placed.length, placed.filter(({ kind }) => kind === "stretch").map((item) => item.nodes.length)];
  };
  assert.deepEqual(shown(32), [32, []], "root, 30 tokens, and the target's own");
  assert.deepEqual(shown(31), [29, [4]], "four tokens are the fewest that one item stands for");
  assert.deepEqual(shown(20), [20, [13]]);
  assert.deepEqual(shown(2), [3, [30]]);
  const { placed } = arrange(items(view, new Set(), 20));
  assert.deepEqual(placed.map(({ depth }) => depth), Array.from({ length: 20 }, (_, k) => k));
  assert.deepEqual(placed.findIndex(({ kind }) => kind === "stretch"), 9, "the fold lies in the middle");
  assert.deepEqual(shown(20, new Set([along(nodes[15])])), [32, []]);
});

test("beside another draft the recorded one is folded: all that the other alone has is in sight", () => {
  const nodes = Array.from({ length: 22 }, (_, k) => ({ ...node(k, k < 10 ? Math.min(k, 1) - 1 : k - 1, 1),
    draft: k > 9 ? "other" : k % 9 ? "recorded" : "both" }));
  const { placed } = arrange(items({ nodes, drafted: 9, last: 0, bonus: 1 }, new Set(), 6, undefined, new Set([15])));
  const counts = placed.map((item) => item.node?.index ?? item.nodes?.length ?? item.count);
  assert.deepEqual(counts, [0, undefined, 9, 12, 8]);
});

test("a fold leaves out what is clearly less likely than its neighbours; where it must not, it says the lowest", () => {
  const nodes = Array.from({ length: 21 }, (_, k) => ({ ...node(k, k - 1, k, k ? "accepted" : "root"), prob: 0.98 }));
  nodes[0].prob = null;
  [nodes[5].prob, nodes[16].prob] = [0.67, 0.86];
  const view = { nodes, drafted: 20, last: 20, bonus: 1 };
  assert.deepEqual(dips(view), [5, 16], "the least likely first");
  assert.deepEqual(dips({ ...view, bonus: OPEN }), [], "a question gives nothing away");
  const folds = (kept) => arrange(items(view, new Set(), 8, undefined, new Set(kept))).placed
    .flatMap((item) => (item.kind === "stretch" ? [[item.nodes.length, lowest(item.nodes)]] : []));
  assert.deepEqual(folds([]), [[15, 0.67]]);
  assert.deepEqual(folds([5]), [[4, null], [12, 0.86]]);
  assert.deepEqual(folds([5, 16]), [[4, null], [10, null], [4, null]]);
});

test("where nothing hangs on them, the tokens beside a path stand close together; rows fit by folding", () => {
  const nodes = [node(0, -1, 0, "root"), ...[1, 2, 3, 4].map((k) => node(k, 0, 1, k > 1 ? "rejected" : "accepted"))];
  nodes.push(node(5, 1, 2), node(6, 1, 2));
  const view = { nodes, drafted: 6, last: 1, bonus: 1 };
  const { placed, columns } = arrange(items(view, new Set(), Infinity, null));
  for (const item of placed) item.width = item.depth === 1 ? 100 : 40;
  const { width } = position(placed, columns, false, 400);
  const at = (depth) => placed.filter((item) => item.depth === depth).map(({ x }) => x).sort((a, b) => a - b);
  assert.deepEqual([at(1), at(2), width], [[8, 116, 224, 332], [8, 116, 164], 440]);
});

test("what was drafted below a lost token is folded into it, and opens", () => {
  const nodes = [node(0, -1, 0, "root"), node(1, 0, 1), node(2, 1, 2, "unreached"), node(3, 2, 3, "unreached")];
  const view = { nodes, drafted: 3, last: 0, bonus: 1 };
  const said = ({ kind, node, hidden }) => [kind, node?.index, hidden];
  const shown = (opened) => arrange(items(view, opened)).placed.map(said);
  assert.deepEqual(shown(new Set()), [["node", 0, undefined], ["bonus", undefined, undefined], ["node", 1, 2]]);
  assert.deepEqual(shown(new Set([under(nodes[1])])).slice(2), [["node", 1, undefined], ["node", 2, 1]]);
  assert.equal(arrange(items({ ...view, bonus: OPEN }, new Set())).placed.length, 4, "a question folds nothing");
});

test("opening what hangs beside a path leaves what was shown where it is; every line ends within the room", () => {
  const nodes = [node(0, -1, 0, "root"), node(1, 0, 1, "accepted"), ...[2, 3, 4, 5].map((k) => node(k, 0, 1))];
  nodes.push(...Array.from({ length: 9 }, (_, k) => node(k + 6, 2, 2, "unreached")), node(15, 6, 3, "unreached"));
  const view = { nodes, drafted: 15, last: 1, bonus: 1 };
  const [high, room] = [400, 330];
  /** @type {(opened: Set<string>, closed?: Laid) => Laid} */
  const laid = (opened, closed) => {
    const { placed, columns } = arrange(items(view, opened));
    for (const item of placed) item.width = 90;
    return position(placed, columns, false, high, room, closed);
  };
  const places = ({ placed }) => new Map(placed.flatMap((one) => (one.node ? [[one.node.index, [one.x, one.y]]] : [])));
  const closed = laid(new Set());
  const opened = laid(new Set([under(nodes[2]), under(nodes[6])]), closed);
  const [before, after] = [places(closed), places(opened)];
  assert.deepEqual([before.size, after.size], [6, 16]);
  for (const index of [0, 1, 2]) assert.deepEqual(after.get(index), before.get(index));
  for (const index of before.keys()) assert.ok(after.has(index), `${index} is still shown`);
  assert.ok(opened.row === closed.row && opened.width <= room && closed.width <= room);
  for (const index of [3, 4, 5]) assert.ok(after.get(index)[1] > after.get(14)[1], "the next stand below all of it");
  assert.equal(new Set(opened.placed.map(({ x, y }) => `${x} ${y}`)).size, opened.placed.length);
});

test("what needs several lines beside a path stands in columns; what fits in one keeps its width", () => {
  const nodes = [node(0, -1, 0, "root"), ...Array.from({ length: 7 }, (_, k) => node(k + 1, 0, 1))];
  const view = { nodes, drafted: 7, last: 0, bonus: 1 };
  /** @type {(room: number) => TreeItem[]} */
  const beside = (room) => {
    const { placed, columns } = arrange(items(view, new Set()));
    for (const item of placed) item.width = item.kind === "node" ? 60 + 5 * item.node.index : 50;
    position(placed, columns, false, 500, room);
    return placed.filter(({ column }) => column);
  };
  const several = beside(350);
  assert.ok(new Set(several.map(({ y }) => y)).size > 1);
  const lefts = [...new Set(several.map(({ x }) => x))];
  for (const left of lefts) assert.equal(new Set(several.filter(({ x }) => x === left).map((one) => one.width)).size, 1);
  assert.ok(Math.max(...several.map(({ x, width }) => x + width)) <= 350 - 8 && lefts.length > 1);
  assert.deepEqual(beside(900).map(({ width }) => width), [1, 2, 3, 4, 5, 6, 7].map((k) => 60 + 5 * k));
});

test("rows are as tall as a finger needs", () => {
  const nodes = Array.from({ length: 12 }, (_, k) => node(k, k - 1, k, k ? "accepted" : "root"));
  const { placed, columns } = arrange(items({ nodes, drafted: 11, last: 11, bonus: 1 }, new Set()));
  assert.deepEqual([360, 600].map((room) => position(placed, columns, false, 200, room).row), [24, 24]);
  const { row } = position(placed, columns, false, 200, 600);
  assert.ok(placed[0].high < row - 2, "an edge is seen between two rows");
});

test("items never share a place", () => {
  const model = new Model(frozen());
  for (let step = 0; step < model.stepCount; step++) {
    const { placed } = arrange(items(model.step(step), new Set()));
    assert.equal(new Set(placed.map((item) => `${item.column} ${item.depth}`)).size, placed.length);
  }
});

test("the chain of a tree of heads is its first guesses", () => {
  const tree = [[0, -1, 0], [1, 0, 1], [2, 1, 2], [3, 1, 2], [4, 0, 1], [5, 4, 2]];
  const nodes = tree.map(([index, parent, depth]) => node(index, parent, depth, "rejected", "head"));
  assert.deepEqual(chainOf({ nodes }).map((one) => one.index), [1, 2]);
  const wide = [node(0, -1, 0, "root"), node(1, 0, 1, "rejected", "expansion"), node(2, 0, 1)];
  assert.deepEqual(chainOf({ nodes: wide }).map((one) => one.index), [2]);
});

test("a copied run is marked at both ends, and joined by a line", () => {
  assert.deepEqual(
    marked([{ start: 9, stop: 11, source: 2, step: 0 }], "x"),
    [[9, "x"], [2, "x"], [10, "x"], [3, "x"]],
  );
  const from = { x: 10, y: 20, left: 0, hidden: 0 };
  assert.equal(beside(from, { ...from, y: 80 }), "M10 20 H8 Q3 20 3 26 V74 Q3 80 8 80 H10");
});

test("a token, a node and a step select each other", () => {
  const model = new Model(small());
  const view = model.step(0);
  // positions 4 and 5 are the accepted nodes, 6 is the target's own token
  assert.deepEqual([4, 5].map((at) => ofPosition(model, at)), view.path.map((one) => ofNode(view, one.index)));
  assert.deepEqual(ofPosition(model, 6), ofNode(view, -1));
  assert.deepEqual(ofPosition(model, 1), { step: -1, node: null, position: 1 });
});

test("why a node fell is said from its own record", () => {
  const model = new Model(small());
  const view = model.step(0);
  const label = (id) => model.pieces.label(id, 20);
  const refused = view.nodes.find((one) => one.status === "rejected");
  assert.match(why(view, refused, label), /^Rejected: after “.+” the target wrote “d”\.$/);
  assert.match(why(view, view.path[0], label), /^Accepted: after /);
  const below = { ...refused, index: 9, parent: refused.index, status: "unreached", reason: "" };
  assert.equal(why(view, below, label), `Never checked: “${label(refused.token)}” before it was rejected.`);
  assert.match(why(view, { ...below, reason: "after stop" }, label), /a stop token before it ended the run/);
});

test("of a stop token nobody says that the target wrote it", () => {
  assert.equal(statusWords({ bonus: 5 }, null), "the target's own token");
  assert.equal(statusWords({ bonus: -1 }, null), "the end of the run");
  assert.equal(statusWords({ bonus: OPEN }, null), "not checked yet");
  assert.equal(statusWords({ bonus: -1 }, { status: "accepted" }), "accepted");
  assert.ok(ended({ bonus: -1 }) && !ended({ bonus: OPEN }) && !ended({ bonus: 0 }));
});

test("another draft is laid over the recorded one: what both have is one node", () => {
  const view = new Model(small()).step(0);
  const path = view.path.map((one) => one.index);
  const other = {
    ...view,
    nodes: [
      view.nodes[0],
      { ...view.nodes[path[0]], index: 1, parent: 0 },
      { ...view.nodes[path[0]], index: 2, parent: 1, token: 3 },
    ],
  };
  const { nodes, drafted } = overlaid(view, other);
  assert.deepEqual(nodes.slice(0, view.nodes.length).map((one) => one.index), view.nodes.map((one) => one.index));
  assert.deepEqual([nodes[path[0]].draft, nodes[path[1]].draft], ["both", "recorded"]);
  const added = nodes[view.nodes.length];
  assert.deepEqual([added.draft, added.parent, added.token, added.row], ["other", path[0], 3, -1]);
  assert.equal(drafted, view.drafted); // the other's are not the run's
  assert.deepEqual(overlaid(view, view).nodes.map((one) => one.draft), view.nodes.map(() => "both"));
  // said, and never folded away
  assert.equal(draftDifference(view, other), "It drafts 1 other token, and leaves out 2.");
  assert.equal(draftDifference(view, view), "");
  assert.equal(draftDifference(view, { ...view, nodes: [view.nodes[0]], drafted: 0 }), "Nothing was drafted this way.");
  const less = { ...view, nodes: view.nodes.slice(0, 2), drafted: 1 };
  assert.deepEqual([overlaid(view, { ...view, nodes: [view.nodes[0]] }), overlaid(view, less)].map(onlyRecorded),
    [true, false]);
  assert.match(draftDifference(view, less), /^It leaves out \d drafted tokens?\.$/);
  const judged = { ...view, nodes: view.nodes.map((one) => ({ ...one, status: "accepted" })) };
  assert.equal(draftDifference(view, judged), "It drafts the same tokens; they are judged by another rule.");
});

test("where two drafts part is not folded, be it below a lost token or behind many siblings", () => {
  const nodes = [node(0, -1, 0, "root"), node(1, 0, 1), node(2, 1, 2, "unreached"), node(3, 2, 3, "unreached")];
  nodes.push(...Array.from({ length: 12 }, (_, k) => node(k + 4, 0, 1)));
  for (const one of nodes) one.draft = "both";
  const shown = () => arrange(items({ nodes, drafted: 15, last: 0, bonus: 1 }, new Set())).placed
    .flatMap(({ node }) => (node ? [node.index] : []));
  assert.ok(!shown().includes(2) && !shown().includes(15));
  nodes[3].draft = "recorded";
  nodes[15].draft = "other";
  assert.ok(shown().includes(3) && shown().includes(15));
  for (const one of nodes.slice(1, 4)) one.draft = "recorded";
  assert.ok(!shown().includes(2), "all of it is the recorded draft's, as its first token says");
});

test("the timeline brings out misses, or the steps that lost by their ranking", () => {
  const trace = small();
  trace.steps.accepted = [0, 0];
  const model = new Model(trace);
  model.report = { regrets: [{ step: 1 }] };
  const kept = (filter) => [0, 1].filter((step) => FILTERS[filter](model, step));
  assert.deepEqual(["all", "misses", "worst"].map(kept), [[0, 1], [0], [1]]);
});

test("the timeline marks routes only where there is more than one", () => {
  const trace = small();
  assert.deepEqual(routes(new Model(trace)), []);
  trace.steps.route = ["semantic", "lexical"];
  assert.deepEqual(routes(new Model(trace)), [["lexical", 0], ["semantic", 1]]);
  trace.steps.route = ["filtered", "lexical"]; // a route that most runs have looks alike in all of them
  assert.deepEqual(routes(new Model(trace)), [["lexical", 0], ["filtered", 1]]);
});

const link = (from, to, more = {}) => ({
  output_tokens: [from, to],
  output: [from, to],
  source_tokens: [from, to],
  source_index: 0,
  kind: "context",
  passage: 0,
  verbatim: true,
  ...more,
});

test("a threshold leaves the longer links, numbered anew, with what the server says they come to", () => {
  const outcome = (min_run, copied_tokens) => ({ min_run, copied_tokens });
  const doc = {
    links: [link(0, 4), link(5, 6), link(6, 9)],
    thresholds: [outcome(1, 8), outcome(3, 7), outcome(4, 4), outcome(5, 0)],
  };
  const left = at(doc, 2);
  assert.deepEqual(left.links.map((one) => [one.number, ...one.output_tokens]), [[1, 0, 4], [2, 6, 9]]);
  assert.deepEqual([1, 2, 3, 4, 5, 9].map((run) => at(doc, run).copied_tokens), [8, 7, 7, 4, 0, 0]);
  assert.deepEqual(at(doc, 9).links, []);
});

test("signals agree on tokens that both link, and on nothing where they share none", () => {
  const links = [link(0, 4), link(4, 6, { passage: 1 })];
  const other = [link(2, 5), link(6, 8, { kind: "prompt", passage: -1 })];
  assert.deepEqual(agreement(links, other, 8), { same: 2, shared: 3 });
  assert.equal(agreement(links, [link(6, 8)], 8), null);
  assert.equal(agreement([], [], 8), null); // what neither links is no agreement
  assert.deepEqual(agreement(other, [link(6, 8, { passage: -1 })], 8), { same: 0, shared: 2 }); // not the same kind
});

test("a signal ranks sources by the tokens that came from them, and shares are text", () => {
  const links = [link(0, 2), link(2, 6, { passage: 1 }), link(7, 8)];
  assert.deepEqual(ranked(links).map(({ source, tokens }) => [source.passage, tokens]), [[1, 4], [0, 3]]);
  assert.deepEqual([percent(1, 3), percent(0, 0)], ["33 %", "–"]);
});

test("texts are cut where links begin and end, by code points", () => {
  assert.deepEqual(parts([link(2, 4), link(3, 6)], 8).map(([a, b]) => [a, b]), [[0, 2], [2, 4], [4, 6], [6, 8]]);
  assert.deepEqual(pieces([[1, 3], [2, 5]], 0, 5), [[0, 1, []], [1, 2, [0]], [2, 3, [0, 1]], [3, 5, [1]]]);
  assert.deepEqual([0, 1, 2, 3].map(places("a😀b")), [0, 1, 3, 4]);
});

test("where two outputs part", () => {
  assert.deepEqual(
    [firstDifference([1, 2, 3], [1, 2, 4]), firstDifference([1, 2], [1, 2, 3]), firstDifference([], [1])],
    [2, 2, 0],
  );
});

test("a question's run tells nothing that was counted with the answer, but keeps its origins", () => {
  const legend = [{ name: "main", letter: "", label: "main", sentence: "Copied.", outline: "box", hue: 0 }];
  const columns = { steps: [{ name: "would", label: "would" }] };
  const report = { metrics: { accepted: { value: 2 } }, columns, legend };
  const model = new Model(before({ ...small(), report }, 0, "value", false));
  assert.deepEqual([model.report, model.columns, model.step(0).accepted], [null, {}, 0]);
  assert.equal(model.origin("main").sentence, "Copied.");
});

test("the oracle's steps lie on the run's: whole ones, parts of one, several", () => {
  // steps wrote 1, 4 and 3 tokens; the oracle ends after 3, after 5 and at the end
  assert.deepEqual(spans([3, 5, 8], [1, 4, 3]), [
    { from: 0, to: 1.5 },
    { from: 1.5, to: 2 },
    { from: 2, to: 3 },
  ]);
});

test("the oracle says what it ranks, and nothing where there is none", () => {
  /** @param {object | null} oracle */
  const words = (oracle) => oracleWords(/** @type {any} */ ({ report: oracle && { oracle } }));
  const oracle = { ends: [2], needs: "12", words: "ranking costs 1 of 13 steps" };
  assert.equal(words(oracle), "the same candidates ranked best: 12 steps · ranking costs 1 of 13 steps");
  assert.deepEqual([words({ why: "unranked" }), words(null)], ["", ""]);
});

/** ``small``, its first step a block of three positions of two candidates: the walk takes 1, 2, 0. */
const blocked = () => {
  const trace = small();
  const [depth, rank, token, walked] = [
    [1, 1, 2, 2, 3, 3], [0, 1, 0, 1, 0, 1], [1, 3, 0, 2, 0, 1], [true, false, false, true, true, false],
  ];
  const logprob = [-0.5, -1, -0.7, -0.9, -0.3, -2];
  trace.lattice = { step: depth.map(() => 0), depth, rank, token, logprob, walked };
  trace.transitions = {
    step: [0, 0, 0, 0], depth: [1, 1, 2, 2], before: [0, 0, 0, 1], rank: [0, 1, 1, 1], score: [1, -1, 2, 2],
  };
  return trace;
};

test("a lattice has what was recorded, what was written and the walk", () => {
  const model = new Model(blocked());
  const lattice = latticeOf(model, model.step(0));
  assert.deepEqual(lattice.positions.map(({ depth, written }) => [depth, written]), [[1, 1], [2, 2], [3, 3]]);
  assert.deepEqual(lattice.positions.map((one) => one.candidates.find((each) => each.walked).token), [1, 2, 0]);
  const written = lattice.positions.map((one) => one.candidates.filter((each) => each.written).map((each) => each.rank));
  assert.deepEqual(written, [[0], [1], []], "the third position's token is no candidate");
  assert.deepEqual(lattice.edges.map((edge) => [edge.depth, edge.shade, edge.walked]), [
    [1, 1, true],
    [1, 0, false],
    [2, 1, true],
    [2, 1, false],
  ]);
  assert.equal(latticeOf(model, model.step(1)), null, "a step without a block");
  assert.match(inWords(lattice, (token) => `<${token}>`), /^Position 1: the walk takes <1>, as written.*<3>, no candidate\.$/);
});

test("a run without lattices has none, and one that goes on does not say what was not written yet", () => {
  const bare = new Model(small());
  assert.equal(latticeOf(bare, bare.step(0)), null);
  const trace = blocked();
  const depth = [1, 2, 3, 4, 5, 6]; // the last ones behind all that was written
  trace.lattice = { ...trace.lattice, depth, rank: depth.map(() => 0), walked: depth.map(() => true) };
  trace.transitions = undefined;
  const model = new Model(trace);
  assert.equal(latticeOf(model, model.step(0)).positions[4].written, undefined);
});

test("a chain has bars of the target's probability where there is room for them", () => {
  const item = (more) => ({ kind: "node", column: 0, depth: 1, x: 8, width: 92, y: 40, high: 20, prob: 0.5, ...more });
  const root = item({ depth: 0, prob: null, y: 10 });
  const stretch = item({ kind: "stretch", width: 300, prob: null, y: 70 });
  const { paths, width } = chainBars([root, item(), stretch], 324);
  assert.deepEqual(paths, ["M116 46h200v8H116z", "M116 46h100v8H116z"]);
  assert.equal(width, 324);
  assert.equal(chainBars([root, item()], 190), null);
  assert.equal(chainBars([root, item(), item({ column: 1 })], 400), null);
  assert.equal(chainBars([root, item({ prob: null })], 400), null);
});

test("the mass of two distributions: shared, too much of q, the residual; small ones are one piece", () => {
  const list = [
    { token: 1, q: 0.5, p: 0.3 },
    { token: 2, q: 0.2, p: 0.45 },
    { token: 3, q: 0.004, p: 0.006 },
  ];
  const { shared, surplus, residual } = massOf(list, 0.6);
  const sum = (pieces) => pieces.reduce((all, { share }) => all + share, 0);
  assert.deepEqual(shared.map(({ token }) => token), [1, 2, null]);
  assert.deepEqual(surplus.map(({ token }) => token), [1, null]);
  assert.deepEqual(residual.map(({ token }) => token), [2, null]);
  assert.ok(Math.abs(sum(shared) - 0.6) < 1e-9);
  assert.ok(Math.abs(sum(surplus) - 0.4) < 1e-9 && Math.abs(sum(residual) - 0.4) < 1e-9);
  assert.deepEqual(massOf([{ token: 1, q: 1, p: 1 }], 1), { shared: [{ token: 1, share: 1 }], surplus: [], residual: [] });
});

test("rules with one verdict share a row, and where rules part is found", () => {
  const rule = (nodes, more = {}) => ({
    expected: [1, 1], accepted: nodes.filter(([, stands]) => stands).length, bonus: 7, open: false, other: [0, 0],
    differs: [], nodes, unreached: {}, ...more,
  });
  const taken = [[1, true, [0.9, 0.9], "match"], [2, false, [0.1, 0.2], "draw .5 ≥ .1"]];
  const choice = [[1, true, [0.9, 0.9], "the target's first choice"], [2, false, [0.1, 0.2], "draw .5 ≥ .1"]];
  const step = {
    step: 0, rest: [0, 0],
    rules: {
      a: rule(taken), b: rule(choice),
      c: rule([[1, true, [1, 1], "passes"], [2, true, [1, 1], "passes, too"]], { differs: [2], bonus: null }),
      d: rule(taken),
    },
  };
  const cards = ["a", "b", "c", "d"].map((name) => ({ name, title: name, lossless: name !== "d" }));
  const names = (sampled) => rowsOf(step, cards, sampled).map(({ cards: some }) => some.map(({ name }) => name).join(""));
  assert.deepEqual(names(false), ["ab", "c", "d"]); // a greedy match is the target's first choice
  assert.deepEqual(names(true), ["a", "b", "c", "d"]);
  const nodes = [-1, 0, 1, 2].map((parent, index) => ({ index, parent, status: "rejected" }));
  const end = (name, sampled) => {
    const { node, stands, why } = ending(nodes, step.rules[name], sampled);
    return [node.index, stands, why];
  };
  assert.deepEqual(end("a", false), [2, false, "draw .5 ≥ .1"]);
  assert.deepEqual(end("c", false), [2, true, "passes, too"]);
  const other = rule([[1, false, [0, 0], "passes, too"], [2, true, [1, 1], "passes"]]);
  assert.equal(departure([{}, { status: "accepted" }, {}], other), other.nodes[0]);
  const first = rule(taken.slice(0, 1), { unreached: { 3: [0, 0.4] } });
  assert.deepEqual(ending(nodes, first, true).why, "the target drew it, too");
  assert.deepEqual([1, 2, 3].map((node) => chanceOf(first, node)), [[0.9, 0.9], [0, 0], [0, 0.4]]);
  assert.deepEqual([parting(step), parting({ rules: { a: step.rules.a } }), otherwise(step)], [2, 0, 1]);
  assert.deepEqual([judgedRange([1, 1.5], 2, 1), judgedRange([0.5, 0.5]), judgedRange([0, 0.004]), judgedRange([0, 0], 0)],
    ["2.00–2.50", "0.50", "<0.01", "0"]);
});

test("what was kept of a copy is told apart from what was kept beside it", () => {
  const [first, second, other] = [{ index: 1 }, { index: 2 }, { index: 3 }];
  const kept = (...path) => ofCopy({ path, accepted: path.length }, [first, second]);
  assert.equal(kept(first), "only the first");
  assert.equal(kept(first, second), "all 2 copied");
  assert.equal(kept(first, other), "the first and one of the others");
  assert.equal(kept(other, other), "2 of the others");
});

test("a rule that the record leaves open does not decide alike", () => {
  const step = (...rules) => ({ rules: rules.map(([open, ...differs]) => ({ open, differs })) });
  assert.equal(decided(step([false], [false])), "all decide alike");
  assert.equal(decided(step([false], [true])), "1 decides alike, 1 left open");
  assert.equal(decided(step([false], [false, 4], [true])), "1 decides otherwise, 1 left open");
});

test("the paths of rules: the recorded one to its end, and what others accept beside it", () => {
  const of = ([parent, status], index) => ({ index, parent, status });
  const nodes = [[-1, "root"], [0, "rejected"], [0, "accepted"], [1, "unreached"], [2, "rejected"], [2, "accepted"],
    [5, "rejected"]].map(of);
  const ids = (path) => path.map(({ index }) => index);
  assert.deepEqual(ids(recordedPath(nodes)), [2, 5, 6]);
  const row = (name, ...stood) => ({ cards: [name], rule: { nodes: stood.map((node) => [node, true, [1, 1], ""]) } });
  const paths = pathsOf(nodes, [row("a", 2, 5), row("b", 1), row("c", 1, 3)]);
  assert.deepEqual(paths.map(({ cards, path }) => [cards[0], ids(path)]), [[undefined, [2, 5, 6]], ["b", [1]], ["c", [3]]]);
});

test("a token that was first before it stayed so is said to have been, and where", () => {
  const told = (settled, ...tops) => earlier({ own: { token: 7 }, settled, tops: tops.map((token) => [token, 0.5]) });
  assert.equal(told(5, 1, 7, 7, 2, 7, 7), " Before that it was first at layers 1–2, 4.");
  assert.equal(told(3, 1, 7, 2, 7), " Before that it was first at layer 1.");
  assert.equal(told(1, 1, 7, 7), "", "it stayed so from the first time on");
  assert.equal(told(null, 7, 7, 2), "", "it never stayed so");
});
