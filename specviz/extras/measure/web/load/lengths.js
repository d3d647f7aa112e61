/* Acceptance of runs, draft lengths: what other servers' policies would have drafted, and the runs in batches. */

import { coded, h, heads, rangeBar, scrolled, table } from "specviz/base/dom.js";
import { postJson, within } from "specviz/base/json.js";
import { format, percentage, plural, short } from "specviz/base/numbers.js";
import { COLORS, lineLook } from "specviz/base/plotly.js";
import { drawCharts, drawing, headline, layout, meanings, page, term } from "specviz/acceptance/state.js";

/** @param {number | null} value @param {(value: number) => string} form */
const cell = (value, form) => h("td.svp-num", value === null ? "–" : form(value));

/** @param {number} value */
const times = (value) => `${value.toFixed(2)}×`;

/** The numbers of a policy: its head, and the cell of a set's row. @typedef {LengthSet["policies"][number]} Policy */
/** @type {[head: string, form: (row: Policy) => HTMLElement, meaning: string][]} */
const NUMBERS = [
  ["ms", (row) => cell(row.ms, (value) => format(Math.round(value))),
    "The model's time and the drafter's, by the runs' own times."],
  ["regret", (row) => cell(row.regret, percentage), "Its ms ÷ the oracle's − 1."],
  ["steps", (row) => cell(row.steps, format),
    "All policies write the same text; what a shorter draft leaves out is offered to the next step."],
  ["mean length", (row) => cell(row.mean_length, (value) => value.toFixed(2)),
    "How deep the drafts of a step are, on average."],
  ["× one-row forwards", (row) => cell(row.speedup, times),
    "A one-row forward for each token ÷ its ms: not the speedup over plain decoding that Compare measures."],
];
const OWN = "the run's own length";

/** Each method's policies below its name; all bars have one scale. @param {LengthSet[]} sets */
function policies(sets) {
  const most = Math.max(...sets.flatMap((set) => set.policies.map(({ ms }) => ms ?? 0)));
  const rules = sets.flatMap((set) =>
    set.policies.filter(({ rule }) => rule).map(({ policy, rule }) => [policy.replace(/, \d+$/, ""), rule]));
  const rows = sets.flatMap((set) => [
    h("tr.svp-kind",
      h("th", { scope: "rowgroup", colspan: NUMBERS.length + 2 }, `${set.title}, ${plural(set.runs, "run")}`)),
    ...set.policies.map((row) =>
      h("tr", { class: row.policy === OWN ? "svd-own" : null },
        h("th", { scope: "row", title: row.rule }, row.policy),
        row.ms === null
          ? h("td.ui-soft", { colspan: NUMBERS.length + 1 }, row.why)
          : [h("td", rangeBar("svd-range", [row.ms, row.ms], most)), NUMBERS.map(([, form]) => form(row))])),
  ]);
  const head = heads(["policy", "time"], NUMBERS.map(([title, , meaning]) => term(title, meaning)));
  return [
    scrolled("Policies", table({ class: "svd-table svd-lengths" }, head, rows)),
    meanings(Object.fromEntries([...rules, ...NUMBERS.map(([title, , meaning]) => [title, meaning])])),
  ];
}

/** How far each method's own lengths are from the best ones. @param {LengthSet[]} sets */
function summary(sets) {
  const regrets = sets.flatMap(({ title, policies: rows }) => {
    const regret = rows.find(({ policy }) => policy === OWN)?.regret;
    if (typeof regret !== "number") return [];
    return [{ title: short(title), regret: percentage(regret).replace(" ", "\u00a0") }];
  });
  if (!regrets.length) return "None of these runs can be replayed with other draft lengths.";
  const [first, ...others] = regrets;
  const rest = others.map(({ title, regret }) => `, ${title} ${regret}`).join("");
  return `At the draft lengths of the run, ${first.title} takes ${first.regret} longer than with the best length at ` +
    `every step${rest}.`;
}

/** @param {LengthSet} set */
function batches({ batches: rows }) {
  const lines = rows.map((one) =>
    h(
      "tr",
      h("th", { scope: "row" }, String(one.batch), !one.measured && h("small", BEYOND)),
      cell(one.tokens_per_s, format),
      cell(one.plain_tokens_per_s, format),
      cell(one.speedup, times),
    ),
  );
  const titles = heads(["batch"], ["tokens/s", "plain, tokens/s", "expected speedup"]);
  return scrolled("Batches", table({ class: "svd-table" }, titles, lines));
}

const AXIS = { type: "category", title: { text: "batch size" } };

