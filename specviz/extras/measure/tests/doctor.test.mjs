/* The doctor's numbers without a browser. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { share } from "specviz/doctor/curve.js";

test("shares of a learning curve, gains below zero, too", () => {
  assert.deepEqual([0.25, -0.21, 1].map(share), [".25", "−.21", "1.00"]);
});
