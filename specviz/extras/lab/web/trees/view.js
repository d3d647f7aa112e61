/* The view of PPD's trees: every state by size and prompt budget, their worth on this machine. */

import { on } from "specviz/base/bus.js";
import { h, place, rested } from "specviz/base/dom.js";
import { getJson, poll, postJson, sentence } from "specviz/base/json.js";
import { plural, probability } from "specviz/base/numbers.js";
import { onTheme } from "specviz/base/plotly.js";
import { setAddress } from "specviz/shell/address.js";
import { app } from "specviz/shell/state.js";
import { drawCharts, grid } from "specviz/trees/charts.js";
import { answer, budget, data, fixed, number, point, shown, times } from "specviz/trees/state.js";
import { diamonds, drawStates, states, sum, told } from "specviz/trees/states.js";
import { Held } from "specviz/ui/element.js";
import { Coded, batch, html, render, signal } from "specviz/ui/html.js";

const POLL_MS = 700;
const SIZES = "candidates,prompt tokens,R,τ designed,τ naive,τ random,L ms,τ ÷ L,speedup".split(",");
const box = h("div.svp-trees.svp-tool");
const wrong = signal("");
let newest = 0;

/** Another size or budget: trees and numbers at once, charts a bit later. @type {(m: number, size: number) => void} */
function pick(m, size) {
  const sizes = data().budgets[m].points.map((one) => one.size);
  const nearest = sizes.reduce((near, one) => (Math.abs(one - size) < Math.abs(near - size) ? one : near));
  shown.value = { m, size: nearest };
  drawStates();
  settle();
}

const settle = rested(() => {
  const { m, size } = shown.value;
  if (size && box.checkVisibility()) setAddress({ trees: `${m}x${size}` });
  drawCharts(pick);
}, 120);

/** What the address asks for: ``trees=3x32``. */
function wanted() {
  const [, m, size] = /^(\d+)x(\d+)$/.exec(new URLSearchParams(location.search).get("trees") || "") || [];
  return { m: Number(m), size: Number(size) };
}

async function load() {
  try {
    /** @type {TreesAnswer} */
    const got = await getJson("api/trees");
    const { budgets } = got;
    const [asked, before] = [wanted(), shown.value];
    const m = [before.m, asked.m].find((one) => one in budgets) ?? got.m;
    batch(() => {
      answer.value = got;
      if (m in budgets) pick(m, before.size || asked.size || budgets[m].chosen);
    });
    if (m in budgets) box.dataset.ready = `${m}x${shown.value.size}`;
    follow();
  } catch (problem) {
    wrong.value = sentence(problem);
  }
}

/** What is known of this machine has changed. @param {Partial<TreeMachine>} machine */
const learn = (machine) => (answer.value = { ...data(), ...machine });

/** Looks again while this machine is measured. */
async function follow() {
  const ticket = ++newest;
  if (!data().measuring) return;
  /** @returns {Promise<TreeMachine>} */
  const ask = () => getJson("api/trees/latency");
  const more = (/** @type {TreeMachine} */ machine) => {
    if (machine.measuring) learn(machine);
    else load();
    return !!machine.measuring;
  };
  await poll(ask, POLL_MS, () => ticket === newest, more)
    .catch((problem) => learn({ measuring: null, failed: sentence(problem) }));
}

const measure = () => postJson("api/trees/measure", {})
  .catch((problem) => ({ failed: sentence(problem) })).then(learn).then(follow);

/** A slider below its name and its value. */
/** @param {{ name: string, label: string, help: string, low: number, high: number, value: number, words: string,
 *   change: (value: number) => void }} props */
const Dial = ({ name, label, help, low, high, value, words, change }) => html`<div class="svp-slider">
  <label for="svt-${name}">${label}</label>
  <output class="svt-${name}-now" for="svt-${name}">${words}</output>
  <input type="range" class="svt-${name}" id="svt-${name}" min=${low} max=${high} step="1" value=${value}
    disabled=${high <= low} aria-valuetext=${words} aria-describedby="svt-${name}-help"
    onInput=${(/** @type {FieldEvent} */ { currentTarget }) => change(Number(currentTarget.value))} />
  <small id="svt-${name}-help">${help}</small>
</div>`;

const TIMED = "time of one decode step of so many rows on this machine: drafting, the verify forward, the decision";

