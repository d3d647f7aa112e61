/* The trace that a player's file stands for: what follows from other columns is worked out again. No DOM. */

import { NOT_RECORDED } from "specviz/base/model.js";

/** @type {(numbers: number[]) => number[]} */
const tokens = (numbers) => numbers.map((number) => (number === -2 ? NOT_RECORDED : number));

/** @param {PlayerRun} player @returns {Trace} */
export function unfold({ run, pieces, tokens: ids, kinds, steps, nodes }) {
  const prompt = run.prompt_length;
  /** @type {number[]} */
  const context = [];
  const step = new Array(prompt).fill(-1);
  steps.emitted.forEach((emitted, number) => {
    context.push(step.length);
    for (let k = 0; k < emitted; k++) step.push(number);
  });
  /** @type {{ step: number[], parent: number[], depth: number[] }} */
  const tree = { step: [], parent: [], depth: [] };
  const deepest = steps.drafted.map(() => 0);
  steps.drafted.forEach((drafted, number) => {
    const root = tree.step.length;
    for (let place = 0; place <= drafted; place++) {
      const parent = place ? place - nodes.up[root + place] : -1;
      const depth = place ? tree.depth[root + parent] + 1 : 0;
      tree.step.push(number);
      tree.parent.push(parent);
      tree.depth.push(depth);
      deepest[number] = Math.max(deepest[number], depth);
    }
  });
  /** @type {<T>(value: T, rows: unknown[]) => T[]} */
  const filled = (value, rows) => rows.map(() => value);
  const nowhere = { source: filled(-1, ids), pool: filled(-1, ids), passage: filled(-1, ids) };
  const unsaid = { origin: "", source: -1, pool: -1, rank: -1, reason: "", draft_prob: null };
  const constant = Object.entries(unsaid).map(([name, value]) => [name, filled(value, nodes.token)]);
  return /** @type {any} */ ({
    schema: "spectrace/1",
    run,
    pieces: {
      id: [...pieces.keys(), NOT_RECORDED], hex: [...pieces.map(([hex]) => hex), "3f"],
      special: [...pieces.map(([, special]) => special), true],
    },
    tokens: { id: tokens(ids), kind: kinds, step, ...nowhere },
    steps: { ...steps, bonus: tokens(steps.bonus), context, depth: deepest },
    nodes: { ...nodes, ...tree, token: tokens(nodes.token), ...Object.fromEntries(constant) },
  });
}
