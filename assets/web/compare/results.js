/* Page "Compare", where lanes differ: stretches, the check against plain decoding, the table of numbers. */

import { facts, h, must } from "specviz/base/dom.js";
import { BASELINE } from "specviz/base/methods.js";
import { precision } from "specviz/base/model.js";
import { format, mean, percent, percentage, plural, probability, times } from "specviz/base/numbers.js";
import { CALLS } from "specviz/compare/calls.js";
import { inspect, pause, seek, setClock } from "specviz/compare/race.js";
import { drawn, mark, name, page, part, repeated, settings, tint } from "specviz/compare/state.js";
import { DiffView } from "specviz/inspect/diff.js";

/** @type {Record<string, [sign: string, words: string]>} */
const VERDICTS = {
  identical: ["✓", "identical to plain decoding"],
  "near tie": ["≈", "near tie"],
  "lossy by design": ["≈", "lossy by design"],
  "other draws": ["↺", "other draws"],
  bug: ["⚠", "bug"],
  unknown: ["○", "not checked"],
  checking: ["…", "checking"],
  waiting: ["…", "not over yet"],
};

/** Said once of all lanes, not under each. */
const FINE = ["identical", "waiting", "checking"];
/** What a verdict means, said where there is one. @type {Record<string, string>} */
const MEANINGS = {
  "near tie": "A near tie: neither token, nor any later one, lies more than rounding below the best logit.",
  bug: "A bug: a lossless method wrote what the target would not have.",
};
const ROUNDING = "What rounding may do in this dtype: within it, both tokens are right";

/** Where one needs fewer forwards than all others. */
export function drawStretches() {
  const lanes = drawn();
  const tie = "No method wins a stretch of the output that all of them share.";
  const none = lanes.length < 2 ? "There is only one run." : tie;
  const rows = page.stretches.flatMap((one) => {
    const winner = lanes.find((lane) => lane.id === one.run);
    return winner ? [stretch(one, winner)] : [];
  });
  part("stretches").replaceChildren(...(page.stretches.length ? rows : [h("p.svc-help.ui-soft", none)]));
}

/** What a lane gains where it wins. @type {(one: Advantage, winner: DrawnLane) => HTMLElement} */
function stretch(one, winner) {
  const from = one.from + 1;
  const forwards = one.forwards[one.run];
  const others = drawn().filter((lane) => lane !== winner && lane.id in one.forwards);
  const theirs = others.map((lane) => `${lane.mark} ${one.forwards[lane.id]}`).join(", ");
  const place = `tokens ${from.toLocaleString("en")}–${one.to.toLocaleString("en")}`;
  const open = {
    onclick: () => inspect(winner, winner.lane.stepOf[one.from]),
    "aria-label": `Open ${name(winner)} on Inspect at token ${from}`,
  };
  return h(
    "div.svc-stretch.ui-line",
    { style: tint(winner.n) },
    h(
      "button.svp-bare.svc-go",
      { onclick: () => show(one) },
      mark(winner),
      h("span.svc-gain", h("b", `−${one.gain}`), one.gain === 1 ? " forward" : " forwards"),
      h("span.svc-where", `${place}: ${winner.mark} ${forwards}, ${theirs}`),
      h("code.ui-clip", winner.lane.pieces.phrase(winner.lane.output.slice(one.from, one.to), 90)),
    ),
    h("button.svp-link", open, "Inspect ↗"),
  );
}

/** Marks a stretch in the ruler. @param {TokenRange} range */
function show({ from, to }) {
  pause();
  page.mark = { from, to };
  if (page.clock !== "position") setClock("position", to);
  seek(to);
  page.ruler?.element.scrollIntoView({ block: "nearest" });
}

/** A token by the pieces of this lane, else of another one. @type {(lane: DrawnLane, id: number | null) => string} */
function token(lane, id) {
  if (id === null) return "the end";
  const { lane: from } = [lane, ...drawn()].find((one) => one.lane.pieces.known.has(id)) ?? {};
  return from ? `“${from.pieces.label(id, 30)}”` : `token ${id}`;
}
/** @param {number | null} p */
const share = (p) => (p === null ? "" : ` (p ${probability(p)})`);

