/* Page "Compare", the race: a row per lane, the clock, and everything that moves with it. */

import { closest, h, must } from "specviz/base/dom.js";
import { clamp, plural } from "specviz/base/numbers.js";
import { tell, words } from "specviz/compare/oracle.js";
import { doubt, drawn, going, mark, name, page, part, seconds, settings, tint } from "specviz/compare/state.js";
import { trained } from "specviz/shell/methods.js";

const LASTS = [5, 10, 20, 40]; // seconds a race lasts
const SHOWN_TEXT = 260; // characters of a lane's text
/** @type {Record<string, string>} */
const STATES = { waiting: "waiting", running: "running", failed: "failed", stopped: "stopped" };

/** What a lane's row is made of. @param {DrawnLane | CompareLane} lane */
export const laneParts = (lane) => ({
  row: h("li.svc-lane", { style: tint(lane.n) }),
  name: h("b.svc-name"),
  settings: h("span.ui-soft"),
  verdict: h("span.svc-verdict"),
  oracle: words(lane),
  fill: h("i.svc-fill"),
  own: h("span.svc-numbers.ui-soft"),
  text: h("code.svc-text"),
  state: h("span.svc-state.ui-soft", { role: "status" }),
  error: h("p.svc-error", { role: "alert" }),
  inspect: h("button.svp-link.svc-inspect", { onclick: () => inspect(lane) }, "Inspect ↗"),
});

/** What a lane took until it was done, by the clock. @param {DrawnLane} one */
const cost = ({ lane }) => (page.clock === "step" ? lane.steps : lane.ms);

/** Whether all lanes are over and the clock stands at its end: each bar is as long as its lane took. */
const atRest = () => !page.live && !page.playing && !going() && page.at >= limit();

/** Whether a lane takes no place by time, as its speedup cannot be right. @param {CompareLane} one */
const outOfPlace = (one) => page.clock === "time" && Boolean(doubt(one));

/** At rest the first to finish stands on top; what did not finish stands last. */
function sortRows() {
  if (!atRest()) return;
  /** @param {CompareLane} one */
  const rank = (one) => (one.state === "done" && one.lane ? cost(/** @type {DrawnLane} */ (one)) : Infinity);
  /** @type {(a: CompareLane, b: CompareLane) => number} */
  const order = (a, b) => Number(outOfPlace(a)) - Number(outOfPlace(b)) || rank(a) - rank(b) || 0;
  const rows = [...page.lanes].sort(order).map((one) => must(one.parts).row);
  const list = part("lanes");
  if (rows.some((row, n) => list.children[n] !== row)) list.append(...rows);
}

/** A row per lane: who it is, how it fares. */
export function drawRows() {
  const list = part("lanes");
  if (list.children.length !== page.lanes.length) {
    list.replaceChildren(
      ...page.lanes.map((lane) => {
        const p = (lane.parts = laneParts(lane));
        p.row.append(
          h("div.svc-who.ui-row", mark(lane), p.name, p.settings, p.state, p.verdict, p.oracle, p.inspect),
          h("div.svc-track.ui-bar", { "aria-hidden": "true" }, p.fill),
          p.own,
          p.text,
        );
        return p.row;
      }),
    );
  }
  for (const lane of page.lanes) {
    const p = must(lane.parts);
    p.name.textContent = name(lane);
    p.settings.textContent = [settings(lane), trained(lane.lane?.run.part?.training)].filter(Boolean).join(" · ");
    tell(p.oracle, lane);
    p.state.textContent =
      lane.state === "waiting" && lane.ahead > 0
        ? `waiting: ${plural(lane.ahead, "run")} before it`
        : STATES[lane.state] || "";
    p.state.dataset.state = lane.state;
    p.inspect.hidden = !lane.lane;
    p.inspect.setAttribute("aria-label", `Open ${name(lane)} on Inspect at this step`);
    if (lane.error && ["failed", "stopped"].includes(lane.state)) {
      p.error.textContent = lane.error;
      if (!p.error.isConnected) p.text.after(p.error);
    }
  }
}

/** Opens a lane on Inspect, at a step or where it stands now. @param {CompareLane} lane @param {number} [step] */
export function inspect(lane, step) {
  const now = lane.lane?.done(page.clock, page.at) ?? 0;
  page.host.inspect(lane.id, step ?? Math.max(0, now - 1));
}

