/* What a lesson shows beside its words. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { panelsMet } from "specviz/lesson/panels.js";

/** @param {string[]} names */
const stop = (...names) => ({ show: names.map((name) => ({ kind: "panel", name })) });

test("panels stay once a stop was about them; a lattice is there for its own stops", () => {
  const stops = [stop("tree", "sentence"), stop("lattice"), stop("output")];
  const met = stops.map((_, at) => [...panelsMet(/** @type {any} */ (stops), at)]);
  assert.deepEqual(met, [["tree", "sentence"], ["tree", "sentence", "lattice"], ["tree", "sentence", "output"]]);
});
