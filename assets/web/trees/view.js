/* The Lab's view of PPD's trees: every state by size and prompt budget, their worth on this machine. */

import { on } from "specviz/base/bus.js";
import { coded, h, heads, s, scrolled, table, titled } from "specviz/base/dom.js";
import { alertNote, getJson, postJson, sentence, within } from "specviz/base/json.js";
import { plural, probability } from "specviz/base/numbers.js";
import { onTheme } from "specviz/base/plotly.js";
import { app } from "specviz/shell/state.js";
import { drawCharts, pick } from "specviz/trees/charts.js";
import { budget, data, fixed, page, parts, times } from "specviz/trees/state.js";
import { diamonds, tell } from "specviz/trees/states.js";

const POLL_MS = 700;
const QUESTION =
  "Each row of a verify forward is a guess to check, or a prompt token that makes guesses for the next step. " +
  "Which split of how many rows pays on this machine?";
const SIZES = "candidates,prompt tokens,R,τ designed,τ naive,τ random,L ms,τ ÷ L,speedup".split(",");

function drawSizes() {
  const { points, best } = budget();
  const digits = Math.max(...points.map(({ ms }) => ms || 0)) < 10 ? 2 : 1;
  const rows = points.map((p) => {
    const cells = [
      String(p.candidates),
      String(p.prompts),
      fixed(p.R, 3),
      fixed(p.tokens_per_step, 3),
      fixed(p.naive, 3),
      fixed(p.random, 3),
      fixed(p.ms, digits),
      p.tokens_per_ms === null ? "–" : p.tokens_per_ms.toPrecision(3),
      times(p.speedup),
    ];
    const name = `Show the trees of ${p.size} rows`;
    const go = () => pick(page.m, p.size);
    return h(
      "tr",
      { "data-size": p.size, class: p.size === page.size ? "svp-now" : null },
      h(
        "td",
        h("button.svp-link", { "aria-label": name, onclick: go }, String(p.size)),
        p.size === best ? h("small", " best") : null,
      ),
      cells.map((text) => h("td.svp-num", text)),
    );
  });
  const caption = h("caption", `Sizes for ${plural(page.m, "prompt token")}`);
  parts.sizes.replaceChildren(table({ class: "svp-sheet" }, heads(["size"], SIZES), rows, caption));
}

function drawAcceptance() {
  const { acceptance, within, source, measured } = data();
  const most = Math.max(...acceptance.flat());
  const names = [...acceptance[0].map((_, k) => `#${k + 1}`), ...within.map((top) => `top ${top.guesses}`)];
  const rows = acceptance.map((row, d) =>
    h(
      "tr",
      h("th", { scope: "row" }, String(d + 1)),
      row.map((p) => h("td.svp-num", { style: `--svt-heat:${(p / most).toFixed(3)}` }, probability(p))),
      within.map((top) => h("td.svp-num", probability(top.shares[d]))),
    ),
  );
  parts.acceptance.replaceChildren(
    h("h3", "How often a guess holds"),
    h(
      "p",
      { class: `svt-source${measured ? "" : " svt-assumed"}` },
      h("b", measured ? "Measured" : "Assumed"),
      coded(source.replace(/^(measured|assumed)/, "")),
    ),
    scrolled("Shares by distance", table({ class: "svp-sheet svt-heats" }, heads(["distance"], names), rows)),
  );
}

function drawMachine() {
  const { latency, measuring, failed, reason } = data();
  const told = [];
  if (latency) {
    const { setup } = latency;
    const threads = setup.threads ? `, ${plural(setup.threads, "thread")}` : "";
    told.push(
      h("p", `${latency.model} · ${setup.dtype} · ${setup.device}${threads} · torch ${setup.torch}`),
      h(
        "p.ui-soft",
        `${plural(latency.rows.length, "size")} from 1 to ` +
          `${latency.rows[latency.rows.length - 1]} rows, ` +
          `${plural(latency.rounds, "step")} each, behind ${latency.context.toLocaleString()} tokens of context.`,
      ),
    );
    if (latency.note) told.push(h("p.svt-disturbed", { role: "status" }, h("b", "Disturbed: "), latency.note, "."));
  } else if (!reason)
    told.push(h("p", "Decode steps were not measured on this machine yet, so no size can be chosen for it."));
  if (failed) told.push(alertNote(failed));
  const go = h(
    "button.svp-button.svt-measure",
    { disabled: Boolean(measuring || reason), onclick: measure },
    latency ? "Measure again" : "Measure now",
  );
  const waits = measuring && !measuring.done;
  const progress = measuring
    ? h(
        "span.svt-progress.ui-line.ui-soft",
        h("progress", { max: measuring.total, value: measuring.done, "aria-label": "Measuring" }),
        h(
          "span",
          { role: "status" },
          waits
            ? "Waiting for its turn; runs go first."
            : `Measuring: ${measuring.done} of at most ${measuring.total} sizes`,
        ),
      )
    : null;
  const had = document.activeElement?.classList.contains("svt-measure");
  parts.machine.replaceChildren(h("h3", "This machine: L(n)"), ...told, h("div.ui-row", go, progress || ""));
  if (had) go.focus();
  if (measuring) {
    clearTimeout(page.timer);
    page.timer = setTimeout(watch, POLL_MS);
  }
}

