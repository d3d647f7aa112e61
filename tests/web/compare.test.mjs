/* The claim of a comparison as a slide, and a lane whose times are those of its repeats. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Lane } from "specviz/compare/lane.js";
import { slideSvg } from "specviz/compare/slide.js";
import { fewest, lead, stage } from "specviz/compare/standing.js";

import { frozen } from "./traces.mjs";

const lane = (name, place, bar, more = {}) =>
  ({ name, place, bar, low: null, high: null, value: "2.00×", more: "0.4 s", ...more });
const slide = {
  title: "A <prompt> & more", number: "2.00×", sentence: "PLD wins: 2.00× plain decoding.", notes: ["Median of 3 runs."],
  measure: "Time: shorter is better", unit: "× plain decoding",
  lanes: [lane("PLD", 1, 0.5, { low: 0.45, high: 0.55 }), lane("Plain decoding", 2, 1), lane("AdaPLD", null, 0.1)],
};

test("a slide has the claim, text stays text, and a bar is as long as its lane took", () => {
  const svg = slideSvg(slide, "light");
  assert.match(svg, /^<svg xmlns="http:\/\/www.w3.org\/2000\/svg" viewBox="0 0 1280 720"/);
  for (const text of ["A &lt;prompt&gt; &amp; more", "PLD wins: 2.00× plain decoding.", "Median of 3 runs.", "‡", slide.measure, slide.unit])
    assert.ok(svg.includes(text), text);
  assert.ok(!svg.includes("<prompt>"));
  const bars = [...svg.matchAll(/width="([\d.]+)" height="24"/g)].map(([, wide]) => Number(wide));
  assert.equal(bars.length, 3);
  assert.ok(Math.abs(bars[0] / bars[1] - 0.5) < 0.001 && Math.abs(bars[2] / bars[1] - 0.1) < 0.001);
  assert.equal([...svg.matchAll(/height="14"/g)].length, 2); // the ends of the one whisker
});

test("light and dark differ by their colours alone; a long sentence stays on the slide", () => {
  const colors = /#[0-9a-f]{6}/g;
  assert.equal(slideSvg(slide, "light").replace(colors, ""), slideSvg(slide, "dark").replace(colors, ""));
  const long = slideSvg({ ...slide, sentence: "many words and more of them ".repeat(60) }, "dark");
  const places = [...long.matchAll(/ y="([\d.]+)"/g)].map(([, y]) => Number(y));
  assert.ok(Math.max(...places) < 720);
  const notes = slideSvg({ ...slide, notes: ["many runs ".repeat(20)] }, "light");
  assert.equal([...notes.matchAll(/font-size="15"/g)].length, 2);
  const rows = slideSvg({ ...slide, sentence: "word ".repeat(18) }, "light").match(/size="24"[^>]*>word[^<]*</g) ?? [];
  assert.ok(rows.length === 2 && rows[1].length > 0.8 * rows[0].length, "no word alone on the last line");
});

test("a lane's times are as long as the median of its repeats", () => {
  const trace = frozen();
  const paced = new Lane(trace);
  const times = [...paced.times];
  paced.setPace(2);
  assert.deepEqual(paced.times, times.map((ms) => 2 * ms));
  paced.setPace(0.5); // from what was recorded, not from the last one
  paced.times.forEach((ms, k) => assert.ok(Math.abs(ms - times[k] / 2) < 1e-9));
  assert.equal(paced.done("time", paced.ms), paced.steps);
});

test("the end of a lane is cut before a token, never inside one", () => {
  const lane = new Lane(frozen());
  const stop = lane.length;
  const texts = lane.output.map((id) => lane.pieces.get(id)).map(({ text, special }) => (special ? "" : text));
  for (let most = 0; most < 40; most++) {
    const from = lane.tail(stop, most, (text) => text.length);
    assert.ok(texts.slice(from, stop).join("").length <= most, String(most));
    if (from > 0 && stop - from < most) assert.ok(texts.slice(from - 1, stop).join("").length > most, String(most));
  }
  assert.equal(lane.tail(stop, 1e6, (text) => text.length), 0);
});

test("a lane without a step reads the prompt", () => {
  assert.deepEqual([0, 1].map((steps) => stage("running", 0, steps)), ["reading the prompt", "running"]);
});

test("before its end a race says what is true so far, and no winner", () => {
  const at = (name, tokens, steps, over = false) => ({ name, tokens, steps, over });
  const lanes = [at("plain decoding", 3, 3), at("PLD", 8, 2), at("PPD", 3, 2)];
  assert.equal(lead(lanes, "0.10 s"), "After 0.10 s: PLD is ahead with 8 tokens; plain decoding has 3.");
  const over = [...lanes, at("SpS", 8, 4, true)];
  assert.equal(lead(over, "0.10 s"), "After 0.10 s: PLD and SpS have written 8 tokens each; plain decoding has 3.");
  assert.equal(lead([at("SpS", 8, 4, true), lanes[0]], "9 forwards"),
    "After 9 forwards: SpS has written all its 8 tokens; plain decoding has 3.");
  assert.equal(lead([at("PLD", 0, 0)], "1 ms"), "After 1 ms: nothing is written yet.");
  assert.equal(fewest(lanes, 3), "To write 3 tokens: PLD and PPD needed 2 forwards each, plain decoding 3.");
  assert.equal(fewest(lanes, 4), "To write 4 tokens: PLD needed 2 forwards.");
  assert.equal(fewest(lanes, 0), "Nothing is written yet.");
});
