/* Acceptance of runs, the definitions: one table of all, and where drafted tokens were accepted. */

import { facts, h, heads, replace, scrolled, table } from "specviz/base/dom.js";
import { format, percentage, plural } from "specviz/base/numbers.js";
import { COLORS, lineLook, stems } from "specviz/base/plotly.js";
import { data, drawCharts, headline, layout, page, shown, term } from "specviz/acceptance/state.js";
import { app } from "specviz/shell/state.js";

/** @type {Record<AcceptanceGroups, [string, string]>} */
const GROUPS = {
  context: ["By length of the context", "tokens before the step"],
  class: ["By class of the drafted token", "its text"],
  segment: ["By where it was copied from", "part of the prompt or output"],
  origin: ["By origin", "what drafted it"],
};

/** Groups whose names do not say what they are. @type {Record<string, string>} */
const KINDS = {
  "no text": "Special tokens, and those whose text was not recorded",
  chat: "The messages of the chat",
  template: "What the chat template writes around the messages",
};

/** What the definitions of a unit, which stand together, say. @type {Record<string, string>} */
const UNITS = { "tokens/step": "How many tokens a step brings", share: "How much of what was drafted is accepted" };

/** A row per method: what is pooled over all steps, and below it the mean of the runs' own values. */
function compared() {
  const { definitions } = data();
  const groups = [...new Set(definitions.map((one) => one.unit))].map((unit) => h("th",
    { scope: "colgroup", colspan: definitions.filter((one) => one.unit === unit).length }, UNITS[unit] ?? unit));
  const names = definitions.map(({ label, formula, used, help }) =>
    h("th", { scope: "col", title: `${help} Used by ${used}.` },
      h("b", label.replace(/ (?=\S$)/, "\u00a0")), h("small", formula))); // a sign stays with its word
  const rows = page.sets.map((set) =>
    h(
      "tr",
      h("th", { scope: "row" }, h("b", set.title), h("small", words(set))),
      definitions.map(({ key, formula, unit }) =>
        h(
          "td",
          { title: set.worked[key] ? `${formula} = ${set.worked[key]}` : "not defined for these runs" },
          h("b", shown(set.pooled[key], unit)),
          h("small.svd-formula", set.worked[key] ?? ""),
          set.runs > 1 && set.means[key] !== null && h("small", `mean of runs ${shown(set.means[key], unit)}`),
        ),
      ),
    ),
  );
  const head = h("thead", h("tr", h("th", { scope: "col", rowspan: 2 }, "method"), groups), h("tr", names));
  return scrolled("Acceptance by definition", h("table.svp-grid.svd-table.svd-defined", head, h("tbody", rows)));
}

/** @param {AcceptanceSet} set */
const words = (set) => [plural(set.runs, "run"), !set.lossless && "lossy"].filter(Boolean).join(", ");

/** Methods that drafted. */
const drafting = () => page.sets.filter((set) => set.depths.length);

/** A colour per slot: those of a race's lanes, then what is left. */
function slotColors() {
  const style = getComputedStyle(page.box);
  const lanes = [1, 2, 3, 4, 5].map((n) => style.getPropertyValue(`--svc-lane-${n}`).trim());
  const others = [...COLORS.slice(lanes.length), COLORS[0]].filter((color) => !lanes.includes(color.toLowerCase()));
  return [...lanes, ...others].slice(0, COLORS.length);
}

/** A method's first run among those asked for: lanes of a race come in this order. @param {AcceptanceSet} set */
function firstRun({ method }) {
  const at = page.ids.findIndex((id) => app.runs.find((run) => run.id === id)?.method_name === method);
  return at < 0 ? page.ids.length : at;
}

/** The eight that drafted most, each with a colour of its own, unless others were chosen; in the order of the lanes. */
function chooseCharted() {
  const titles = drafting().map((set) => set.title);
  page.charted = page.charted.map((title) => (titles.includes(title) ? title : ""));
  if (page.charted.some(Boolean)) return;
  /** @param {AcceptanceSet} set */
  const drafts = (set) => set.depths[0].drafts;
  const most = [...drafting()].sort((a, b) => drafts(b) - drafts(a)).slice(0, COLORS.length);
  const kept = drafting().filter((set) => most.includes(set)).sort((a, b) => firstRun(a) - firstRun(b));
  page.charted = COLORS.map((_, n) => kept[n]?.title ?? "");
}

/** Which line is whose, and which are drawn: at most eight. @param {() => void} changed */
function key(changed) {
  const full = page.charted.every(Boolean);
  const colors = slotColors();
  const buttons = drafting().map(({ title }) => {
    const slot = page.charted.indexOf(title);
    const swap = () => {
      page.charted[slot < 0 ? page.charted.indexOf("") : slot] = slot < 0 ? title : "";
      changed();
    };
    const attributes = { "aria-pressed": String(slot >= 0), disabled: slot < 0 && full, onclick: swap };
    return h("button.svd-line", attributes, h("i", { style: slot >= 0 && `background:${colors[slot]}` }), title);
  });
  const many = buttons.length > COLORS.length;
  const how = `${COLORS.length} of ${buttons.length} methods are drawn, those that drafted most: swap them here.`;
  return h("div.ui-row", { role: "group", "aria-label": "Lines drawn" }, buttons, many && h("small", how));
}