/** Where the clock ends. */
export function limit(clock = page.clock) {
  const lanes = drawn().map((lane) => lane.lane);
  return Math.max(
    0,
    ...lanes.map((lane) => (clock === "time" ? lane.ms : clock === "step" ? lane.steps : lane.length)),
  );
}

/** The slider ends where the clock does. */
export function setLimit() {
  const slider = part("slider", HTMLInputElement);
  slider.max = String(limit());
  slider.step = page.clock === "time" ? String(Math.max(0.1, limit() / 2000)) : "1";
}

/** Another clock: at a position, or where the lane that is furthest stands now. */
/** @type {(clock: Clock, position?: number) => void} */
export function setClock(clock, position) {
  const before = page.clock,
    lanes = drawn().map((lane) => lane.lane);
  const end = page.at >= limit(before);
  /** @param {import("specviz/compare/lane.js").Lane} lane */
  const share = (lane) => lane.done(before, page.at) / lane.steps;
  const lead = [...lanes].sort((a, b) => share(b) - share(a))[0];
  const k = lead ? lead.done(before, page.at) : 0;
  page.clock = clock;
  page.at =
    position ??
    (end || !lead ? limit() : clock === "time" ? (k ? lead.times[k - 1] : 0) : clock === "step" ? k : lead.start(k));
  for (const radio of part("clocks").querySelectorAll("input")) radio.checked = radio.value === clock;
  setLimit();
  drawLasts();
  paint();
}

/** @param {number} value */
export function seek(value) {
  page.at = clamp(value, 0, limit());
  page.live = false;
  paint();
}

/** How long the race may last. */
export function drawLasts() {
  const select = part("lasts", HTMLSelectElement);
  select.replaceChildren(
    ...LASTS.map((n) => h("option", { value: n }, `in ${n} s`)),
    ...(page.clock === "time" ? [h("option", { value: "real" }, "in real time")] : []),
  );
  if (page.clock !== "time" && page.lasts === "real") page.lasts = 10;
  select.value = String(page.lasts);
}

/** Plays or pauses. */
export function toggle() {
  if (page.playing) return pause();
  if (page.at >= limit()) page.at = 0;
  page.live = false;
  let before = 0;
  /** @param {number} now */
  const tick = (now) => {
    if (!page.playing) return;
    const rate = page.lasts === "real" ? 1 : limit() / (page.lasts * 1000);
    if (before) page.at = Math.min(limit(), page.at + (now - before) * rate);
    before = now;
    paint();
    if (page.at >= limit()) return pause();
    page.playing = requestAnimationFrame(tick);
  };
  page.playing = requestAnimationFrame(tick);
  part("play").textContent = "❚❚ Pause";
  part("play").setAttribute("aria-label", "Pause the race");
}

/** Stops the clock. */
export function pause() {
  if (!page.playing) return;
  cancelAnimationFrame(page.playing);
  page.playing = 0;
  part("play").textContent = "▶ Race";
  part("play").setAttribute("aria-label", "Play the race");
}

/** One step of the clock: the next (or the last) moment at which something happens. @param {number} by */
function nudge(by) {
  pause();
  if (page.clock !== "time") return seek(Math.floor(page.at) + by);
  const times = drawn().flatMap(({ lane }) => {
    const k = lane.done("time", page.at);
    const at = by > 0 ? k + by - 1 : lane.times[k - 1] < page.at ? k + by : k - 1 + by;
    return at >= 0 && at < lane.steps ? [lane.times[at]] : [];
  });
  if (!times.length) return seek(by > 0 ? limit() : 0);
  seek(by > 0 ? Math.min(...times) : Math.max(...times));
}

/** The keys of the race. @param {KeyboardEvent} event */
export function key(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (closest(event, "select, textarea, summary, .js-plotly-plot")) return;
  if (event.key === " " && closest(event, "button, a, input[type=radio], input[type=checkbox]")) return;
  if (closest(event, "input[type=radio]") && event.key.startsWith("Arrow")) return;
  const far = event.shiftKey ? 10 : 1;
  /** @type {Record<string, () => void>} */
  const acts = {
    ArrowRight: () => nudge(far),
    ArrowUp: () => nudge(far),
    ArrowLeft: () => nudge(-far),
    ArrowDown: () => nudge(-far),
    PageUp: () => nudge(10),
    PageDown: () => nudge(-10),
    Home: () => {
      pause();
      seek(0);
    },
    End: () => {
      pause();
      seek(limit());
    },
    " ": toggle,
  };
  if (!acts[event.key]) return;
  event.preventDefault();
  acts[event.key]();
}