/** Whether every output is what the target writes by itself. */
export function drawLens() {
  const rows = drawn().map((lane) => {
    /** @type {LaneCheck | undefined} */
    const check = page.lens[lane.id];
    const state = !check ? "waiting" : check.state === "differs" ? check.verdict : check.state;
    const [sign, words] = VERDICTS[state] || VERDICTS.unknown;
    const baseline = lane.method === BASELINE && state === "identical";
    const { verdict } = must(lane.parts);
    verdict.textContent = FINE.includes(state) ? "" : `${sign} ${words}`;
    verdict.dataset.verdict = state;
    /** @type {Child} */
    let more = null;
    if (baseline) more = "the reference";
    else if (check?.state === "identical") more = `all ${plural(check.tokens, "token")}`;
    else if (check?.state === "unknown") more = check.text;
    else if (check?.state === "differs") more = divergence(lane, check);
    const row = h(
      "div.svc-lens-row",
      { "data-verdict": state, style: tint(lane.n) },
      mark(lane),
      h("b", name(lane)),
      h("span.svc-verdict", { "data-verdict": state }, `${sign} ${baseline ? "plain decoding" : words}`),
      h("span.svc-more.ui-soft", more),
    );
    return check?.state === "differs" ? [row, diff(lane, check)] : [row];
  });
  const verdicts = Object.values(page.lens).map((check) => (check.state === "differs" ? check.verdict : check.state));
  const meanings = Object.keys(MEANINGS).filter((one) => verdicts.includes(one)).map((one) => MEANINGS[one]);
  part("same").textContent = same();
  part("lens-rows").replaceChildren(
    ...rows.flat(),
    h("p.svc-help.ui-soft", { hidden: !meanings.length }, meanings.join(" ")),
  );
}

/** What all lanes have in common: what they wrote, and that it is plain decoding's. */
function same() {
  const lanes = drawn();
  const checks = lanes.map(({ id }) => page.lens[id]);
  const counts = new Set(lanes.map(({ lane }) => lane.length));
  if (checks.some((one) => !one || one.state === "checking")) return "";
  const all = lanes.length > 2 ? `All ${lanes.length}` : "Both";
  if (lanes.length > 1 && checks.every((one) => one.state === "identical"))
    return counts.size > 1 ? `✓ ${all} wrote what plain decoding writes, as far as they came.`
      : `✓ ${all} wrote the same ${plural([...counts][0], "token")}: plain decoding's.`;
  const others = lanes.filter((_, n) => checks[n].state !== "identical").map(name);
  return others.length < lanes.length ? `✓ All but ${others.join(" and ")} wrote the same as plain decoding.` : "";
}

/** What both wrote where they part, and how close the target's choice was. */
/** @type {(lane: DrawnLane, check: LaneDivergence) => Child} */
function divergence(lane, check) {
  const { position, got, got_prob, expected, expected_prob, gap, tolerance, verdict, source, calls } = check;
  const { model } = lane.lane.run;
  const close = [
    h("span", { title: "Difference of the target's two best logits there" }, ` Top-2 gap ${format(gap)}`),
    ["near tie", "bug"].includes(verdict) &&
      h("span", { title: ROUNDING }, `; rounding allows ${format(tolerance)} in ${precision(model)}`),
    ".",
  ];
  return [
    h(
      "button.svp-link",
      { onclick: () => show({ from: position, to: position + 1 }) },
      `token ${(position + 1).toLocaleString("en")}`,
    ),
    `: wrote ${token(lane, got)}${share(got_prob)}, plain decoding ${token(lane, expected)}${share(expected_prob)}.`,
    gap !== null && close,
    source === "recorded" && " By what the run recorded; load its model for a second opinion.",
    CALLS[calls] && h("span", { "data-calls": calls }, ` ${CALLS[calls]}`),
  ];
}

/** The lane's output against plain decoding's, folded until asked for. */
/** @type {(lane: DrawnLane, check: LaneDivergence) => HTMLElement} */
function diff(lane, check) {
  const title = h("summary", `${name(lane)} and plain decoding, token by token`);
  const holder = h("details.svc-diff.ui-fold.sv-compared", title);
  holder.addEventListener("toggle", () => {
    if (!holder.open || holder.querySelector(".sv-diff")) return;
    const pieces = Object.create(lane.lane.pieces, {
      known: { value: new Map([...drawn().flatMap((one) => [...one.lane.pieces.known]), ...lane.lane.pieces.known]) },
    });
    const model = {
      trace: { tokens: { id: lane.lane.ids }, plain: { id: check.plain } },
      promptLength: lane.lane.promptLength,
      pieces,
    };
    const owner = /** @type {unknown} */ ({ root: holder, model }); // all that a DiffView asks of an inspector
    const view = new DiffView(/** @type {Inspector} */ (owner));
    holder.append(view.element);
    view.draw();
  });
  return holder;
}

