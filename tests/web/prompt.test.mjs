/* What the prompt's form holds, without a page: prompts that are the same, references that go with theirs. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { EMPTY, NO_SOURCE, firstWords, isEmpty, payload, referenceOf, same, turned } from "specviz/prompt/text.js";

const text = (words) => ({ ...EMPTY, mode: "text", text: words });
const paris = { ...text("The capital?"), reference: "Paris." };
const source = { ...NO_SOURCE, whose: "the example's", prompt: paris };

test("blanks around a prompt change nothing, unless it is compared exactly", () => {
  assert.ok(same(text("a"), text(" a ")) && !same(text("a"), text(" a "), true));
  assert.ok(!same(text("a"), { ...text("a"), mode: "chat" }));
  assert.ok(same({ ...text("a"), context: "x" }, text("a"))); // a field of another form
});

test("a reference goes with its prompt and is back with it; a typed one stays", () => {
  const of = (prompt, own = null) => referenceOf({ prompt, source, own });
  assert.deepEqual([of(text("The capital? ")).text, of(text("The capital?")).of], ["Paris.", "the example's"]);
  const other = of(text("The river?"));
  assert.deepEqual([other.text, other.of], ["", ""]);
  assert.match(other.words, /not the example's any more/);
  assert.deepEqual([of(text("The river?"), "Seine").text, of(text("The river?"), "Seine").of], ["Seine", "your own"]);
  assert.deepEqual([of(paris, "").text, of(paris, "").of], ["", ""]); // removed
  assert.equal(of(turned(paris, "chat")).of, "the example's"); // in another form, too
  assert.equal(referenceOf({ prompt: paris, source: NO_SOURCE, own: null }).words, "");
});

test("a run of an unchanged example has its name, and no field of another form is sent", () => {
  const examples = [{ id: "e", label: "Ask: Paris", note: "", prompt: paris }];
  const sent = payload({ prompt: { ...paris, context: "x" }, source, own: null }, examples, null);
  assert.deepEqual(sent, { title: "Ask: Paris", mode: "text", text: "The capital?", reference: "Paris.",
    reference_of: "the example's", pool: null });
  assert.equal(payload({ prompt: text("mine"), source, own: null }, examples, null).title, "");
  const grammar = { kind: "regex", text: "[0-9]", filter: false };
  const form = (change) => payload({ prompt: { ...paris, grammar: change }, source, own: null }, examples, null).grammar;
  assert.deepEqual([form(grammar), form({ ...grammar, text: " " }), form(null)], [grammar, undefined, undefined]);
});

test("another form takes along what was typed, and loses nothing of its own", () => {
  const segments = { ...EMPTY, instruction: "Do it.", context: "abc" };
  assert.equal(turned(segments, "text").text, "Do it.\n\nabc");
  assert.deepEqual(turned(segments, "chat").messages, [{ role: "user", content: "Do it.\n\nabc" }]);
  assert.equal(turned({ ...segments, text: "old" }, "text").text, "old");
  assert.equal(turned(turned(segments, "chat"), "segments").context, "abc");
  const blank = { ...EMPTY, mode: "chat", messages: [{ role: "user", content: " " }] };
  assert.ok(isEmpty(turned(EMPTY, "chat")) && isEmpty(blank));
  assert.ok(firstWords(turned(segments, "chat")).startsWith("Do it.") && firstWords(EMPTY) === "…");
});
