/* What a lesson shows beside its words. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { looks, panelsMet } from "specviz/lesson/panels.js";

/** @param {string[]} names */
const stop = (...names) => ({ show: names.map((name) => ({ kind: "panel", name })) });

test("panels stay once a stop was about them; a lattice is there for its own stops", () => {
  const stops = [stop("tree", "sentence"), stop("lattice"), stop("output")];
  const met = stops.map((_, at) => [...panelsMet(/** @type {any} */ (stops), at)]);
  assert.deepEqual(met, [["tree", "sentence"], ["tree", "sentence", "lattice"], ["tree", "sentence", "output"]]);
});

test("a chain and a deep tree of two columns are slim, a bush and a wide tree are not", () => {
  const chain = Array.from({ length: 9 }, (_, k) => ({ parent: k, depth: k + 1 }));
  const seen = (/** @type {typeof chain} */ drafted) =>
    Object.entries(looks(drafted)).flatMap(([name, on]) => (on ? [name] : []));
  assert.deepEqual(seen([]), ["undrafted", "chain"]);
  assert.deepEqual(seen(chain), ["chain"]);
  assert.deepEqual(seen([...chain, { parent: 2, depth: 3 }]), ["chain", "chain-long"]);
  assert.deepEqual(seen([...chain, { parent: 2, depth: 3 }, { parent: 2, depth: 3 }]), []);
  assert.deepEqual(seen([{ parent: 0, depth: 1 }, { parent: 0, depth: 1 }]), []);
});
