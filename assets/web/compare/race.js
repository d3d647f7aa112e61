/* Page "Compare", the race: a row per lane, the clock, and everything that moves with it. */

import { clamp, h, plural } from "specviz/base/dom.js";
import { safe } from "specviz/base/text.js";
import { colored, drawn, mark, name, page, part, seconds, settings } from "specviz/compare/state.js";
import { open as openRun } from "specviz/shell/open.js";
import { goTo } from "specviz/shell/tabs.js";

const LASTS = [5, 10, 20, 40]; // seconds a race lasts
const SHOWN_TEXT = 260; // characters of a lane's text
const STATES = { waiting: "waiting", running: "running", failed: "failed", stopped: "stopped" };

export function drawRows() {
  const list = part("lanes");
  if (list.children.length !== page.lanes.length) {
    list.replaceChildren(
      ...page.lanes.map((lane) => {
        lane.parts = {
          name: h("b", { class: "svc-name" }),
          settings: h("span", { class: "svc-params" }),
          verdict: h("span", { class: "svc-verdict" }),
          fill: h("i", { class: "svc-fill" }),
          own: h("span", { class: "svc-numbers" }),
          text: h("code", { class: "svc-text" }),
          state: h("span", { class: "svc-state", role: "status" }),
          inspect: h(
            "button",
            { type: "button", class: "svp-link svc-inspect", onclick: () => inspect(lane) },
            "Inspect ↗",
          ),
        };
        const p = lane.parts;
        return colored(
          h(
            "li",
            { class: "svc-lane" },
            h("div", { class: "svc-who" }, mark(lane), p.name, p.settings, p.state, p.verdict, p.inspect),
            h("div", { class: "svc-track", "aria-hidden": "true" }, p.fill),
            p.own,
            p.text,
          ),
          lane.n,
        );
      }),
    );
  }
  for (const lane of page.lanes) {
    const p = lane.parts;
    p.name.textContent = name(lane);
    p.settings.textContent = settings(lane);
    p.state.textContent =
      lane.state === "waiting" && lane.ahead > 0
        ? `waiting: ${plural(lane.ahead, "run")} before it`
        : STATES[lane.state] || "";
    p.state.dataset.state = lane.state;
    p.inspect.hidden = !lane.lane;
    p.inspect.setAttribute("aria-label", `Open ${name(lane)} on Inspect at this step`);
    if (lane.error && ["failed", "stopped"].includes(lane.state)) {
      p.error ??= h("p", { class: "svc-error", role: "alert" });
      p.error.textContent = lane.error;
      if (!p.error.isConnected) p.text.after(p.error);
    }
  }
}

export function inspect(lane, step) {
  const now = lane.lane.done(page.clock, page.at);
  goTo("inspect");
  openRun(lane.id, { step: step ?? Math.max(0, now - 1) });
  scrollTo({ top: 0 });
}

export function limit(clock = page.clock) {
  const lanes = drawn().map((lane) => lane.lane);
  return Math.max(
    0,
    ...lanes.map((lane) => (clock === "time" ? lane.ms : clock === "step" ? lane.steps : lane.length)),
  );
}

/** Another clock: at a position, or where the lane that is furthest stands now. */
export function setClock(clock, position) {
  const before = page.clock,
    lanes = drawn().map((lane) => lane.lane);
  const end = page.at >= limit(before);
  const lead = lanes.reduce(
    (a, b) => (!a || b.done(before, page.at) / b.steps > a.done(before, page.at) / a.steps ? b : a),
    null,
  );
  const k = lead ? lead.done(before, page.at) : 0;
  page.clock = clock;
  page.at =
    position ??
    (end || !lead ? limit() : clock === "time" ? (k ? lead.times[k - 1] : 0) : clock === "step" ? k : lead.start(k));
  for (const radio of page.box.querySelectorAll('input[name="svc-clock"]')) radio.checked = radio.value === clock;
  const slider = part("slider");
  slider.max = limit();
  slider.step = clock === "time" ? Math.max(0.1, limit() / 2000) : 1;
  drawLasts();
  paint();
}

export function seek(value) {
  page.at = clamp(value, 0, limit());
  page.live = false;
  paint();
}

export function drawLasts() {
  const select = part("lasts");
  select.replaceChildren(
    ...LASTS.map((n) => h("option", { value: n }, `in ${n} s`)),
    ...(page.clock === "time" ? [h("option", { value: "real" }, "in real time")] : []),
  );
  if (page.clock !== "time" && page.lasts === "real") page.lasts = 10;
  select.value = String(page.lasts);
}

