/* The Lab's calculator: what a draft of K tokens is expected to gain. */

import { fact, h, titled } from "specviz/base/dom.js";
import { getJson, postJson, within } from "specviz/base/json.js";
import { charts, layout, onTheme } from "specviz/base/plotly.js";
import { bound } from "specviz/base/field.js";
import { plural } from "specviz/base/numbers.js";
import { countable } from "specviz/shell/runs.js";

const given = { acceptance: 0.7, cost: 0.05, gamma: 5, rows: "" };
const UNMEASURED = "empty: any number of rows takes as long as one; the Lab's trees measure this machine's";
const [SPEEDUP, CHOSEN, TOKENS] = ["#0072B2", "#D55E00", "#8A8A8A"];
/** @type {AcceptanceAnswer} */
let data = { definitions: [], plotly: "", fewest: 0, rows: "", model: "" };
/** Recorded runs by method: what α and c can be taken from. @type {AcceptanceSet[]} */
let sets = [];
let costOf = ""; // whose c is set
let newest = 0;

/** The calculator in a place of its own. */
export function speedupView() {
  const box = h("div.svp-acceptance.ui-stack", h("p.svp-empty", "Looking for runs …"));
  within(box, async () => {
    data = await getJson("api/acceptance");
    const ids = countable().map((run) => run.id);
    if (ids.length) ({ sets } = await postJson("api/acceptance/runs", { ids }));
    given.rows = data.rows;
    drawSpeedup(box);
  });
  onTheme(() => box.querySelector(".main-svg") && drawSpeedup(box));
  return box;
}

/** @param {HTMLElement} place */
function drawSpeedup(place) {
  const result = h("div.svd-result.ui-stack");
  const numbers = h("dl.svp-numbers", { "aria-live": "polite" });
  const grid = h("div.svd-charts.ui-tiles");
  /** @type {(key: "acceptance" | "cost" | "gamma", label: string, max: number, step: number, help: string)
   *   => HTMLElement} */
  const slider = (key, label, max, step, help) => {
    const output = h("output", String(given[key]));
    const input = h("input", {
      type: "range",
      min: key === "gamma" ? 1 : 0,
      max,
      step,
      value: given[key],
      "aria-label": label,
      oninput: () => {
        given[key] = Number(input.value);
        output.textContent = input.value;
        ask();
      },
    });
    return h("label.svp-slider", h("b", label), output, input, h("small", help));
  };
  const known = sets.filter((set) => set.pooled.tested_acceptance !== null);
  const from = h(
    "select.svp-select",
    { "aria-label": "Take α and c from runs" },
    h("option", { value: "" }, "typed"),
    known.map((set, n) => h("option", { value: String(n) }, set.title)),
  );
  from.addEventListener("change", () => {
    const set = known[Number(from.value)];
    if (!from.value || !set) return;
    given.acceptance = Number((set.pooled.tested_acceptance ?? 0).toFixed(2));
    given.cost = Number((set.draft_cost ?? 0).toFixed(3));
    costOf = set.costs
      ? `c: mean of ${plural(set.costs, "run")}, of which ${set.costs_apart} divide by the one-row time of another run.`
      : "c: none was recorded, as copying has no draft model.";
    drawSpeedup(place);
  });

  async function ask() {
    const ticket = ++newest;
    const { acceptance, cost, rows } = given;
    const work = () => postJson("api/acceptance/forecast", { acceptance, cost, rows });
    const forecasts = await within(result, work, () => ticket === newest);
    if (forecasts) draw(forecasts);
  }

  /** @param {Forecasts} answer */
  function draw({ forecasts, best, measured_to }) {
    if (!result.contains(numbers)) result.replaceChildren(numbers, grid);
    const now = forecasts[given.gamma];
    const top = forecasts[best];
    numbers.replaceChildren(
      fact("tokens per step", now.tokens.toFixed(2), "(1 − α^(K+1)) ÷ (1 − α)"),
      fact("time of a step", `${now.cost.toFixed(2)} forwards`, "K·c + L(K+1) ÷ L(1)"),
      fact("speedup", `${now.speedup.toFixed(2)}×`, "tokens per step ÷ time of a step"),
      fact("best K", best ? `${best} (${top.speedup.toFixed(2)}×)` : "none: drafting does not pay", "largest speedup"),
    );
    const x = forecasts.map((one) => one.gamma);
    /** @type {(key: "speedup" | "tokens", name: string, color: string, dash: string) => object} */
    const line = (key, name, color, dash) => ({
      x,
      y: forecasts.map((one) => one[key]),
      name,
      mode: "lines",
      line: { color, dash, width: 2 },
      hovertemplate: `K = %{x}: %{y:.2f}`,
    });
    const marks = {
      x: [now.gamma],
      y: [now.speedup],
      name: "chosen K",
      mode: "markers",
      marker: { color: CHOSEN, size: 12, symbol: "diamond" },
      hovertemplate: "K = %{x}: %{y:.2f}×",
    };
    const beyond = measured_to === null ? "" : `; L(n) beyond ${measured_to} rows is its last slope`;
    const tokens = line("tokens", "tokens per step", TOKENS, "dot");
    const data_ = [line("speedup", "speedup", SPEEDUP, "solid"), tokens, marks];
    const title = `Expected speedup by draft length${beyond}`;
    const look = layout(title, "draft length K", "×, tokens per step", { yaxis: { rangemode: "tozero" } });
    const label = "Expected speedup and tokens per step by draft length";
    charts(grid, data.plotly, () => (grid.isConnected ? [{ label, data: data_, layout: look }] : null));
  }

  const rows = bound(h("input.svp-input.svd-rows", { placeholder: "1:30, 8:34, 32:52" }), given, "rows", ask);
  place.replaceChildren(
    h("div.svl-setup",
      titled("Speedup of a draft length", "How long a draft pays, from how often its tokens stand and what they cost."),
      h("div.ui-row", h("label.ui-check", "α and c from recorded runs: ", from), h("small", costOf)),
      h(
        "div.svd-sliders.ui-tiles",
        slider("acceptance", "Acceptance α", 1, 0.01, "chance that a drafted token stands where all before it did"),
        slider("cost", "Cost of a draft forward c", 1, 0.005, "÷ a one-row forward of the target; 0: copying"),
        slider("gamma", "Draft length K", 32, 1, "drafted tokens per step"),
      ),
      h(
        "label.ui-above",
        h("b", "L(n), rows:ms"),
        rows,
        h("small", data.rows ? "this machine's, as the Lab's trees measured it; or type another's" : UNMEASURED),
      ),
    ),
    result,
    h("p.svl-caption",
      "Leviathan's formula with the cost of verifying: speedup = (1 − α^(K+1)) ÷ (1 − α) ÷ (K·c + L(K+1) ÷ L(1)). " +
        "Every position is taken for equally likely to stand; copied text is not so, and does better at large K. " +
        "K is the length of a chain: a tree as deep has more rows to check, and is likelier to stand at each place."),
  );
  ask();
}