/** What is picked, and what it comes to. @param {{ of: TreesAnswer }} props */
function Picked({ of }) {
  const { best, points } = budget.value;
  const { m, size } = shown.value;
  const { R, tokens_per_step, candidates, prompts, ms, speedup } = point.value;
  const at = points.findIndex((one) => one.size === size);
  const tree = `of the tree of state ${m}`;
  const facts = [
    ["tokens per step τ", number(tokens_per_step), "1 + R: accepted candidates and the target's own token"],
    ["accepted R", number(R), "Σ π·f over the states"],
    ["candidates", candidates, tree],
    ["prompt tokens", prompts, tree],
    ["step L", ms === null ? "not measured" : `${number(ms)} ms`, TIMED],
    ["predicted speedup", times(speedup), "τ(n) · L(1) ÷ L(n), against plain decoding"],
  ];
  const words = best === null ? "Best size: measure this machine first"
    : best === size ? `${best} rows: the best size for this machine`
      : `Go to the best size for this machine: ${best} rows`;
  const gains = best === null || (points.find((one) => one.size === best)?.speedup ?? 0) > 1;
  const used = of.in_use;
  return html`<div class="svt-sliders ui-halves">
      <${Dial} name="size" label="Size" low=${0} high=${points.length - 1} value=${at} words=${plural(size, "row")}
        help="Rows of a verify forward at most: root, candidates and prompt tokens."
        change=${(/** @type {number} */ k) => pick(m, points[k].size)} />
      <${Dial} name="m" label="Prompt tokens m" low=${1} high=${of.m} value=${m} words=${plural(m, "prompt token")}
        help="On a node at most: how far ahead its guesses reach."
        change=${(/** @type {number} */ other) => pick(other, size)} />
    </div>
    <dl class="svp-numbers">${facts.map(([name, value, title]) => html`<div title=${title}>
      <dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <div class="ui-row">
      <button type="button" class="svp-button svt-best" disabled=${best === null || best === size}
        onClick=${() => pick(m, best ?? size)}>${words}</button>
      <span class="svt-use ui-soft">
        ${!gains && "With this acceptance, on this machine, no size is faster than plain decoding. "}
        ${used && `Runs of PPD use trees of ${used.rows} rows (${number(used.tokens_per_step)} tokens per step).`}
      </span>
    </div>`;
}

/** What is missing, and that the trees are of an assumed acceptance. @param {{ of: TreesAnswer }} props */
function Notes({ of: { reason, missing, problem, trained, measured } }) {
  const unmeasured = "The acceptance of these prompt tokens was not measured: `specviz tree design` does.";
  const why = [reason, missing, trained && !measured && !problem ? unmeasured : ""].filter(Boolean);
  return html`<div class="svt-notes ui-stack">
    ${problem && html`<p class="svp-note svp-error" role="alert"><${Coded} text=${problem} /></p>`}
    ${why.map((text) => html`<p class="svt-note"><${Coded} text=${text} /> The trees below are for an assumed
      acceptance.</p>`)}
  </div>`;
}

const mini = html`<svg class="svt-mini" width="30" height="14" viewBox="0 0 30 14" aria-hidden="true">
  <path class="svt-hung" d=${diamonds(3, 1, 3)} /></svg>`;

/** How a tree is read. */
const Key = () => html`<div class="svt-key ui-row ui-soft">
  <b>A tree per state</b>
  <span>the state is the number of prompt tokens that the last accepted node had; columns: how far ahead</span>
  <span><b>#1 .350</b> first guess, and the chance that the path to it is accepted</span>
  <span>ends: that acceptance ends there</span>
  <span>${mini}prompt tokens on it,</span>
  <span>→3: the state that follows</span>
  <span>Hover a node, or walk with the arrow keys, to read it in words.</span>
</div>`;

/** How often a guess holds, by distance and rank. @param {{ of: TreesAnswer }} props */
function Acceptance({ of: { acceptance, within, source, measured } }) {
  const most = Math.max(...acceptance.flat());
  const names = [...acceptance[0].map((_, k) => `#${k + 1}`), ...within.map((top) => `top ${top.guesses}`)];
  return html`<section class="svt-card">
    <h3>How often a guess holds</h3>
    <p class="svt-source ${measured ? "" : "svt-assumed"}"><b>${measured ? "Measured" : "Assumed"}</b><${Coded}
      text=${source.replace(/^(measured|assumed)/, "")} /></p>
    <div class="svl-scroll" tabindex="0" role="group" aria-label="Shares by distance">
      <table class="svp-grid svp-sheet svt-heats">
        <thead><tr><th scope="col">distance</th>
          ${names.map((name) => html`<th scope="col" class="svp-num">${name}</th>`)}</tr></thead>
        <tbody>${acceptance.map((row, d) => html`<tr>
          <th scope="row">${d + 1}</th>
          ${row.map((p) => html`<td class="svp-num" style="--svt-heat:${(p / most).toFixed(3)}">
            ${probability(p)}</td>`)}
          ${within.map((top) => html`<td class="svp-num">${probability(top.shares[d])}</td>`)}
        </tr>`)}</tbody>
      </table>
    </div>
  </section>`;
}

