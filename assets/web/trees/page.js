/* Page "Trees": PPD's trees of every state by size and prompt budget, their worth on this machine. Text nodes only. */

import { on } from "specviz/base/bus.js";
import { coded, h, plural, s } from "specviz/base/dom.js";
import { getJson } from "specviz/base/json.js";
import { app } from "specviz/shell/state.js";
import { drawCharts, pick } from "specviz/trees/charts.js";
import { budget, fixed, page, part, say, share } from "specviz/trees/state.js";
import { diamonds } from "specviz/trees/states.js";

const POLL_MS = 700;

function drawSizes() {
  const b = budget();
  const heads = [
    "size",
    "candidates",
    "prompt tokens",
    "R",
    "τ designed",
    "τ naive",
    "τ random",
    "L ms",
    "τ ÷ L",
    "speedup",
  ];
  const digits = Math.max(...b.points.map((p) => p.ms || 0)) < 10 ? 2 : 1;
  const rows = b.points.map((p) => {
    const perMs = p.tokens_per_ms === null ? "–" : p.tokens_per_ms.toPrecision(3);
    const cells = [
      String(p.candidates),
      String(p.prompts),
      fixed(p.R, 3),
      fixed(p.tokens_per_step, 3),
      fixed(p.naive, 3),
      fixed(p.random, 3),
      fixed(p.ms, digits),
      perMs,
      p.speedup === null ? "–" : `${fixed(p.speedup, 2)}×`,
    ];
    const go = h(
      "button",
      {
        type: "button",
        class: "svp-link",
        "aria-label": `Show the trees of ${p.size} rows`,
        onclick: () => pick(page.m, p.size),
      },
      String(p.size),
    );
    return h(
      "tr",
      { "data-size": p.size, class: p.size === page.size ? "svp-now" : null },
      h("td", {}, go, p.size === b.best ? h("small", {}, " best") : null),
      cells.map((text) => h("td", { class: "svp-num" }, text)),
    );
  });
  part("sizes").replaceChildren(
    h(
      "table",
      { class: "svp-grid svt-grid" },
      h("caption", {}, `Sizes for ${plural(page.m, "prompt token")}`),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((text, k) => h("th", { scope: "col", class: k ? "svp-num" : null }, text)),
        ),
      ),
      h("tbody", {}, rows),
    ),
  );
}

function drawAcceptance() {
  const { acceptance, source, measured } = page.data;
  const ranks = acceptance[0].length;
  const sum = (row, count) => row.slice(0, count).reduce((a, b) => a + b, 0);
  const most = Math.max(...acceptance.flat());
  const heads = ["distance", ...Array.from({ length: ranks }, (_, k) => `#${k + 1}`), "top 5", `top ${ranks}`];
  const cell = (value) => h("td", { class: "svp-num", style: `--svt-heat:${(value / most).toFixed(3)}` }, share(value));
  part("acceptance").replaceChildren(
    h("h3", {}, "How often a guess holds"),
    h(
      "p",
      { class: `svt-source${measured ? "" : " svt-assumed"}` },
      h("b", {}, measured ? "Measured" : "Assumed"),
      coded(source.replace(/^(measured|assumed)/, "")),
    ),
    h(
      "div",
      { class: "svl-scroll" },
      h(
        "table",
        { class: "svp-grid svt-grid svt-heats" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            heads.map((text, k) => h("th", { scope: "col", class: k ? "svp-num" : null }, text)),
          ),
        ),
        h(
          "tbody",
          {},
          acceptance.map((row, d) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, String(d + 1)),
              row.map(cell),
              h("td", { class: "svp-num" }, share(sum(row, 5))),
              h("td", { class: "svp-num" }, share(sum(row, ranks))),
            ),
          ),
        ),
      ),
    ),
  );
}

