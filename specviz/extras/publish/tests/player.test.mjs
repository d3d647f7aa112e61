/* The player without a browser: the trace that its file stands for, and a tree as lines of tokens. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Model, NOT_RECORDED } from "specviz/base/model.js";
import { lines } from "specviz/player/tree.js";
import { unfold } from "specviz/player/unfold.js";

/* One step: root 0; 1 and 4 below it, 2 and 3 below 1; of 4 nothing is known. Then a step without a draft. */
const RUN = {
  run: { prompt_length: 1, method: { name: "x" } },
  pieces: [["61", false], ["62", false]],
  tokens: [0, 1, 0, 1],
  kinds: ["prompt", "accepted", "bonus", "plain"],
  steps: { drafted: [4, 0], accepted: [1, 0], emitted: [2, 1], bonus: [0, 1] },
  nodes: {
    token: [0, 1, 0, 1, -2, 0], up: [0, 1, 1, 2, 4, 0],
    status: ["root", "accepted", "rejected", "unreached", "rejected", "root"], prob: [null, 0.9, 0.1, null, null, null],
  },
};

test("a player's file unfolds to a trace", () => {
  const trace = unfold(RUN);
  assert.deepEqual(trace.nodes.parent, [-1, 0, 1, 1, 0, -1]);
  assert.deepEqual(trace.nodes.depth, [0, 1, 2, 2, 1, 0]);
  assert.deepEqual(trace.nodes.step, [0, 0, 0, 0, 0, 1]);
  assert.deepEqual(trace.steps.context, [1, 3]);
  assert.deepEqual(trace.steps.depth, [2, 0]);
  assert.deepEqual(trace.tokens.step, [-1, 0, 0, 1]);
  assert.equal(trace.nodes.token[4], NOT_RECORDED);
  const model = new Model(trace);
  assert.equal(model.stepCount, 2);
  assert.equal(model.pieces.label(1), "b");
  assert.deepEqual(model.nodes(0).map(({ status }) => status), RUN.nodes.status.slice(0, 5));
});

test("a chain is a line, and a branch begins a line below the node it hangs on", () => {
  const model = new Model(unfold(RUN));
  const drawn = lines(model.nodes(0)).map(({ depth, nodes }) => [depth, nodes.map(({ index }) => index)]);
  assert.deepEqual(drawn, [[0, [1, 2]], [1, [3]], [0, [4]]]);
  assert.deepEqual(lines(model.nodes(1)), []);
});

test("a tree deeper than calls may be is drawn too", () => {
  const deep = Array.from({ length: 50000 }, (_, index) => ({ index, parent: index - 1, depth: index }));
  const [line] = lines(/** @type {any} */ (deep));
  assert.equal(line.nodes.length, 49999);
});