/** What a step takes here, and the button that measures it. @param {{ of: TreesAnswer }} props */
function Machine({ of: { latency, measuring, failed, reason } }) {
  const words = measuring && (measuring.done
    ? `Measuring: ${measuring.done} of at most ${measuring.total} sizes` : "Waiting for its turn; runs go first.");
  const { setup, rows = [], rounds = 0, context = 0, model, note } = latency ?? {};
  const threads = setup?.threads ? `, ${plural(setup.threads, "thread")}` : "";
  return html`<section class="svt-card">
    <h3>This machine: L(n)</h3>
    ${setup && html`<p>${`${model} · ${setup.dtype} · ${setup.device}${threads} · torch ${setup.torch}`}</p>
      <p class="ui-soft">${`${plural(rows.length, "size")} from 1 to ${rows.at(-1)} rows, `}
        ${`${plural(rounds, "step")} each, behind ${context.toLocaleString()} tokens of context.`}</p>
      ${note && html`<p class="svt-disturbed" role="status"><b>Disturbed:${" "}</b>${note}.</p>`}`}
    ${!setup && !reason && html`<p>Decode steps were not measured on this machine yet, so no size can be chosen for it.
    </p>`}
    ${failed && html`<p class="svp-note svp-error" role="alert">${failed}</p>`}
    <div class="ui-row">
      <button type="button" class="svp-button svt-measure" disabled=${!!(measuring || reason)} onClick=${measure}>
        ${latency ? "Measure again" : "Measure now"}</button>
      ${measuring && html`<span class="svt-progress ui-line ui-soft">
        <progress max=${measuring.total} value=${measuring.done} aria-label="Measuring" />
        <span role="status">${words}</span></span>`}
    </div>
  </section>`;
}

/** Every size in numbers; one is picked by its button. */
function Sizes() {
  const { points, best } = budget.value;
  const { m, size } = shown.value;
  const digits = Math.max(...points.map(({ ms }) => ms || 0)) < 10 ? 2 : 1;
  /** @param {TreePoint} p */
  const cells = (p) => [
    p.candidates, p.prompts, fixed(p.R, 3), fixed(p.tokens_per_step, 3), fixed(p.naive, 3), fixed(p.random, 3),
    fixed(p.ms, digits), p.tokens_per_ms === null ? "–" : p.tokens_per_ms.toPrecision(3), times(p.speedup),
  ];
  return html`<div class="svl-scroll svt-sizes"><table class="svp-grid svp-sheet">
    <caption>Sizes for ${plural(m, "prompt token")}</caption>
    <thead><tr><th scope="col">size</th>
      ${SIZES.map((name) => html`<th scope="col" class="svp-num">${name}</th>`)}</tr></thead>
    <tbody>${points.map((p) => html`<tr key=${p.size} data-size=${p.size} class=${p.size === size ? "svp-now" : null}>
      <td><button type="button" class="svp-link" aria-label="Show the trees of ${p.size} rows"
        onClick=${() => pick(m, p.size)}>${p.size}</button>${p.size === best && html`<small> best</small>`}</td>
      ${cells(p).map((text) => html`<td class="svp-num">${text}</td>`)}
    </tr>`)}</tbody>
  </table></div>`;
}

function Trees() {
  const of = answer.value;
  if (wrong.value) return html`<p class="svp-note svp-error" role="alert">${wrong.value}</p>`;
  if (!of) return html`<p class="svp-empty">Designing trees …</p>`;
  const drawn = shown.value.m in of.budgets;
  return html`
    <section class="svt-setup">
      <header class="svp-asked">
        <p class="ui-soft">Parallel prompt decoding (PPD)</p>
        <h2>Trees for prompt tokens</h2>
        <p class="svp-question">Each row of a verify forward is a guess to check, or a prompt token that makes guesses
          for the next step. Which split of how many rows pays on this machine?</p>
      </header>
      <${Notes} of=${of} />
      ${drawn && html`<${Picked} of=${of} />`}
    </section>
    ${drawn && html`<section aria-label="Trees of each state">
      <${Key} /><${Held} of=${[states, told, sum]} />
    </section>
    <${Held} of=${grid} />`}
    <div class="svt-pair ui-halves"><${Acceptance} of=${of} /><${Machine} of=${of} /></div>
    ${drawn && html`<${Sizes} />`}`;
}

/** Draws the trees: nothing is designed before that. @param {Pick<Part, "element">} part */
export function mount({ element }) {
  app.pages.trees = {
    get data() {
      return answer.value;
    },
    get m() {
      return shown.value.m;
    },
    get size() {
      return shown.value.size;
    },
  };
  render(html`<${Trees} />`, box);
  load();
  on("model", () => {
    shown.value = { m: 0, size: 0 };
    load();
  });
  onTheme(() => answer.value && grid.childElementCount && drawCharts(pick));
  place(element, "trees").replaceWith(box);
}
