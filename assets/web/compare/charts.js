/* Page "Compare", the charts, drawn with Plotly once they are needed. */

import { must } from "specviz/base/dom.js";
import { BASELINE } from "specviz/base/methods.js";
import { charts, layout, lineLook, stems } from "specviz/base/plotly.js";
import { drawn, name, page, part, repeated } from "specviz/compare/state.js";

/**
 * What is drawn: a title, what the axes say, the traces.
 *
 * @typedef {{ key: string, title: string, x: string, y: string, data: object[] }} Axes
 * @typedef {Axes & { stack?: boolean, percent?: boolean }} Drawing
 * @type {(colors: LaneColors) => Drawing[]}
 */
function drawings(colors) {
  const lanes = drawn().filter((lane) => page.numbers[lane.id]);
  /** @param {CompareLane} lane */
  const label = (lane) => `${lane.mark} ${name(lane)}`.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  /** @param {string} shape */
  const pattern = (shape) => ({ shape, fillmode: "overlay", fgcolor: colors.card, size: 5, solidity: 0.3 });
  const methods = lanes.filter((lane) => lane.method !== BASELINE);
  /** The same as in Acceptance; a staircase is solid: dashes would lose its risers. @param {DrawnLane} lane */
  const look = (lane) => lineLook(lane.n - 1, lane.color);
  const cumulative = lanes.map((lane) => ({
    ...look(lane),
    marker: { ...look(lane).marker, maxdisplayed: 6 },
    x: [0, ...lane.lane.times.map((t) => t / 1000)],
    y: [0, ...lane.lane.ends],
    type: "scatter",
    name: label(lane),
    line: { ...look(lane).line, dash: "solid", shape: "hv" },
    hovertemplate: "%{y} tokens after %{x:.3f} s",
  }));
  const lengths = methods.map((lane, n) =>
    stems(page.numbers[lane.id].lengths.map(([accepted, , share]) => [accepted, share]), n, methods.length, {
      ...look(lane), name: label(lane),
    }));
  const steps = methods.map((lane) => ({
    x: lane.lane.ends.map((_, k) => k + 1),
    y: [...lane.lane.accepted],
    type: "scatter",
    mode: "lines+markers",
    name: label(lane),
    marker: { ...look(lane).marker, size: 4 },
    line: { ...look(lane).line, dash: "solid", width: 1, shape: "hvh" },
    hovertemplate: "forward %{x}: %{y} accepted",
  }));
  /** @type {(keys: (keyof LaneNumbers["times"])[], text: string, color: string, shape?: string) => object} */
  const time = (keys, text, color, shape = "") => ({
    y: lanes.map((lane) => `${label(lane)} `),
    x: lanes.map(({ id, lane }) => keys.reduce((sum, key) =>
      sum + page.numbers[id].times[key] * (key === "prefill" ? 1 : lane.pace) / 1000, 0)),
    type: "bar",
    orientation: "h",
    name: text,
    marker: { color, pattern: pattern(shape) },
    hovertemplate: "%{x:.3f} s",
  });
  const times = [
    time(["prefill"], "reading the prompt", colors.line),
    time(["draft"], "drafting", colors.ink, "/"),
    time(["verify"], "verifying", colors.faint),
    time(["prepare", "commit"], "preparing and keeping", colors.ink, "x"),
  ]; // no hue: the hues are the lanes'
  const pace = repeated() ? ", at the median's pace" : "";
  const spent = `seconds${repeated() ? "; reading the prompt: in the first run" : ""}`;
  /** @type {Drawing[]} */
  const all = [
    {
      key: "cumulative", title: `Tokens written over time${pace}`, x: "seconds of decoding", y: "tokens",
      data: cumulative,
    },
    { key: "times", title: `Where the time went${pace}`, x: spent, y: "", data: times, stack: true },
  ];
  if (!methods.length) return all;
  const accepted = "accepted draft tokens";
  const beside = `${accepted}; methods side by side`;
  const shares = { y: "share of the steps", percent: true };
  return [
    ...all,
    { ...shares, key: "lengths", title: "Accepted per step with a draft", x: beside, data: lengths },
    { key: "steps", title: "Accepted, step by step", x: "forward", y: accepted, data: steps },
  ];
}

/** Draws them, those that are there anew. */
export async function drawCharts() {
  if (!Object.keys(page.numbers).length || !page.box.offsetWidth) return;
  const { ticket } = page;
  await charts(part("charts"), page.data.plotly, () => (ticket === page.ticket ? dressed() : null));
}

const dressed = () =>
  drawings(must(page.colors)).map(({ key, title, x, y, data, stack, percent }) => ({
    key,
    label: `${title}; its numbers are in the table and the race`,
    data,
    layout: layout(title, x, y, {
      margin: { l: 52, r: 14, t: 44, b: 78 },
      xaxis: { automargin: true },
      yaxis: { automargin: true, autorange: stack ? "reversed" : true, tickformat: percent ? ".0%" : "" },
      barmode: stack ? "stack" : "group",
      legend: { orientation: "h", y: -0.3, x: 0, traceorder: "normal" },
    }),
  }));
