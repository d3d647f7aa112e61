import assert from "node:assert/strict";
import { test } from "node:test";

import { trained } from "specviz/shell/methods.js";
import { aboutRule, cardOf, joined, parted, rulesOf } from "specviz/shell/verifiers.js";

import { Model, POOL, groups, precision } from "specviz/base/model.js";
import { format, mean, plain, plural, probability, thousandths } from "specviz/base/numbers.js";
import { numbers } from "specviz/base/terms.js";
import { BREAK, Pieces, characters, glyphParts, glyphs, inLine, safe } from "specviz/base/text.js";

import { frozen, small } from "./traces.mjs";

test("numbers as people read them", () => {
  assert.deepEqual(
    [1234, 12.345, 0.1234, 1.23e-5, null, NaN].map((n) => format(n)),
    ["1,234", "12.3", "0.123", "1.2e-5", "–", "–"],
  );
  assert.equal(format(1234.5), "1,235");
  assert.equal(format("text"), "text");
  assert.deepEqual([2.125, 2.375].map(mean), ["2.12", "2.38"]);
  assert.deepEqual([1, 0.93, 0.004, 0.0005, 0, null].map(probability), ["1.0", ".93", ".004", "<.001", "<.001", "–"]);
  assert.deepEqual([1, 0.9534, null].map(thousandths), ["1.000", ".953", "–"]);
  assert.deepEqual(
    [plural(1, "token"), plural(1200, "token"), plural(2, "copy", "copies")],
    ["1 token", "1,200 tokens", "2 copies"],
  );
});

test("a copy is placed where its text begins to be seen", () => {
  const texts = ["Rect", "\n\n   ", "def", " area", "\n", "\n"];
  const model = { id: (at) => at, pieces: { get: (id) => ({ text: texts[id] }) } };
  const placeOf = (position, length) => Model.prototype.placeOf.call(model, { position, length });
  assert.deepEqual([placeOf(0, 3), placeOf(1, 2), placeOf(3, 2), placeOf(0, 0)], [2, 2, 4, 0]);
});

test("what cannot be seen is written out", () => {
  assert.equal(safe("a\u200bb\u0007"), "a⟨U+200B⟩b⟨x07⟩");
  assert.equal(glyphs(" \t\n\r"), "␣→⏎␍");
  const bytes = Uint8Array.from([0x61, 0xc3, 0xa9, 0xff, 0xe2, 0x82]);
  assert.deepEqual(characters(bytes).map((c) => c.text), ["a", "é", "⟨xFF⟩", "⟨xE2⟩", "⟨x82⟩"]);
  assert.deepEqual(characters(bytes).map((c) => c.start), [0, 1, 3, 4, 5]);
});

test("a line of signs breaks before blanks and behind a line's end, never in a word", () => {
  const parts = glyphParts("self.width * factor\n    return\n\n");
  assert.deepEqual(parts, ["self.width", "␣*", "␣factor", "⏎", "␣␣␣␣return", "⏎⏎"]);
  assert.equal(parts.join(""), glyphs("self.width * factor\n    return\n\n"));
});

test("a title never turns round the rest of its line", () => {
  assert.equal(inLine("Say hi"), "Say hi");
  assert.equal(inLine("Say \u202e hi"), "Say ⟨U+202E⟩ hi");
  assert.equal(inLine("שלום"), "\u2068שלום\u2069");
});

test("tokens that share a character are one cell", () => {
  const pieces = new Pieces({ id: [1, 2, 3], hex: ["61", "f09f", "9880"], special: [false, false, false] });
  assert.deepEqual(pieces.cells([1, 2, 3]), [{ start: 0, stop: 1, text: "a" }, { start: 1, stop: 3, text: "😀" }]);
  assert.equal(pieces.label(2), "⟨xF0⟩⟨x9F⟩");
  assert.equal(pieces.label(9), "⟨token␣9⟩");
  assert.equal(pieces.bytes(2), "F0 9F");
  assert.equal(pieces.phrase([1, 1, 1, 1], 3), "aa…");
});

test("a phrase writes each token as its label, and may break between tokens alone", () => {
  const pieces = new Pieces({ id: [1, 2, 3], hex: ["0a20202020202020", "2073", "656c66"], special: Array(3).fill(false) });
  assert.equal(pieces.phrase([1, 2, 3]), [1, 2, 3].map((id) => pieces.label(id)).join(""));
  assert.deepEqual(pieces.phrase([1, 2, 3], Infinity, BREAK).split(BREAK), ["⏎␣×7", "␣s", "elf"]);
});

test("a precision names rows that are rounded", () => {
  const [dtype, weights] = ["float32", "int4"];
  const models = [{ dtype }, { dtype, weights }, { dtype, weights, activations: "int8" }, undefined];
  assert.deepEqual(models.map(precision), ["float32", "int4", "int4 with int8 rows", undefined]);
});