function drawMachine() {
  const { latency, measuring, failed, reason } = page.data;
  const told = [];
  if (latency) {
    const { setup } = latency;
    const threads = setup.threads ? `, ${plural(setup.threads, "thread")}` : "";
    told.push(
      h("p", {}, `${latency.model} · ${setup.dtype} · ${setup.device}${threads} · torch ${setup.torch}`),
      h(
        "p",
        { class: "svt-soft" },
        `${plural(latency.rows.length, "size")} from 1 to ` +
          `${latency.rows[latency.rows.length - 1]} rows, ` +
          `${plural(latency.rounds, "step")} each, behind ${latency.context.toLocaleString()} tokens of context.`,
      ),
    );
    if (latency.note)
      told.push(h("p", { class: "svt-disturbed", role: "status" }, h("b", {}, "Disturbed: "), latency.note, "."));
  } else if (!reason)
    told.push(h("p", {}, "Decode steps were not measured on this machine yet, so no size can be chosen for it."));
  if (failed) told.push(h("p", { class: "svp-note svp-error", role: "alert" }, failed));
  const go = h(
    "button",
    { type: "button", class: "svp-button svt-measure", disabled: Boolean(measuring || reason), onclick: measure },
    latency ? "Measure again" : "Measure now",
  );
  const waits = measuring && !measuring.done;
  const progress = measuring
    ? h(
        "span",
        { class: "svt-progress" },
        h("progress", { max: measuring.total, value: measuring.done, "aria-label": "Measuring" }),
        h(
          "span",
          { role: "status" },
          waits
            ? "Waiting for its turn; runs go first."
            : `Measuring: ${measuring.done} of ${measuring.total} rounds at most`,
        ),
      )
    : null;
  const had = document.activeElement?.classList.contains("svt-measure");
  part("machine").replaceChildren(
    h("h3", {}, "This machine: L(n)"),
    ...told,
    h("div", { class: "svt-row" }, go, progress || ""),
  );
  if (had) go.focus();
  if (measuring) {
    clearTimeout(page.timer);
    page.timer = setTimeout(watch, POLL_MS);
  }
}

async function measure() {
  try {
    const answer = await getJson(
      "",
      fetch("api/trees/measure", { method: "POST", headers: { "content-type": "application/json" }, body: "{}" }),
    );
    Object.assign(page.data, answer);
  } catch (problem) {
    page.data.failed = problem.message;
  }
  drawMachine();
}

async function watch() {
  try {
    const answer = await getJson("api/trees/latency");
    Object.assign(page.data, answer);
    if (answer.measuring) drawMachine();
    else await load();
  } catch (problem) {
    Object.assign(page.data, { measuring: null, failed: problem.message });
    drawMachine();
  }
}

