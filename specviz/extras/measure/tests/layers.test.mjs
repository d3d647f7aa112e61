/* Layers left out, without a browser. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { extremes, needed } from "specviz/layers/chart.js";

test("the layers that were needed least and most, in their order, never the same layer twice", () => {
  const ten = [0.1, 0.9, 0.5, 0.8, 0.2, 0.7, 0.6, 0.55, 0.45, 0.4];
  assert.deepEqual(extremes(ten, 3), { least: [2, 4], most: [1, 5] });
  assert.deepEqual(extremes(ten, 1), { least: [2], most: [1] });
  assert.deepEqual(extremes([0.4, 0.6, 0.5], 3), { least: [2], most: [1] });
  assert.deepEqual(extremes([1], 3), { least: [], most: [] });
});

test("layers that are no different are named together, and none where all are alike", () => {
  assert.deepEqual(extremes([0.1, 1, 1, 0.5, 1], 1), { least: [2, 3, 5], most: [1] });
  assert.deepEqual(extremes([0.5, 0.5, 0.5], 3), { least: [], most: [] });
});

test("a place counts the layers that change it", () => {
  assert.deepEqual(needed([[7, 8], [8], []], 7, 3), [1, 2, 0]);
});