/** Draws what the clock shows. */
export function paint() {
  const lanes = drawn();
  const done = lanes.map(({ lane }) => (page.live ? lane.steps : lane.done(page.clock, page.at)));
  const written = lanes.map(({ lane }, n) => lane.start(done[n]));
  const open = lanes.filter((one) => one.state === "running").map(({ lane }) => lane.run.max_new_tokens);
  const most = Math.max(
    1,
    ...lanes.map(({ lane }) => lane.length),
    ...(lanes.some((one) => one.state === "done") ? [] : open),
  );
  const order = lanes
    .map((_, n) => n)
    .filter((n) => done[n] === lanes[n].lane.steps && lanes[n].state === "done" && !outOfPlace(lanes[n]));
  order.sort((a, b) => cost(lanes[a]) - cost(lanes[b]));
  const rest = atRest() && page.clock !== "position";
  const longest = Math.max(1, ...lanes.map(cost));
  sortRows();
  lanes.forEach((one, n) => {
    const { lane } = one;
    const parts = must(one.parts);
    const ended = one.state === "done" && done[n] === lane.steps && !page.live;
    parts.fill.style.transform = `scaleX(${rest ? cost(one) / longest : written[n] / most})`;
    const standing = outOfPlace(one) ? "‡ no place" : ["1st", "2nd", "3rd", "4th", "5th"][order.indexOf(n)];
    const place = ended && page.clock !== "position" ? ` · ${standing}` : "";
    const numbers =
      `${plural(written[n], "token")} · ${plural(done[n], "forward")} · ` +
      `${seconds(done[n] ? lane.times[done[n] - 1] : 0)}${ended ? " ✓" : ""}${place}`;
    if (parts.own.textContent !== numbers) parts.own.textContent = numbers;
    const shown = `${done[n]} of ${lane.steps}`;
    if (one.shown !== shown) parts.text.replaceChildren(h("span.svc-tail", latest(lane, done[n])));
    one.shown = shown;
  });
  const position = page.clock === "position" ? Math.floor(page.at) : Math.max(0, ...written);
  const said = told(lanes, position);
  if (lanes.length) page.ruler?.draw(position, done, page.mark, said);
  part("reached").textContent = said;
  const slider = part("slider", HTMLInputElement);
  slider.value = String(page.at);
  const at =
    page.clock === "time"
      ? seconds(page.at)
      : page.clock === "step" ? plural(Math.floor(page.at), "forward") : plural(Math.floor(page.at), "token");
  if (part("at").textContent !== at) part("at").textContent = at;
  slider.setAttribute("aria-valuetext", at);
}

/** At the position that is furthest: how many forwards each method needed, and who has it inside one draft. */
/** @type {(lanes: DrawnLane[], position: number) => string} */
function told(lanes, position) {
  if (!position || !lanes.length) return "Nothing is written yet.";
  const parts = lanes
    .filter((one) => position <= one.aligned)
    .map(({ mark: letter, lane }) => {
      const k = lane.stepOf[position - 1];
      const inside = lane.accepted[k] > position - 1 - lane.start(k);
      const from = lane.start(k) + 1;
      const to = lane.start(k) + lane.accepted[k];
      const where = inside ? ` (in a draft of tokens ${from}–${to})` : "";
      return `${letter} ${(k + 1).toLocaleString("en")}${where}`;
    });
  return parts.length
    ? `Token ${position.toLocaleString("en")} was reached in forwards: ${parts.join(", ")}.`
    : `Token ${position.toLocaleString("en")}: the outputs differ here.`;
}

/** The end of what a lane has written: accepted tokens and the target's own apart. */
/** @type {(lane: import("specviz/compare/lane.js").Lane, done: number) => (HTMLElement | string)[]} */
function latest(lane, done) {
  const stop = lane.start(done);
  let from = stop,
    size = 0;
  for (let k = done - 1; k >= 0 && size < SHOWN_TEXT; k--) {
    from = lane.start(k);
    size = 0;
    for (let p = from; p < stop && size < SHOWN_TEXT; p++) size += lane.pieces.get(lane.output[p]).text.length;
    if (stop - from > 80) break;
  }
  const written = lane.stretches(from, stop).filter(({ text }) => text);
  const spans = written.map(({ step, accepted, text }) =>
    h(accepted ? "span.svc-acc" : "span.svc-own", { class: step === done - 1 && "svc-new" }, text),
  );
  return from > 0 ? ["… ", ...spans] : spans;
}
