/* Traces for tests: one made by hand, one as an earlier version wrote it. */

import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

const hex = (text) => Buffer.from(text).toString("hex");

/** Prompt "a b c a", then "b c" copied from positions 1 and 2 and the target's own "d"; then a step without a draft. */
export const small = () => ({
  schema: "spectrace/1",
  run: {
    id: "small",
    title: "Small",
    complete: true,
    prompt_length: 4,
    method: { name: "pld", title: "PLD", lossless: true },
    terms: [],
    step_terms: [{ key: "seek_ms", label: "Seeking", help: "", low: 0, high: 0 }],
  },
  pieces: {
    id: [0, 1, 2, 3],
    hex: [hex("a"), hex(" b"), hex(" c\n"), hex("d")],
    special: [false, false, false, false],
  },
  tokens: {
    id: [0, 1, 2, 0, 1, 2, 3, 0],
    segment: ["question", "question", "question", "question", "output", "output", "output", "output"],
    passage: [-1, -1, -1, -1, -1, -1, -1, -1],
    step: [-1, -1, -1, -1, 0, 0, 0, 1],
    kind: ["prompt", "prompt", "prompt", "prompt", "accepted", "accepted", "bonus", "plain"],
    origin: ["", "", "", "", "main", "main", "", ""],
    source: [-1, -1, -1, -1, 1, 2, -1, -1],
    pool: [-1, -1, -1, -1, -1, -1, -1, -1],
    prob: [null, null, null, null, 0.9, 0.8, 0.7, 0.6],
    rank: [-1, -1, -1, -1, 0, 0, 0, 1],
  },
  steps: {
    context: [4, 7],
    route: ["lexical", "none"],
    reason: ["", "no match"],
    drafted: [3, 0],
    depth: [3, 0],
    accepted: [2, 0],
    emitted: [3, 1],
    bonus: [3, 0],
    outcome: ["partial", "plain"],
    origins: ["main", ""],
    entropy: [0.1, 0.2],
    draft_ms: [1, null],
    verify_ms: [4, 4],
    commit_ms: [0.5, 0.5],
    elapsed_ms: [6, 11],
    "term:seek_ms": [0.25, null],
  },
  nodes: {
    step: [0, 0, 0, 0, 1],
    token: [0, 1, 2, 0, 3],
    parent: [-1, 0, 1, 2, -1],
    depth: [0, 1, 2, 3, 0],
    origin: ["root", "main", "main", "main", "root"],
    source: [3, 1, 2, 3, 6],
    pool: [-1, -1, -1, -1, -1],
    draft_prob: [null, null, null, null, null],
    prob: [null, 0.9, 0.8, 0.1, null],
    rank: [-1, 0, 0, 2, -1],
    status: ["root", "accepted", "accepted", "rejected", "root"],
    reason: ["", "match", "match", "mismatch", ""],
  },
  targets: { step: [0, 0, 0, 0], node: [0, 1, 2, 2], token: [1, 2, 3, 0], prob: [0.9, 0.8, 0.7, 0.1] },
  candidates: {
    step: [0, 0],
    position: [2, 0],
    pool: [-1, -1],
    score: [1, 2],
    length: [1, 3],
    rank: [1, 0],
    chosen: [false, true],
    excluded: ["", ""],
    would_accept: [3, 2],
  },
  probes: { step: [], parent: [], offset: [], kind: [], token: [], prob: [] },
});

export const frozen = () =>
  JSON.parse(gunzipSync(readFileSync(new URL("../frozen/run.json.gz", import.meta.url))).toString("utf8"));