function frame() {
  const slider = (name, label, help) =>
    h(
      "div",
      { class: "svt-slider" },
      h("label", { for: `svt-${name}` }, label),
      h("output", { class: `svt-${name}-now`, for: `svt-${name}` }),
      h("input", {
        type: "range",
        class: `svt-${name}`,
        id: `svt-${name}`,
        min: name === "m" ? 1 : 0,
        step: 1,
        "aria-describedby": `svt-${name}-help`,
      }),
      h("small", { id: `svt-${name}-help` }, help),
    );
  const mini = (...inside) =>
    s("svg", { class: "svt-mini", width: 30, height: 14, viewBox: "0 0 30 14", "aria-hidden": "true" }, ...inside);
  page.box.replaceChildren(
    h(
      "section",
      { class: "svt-setup" },
      h("p", { class: "svt-cite" }, "Parallel prompt decoding (PPD)"),
      h("h2", {}, "Trees for prompt tokens"),
      h(
        "p",
        { class: "svt-question" },
        "Each row of a verify forward is a guess to check, or a prompt token that makes " +
          "guesses for the next step. Which split of how many rows pays on this machine?",
      ),
      h("div", { class: "svt-notes" }),
      h(
        "div",
        { class: "svt-sliders" },
        slider("size", "Size", "Rows of a verify forward at most: root, candidates and prompt tokens."),
        slider("m", "Prompt tokens m", "On a node at most: how far ahead its guesses reach."),
      ),
      h("dl", { class: "svt-numbers" }),
      h(
        "div",
        { class: "svt-row" },
        h("button", { type: "button", class: "svp-button svt-best", onclick: () => pick(page.m, budget().best) }),
        h("span", { class: "svt-use" }),
      ),
    ),
    h(
      "section",
      { "aria-label": "Trees of each state" },
      h(
        "div",
        { class: "svt-key" },
        h("b", {}, "A tree per state"),
        h(
          "span",
          {},
          "the state is the number of prompt tokens that the last accepted node had; columns: how far ahead",
        ),
        h("span", {}, h("b", {}, "#1 .350"), " first guess, and the chance that the path to it is accepted"),
        h("span", {}, "ends: that acceptance ends there"),
        h("span", {}, mini(s("path", { class: "svt-hung", d: diamonds(3, 1, 3) })), "prompt tokens on it, "),
        h("span", {}, "→3: the state that follows"),
        h("span", {}, "Hover a node, or walk with the arrow keys, to read it in words."),
      ),
      h("div", { class: "svt-states" }),
      h("p", { class: "svt-told" }),
      h("p", { class: "svt-sum" }),
    ),
    h("div", { class: "svt-charts" }),
    h(
      "div",
      { class: "svt-pair" },
      h("section", { class: "svt-card svt-acceptance" }),
      h("section", { class: "svt-card svt-machine" }),
    ),
    h("div", { class: "svl-scroll svt-sizes" }),
  );
  part("size").addEventListener("input", (event) => pick(page.m, budget().points[Number(event.target.value)].size));
  part("m").addEventListener("input", (event) => {
    pick(Number(event.target.value), page.size);
    drawSizes();
  });
  const states = part("states");
  const tell = (event) => {
    const group = event.target.closest(".svt-node");
    say(group ? group.svtLabel : "");
  };
  states.addEventListener("pointerover", tell);
  states.addEventListener("focusin", tell);
  for (const name of ["pointerleave", "focusout"]) states.addEventListener(name, () => say(""));
}

function drawNotes() {
  const { reason, missing, problem, trained, measured } = page.data;
  const notes = [];
  if (problem) notes.push(h("p", { class: "svp-note svp-error", role: "alert" }, coded(problem)));
  if (reason)
    notes.push(h("p", { class: "svt-note" }, coded(reason), " The trees below are for an assumed acceptance."));
  if (missing)
    notes.push(h("p", { class: "svt-note" }, coded(missing), " The trees below are for an assumed acceptance."));
  if (trained && !measured && !problem)
    notes.push(
      h(
        "p",
        { class: "svt-note" },
        coded(
          "The acceptance of these prompt tokens was not measured: `specviz " +
            "tree design` does. The trees below are for an assumed one.",
        ),
      ),
    );
  part("notes").replaceChildren(...notes);
}

async function load() {
  try {
    page.data = await getJson("api/trees");
  } catch (problem) {
    page.box.replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
    return;
  }
  if (!part("states")) frame();
  drawNotes();
  drawAcceptance();
  drawMachine();
  const drawable = Object.keys(page.data.budgets).length > 0;
  page.box.classList.toggle("svt-undrawn", !drawable);
  if (!drawable) return;
  const [, m, size] = /^(\d+)x(\d+)$/.exec(new URLSearchParams(location.search).get("trees") || "") || [];
  const budgets = page.data.budgets;
  page.m = page.m in budgets ? page.m : Number(m) in budgets ? Number(m) : page.data.m;
  page.size ||= Number(size) || budget().chosen;
  pick(page.m, page.size);
  drawSizes();
  page.box.dataset.ready = `${page.m}x${page.size}`;
}

export function mount({ element }) {
  app.pages.trees = page;
  page.box = element.querySelector(".svp-trees");
  page.box.replaceChildren(h("p", { class: "svp-empty" }, "Designing trees …"));
  // nothing is designed before the page is looked at
  const seen = new ResizeObserver(() => {
    if (!page.box.offsetWidth || page.asked) return;
    page.asked = true;
    load();
  });
  seen.observe(page.box);
  on("model", () => {
    if (page.asked) {
      page.size = 0;
      page.m = 0;
      load();
    }
  });
  new MutationObserver(() => {
    if (page.data && part("charts")?.children.length) drawCharts();
  }).observe(document.body, { attributeFilter: ["class"] });
}
