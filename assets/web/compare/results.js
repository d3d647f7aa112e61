/* Page "Compare", where lanes differ: stretches, the check against plain decoding, the table of numbers. */

import { facts, format, h, must, plural, probability } from "specviz/base/dom.js";
import { inspect, pause, seek, setClock } from "specviz/compare/race.js";
import { colored, drawn, mark, name, page, part, settings } from "specviz/compare/state.js";
import { DiffView } from "specviz/inspect/diff.js";

/** 1: more is better, -1: less is. @type {Record<string, number>} */
const BETTER = { tokens_per_step: 1, speedup: 1, tokens_per_s: 1, draft_efficiency: 1, steps: -1 };
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

/** Where one needs fewer forwards than all others. */
export function drawStretches() {
  const place = part("stretches");
  if (!page.stretches.length) {
    return place.replaceChildren(
      h(
        "p.svc-help",
        drawn().length < 2
          ? "There is only one run."
          : "No method wins a stretch of the output that all of them share.",
      ),
    );
  }
  place.replaceChildren(
    ...page.stretches.flatMap((one) => {
      const winner = drawn().find((lane) => lane.id === one.run);
      if (!winner) return [];
      const forwards = one.forwards[one.run];
      const text = winner.lane.pieces.phrase(winner.lane.output.slice(one.from, one.to), 90);
      const others = drawn().filter((lane) => lane !== winner && lane.id in one.forwards)
        .map((lane) => `${lane.mark} ${one.forwards[lane.id]}`)
        .join(", ");
      return colored(
        h(
          "div.svc-stretch",
          h(
            "button.svc-go",
            {
              onclick: () => show(one),
              "aria-label":
                `Tokens ${one.from + 1} to ${one.to}: ${name(winner)} needs ` +
                `${forwards} forwards, ${one.gain} fewer than the next`,
            },
            mark(winner),
            h("span.svc-gain", h("b", `−${one.gain}`), one.gain === 1 ? " forward" : " forwards"),
            h(
              "span.svc-where",
              `tokens ${(one.from + 1).toLocaleString("en")}–${one.to.toLocaleString("en")}: ` +
                `${name(winner)} ${forwards}, ${others}`,
            ),
            h("code", text),
          ),
          h(
            "button.svp-link",
            {
              onclick: () => inspect(winner, winner.lane.stepOf[one.from]),
              "aria-label": `Open ${name(winner)} on Inspect at token ${one.from + 1}`,
            },
            "Inspect ↗",
          ),
        ),
        winner.n,
      );
    }),
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
    const baseline = lane.method === "plain" && state === "identical";
    const { verdict } = must(lane.parts);
    verdict.textContent = baseline ? "" : `${sign} ${words}`;
    verdict.dataset.verdict = state;
    /** @type {Child} */
    let more = null;
    if (baseline) more = "the reference";
    else if (check?.state === "identical") more = `all ${plural(check.tokens, "token")}`;
    else if (check?.state === "unknown") more = check.text;
    else if (check?.state === "differs") more = divergence(lane, check);
    const row = colored(
      h(
        "div.svc-lens-row",
        { "data-verdict": state },
        mark(lane),
        h("b", name(lane)),
        h("span.svc-verdict", { "data-verdict": state }, `${sign} ${baseline ? "plain decoding" : words}`),
        h("span.svc-more", more),
      ),
      lane.n,
    );
    return check?.state === "differs" ? [row, diff(lane, check)] : [row];
  });
  part("lens-rows").replaceChildren(
    ...rows.flat(),
    h(
      "p.svc-help",
      "A near tie: neither token, nor any later one, lies more than rounding below the " +
        "best logit. A bug: a lossless method wrote what the target would not have.",
    ),
  );
}

/** What both wrote where they part, and how close the target's choice was. */
/** @type {(lane: DrawnLane, check: LaneDivergence) => Child} */
function divergence(lane, { position, got, got_prob, expected, expected_prob, gap, tolerance, verdict, source }) {
  const close = [
    h("span", { title: "Difference of the target's two best logits there" }, ` Top-2 gap ${format(gap)}`),
    ["near tie", "bug"].includes(verdict) &&
      h(
        "span",
        { title: "What rounding may do in this dtype: within it, both tokens are right" },
        `; rounding allows ${format(tolerance)} in ${lane.lane.run.model?.dtype}`,
      ),
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
  ];
}

