/* The opening's race: what stands in a lane at which moment, and when it starts by itself. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { bestStep, cold, done, firstMiss, lanes, whole } from "specviz/opening/race.js";

import { frozen } from "./traces.mjs";

const run = frozen();
const plain = frozen(); // the same, three times as slow
plain.steps.elapsed_ms = plain.steps.elapsed_ms.map((ms) => 3 * ms);
const output = (trace) => trace.tokens.id.slice(trace.run.prompt_length);

test("both recorded: each lane at its own times, the run ends with the race", () => {
  const race = lanes(run, plain);
  assert.equal(race.timed && race.recorded, true);
  assert.equal(whole(race), run.steps.elapsed_ms.at(-1));
  assert.equal(done(race, race.run, 1), run.steps.context.length);
  assert.equal(done(race, race.run, 0), 0);
  const by = plain.steps.elapsed_ms.filter((ms) => ms <= whole(race)).length;
  assert.ok(by > 0 && by < plain.steps.context.length);
  assert.equal(done(race, race.plain, 1), by);
});

test("plain decoding not recorded: the run's text at one token per forward, no times", () => {
  const race = lanes(run, null);
  assert.deepEqual([race.timed, race.recorded], [false, false]);
  assert.deepEqual(race.plain.output, output(run));
  assert.equal(race.plain.steps, output(run).length);
  assert.equal(done(race, race.plain, 1), race.run.steps); // a forward each
});

test("plain decoding measured beside the run, but not recorded: its lane has its mean speed", () => {
  const measured = frozen();
  measured.run.timings = { ...measured.run.timings, plain_tokens_per_s: 20 };
  const race = lanes(measured, null);
  assert.deepEqual([race.timed, race.recorded], [true, false]);
  assert.equal(race.plain.ms, 50 * output(run).length);
  assert.equal(whole(race), race.run.ms);
});

test("a recorded run of another text, or drawn otherwise, is not raced against", () => {
  const other = frozen();
  other.tokens.id[other.tokens.id.length - 1]++;
  assert.equal(lanes(run, other).recorded, false);
  const drawn = frozen();
  drawn.run.sampling = { temperature: 1 };
  assert.equal(lanes(run, drawn).recorded, false);
  const lossy = frozen();
  lossy.run.method.lossless = false;
  assert.equal(lanes(lossy, other).recorded, true); // it may write another text
});

test("a lane's stretches are its text, told by what a draft brought", () => {
  const { run: lane } = lanes(run, null);
  const parts = lane.stretches();
  const whole = lane.pieces.cells(lane.output).filter(({ start }) => !lane.pieces.special(lane.output[start]));
  assert.equal(parts.map(({ text }) => text).join(""), whole.map(({ text }) => text).join(""));
  const drafted = new Set(parts.filter(({ accepted }) => accepted).map(({ step }) => step));
  assert.deepEqual([...drafted], lane.accepted.flatMap((n, step) => (n ? [step] : [])));
  const last = parts.filter(({ step }) => step === lane.steps - 1);
  assert.deepEqual(lane.stretches(lane.start(lane.steps - 1)), last);
});

test("what cannot be seen is written out in a lane, too", () => {
  const odd = frozen();
  const turned = Buffer.from("\u202eno").toString("hex");
  odd.pieces.hex[odd.pieces.id.indexOf(output(odd)[0])] = turned;
  assert.ok(lanes(odd, null).run.stretches()[0].text.startsWith("⟨U+202E⟩no"));
});

test("the first miss has a draft of which nothing stood", () => {
  assert.equal(firstMiss({ drafted: [3, 0, 4, 2], accepted: [1, 0, 0, 0] }), 2);
  assert.equal(firstMiss({ drafted: [3, 0], accepted: [1, 0] }), -1);
});

test("it starts by itself for who is new and asked for nothing", () => {
  assert.equal(cold("", "", null), true);
  assert.equal(cold("?__theme=dark", "#", null), true);
  assert.equal(cold("", "", "1"), false);
  for (const asked of ["trace=a", "run=a", "step=3", "tab=lab", "present=1", "lanes=a,b"])
    assert.equal(cold(asked, "", null), false, asked);
  assert.equal(cold("", "#step=3", null), false);
});

test("the best step is the first of those with most accepted; of nothing there is none", () => {
  assert.deepEqual([[0, 3, 1, 3], [0, 0], []].map((accepted) => bestStep({ accepted })), [1, -1, -1]);
});
