/* Page "Acceptance", the definitions: one table of all, and where drafted tokens stood. */

import { h, heads, replace, table } from "specviz/base/dom.js";
import { format, percentage, plural } from "specviz/base/numbers.js";
import { charts } from "specviz/base/plotly.js";
import { COLORS, DASHES, SYMBOLS, data, drawCharts, layout, page, scrolled, shown } from "specviz/acceptance/state.js";

/** @type {Record<AcceptanceGroups, [string, string]>} */
const GROUPS = {
  context: ["By length of the context", "tokens before the step"],
  class: ["By class of the drafted token", "its text"],
  segment: ["By where it was copied from", "part of the prompt or output"],
  origin: ["By origin", "what drafted it"],
};

/** A row per method: what is pooled over all steps, and below it the mean of the runs' own values. */
function compared() {
  const { definitions } = data();
  const head = [
    h("th", { scope: "col" }, "method"),
    definitions.map(({ label, formula, used, help }) =>
      h("th", { scope: "col", title: help }, h("b", label), h("span.svd-formula", formula), h("small", used)),
    ),
  ];
  const rows = page.sets.map((set) =>
    h(
      "tr",
      h("th", { scope: "row" }, h("b", set.title), h("small", words(set))),
      definitions.map(({ key, formula, unit }) =>
        h(
          "td",
          { title: set.worked[key] ? `${formula} = ${set.worked[key]}` : "not defined for these runs" },
          h("b", shown(set.pooled[key], unit)),
          h("small", set.worked[key] ?? ""),
          set.runs > 1 && set.means[key] !== null && h("small", `mean of runs ${shown(set.means[key], unit)}`),
        ),
      ),
    ),
  );
  return scrolled("Acceptance by definition", table({ class: "svd-table svd-defined" }, head, rows));
}

/** @param {AcceptanceSet} set */
const words = (set) => [plural(set.runs, "run"), !set.lossless && "lossy"].filter(Boolean).join(", ");

/** Methods that drafted, as the charts draw them. */
const drafting = () => page.sets.filter((set) => set.depths.length);

/** Which line is whose. */
const key = () =>
  h(
    "div.svd-key",
    drafting().map((set, n) => h("span", h("i", { style: `background:${COLORS[n % COLORS.length]}` }), set.title)),
  );

/** Acceptance by depth and the accepted lengths, a line or bar per method. @returns {Chart[]} */
function drawings() {
  /** @param {AcceptanceSet} set @param {number} n */
  const look = ({ title }, n) => ({
    name: title,
    marker: { color: COLORS[n % COLORS.length], symbol: SYMBOLS[n % SYMBOLS.length], size: 7 },
  });
  /** @param {"conditional" | "unconditional"} key @param {string} words */
  const lines = (key, words) =>
    drafting().map((set, n) => ({
      ...look(set, n),
      x: set.depths.map((d) => d.depth),
      y: set.depths.map((d) => d[key]),
      text: set.depths.map((d) => `${d.stood} of ${key === "conditional" ? d.decided : d.drafts}`),
      line: { color: COLORS[n % COLORS.length], dash: DASHES[n % DASHES.length], width: 2 },
      mode: "lines+markers",
      hovertemplate: `position %{x}: %{y:.0%} ${words} (%{text})`,
    }));
  const rate = { yaxis: { range: [0, 1.02], tickformat: ".0%" } };
  const lengths = drafting().map((set, n) => {
    const all = set.lengths.reduce((sum, [, steps]) => sum + steps, 0);
    return {
      ...look(set, n),
      type: "bar",
      x: set.lengths.map(([length]) => length),
      y: set.lengths.map(([, steps]) => steps / all),
      hovertemplate: "%{x} accepted: %{y:.0%} of the steps with a draft",
    };
  });
  return [
    {
      label: "Conditional acceptance by position",
      data: lines("conditional", "of those that were decided stood"),
      layout: layout("Conditional: stood ÷ decided (EAGLE's n-α)", "position in the draft", "", rate),
    },
    {
      label: "Unconditional acceptance by position",
      data: lines("unconditional", "of the drafts got so far"),
      layout: layout("Unconditional: stood ÷ drafts (vLLM, llama.cpp)", "position in the draft", "", rate),
    },
    {
      label: "Accepted lengths",
      data: lengths,
      layout: layout("Accepted lengths", "accepted tokens of a draft", "", {
        yaxis: { tickformat: ".0%" },
        barmode: "group",
      }),
    },
  ];
}

/** A range of contexts, or a group's name. @param {AcceptanceGroups} name @param {string | number} key */
const named = (name, key) =>
  name !== "context" ? String(key) : key ? `${format(key)}–${format(2 * Number(key) - 1)}` : "0–63";

/** Where decided positions stood: a row per method, a column per group. @param {AcceptanceGroups} name */
function grouped(name) {
  const [title, what] = GROUPS[name];
  const keys = [...new Set(drafting().flatMap((set) => set.groups[name].map((row) => row.key)))];
  if (name === "context") keys.sort((a, b) => Number(a) - Number(b));
  const rows = drafting().map((set) =>
    h(
      "tr",
      h("th", { scope: "row" }, set.title),
      keys.map((one) => {
        const row = set.groups[name].find((group) => group.key === one);
        if (!row) return h("td.svp-num", "–");
        const about = `${row.stood} of ${row.decided} decided positions stood`;
        return h(
          "td.svp-num.svd-rate",
          { title: about, style: `--svd-rate:${row.rate.toFixed(3)}` },
          percentage(row.rate),
          h("small", `of ${format(row.decided)}`),
        );
      }),
    ),
  );
  const names = keys.map((one) => named(name, one));
  return h(
    "section.svd-group",
    h("h3", title),
    scrolled(title, table({ class: "svd-table" }, heads([what], names), rows)),
  );
}

/** @param {HTMLElement} place */
export function drawDefinitions(place) {
  const grid = h("div.svd-charts");
  const names = /** @type {AcceptanceGroups[]} */ (Object.keys(GROUPS));
  const any = page.sets.some((set) => set.depths.length);
  replace(place, [
    h(
      "p.svd-lead",
      "The same runs by every definition in use. Large: all steps pooled. Small: the formula with its numbers, and " +
        "the mean of each run's own value (SpecForge's way), which can order two methods the other way round.",
    ),
    compared(),
    any && key(),
    grid,
    any ? h("div.svd-groups", names.map(grouped)) : h("p.svd-soft", "These runs drafted nothing."),
  ]);
  if (any) drawCharts(grid, drawings);
}
