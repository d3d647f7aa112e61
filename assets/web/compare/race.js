/* Page "Compare", the race: a row per lane, the clock, and everything that moves with it. */

import { closest, h, must } from "specviz/base/dom.js";
import { inNarrow } from "specviz/base/text.js";
import { clamp, mean, plural } from "specviz/base/numbers.js";
import { Ruler } from "specviz/base/ruler.js";
import { stage } from "specviz/compare/standing.js";
import {
  drawn, going, mark, name, page, part, placeOf, put, seconds, settings, speedup, tint,
} from "specviz/compare/state.js";
import { playing, written } from "specviz/compare/writing.js";
import { trained } from "specviz/shell/methods.js";

const LASTS = [5, 10, 20, 40]; // seconds a race lasts
/** @param {DrawnLane[]} lanes */
const areAlike = (lanes) => new Set(lanes.map(({ lane }) => lane.length)).size < 2;

/** What the lanes' bars are at rest; per token where texts differ in length. */
export function measure() {
  const each = areAlike(drawn()) ? "" : " per token";
  return page.by === "time" ? `Time${each}: shorter is better` : `Forwards${each}: fewer is better`;
}

const ruler = new Ruler();
let lanesFont = "";
/** A text's width in the lanes' font. @param {string} text */
const widthOf = (text) => ruler.width(text, lanesFont);

/** How wide the lanes' text may be; asked before anything of a frame is drawn. @param {DrawnLane[]} lanes */
function textWidth([lane]) {
  if (!lane) return 0;
  const { track, text } = must(lane.parts);
  const { fontSize, fontFamily } = getComputedStyle(text);
  lanesFont = `${fontSize} ${fontFamily}`;
  return track.clientWidth;
}

/** What a lane's row is made of. @param {DrawnLane | CompareLane} lane */
export const laneParts = (lane) => ({
  row: h("li.svc-lane", { style: tint(lane.n) }),
  place: h("span.svc-place"),
  name: h("button.svp-bare.svc-name", { onclick: () => inspect(lane) }),
  settings: h("span.svc-settings.ui-soft"),
  verdict: h("span.svc-verdict"),
  track: h("div.svc-track", { "aria-hidden": "true" }),
  fill: h("i.svc-fill"),
  whisker: h("i.svc-whisker", { hidden: true }),
  value: h("b.svc-value"),
  own: h("span.svc-numbers.ui-soft"),
  text: h("code.svc-text"),
  state: h("span.svc-state.ui-soft", { role: "status" }),
  error: h("p.svc-error", { role: "alert" }),
});

/** What a lane cost by the measure that orders them. @param {DrawnLane} one */
const cost = ({ lane }) => (page.by === "step" ? lane.steps : lane.ms);

/** Whether all lanes are over and the clock stands at its end: the claim is shown. */
export const atRest = () => !page.live && !page.playing && !going() && page.at >= limit();