/** @type {(metric: RunMetric, value: number | null | undefined) => string} */
function written({ unit }, value) {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return percentage(value);
  if (unit === "tokens/step") return mean(value);
  return unit === "×" ? times(value) : format(value);
}

/** A number that cannot be right, or is missing, says why. @param {HTMLElement} cell @param {string} why */
function doubted(cell, why, sign = "‡") {
  cell.classList.add("svc-doubted");
  cell.tabIndex = 0;
  cell.append(h("span", { "aria-label": `, ${why}` }, ` ${sign}`));
  return page.tip?.add(cell, () => [h("div", `${sign} ${why}.`)]);
}

/** The head of a row that explains itself. @type {(metric: Partial<RunMetric>, run?: string | false) => HTMLElement} */
function rowHead({ label = "", unit = "", formula = "", help = "" }, run) {
  const named = label.toLowerCase().includes(unit.split("/")[0]); // "Verify steps" are steps
  const said = [!["", "share", "×"].includes(unit) && !named && unit, run].filter(Boolean).join(", ");
  const head = h("th", { scope: "row", tabindex: "0" }, label, said && h("small", ` ${said}`));
  page.tip?.add(head, () => [h("b", label), h("div", `= ${formula}`), h("div.svc-help.ui-soft", help)]);
  return head;
}

/** Every metric of every lane; the best of the methods has a star. */
export function drawTable() {
  const lanes = drawn().filter((lane) => page.numbers[lane.id]);
  const star = { title: "best of the methods", "aria-label": ", best of the methods" };
  const rows = page.data.metrics.flatMap((metric) => {
    const values = lanes.map((lane) => page.numbers[lane.id].metrics[metric.key]);
    const notes = lanes.map((lane) => page.numbers[lane.id].notes[metric.key]);
    if (values.every((value, n) => (value === null || value === undefined) && !notes[n])) return [];
    const cells = values.map((value, n) => {
      const { id } = lanes[n];
      const wins = page.claim?.stars[metric.key]?.includes(id);
      const mark = wins && h("span.svc-star", star, " ★");
      const cell = h("td.svp-num", { class: wins && "svc-best" }, written(metric, value), mark);
      const doubt = page.numbers[id].doubts[metric.key];
      if (doubt) return doubted(cell, doubt);
      return notes[n] && typeof value !== "number" ? doubted(cell, notes[n], "ⓘ") : cell;
    });
    const first = repeated() && (metric.unit === "ms" || metric.key === "draft_share");
    return [h("tr", rowHead(metric, first && "first run"), cells)];
  });
  const depth = rowHead({
    label: "Acceptance by depth",
    unit: "",
    formula: "accepted ÷ reached",
    help:
      "A depth is reached by a step where the node above was accepted and has a child to try; " +
      "siblings are one decision.",
  });
  rows.push(h("tr", depth, lanes.map((lane) => h("td.svc-depths", depths(lane)))));
  const heads = lanes.map((lane) => {
    const twins = lanes.filter(({ method }) => method === lane.method).length > 1;
    const set = twins && settings(lane);
    const col = { scope: "col", style: tint(lane.n) };
    return h("th.svp-num", col, mark(lane), " ", h("span", name(lane)), set && h("small", ` ${set}`));
  });
  const corner = h("th", { scope: "col" }, h("span.svp-unseen", "Number"));
  part("table").replaceChildren(h("table.svp-grid.svp-sheet", h("thead", h("tr", corner, heads)), h("tbody", rows)));
}

/** A bar per depth, the first ten, and the numbers for those who listen. @param {CompareLane} lane */
function depths(lane) {
  const rows = page.numbers[lane.id].depths;
  if (!rows.length) return h("span.svc-help.ui-soft", "–");
  const first = rows.slice(0, 10);
  const said = first.map(([d, reached, accepted]) => `${d}: ${percent(accepted, reached)}`).join(", ");
  const bars = h(
    "span.svc-bars",
    { role: "img", tabindex: "0", "aria-label": `Acceptance by depth ${said}`, style: tint(lane.n) },
    first.map(([, reached, accepted]) => h("i", h("i", { style: `height: ${(100 * accepted) / reached}%` }))),
  );
  /** @type {Fact[]} */
  const all = rows
    .slice(0, 12)
    .map(([d, reached, accepted]) => [`depth ${d}`, `${percent(accepted, reached)} (${accepted} of ${reached})`]);
  return page.tip?.add(bars, () => [h("b", name(lane)), facts(all)]);
}