/** From which acceptance on drafts pay, by length and batch, and the best length by batch. */
/** @type {(title: string, tiers: BestLengths) => Chart[]} */
function curves(title, { alpha, curve, best, measured_to: most }) {
  const lines = curve.map(({ batch, alpha: y }, n) => ({
    name: batch > most ? `batch ${batch} *` : `batch ${batch}`,
    x: y.map((_, k) => k + 1),
    y,
    ...lineLook(n),
    hovertemplate: `batch ${batch}: %{x} tokens pay from %{y:.0%} on<extra></extra>`,
  }));
  const own = {
    name: `α of ${title}`,
    x: [1, curve[0].alpha.length],
    y: [alpha, alpha],
    mode: "lines",
    line: { color: "#8A8A8A", dash: "dot", width: 3 },
    hovertemplate: "α of these runs: %{y:.0%}<extra></extra>",
  };
  const lengths = {
    x: best.map(({ batch }) => String(batch)),
    y: best.map(({ length }) => length),
    customdata: best.map(({ speedup }) => speedup),
    mode: "lines+markers",
    line: { color: COLORS[0], shape: "hv", width: 2 },
    marker: { color: COLORS[0], size: 9, symbol: best.map(({ batch }) => (batch > most ? "circle-open" : "circle")) },
    hovertemplate: "batch %{x}: %{y} tokens, %{customdata:.2f}×<extra></extra>",
  };
  return [
    {
      label: `Break-even acceptance of ${title} by draft length, a line per batch size`,
      data: [...lines, own],
      layout: layout("Break-even acceptance", "draft length", "", {
        showlegend: true,
        yaxis: { range: [0, 1.02], tickformat: ".0%" },
      }),
    },
    {
      label: `Best draft length of ${title} by batch size`,
      data: [lengths],
      layout: layout("Best draft length", "", "tokens", { xaxis: AXIS, yaxis: { dtick: 1 } }),
    },
  ];
}

/** @param {LengthSet} set */
function bestLengths({ title, tiers }) {
  if (!tiers) return null;
  const rows = tiers.best.map((one) =>
    h(
      "tr",
      h("th", { scope: "row" }, String(one.batch), one.batch > tiers.measured_to && h("small", BEYOND)),
      cell(one.length, format),
      cell(one.speedup, times),
      cell(one.break_even_one, percentage),
      cell(one.break_even, percentage),
    ),
  );
  const titles = heads(["batch"], ["best length", "expected speedup", "break-even α, 1 token", "this length"]);
  const grid = h("div.svd-charts.ui-tiles");
  drawCharts(grid, () => curves(title, tiers));
  return [
    h("p.ui-soft", `Chains with α = ${percentage(tiers.alpha)} and c = ${tiers.cost.toFixed(3)}, as in these runs.`),
    grid,
    scrolled("Best lengths", table({ class: "svd-table" }, titles, rows)),
    h("p.ui-soft", "The same for vLLM's --speculative-config, and SGLang's --speculative-adaptive-config:"),
    h("div.svd-text", h("pre.ui-pre", tiers.vllm), h("pre.ui-pre", tiers.sglang)),
  ];
}

/** @param {HTMLElement} place */
export async function drawLengths(place) {
  const { ids } = page;
  const wanted = drawing();
  place.replaceChildren(h("p.svp-empty", "Replaying …"));
  /** @type {LengthsAnswer | undefined} */
  const answer = await within(place, () => postJson("api/lengths/runs", { ids }), wanted);
  if (!answer) return;
  const replayed = answer.sets.filter((set) => !set.why);
  headline.textContent = summary(replayed);
  place.replaceChildren(
    ...(replayed.length > 0 ? policies(replayed) : []),
    h("div.svd-groups.ui-tiles", answer.sets.filter(more).map((set) =>
      h(
        "section.ui-stack",
        h("h3", `${set.title}, ${plural(set.runs, "run")}`),
        set.why && h("p.ui-soft", set.why),
        set.batches.length ? [h("p.ui-soft", BATCHES), batches(set)] : null,
        bestLengths(set),
      ))),
    answer.measured ? "" : h("p.ui-soft", coded(UNMEASURED)),
  );
}

/** Whether a set has more to show than its policies. @param {LengthSet} set */
const more = ({ why, batches: rows, tiers }) => Boolean(why || rows.length || tiers);

const BEYOND = "beyond what was measured";
const BATCHES =
  "In a batch of runs like these, by a model: L(rows, batch, context) as measured here, drafted for one by one " +
  "(specviz load check says how far it is from batches that run).";
const UNMEASURED = "What these runs would be in a batch is known once `specviz load measure` has timed " +
  "this model here.";
