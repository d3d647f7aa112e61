/* The strip of a run's places, without a browser. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { apart, ticks } from "specviz/places/frontier.js";
import { layoutOf, shortfalls } from "specviz/places/strip.js";

test("a strip fills its width; where columns would be too narrow it goes on in lines about as long", () => {
  assert.deepEqual(layoutOf(10, 500), { cell: 16, columns: 10, lines: 1 });
  assert.deepEqual(layoutOf(50, 500), { cell: 16, columns: 25, lines: 2 });
  assert.deepEqual(layoutOf(106, 384), { cell: 14, columns: 27, lines: 4 });
  assert.deepEqual(layoutOf(106, 432), { cell: 12, columns: 36, lines: 3 });
  assert.deepEqual(layoutOf(0, 0), { cell: 12, columns: 1, lines: 1 });
});

test("a step falls short where some draft at its place would have reached further", () => {
  const reach = { a: [0, 3, 0, 0, 0], b: [2, 0, 0, 5, 0] };
  assert.deepEqual(shortfalls({ steps: [0, 1, 3], reach }, 5), [[1, 3], [3, 5]]);
  assert.deepEqual(shortfalls({ steps: [0, 3], reach }, 5), []);
});

test("names of lines never stand on each other", () => {
  assert.deepEqual(apart([40, 10, 42]), [40, 10, 55]);
});

test("an axis has round values up to its highest", () => {
  assert.deepEqual([ticks(8.23), ticks(1)], [[0, 2, 4, 6, 8], [0, 1, 2, 3, 4, 5].map((k) => k * 0.2)]);
  assert.deepEqual([ticks(4), ticks(21)], [[0, 1, 2, 3, 4], [0, 5, 10, 15, 20]]);
});
