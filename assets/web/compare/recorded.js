/* Page "Compare", recorded runs of one prompt. */

import { h } from "specviz/base/dom.js";
import { BASELINE } from "specviz/base/methods.js";
import { mean, short, when } from "specviz/base/numbers.js";
import { begin } from "specviz/compare/live.js";
import { page, part } from "specviz/compare/state.js";
import { app } from "specviz/shell/state.js";

/** Recorded runs by prompt, where it has several: one's own first, then the largest groups. */
function groups() {
  /** @type {Map<string, RunRecord[]>} */
  const byPrompt = new Map();
  for (const one of app.runs) {
    if (!one.prompt || one.kind === "live" || !one.tokens) continue;
    byPrompt.set(one.prompt, [...(byPrompt.get(one.prompt) ?? []), one]);
  }
  /** @param {RunRecord[]} runs */
  const rank = (runs) => (runs.some((r) => r.kind !== "gallery") ? 0 : 1);
  return [...byPrompt.values()]
    .filter((runs) => runs.length > 1)
    .sort((a, b) => rank(a) - rank(b) || b.length - a.length);
}

/** A run per method as they are listed, five at most, plain decoding at the front. @param {RunRecord[]} runs */
function picked(runs) {
  const first = new Map();
  for (const r of [...runs].sort((a, b) => Number(b.method_name === BASELINE) - Number(a.method_name === BASELINE)))
    if (!first.has(r.method_name)) first.set(r.method_name, r);
  const chosen = [...first.values()].slice(0, page.data.most + 1);
  return chosen.length > 1 ? chosen : runs.slice(0, page.data.most + 1);
}

/** The usual methods of the largest group in the gallery; null where there is none. */
export function example() {
  const gallery = groups().map((runs) => runs.filter((r) => r.kind === "gallery")).sort((a, b) => b.length - a.length);
  return gallery.length && gallery[0].length > 1 ? picked(gallery[0]) : null;
}

/** Compares runs. @param {string[]} ids */
export const openRuns = (ids) => begin(ids.map((id) => ({ id })));

/** @param {RunRecord[]} runs of one prompt */
const titleOf = (runs) => `${runs[0].title} · ${runs.length} runs${runs[0].kind === "gallery" ? " · gallery" : ""}`;
/** @param {RunRecord} run */
const about = ({ tokens_per_step: speed, lossless, forced, kind, created }) =>
  [speed && `${mean(speed)} tokens/step`, forced ? "given answer" : !lossless && "lossy",
    kind !== "gallery" && when(created, "short")]
    .filter(Boolean)
    .join(" · ");

/** Prompts with recorded runs, and the runs of one of them to choose from. */
export function drawRecorded() {
  const place = part("recorded");
  const prompts = groups();
  if (!prompts.length)
    return place.replaceChildren(
      h("p.svc-help.ui-soft", "Runs of one prompt by several methods appear here when there are any."),
    );
  const runs = prompts.find(([first]) => first.prompt === page.group) ?? prompts[0];
  page.group = runs[0].prompt ?? "";
  const select = h(
    "select.svp-select",
    { id: "svc-group", "aria-label": "Prompt with recorded runs", value: page.group },
    prompts.map((some) => h("option", { value: some[0].prompt }, titleOf(some))),
  );
  select.addEventListener("change", () => {
    page.group = select.value;
    drawRecorded();
  });
  const first = picked(runs);
  const boxes = runs.map((one) =>
    h("input", { type: "checkbox", value: one.id, checked: first.includes(one), onchange: able }),
  );
  const labels = runs.map((one, k) =>
    h("label.ui-check", boxes[k], h("span", one.method), h("small.ui-soft", about(one))));
  const chosen = () => boxes.flatMap((box) => (box.checked ? [box.value] : []));
  const go = h("button.svp-button.svc-open", { onclick: () => openRuns(chosen()) }, "Compare these runs");
  function able() {
    const count = chosen().length;
    go.disabled = count < 2 || count > page.data.most + 1;
    go.title = go.disabled ? `Choose 2 to ${page.data.most + 1} runs` : "";
  }
  able();
  place.replaceChildren(select, h("div.svc-boxes.ui-stack", labels), go);
}

/** The button that opens the example. */
export function drawExample() {
  const button = part("example");
  const runs = example();
  button.hidden = !runs;
  button.textContent = "Show an example";
  if (runs) button.title = runs.map((one) => short(one.method)).join(", ");
}