test("a trace is indexed by step", () => {
  const model = new Model(small());
  assert.deepEqual([model.stepCount, model.tokenCount, model.promptLength], [2, 8, 4]);
  assert.deepEqual(
    [model.rows("nodes", 0), model.rows("nodes", 1), model.rows("candidates", 1), model.rows("guesses", 0)],
    [[0, 1, 2, 3], [4], [], []],
  );
  assert.deepEqual(model.runs, [{ start: 4, stop: 6, source: 1, step: 0 }]);
  assert.deepEqual([model.links(5), model.links(2), model.links(0)], [model.runs, model.runs, []]);
  assert.deepEqual([model.sourceOf(4), model.sourceOf(6), model.stepOf(6), model.stepOf(0)], [1, -1, 0, -1]);
});

test("a step as the views see it", () => {
  const view = new Model(small()).step(0);
  assert.deepEqual([view.end, view.root, view.last, view.accepted, view.bonus], [7, 0, 2, 2, 3]);
  assert.deepEqual(view.path.map((node) => node.index), [1, 2]);
  assert.deepEqual(view.refused.map((node) => node.index), [3]);
  assert.deepEqual(view.spans.map(({ start, stop }) => [start, stop]), [[3, 4], [1, 4]]);
  assert.deepEqual([view.chosen.position, view.best.position], [0, 2]);
  assert.deepEqual(view.candidates.map((one) => one.rank), [0, 1]);
  assert.deepEqual(view.targets.get(2), [{ token: 3, prob: 0.7 }, { token: 0, prob: 0.1 }]);
});

test("a column that no view knows is a plain value, and can take no other's place", () => {
  const trace = small();
  trace.candidates.hit_count = [3, 4];
  trace.steps.number = [7, 8];
  const column = (name) => ({ name, label: name.replace("_", " "), help: "", type: "int" });
  trace.report = { columns: { candidates: [column("hit_count")], nodes: [column("gone")], steps: [column("number")] } };
  const model = new Model(trace);
  const view = model.step(1);
  assert.equal(view.number, 1);
  assert.deepEqual(model.plainValues("candidates", 1).map(({ label, value }) => [label, value]), [["hit count", 4]]);
  assert.deepEqual([model.plainValues("nodes", 0)[0].value, model.plainValues("steps", 1)[0].value], [null, 8]);
  assert.deepEqual([true, 1234, "x", null].map(plain), ["yes", "1,234", "x", "–"]);
  assert.deepEqual(new Model(small()).plainValues("candidates", 1), []);
});

test("how a token was decided", () => {
  const model = new Model(small());
  assert.equal(model.decision(4).node.index, 1);
  assert.deepEqual(model.decision(6), { node: null, rather: { token: 3, prob: 0.7 } });
  assert.equal(model.decision(0), null);
  assert.deepEqual(
    [model.stepTerm(0, "seek_ms"), model.stepTerm(1, "seek_ms"), model.stepTerm(0, "none")],
    [0.25, null, null],
  );
});

test("a run grows by its steps", () => {
  const whole = frozen();
  const cut = structuredClone(whole);
  const rest = {};
  const from = { steps: 7, tokens: whole.steps.context[7], pieces: whole.pieces.id.length };
  for (const [table, columns] of Object.entries(whole)) {
    if (["schema", "run"].includes(table)) continue;
    const at = columns.step && table !== "tokens" ? columns.step.findIndex((step) => step >= 7) : from[table] ?? 0;
    rest[table] = {};
    for (const name of Object.keys(columns)) rest[table][name] = cut[table][name].splice(at < 0 ? Infinity : at);
  }
  const model = new Model(cut);
  assert.equal(model.stepCount, 7);
  model.append(rest, { title: "Grown" });
  const all = new Model(whole);
  assert.equal(model.run.title, "Grown");
  assert.deepEqual(
    [model.runs, model.first],
    [all.runs, all.first],
  );
  assert.deepEqual(model.step(17), all.step(17));
});

test("places in a pool stand behind all positions", () => {
  const trace = small();
  Object.assign(trace.tokens, { source: trace.tokens.source.map(() => -1), pool: [-1, -1, -1, -1, 5, 6, -1, -1] });
  const model = new Model({ ...trace, pool: { position: [5, 6], id: [1, 2], passage: [0, 0] } });
  assert.deepEqual(model.runs, [{ start: 4, stop: 6, source: POOL + 5, step: 0 }]);
  assert.deepEqual([model.id(POOL + 5), model.id(POOL), model.ids(POOL, POOL + 9)], [1, undefined, [1, 2]]);
});

test("rows are grouped in order", () => {
  assert.deepEqual([...groups([1, 2, 3], [0, 7, 2, 7], (row) => row)], [[7, [1, 3]], [2, [2]]]);
});

test("a metric's formula is filled with its parts", () => {
  const report = { metrics: { tokens_per_step: { value: 1.5, accepted: 0.5, steps: 1 } } };
  const model = new Model({ ...small(), report });
  assert.deepEqual(numbers("tokens_per_step", model), ["(0.500 + 1) ÷ 1 step", 1.5]);
  assert.equal(numbers("none", model), null);
  assert.equal(numbers("tokens_per_step", new Model(small())), null);
});