/** At rest the lanes stand as the claim orders them. */
function sortRows() {
  if (!page.claim || going()) return;
  const order = page.claim[page.by].lanes.map(({ id }) => id);
  /** @param {CompareLane} lane */
  const rank = ({ id }) => (order.includes(id) ? order.indexOf(id) : order.length);
  const rows = [...page.lanes].sort((a, b) => rank(a) - rank(b)).map((one) => must(one.parts).row);
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
        p.track.append(p.fill, p.whisker);
        page.tip?.add(p.place, () => {
          const why = placeOf(lane)?.reason;
          return why ? [h("div", `‡ No place: ${why}.`)] : [];
        });
        page.tip?.add(p.value, () =>
          p.value.tabIndex ? [] : [h("div", `‡ ${page.numbers[lane.id].doubts.speedup}.`)]);
        const who = h("div.svc-who", p.place, mark(lane), p.name, p.settings, p.state, p.verdict);
        p.row.append(who, p.track, h("div.svc-what", p.value, p.own), p.text);
        return p.row;
      }),
    );
  }
  let over = 0; // of the lanes before it; one that is not listened to yet does not hear of them
  for (const lane of page.lanes) {
    const p = must(lane.parts);
    p.name.textContent = name(lane);
    p.settings.title = [settings(lane), trained(lane.lane?.run.part?.training)].filter(Boolean).join(" · ");
    p.settings.textContent = p.settings.title; // a line; the rest of a long one is in its title
    const ahead = lane.ahead - (lane.source ? 0 : over);
    p.state.textContent = stage(lane.state, ahead, lane.lane?.steps ?? 0);
    if (lane.mine && !["waiting", "running"].includes(lane.state)) over++;
    p.state.dataset.state = lane.state;
    p.settings.hidden = Boolean(p.state.textContent); // one line below a name
    p.name.disabled = !lane.lane;
    p.name.setAttribute("aria-label", `${name(lane)}: open it on Inspect at this step`);
    p.name.title = "Open on Inspect at this step";
    if (lane.error && ["failed", "stopped"].includes(lane.state)) {
      p.error.textContent = lane.error;
      if (!p.error.isConnected) p.row.append(p.error);
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
  if (clock !== "position") page.by = clock;
  page.at =
    position ??
    (end || !lead ? limit() : clock === "time" ? (k ? lead.times[k - 1] : 0) : clock === "step" ? k : lead.start(k));
  for (const radio of part("clocks").querySelectorAll("input")) radio.checked = radio.value === clock;
  setLimit();
  drawLasts();
  paint();
}

/** Draws the claim, or what is true so far: called whenever the clock or the order is another. */
let redraw = () => {};
/** @param {() => void} draw */
export const onClock = (draw) => (redraw = draw);

/** @param {number} value */
export function seek(value) {
  page.at = clamp(value, 0, limit());
  page.live = false;
  page.moved = true;
  paint();
}

/** How long the race may last. */
export function drawLasts() {
  const select = part("lasts", HTMLSelectElement);
  select.replaceChildren(
    ...LASTS.map((n) => h("option", { value: n }, `Lasts ${n} s`)),
    ...(page.clock === "time" ? [h("option", { value: "real" }, "Real time")] : []),
  );
  if (page.clock !== "time" && page.lasts === "real") page.lasts = 10;
  select.value = String(page.lasts);
}

/** Ends what plays. */
let stop = () => {};

/** Plays or pauses. */
export function toggle() {
  if (part("controls").hidden) return;
  if (page.playing) return pause();
  if (page.at >= limit()) page.at = 0;
  page.live = false;
  page.moved = true;
  page.playing = true;
  let before = 0;
  stop = playing((ms) => {
    const rate = page.lasts === "real" ? 1 : limit() / (page.lasts * 1000);
    page.at = Math.min(limit(), page.at + (ms - before) * rate);
    before = ms;
    const ended = page.at >= limit();
    if (ended) page.moved = false;
    if (ended) pause();
    else paint();
    return ended;
  });
  sayPlay("❚❚ Pause", "Pause the race");
  paint();
}

/** Stops the clock. */
export function pause() {
  if (!page.playing) return;
  stop();
  page.playing = false;
  sayPlay("▶ Race", "Play the race");
  paint();
}

/** @type {(text: string, label: string) => void} */
function sayPlay(text, label) {
  part("play").textContent = text;
  part("play").setAttribute("aria-label", label);
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

/** What the clock shows, in words. */
export function clockText() {
  if (page.clock === "time") return seconds(page.at);
  return plural(Math.floor(page.at), page.clock === "step" ? "forward" : "token");
}

/** Draws what the clock shows. */
export function paint() {
  const lanes = drawn();
  const wide = textWidth(lanes);
  const done = lanes.map(({ lane }) => (page.live ? lane.steps : lane.done(page.clock, page.at)));
  const texts = lanes.map(({ lane }, n) => lane.start(done[n]));
  const rest = atRest();
  const places = lanes.map((one) => (rest ? placeOf(one) : undefined));
  // while the clock moves a bar is what is written; at rest, and of lanes that run in turns, what that cost
  const costs = rest || page.live;
  const bars = lanes.map((one, n) => (costs ? (places[n] ? places[n].bar ?? 0 : cost(one)) : texts[n]));
  const most = Math.max(...lanes.map((_, n) => places[n]?.high ?? bars[n]));
  const whole = costs ? Math.max(most, page.live ? ahead(lanes, texts) : 0) : longest(lanes);
  sortRows();
  part("lanes").classList.toggle("svc-moving", !rest && (going() || lanes.length > 0));
  put(part("measure"), !lanes.length ? "" : rest ? measure() : scaleOf(whole, whole > most));
  redraw();
  const equal = areAlike(lanes);
  lanes.forEach((one, n) => {
    const { lane } = one;
    const parts = must(one.parts);
    const place = placeOf(one);
    const ended = one.state === "done" && done[n] === lane.steps && !page.live && Boolean(place);
    const share = whole ? bars[n] / whole : 0;
    parts.fill.style.clipPath = `inset(0 ${(100 * (1 - share)).toFixed(3)}% 0 0 round 0 3px 3px 0)`;
    const { low, high } = places[n] ?? {};
    parts.whisker.hidden = !low || !high || !whole;
    if (low && high && whole) {
      const [left, right] = [(100 * low) / whole, (100 * (whole - high)) / whole];
      parts.whisker.style.inset = `0 ${right}% 0 ${left}%`;
    }
    put(parts.place, ended ? (place?.place ? String(place.place) : "‡") : "");
    parts.row.classList.toggle("svc-first", ended && place?.place === 1);
    const doubt = rest && page.by === "time" && Boolean(page.numbers[one.id]?.doubts.speedup);
    parts.value.classList.toggle("svc-doubted", doubt);
    parts.value.tabIndex = doubt ? 0 : -1;
    put(parts.value, rest ? value(one) : page.live ? spent(one) : texts[n].toLocaleString("en"));
    const numbers = rest ? cells(one, equal) : moving(one, done[n], texts[n]);
    put(parts.own, numbers.replace(/(?<=\d) /g, "\u00a0")); // a number and its unit break together
    parts.place.tabIndex = ended && place?.reason ? 0 : -1;
    const shown = `${done[n]} of ${lane.steps} in ${wide}`;
    if (one.shown !== shown)
      parts.text.replaceChildren(h("span.svc-tail", written(lane, done[n], wide, inNarrow, widthOf)));
    one.shown = shown;
  });
  const writing = texts.filter((_, n) => // a lane that is over leads nowhere
    page.live ? lanes[n].state === "running" : done[n] < lanes[n].lane.steps);
  const position = page.clock === "position" ? Math.floor(page.at) : Math.max(0, ...(writing.length ? writing : texts));
  const said = reached(lanes, position);
  if (lanes.length) page.ruler?.draw(position, done, page.mark, said, rest && !page.moved);
  part("reached").textContent = said;
  const slider = part("slider", HTMLInputElement);
  slider.value = String(page.at);
  const at = clockText();
  put(part("at"), at);
  slider.setAttribute("aria-valuetext", at);
}

/** What the lane that runs first costs if it writes as much as it may: the scale until it is over. */
/** @type {(lanes: DrawnLane[], texts: number[]) => number} */
function ahead([first], [tokens]) {
  if (first?.state !== "running" || !tokens) return 0;
  return (cost(first) * first.lane.run.max_new_tokens) / tokens;
}

/** What moving bars are, and their full width. @type {(whole: number, estimated: boolean) => string} */
function scaleOf(whole, estimated) {
  const count = Math.round(whole).toLocaleString("en");
  if (!page.live) return `Tokens written, of ${count}`;
  const [what, width] = page.by === "time" ? ["Time", seconds(whole)] : ["Forwards", count];
  return `${what} so far${estimated ? ", of an estimated" : "; full width:"} ${width}`;
}

/** Tokens of the longest output, as far as it is known. @param {DrawnLane[]} lanes */
const longest = (lanes) => {
  const open = lanes.filter((one) => one.state === "running").map(({ lane }) => lane.run.max_new_tokens);
  const known = lanes.some((one) => one.state === "done") ? [] : open;
  return Math.max(1, ...lanes.map(({ lane }) => lane.length), ...known);
};

/** A lane's number by the measure that orders them. @param {DrawnLane} one */
export function value(one) {
  if (page.by === "step") return one.lane.steps.toLocaleString("en");
  return speedup(one) || seconds(one.lane.ms);
}

/** What stands beside that number. @type {(one: DrawnLane, equal: boolean) => string} */
function cells(one, equal) {
  const { id, lane } = one;
  const tokens = equal ? "" : ` · ${plural(lane.length, "token")}`;
  const perStep = page.numbers[id]?.metrics.tokens_per_step;
  if (page.by === "step") {
    const each = typeof perStep === "number" ? ` · ${mean(perStep)} tokens per step` : "";
    return `${lane.steps === 1 ? "forward" : "forwards"}${each}${tokens}`;
  }
  const time = speedup(one) && `${seconds(lane.ms)} · `; // else it stands alone, large
  return `${time}${plural(lane.steps, "forward")}${tokens}`;
}

/** What a lane that is not over cost so far. @param {DrawnLane} one */
const spent = ({ lane }) => (page.by === "step" ? lane.steps.toLocaleString("en") : seconds(lane.ms));

/** While the clock moves. @type {(one: DrawnLane, steps: number, texts: number) => string} */
function moving({ lane }, steps, texts) {
  const [tokens, forwards] = [plural(texts, "token"), plural(steps, "forward")];
  const clock = seconds(steps ? lane.times[steps - 1] : 0);
  if (!page.live) return `${texts === 1 ? "token" : "tokens"} · ${forwards} · ${clock}`;
  return page.by === "step" ? `${steps === 1 ? "forward" : "forwards"} · ${tokens}` : `${tokens} · ${forwards}`;
}

/** At the position that is furthest: how many forwards each method needed, and who has it inside one draft. */
/** @type {(lanes: DrawnLane[], position: number) => string} */
function reached(lanes, position) {
  if (!position || !lanes.length) return "Nothing is written yet.";
  const parts = lanes
    .filter((one) => position <= one.aligned)
    .map(({ mark: letter, lane }) => {
      const k = lane.stepOf[position - 1];
      const inside = lane.accepted[k] > position - 1 - lane.start(k);
      const where = inside && lane.accepted[k] > 1 ? ` (the last accepted ${lane.accepted[k]} tokens)` : "";
      return `${letter} ${(k + 1).toLocaleString("en")}${where}`;
    });
  return parts.length
    ? `Forwards to reach token ${position.toLocaleString("en")}: ${parts.join(", ")}.`
    : `Token ${position.toLocaleString("en")}: the outputs differ here.`;
}