/** Acceptance by depth and the accepted lengths, a line or bar per method. @returns {Chart[]} */
function drawings() {
  const colors = slotColors();
  const charted = page.charted.flatMap((title, n) => {
    const set = drafting().find((one) => one.title === title);
    return set ? [{ set, n }] : [];
  });
  /** @param {"conditional" | "unconditional"} key @param {string} words */
  const lines = (key, words) =>
    charted.map(({ set, n }) => ({
      ...lineLook(n, colors[n]),
      name: set.title,
      x: set.depths.map((d) => d.depth),
      y: set.depths.map((d) => d[key]),
      text: set.depths.map((d) => `${d.stood} of ${key === "conditional" ? d.decided : d.drafts}`),
      hovertemplate: `position %{x}: %{y:.0%} ${words} (%{text})`,
    }));
  const rate = { yaxis: { range: [0, 1.02], tickformat: ".0%" } };
  const lengths = charted.map(({ set, n }, at) => {
    const all = set.lengths.reduce((sum, [, steps]) => sum + steps, 0);
    return stems(set.lengths.map(([length, steps]) => [length, steps / all]), at, charted.length,
      { ...lineLook(n, colors[n]), name: set.title });
  });
  return [
    {
      label: "Conditional acceptance by position",
      data: lines("conditional", "of the tokens tested were accepted"),
      layout: layout("Accepted, of the tokens tested (EAGLE's n-α)", "position in the draft", "of those tested", rate),
    },
    {
      label: "Unconditional acceptance by position",
      data: lines("unconditional", "of the drafts were accepted up to here"),
      layout: layout("Accepted, of all drafts (vLLM, llama.cpp)", "position in the draft", "of all drafts", rate),
    },
    {
      label: "Accepted lengths",
      data: lengths,
      layout: layout("Accepted tokens per draft", "accepted tokens; methods side by side", "of all drafts", {
        yaxis: { tickformat: ".0%" },
      }),
    },
  ];
}

/** A range of contexts, or a group's name. @param {AcceptanceGroups} name @param {string | number} key */
const named = (name, key) =>
  name !== "context" ? String(key) : key ? `${format(key)}–${format(2 * Number(key) - 1)}` : "0–63";

/** Where tested tokens were accepted: a row per method, a column per group. @param {AcceptanceGroups} name */
function grouped(name) {
  const [title, what] = GROUPS[name];
  const colors = slotColors();
  const keys = [...new Set(drafting().flatMap((set) => set.groups[name].map((row) => row.key)))];
  if (name === "context") keys.sort((a, b) => Number(a) - Number(b));
  const rows = drafting().map((set) =>
    h(
      "tr",
      { style: `--svd-own:${colors[page.charted.indexOf(set.title)] ?? "var(--sv-faint)"}` }, // as in the charts
      h("th", { scope: "row" }, set.title),
      keys.map((one) => {
        const row = set.groups[name].find((group) => group.key === one);
        if (!row) return h("td.svp-num", "–");
        const about = `${row.stood} of ${row.decided} tokens tested were accepted`;
        return h(
          "td.svp-num",
          {
            title: about, class: row.decided >= data().fewest && "svd-rate", style: `--svd-rate:${row.rate.toFixed(3)}`,
          },
          percentage(row.rate),
          h("small", `${format(row.stood)} of ${format(row.decided)}`),
        );
      }),
    ),
  );
  const names = keys.map((one) => term(named(name, one), KINDS[one]));
  return h(
    "section.ui-stack",
    h("h3", title),
    scrolled(title, table({ class: "svd-table" }, heads([what], names), rows)),
  );
}

/** @param {HTMLElement} place */
export function drawDefinitions(place) {
  headline.textContent = page.sentence;
  const grid = h("div.svd-charts.ui-tiles");
  const names = /** @type {AcceptanceGroups[]} */ (Object.keys(GROUPS));
  const any = page.sets.some((set) => set.depths.length);
  chooseCharted();
  const lines = h("div");
  const groups = h("div.svd-groups.ui-tiles");
  const redraw = () => {
    const at = [...lines.querySelectorAll("button")].indexOf(/** @type {any} */ (document.activeElement));
    lines.replaceChildren(key(redraw));
    lines.querySelectorAll("button")[at]?.focus();
    groups.replaceChildren(...names.map(grouped));
    drawCharts(grid, drawings);
  };
  const whole = compared();
  const formulas = h("details.ui-fold", h("summary", "The numbers behind them, and who uses which"),
    facts(data().definitions.map(({ label, used }) => [label, used])));
  formulas.addEventListener("toggle", () => whole.classList.toggle("svd-worked", formulas.open));
  replace(place, [
    any && lines,
    grid,
    h("h3", "By every definition in use"),
    page.forced > 0 && h("p.svd-lead", h("b", `${plural(page.forced, "run")} of a given answer left out.`)),
    page.sets.some((set) => set.runs > 1) && h("p.svd-lead",
      "Large: all steps pooled. Small: the mean of each run's own value (SpecForge's way), which can order two " +
        "methods the other way round."),
    whole,
    formulas,
    any && h("p.svd-lead",
      "By group: the share of the tested draft tokens that were accepted, with their counts; " +
        `a bar from ${data().fewest} tested tokens on.`),
    any ? groups : h("p.ui-soft", "These runs drafted nothing."),
  ]);
  if (any) redraw();
}