async function measure() {
  try {
    Object.assign(data(), await postJson("api/trees/measure", {}));
  } catch (problem) {
    data().failed = sentence(problem);
  }
  drawMachine();
}

async function watch() {
  try {
    /** @type {TreeMachine} */
    const machine = await getJson("api/trees/latency");
    Object.assign(data(), machine);
    if (!machine.measuring) return load();
  } catch (problem) {
    Object.assign(data(), { measuring: null, failed: sentence(problem) });
  }
  drawMachine();
}

/** @param {HTMLElement} box */
function frame(box) {
  const mini = (/** @type {Child[]} */ ...inside) =>
    s("svg.svt-mini", { width: 30, height: 14, viewBox: "0 0 30 14", "aria-hidden": "true" }, ...inside);
  box.replaceChildren(
    h(
      "section.svt-setup",
      titled("Trees for prompt tokens", QUESTION, h("p.ui-soft", "Parallel prompt decoding (PPD)")),
      parts.notes,
      h("div.svt-sliders.ui-halves", parts.size.element, parts.m.element),
      parts.numbers,
      h("div.ui-row", parts.best, parts.use),
    ),
    h(
      "section",
      { "aria-label": "Trees of each state" },
      h(
        "div.svt-key.ui-row.ui-soft",
        h("b", "A tree per state"),
        h("span", "the state is the number of prompt tokens that the last accepted node had; columns: how far ahead"),
        h("span", h("b", "#1 .350"), " first guess, and the chance that the path to it is accepted"),
        h("span", "ends: that acceptance ends there"),
        h("span", mini(s("path.svt-hung", { d: diamonds(3, 1, 3) })), "prompt tokens on it, "),
        h("span", "→3: the state that follows"),
        h("span", "Hover a node, or walk with the arrow keys, to read it in words."),
      ),
      parts.states,
      parts.told,
      parts.sum,
    ),
    parts.charts,
    h("div.svt-pair.ui-halves", parts.acceptance, parts.machine),
    parts.sizes,
  );
}

function listen() {
  const { size, m, best, states } = parts;
  size.input.addEventListener("input", () => pick(page.m, budget().points[Number(size.input.value)].size));
  m.input.addEventListener("input", () => {
    pick(Number(m.input.value), page.size);
    drawSizes();
  });
  best.addEventListener("click", () => pick(page.m, budget().best ?? page.size));
  for (const name of ["pointerover", "focusin"]) states.addEventListener(name, tell);
  for (const name of ["pointerleave", "focusout"]) states.addEventListener(name, () => tell());
}

function drawNotes() {
  const { reason, missing, problem, trained, measured } = data();
  const unmeasured = "The acceptance of these prompt tokens was not measured: `specviz tree design` does.";
  const why = [reason, missing, trained && !measured && !problem ? unmeasured : ""].filter(Boolean);
  parts.notes.replaceChildren(
    ...(problem ? [h("p.svp-note.svp-error", { role: "alert" }, coded(problem))] : []),
    ...why.map((text) => h("p.svt-note", coded(text), " The trees below are for an assumed acceptance.")),
  );
}

/** What the address asks for: ``trees=3x32``. */
function wanted() {
  const [, m, size] = /^(\d+)x(\d+)$/.exec(new URLSearchParams(location.search).get("trees") || "") || [];
  return { m: Number(m), size: Number(size) };
}

async function load() {
  const { box } = page;
  const answer = await within(box, () => getJson("api/trees"));
  if (!answer) return;
  page.data = answer;
  if (!box.contains(parts.states)) frame(box);
  drawNotes();
  drawAcceptance();
  drawMachine();
  const { budgets, m } = data();
  const drawable = Object.keys(budgets).length > 0;
  box.classList.toggle("svt-undrawn", !drawable);
  if (!drawable) return;
  const asked = wanted();
  page.m = page.m in budgets ? page.m : asked.m in budgets ? asked.m : m;
  page.size ||= asked.size || budget().chosen;
  pick(page.m, page.size);
  drawSizes();
  box.dataset.ready = `${page.m}x${page.size}`;
}

/** The view of trees in a place of its own: nothing is designed before it is first shown. @returns {HTMLElement} */
export function treesView() {
  app.pages.trees = page;
  page.box = h("div.svp-trees", h("p.svp-empty", "Designing trees …"));
  listen();
  load();
  on("model", () => {
    Object.assign(page, { size: 0, m: 0 });
    load();
  });
  onTheme(() => page.data && parts.charts.childElementCount && drawCharts());
  return page.box;
}