/** The lane's output against plain decoding's, folded until asked for. */
/** @type {(lane: DrawnLane, check: LaneDivergence) => HTMLElement} */
function diff(lane, check) {
  const holder = h("details.svc-diff.sv-compared", h("summary", `${name(lane)} and plain decoding, token by token`));
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

/** @type {(metric: MetricHelp, value: number | null | undefined) => string} */
function cell(metric, value) {
  if (value === null || value === undefined) return "–";
  if (metric.unit === "share") return `${(100 * value).toFixed(value && value < 0.1 ? 1 : 0)} %`;
  if (metric.unit === "ms") return format(value);
  return metric.unit === "×" ? `${value.toFixed(2)}×` : format(value);
}

/** Every metric of every lane; the best of the methods has a star. */
export function drawTable() {
  const lanes = drawn().filter((lane) => page.numbers[lane.id]);
  /** @type {(lane: CompareLane, metric: MetricHelp) => number | null | undefined} */
  const value = (lane, metric) => page.numbers[lane.id].metrics[metric.key];
  const rows = page.data.metrics
    .filter((metric) => lanes.some((lane) => value(lane, metric) !== null && value(lane, metric) !== undefined))
    .map((metric) => {
      const sign = BETTER[metric.key] || 0;
      const known = lanes.filter((lane) => lane.method !== "plain").map((lane) => sign * (value(lane, metric) ?? NaN))
        .filter((n) => !Number.isNaN(n));
      const best = sign && known.length > 1 ? Math.max(...known) : null;
      const head = h(
        "th",
        { scope: "row", tabindex: "0" },
        metric.label,
        metric.unit && metric.unit !== "share" && metric.unit !== "×" ? h("small", ` ${metric.unit}`) : null,
      );
      page.tip?.add(head, () => [
        h("b", metric.label),
        h("div", `= ${metric.formula}`),
        h("div.svc-help", metric.help),
      ]);
      return h(
        "tr",
        head,
        lanes.map((lane) => {
          const wins = best !== null && lane.method !== "plain" && sign * (value(lane, metric) ?? NaN) === best;
          return h(
            "td",
            { class: `svp-num${wins ? " svc-best" : ""}` },
            cell(metric, value(lane, metric)),
            wins
              ? h("span.svc-star", { title: "best of the methods", "aria-label": ", best of the methods" }, " ★")
              : null,
          );
        }),
      );
    });
  const depth = h("th", { scope: "row", tabindex: "0" }, "Acceptance by depth");
  page.tip?.add(depth, () => [
    h("b", "Acceptance by depth"),
    h("div", "= accepted ÷ reached"),
    h(
      "div.svc-help",
      "A depth is reached by a step where the node above was " +
        "accepted and has a child to try; siblings are one decision.",
    ),
  ]);
  rows.push(h("tr", depth, lanes.map((lane) => h("td.svc-depths", depths(lane)))));
  part("table").replaceChildren(
    h(
      "table.svp-grid",
      h(
        "thead",
        h(
          "tr",
          h("th", { scope: "col" }, h("span.svc-unseen", "Number")),
          lanes.map((lane) =>
            colored(
              h(
                "th.svp-num",
                { scope: "col" },
                mark(lane),
                " ",
                name(lane),
                settings(lane) && drawn().some((o) => o !== lane && o.method === lane.method)
                  ? h("small", ` ${settings(lane)}`)
                  : null,
              ),
              lane.n,
            ),
          ),
        ),
      ),
      h("tbody", rows),
    ),
  );
}

/** A bar per depth, the first ten, and the numbers for those who listen. @param {CompareLane} lane */
function depths(lane) {
  const rows = page.numbers[lane.id].depths;
  if (!rows.length) return h("span.svc-help", "–");
  const first = rows.slice(0, 10);
  /** @type {(accepted: number, reached: number) => string} */
  const percent = (accepted, reached) => `${Math.round((100 * accepted) / reached)} %`;
  const said = first.map(([d, reached, accepted]) => `${d}: ${percent(accepted, reached)}`).join(", ");
  const bars = h(
    "span.svc-bars",
    { role: "img", tabindex: "0", "aria-label": `Acceptance by depth ${said}` },
    first.map(([, reached, accepted]) => {
      const share = h("i");
      share.style.height = `${(100 * accepted) / reached}%`;
      return h("i", share);
    }),
  );
  page.tip?.add(bars, () => [
    h("b", name(lane)),
    facts(
      rows.slice(0, 12)
        .map(([d, reached, accepted]) => [`depth ${d}`, `${percent(accepted, reached)} (${accepted} of ${reached})`]),
    ),
  ]);
  return colored(bars, lane.n);
}