test("what was counted is not told once the run has grown", () => {
  const report = { metrics: { differs: { value: 1 } }, columns: { nodes: [{ name: "warm" }] } };
  const model = new Model({ ...small(), report });
  model.append({}, { title: "Renamed" });
  assert.equal(model.metric("differs").value, 1);
  model.append({ targets: { step: [1], node: [0], token: [0], prob: [1] } });
  assert.deepEqual([model.report, model.metric("differs").value, model.columns], [null, undefined, report.columns]);
});

test("an origin is drawn as the run declares it, else plainly", () => {
  const trace = small();
  const main = { name: "main", letter: "", label: "main", sentence: "Copied.", outline: "round", hue: 2 };
  trace.run.origins = [main];
  const model = new Model(trace);
  assert.deepEqual(model.origin("main"), { ...main, declared: true });
  const { letter, outline, hue, declared } = model.origin("cache");
  assert.deepEqual([letter, outline, hue, declared], ["C", "box", 0, false]);
});

test("another file is refused", () => {
  assert.throws(() => new Model({ schema: "spectrace/9" }), /spectrace\/9/);
  assert.throws(() => new Model(null), /this file/);
});

test("what an object holds is told in a line", () => {
  assert.equal(format({ name: "a.gguf", types: { Q4_1: 1210, F32: 61 } }), "name a.gguf, types Q4_1 1,210, F32 61");
  assert.equal(format([1, null, "x"]), "1, –, x");
});

test("a part says how it was trained, as far as its record does", () => {
  assert.equal(
    trained({ tokens: 218731, seconds: 2521, acceptance: 0.204 }),
    "Trained for 42 min on 218,731 tokens; held-out acceptance 20 %",
  );
  assert.equal(trained({ seconds: 7200, top1: 0.5 }), "Trained for 2.0 h; on held-out text 50 % of its first guesses are right");
  assert.equal(trained({ tokens: 1000 }), "Trained on 1,000 tokens");
  assert.deepEqual([trained({}), trained(undefined)], ["", ""]);
});

const control = (name) => ({ name, label: name, kind: "float", default: 0.5 });
const catalog = {
  methods: [
    { name: "copy", title: "Copy", lossless: true, controls: [], judges: {} },
    {
      name: "small", title: "Draft model: a smaller one", lossless: true, controls: [control("length"), control("rule")],
      judges: { match: true, mild: false, fly: false }, verifier_params: ["rule"],
    },
  ],
  verifiers: [
    { name: "match", title: "Match", summary: "One draw.", source: "A 2024", lossless: true, greedy_match: true, controls: [] },
    { name: "mild", title: "Mild", summary: "Takes more.", source: "B 2024", lossless: false, greedy_match: true,
      controls: [control("epsilon")] },
    { name: "fly", title: "FLy", summary: "Looks ahead.", source: "C 2025", lossless: false, greedy_match: false,
      controls: [] },
    { name: "none", title: "None", summary: "", source: "", lossless: true, greedy_match: true, controls: [] },
  ],
};

test("a method under another verifier has the title, the output and the parameters of both", () => {
  const card = cardOf(catalog, "small@mild");
  assert.deepEqual(
    [card.name, card.title, card.lossless, card.controls.map(({ name }) => name)],
    ["small@mild", "Draft model, Mild: a smaller one", false, ["length", "epsilon"]],
  );
  assert.equal(cardOf(catalog, "small"), catalog.methods[1]);
  assert.deepEqual(["small@none", "small@nope", "copy@mild", "nope"].map((name) => cardOf(catalog, name)),
    [undefined, undefined, undefined, undefined]);
  assert.deepEqual([parted("a@b"), parted("a"), joined("a", "b"), joined("a", "")],
    [{ base: "a", rule: "b" }, { base: "a", rule: "" }, "a@b", "a"]);
});

test("verifiers are offered by what they do to the text, and not where a greedy run has its tokens matched", () => {
  const names = (greedy) =>
    rulesOf(catalog, "small", greedy).map(({ label, rules }) =>
      [label.split(":")[0], ...rules.map(({ rule, off }) => (off ? `(${rule.name})` : rule.name))]);
  assert.deepEqual(names(false), [["Lossless", "match"], ["Lossy", "mild", "fly"]]);
  assert.deepEqual(names(true), [["Lossless", "(match)"], ["Lossy", "(mild)", "fly"]]);
  assert.deepEqual(rulesOf(catalog, "copy", false), []);
  assert.match(aboutRule(catalog, "small@mild", true), /^Takes more\. Lossy: .*At temperature 0 it matches .*\(B 2024\)$/);
  assert.equal(aboutRule(catalog, "small@match", false), "One draw. (A 2024)");
  assert.match(aboutRule(catalog, "small", true), /need a temperature above 0/);
});