export function toggle() {
  if (page.playing) return pause();
  if (page.at >= limit()) page.at = 0;
  page.live = false;
  let before = 0;
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

export function pause() {
  if (!page.playing) return;
  cancelAnimationFrame(page.playing);
  page.playing = 0;
  part("play").textContent = "▶ Race";
  part("play").setAttribute("aria-label", "Play the race");
}

/** One step of the clock: the next (or the last) moment at which something happens. */
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

export function key(event) {
  if (
    event.altKey ||
    event.ctrlKey ||
    event.metaKey ||
    event.target.closest("select, textarea, summary, .js-plotly-plot")
  )
    return;
  if (event.key === " " && event.target.closest("button, a, input[type=radio], input[type=checkbox]")) return;
  if (event.target.matches("input[type=radio]") && event.key.startsWith("Arrow")) return;
  const far = event.shiftKey ? 10 : 1;
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
  const order = lanes.map((_, n) => n).filter((n) => done[n] === lanes[n].lane.steps && lanes[n].state === "done");
  const cost = (n) => (page.clock === "step" ? lanes[n].lane.steps : lanes[n].lane.ms);
  order.sort((a, b) => cost(a) - cost(b));
  lanes.forEach((one, n) => {
    const { lane, parts } = one;
    const ended = one.state === "done" && done[n] === lane.steps && !page.live;
    parts.fill.style.transform = `scaleX(${written[n] / most})`;
    const place =
      ended && page.clock !== "position" ? ` · ${["1st", "2nd", "3rd", "4th", "5th"][order.indexOf(n)]}` : "";
    const numbers =
      `${plural(written[n], "token")} · ${plural(done[n], "forward")} · ` +
      `${seconds(done[n] ? lane.times[done[n] - 1] : 0)}${ended ? " ✓" : ""}${place}`;
    if (parts.own.textContent !== numbers) parts.own.textContent = numbers;
    if (one.shown !== done[n] || one.shownLane !== lane.steps) {
      parts.text.replaceChildren(...latest(lane, done[n]));
      one.shown = done[n];
      one.shownLane = lane.steps;
    }
  });
  const position = page.clock === "position" ? Math.floor(page.at) : Math.max(0, ...written);
  const said = told(lanes, position);
  if (lanes.length) page.ruler.draw(position, done, page.mark, said);
  part("reached").textContent = said;
  const slider = part("slider");
  slider.value = page.at;
  const at =
    page.clock === "time"
      ? seconds(page.at)
      : page.clock === "step"
        ? plural(Math.floor(page.at), "forward")
        : plural(Math.floor(page.at), "token");
  if (part("at").textContent !== at) part("at").textContent = at;
  slider.setAttribute("aria-valuetext", at);
}

/** At the position that is furthest: how many forwards each method needed, and who has it inside one draft. */
function told(lanes, position) {
  if (!position || !lanes.length) return "Nothing is written yet.";
  const parts = lanes
    .filter((one) => position <= one.aligned)
    .map(({ mark: letter, lane }) => {
      const k = lane.stepOf[position - 1],
        inside = lane.trace.steps.accepted[k] > position - 1 - lane.start(k);
      const from = lane.start(k) + 1;
      const to = lane.start(k) + lane.trace.steps.accepted[k];
      const where = inside ? ` (in a draft of tokens ${from}–${to})` : "";
      return `${letter} ${(k + 1).toLocaleString("en")}${where}`;
    });
  return parts.length
    ? `Token ${position.toLocaleString("en")} was reached in forwards: ${parts.join(", ")}.`
    : `Token ${position.toLocaleString("en")}: the outputs differ here.`;
}

/** The end of what a lane has written: accepted tokens and the target's own apart. */
function latest(lane, done) {
  const stop = lane.start(done),
    { accepted } = lane.trace.steps;
  let from = stop,
    size = 0;
  for (let k = done - 1; k >= 0 && size < SHOWN_TEXT; k--) {
    from = lane.start(k);
    size = 0;
    for (let p = from; p < stop && size < SHOWN_TEXT; p++) size += lane.pieces.get(lane.output[p]).text.length;
    if (stop - from > 80) break;
  }
  const spans = [];
  let text = "",
    kind = -1,
    step = -1;
  const flush = () => {
    if (text)
      spans.push(
        kind === 1
          ? h("span", { class: `svc-acc${step === done - 1 ? " svc-new" : ""}` }, text)
          : kind === 0
            ? h("span", { class: `svc-own${step === done - 1 ? " svc-new" : ""}` }, text)
            : text,
      );
    text = "";
  };
  for (const cell of lane.pieces.cells(lane.output, from, stop)) {
    const k = lane.stepOf[cell.start],
      drafted = cell.start - lane.start(k) < accepted[k] ? 1 : 0;
    if (drafted !== kind || k !== step) flush();
    kind = drafted;
    step = k;
    text += safe(lane.pieces.special(lane.output[cell.start]) ? "" : cell.text);
  }
  flush();
  if (from > 0) spans.unshift("… ");
  return spans;
}
