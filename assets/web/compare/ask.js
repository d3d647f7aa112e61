/* Page "Compare", what is asked: the prompt, the methods and their parameters, the buttons that start and stop. */

import { h, must, replace } from "specviz/base/dom.js";
import { fields, valuesOf } from "specviz/base/field.js";
import { sentence, tell } from "specviz/base/json.js";
import { plural } from "specviz/base/numbers.js";
import { parse, stored } from "specviz/base/storage.js";
import { MARKS, going, page, part, post, seconds, tint } from "specviz/compare/state.js";
import { ready, recorded, sent } from "specviz/prompt/draft.js";
import { PromptFields } from "specviz/prompt/fields.js";
import { offerModel } from "specviz/shell/made_with.js";
import { badge, methodGroups, missingMethods, trained } from "specviz/shell/methods.js";
import { known } from "specviz/shell/request.js";
import { app } from "specviz/shell/state.js";
import { cardOf, parted, ruleField } from "specviz/shell/verifiers.js";
import { effect, html, render, signal } from "specviz/ui/html.js";

/** The prompt as the server takes it: the recorded one of the run open on Inspect, or what stands in the form. */
async function prompt() {
  if (recorded.value) return { trace: app.shown };
  await ready();
  return sent(page.wanted.some((one) => cardOf(must(page.catalog), one.method)?.pooled));
}

/** The lanes, as they were changed last. */
const asked = signal(0);

/** The prompt's form, the same as on Inspect, and an offer where the run's prompt is another model's. */
export function drawPrompt() {
  const Prompt = () => {
    asked.value;
    const file = page.wanted.some((one) => page.catalog && cardOf(page.catalog, one.method)?.pooled);
    return html`<${PromptFields} prefix="svc" file=${file} />`;
  };
  const place = part("prompt-form");
  const fields = h("div");
  place.append(fields);
  render(html`<${Prompt} />`, fields);
  effect(() => void offerModel(part("made-with"), recorded.value ? app.shown : ""));
}

const methods = () => must(page.catalog, "catalog").methods;
/** The fields that choose a lane's verifier. @type {NonNullable<ReturnType<typeof ruleField>>[]} */
let rules = [];
const usable = () => methods().filter((m) => !m.missing && !m.baseline);

/** @param {string} [name] the method's, else one that is not there yet */
function addLane(name) {
  const taken = page.wanted.map((one) => one.method);
  const method = usable().find((m) => m.name === name) || usable().find((m) => !taken.includes(m.name)) || usable()[0];
  if (method) page.wanted.push({ method: method.name, read: () => ({}), wrong: () => false, open: false });
}

/** A lane's letter. @param {number} n 0: plain decoding */
const letter = (n) => h("b.sv-lane-mark", { "aria-hidden": "true", style: tint(n) }, MARKS[n]);

/** Draws lanes and button after ``change``. @type {(change: () => void) => () => void} */
const changing = (change) => () => {
  change();
  drawLanes();
  drawGo();
};

function drawLanes() {
  const baseline = methods().find((m) => m.baseline);
  const more = page.wanted.length < page.data.most && usable().length > 0;
  rules = [];
  replace(part("lane-forms"), [
    h(
      "div.svc-form-card.ui-row.ui-box",
      letter(0),
      h("b", baseline ? baseline.title : "Plain decoding"),
      h("span.svc-help.ui-soft", "always runs: the baseline"),
    ),
    page.wanted.map((one, n) => laneCard(one, n)),
    more && h("button.svp-button.svc-add", { onclick: changing(() => addLane()) }, "+ Add a method"),
  ]);
  asked.value++;
}

/** A lane's method and parameters. @type {(one: WantedLane, n: number) => HTMLElement} */
function laneCard(one, n) {
  const method = must(cardOf(must(page.catalog), one.method), one.method);
  const kept = (page.kept[`${n} ${one.method}`] ??= {});
  const lane = `lane ${MARKS[n + 1]}`;
  const select = h(
    "select.svp-select",
    { id: `svc-method-${n}`, "aria-label": `Method of ${lane}`, value: parted(one.method).base },
    methodGroups(methods().filter((m) => !m.baseline)),
  );
  select.addEventListener("change", () => {
    one.method = select.value;
    drawLanes();
  });
  const remove = changing(() => page.wanted.splice(n, 1));
  const greedy = () => !Number(page.common.temperature);
  const chooseRule = (/** @type {string} */ name) => {
    page.kept[`${n} ${name}`] = { ...page.kept[`${n} ${name}`], ...kept };
    Object.assign(one, { method: name, open: true });
    drawLanes();
  };
  const rule = ruleField(must(page.catalog), one.method, greedy, chooseRule, `lane${n}-`);
  if (rule) rules.push(rule);
  const rows = fields(method.controls, kept, undefined, `lane${n}-`);
  one.read = () => valuesOf(rows);
  one.wrong = () => rows.some(({ row }) => row.querySelector('[aria-invalid="true"]'));
  const inside = [...(rule ? [rule] : []), ...rows].map(({ row }) => row);
  const learnt = trained(method.trained);
  const about = h("p.svc-help.ui-soft", method.summary, learnt && h("b", ` ${learnt}.`));
  const details = h("details.ui-fold", { open: one.open }, h("summary", "Parameters"), about, inside);
  details.addEventListener("toggle", () => (one.open = details.open));
  return h(
    "div.svc-form-card.ui-stack.ui-box",
    h(
      "div.svc-form-head.ui-line",
      letter(n + 1),
      select,
      badge(method),
      page.wanted.length > 1 &&
        h("button.svp-x.svc-remove", { "aria-label": `Remove ${lane}`, title: "Remove", onclick: remove }, "×"),
    ),
    details,
  );
}

function drawSettings() {
  const settings = must(page.catalog, "catalog").settings.filter((c) => c.name !== "compare");
  const summary = h("summary");
  const rows = fields(settings, page.common, () => {
    rules.forEach((rule) => rule.update());
    say();
  }, "lanes-");
  const say = () => {
    const { max_new_tokens: most, temperature } = { ...page.common, ...valuesOf(rows) };
    const drawn = Number(temperature) ? `drawn at temperature ${temperature}` : "greedy";
    summary.textContent = `Settings: at most ${plural(Number(most), "new token")}, ${drawn}`;
  };
  page.readSettings = () => valuesOf(rows);
  say();
  const inside = h("details.ui-fold", summary, rows.map(({ row }) => row));
  part("settings").replaceChildren(inside, missingMethods(methods()));
}

/** What can run, asked for again; the first lanes where none is chosen. */
export async function catalog() {
  page.catalog = await known();
  page.wanted = page.wanted.filter((one) => cardOf(must(page.catalog), one.method));
  if (!page.wanted.length) for (const m of usable().filter((one) => one.compared)) addLane(m.name);
  if (!page.wanted.length) addLane();
  drawLanes();
  drawSettings();
  drawGo();
}

/** The buttons that start and stop. */
export function drawGo() {
  const live = going() && page.lanes.some((lane) => lane.mine);
  const reason = page.catalog?.reason;
  const run = part("run", HTMLButtonElement);
  run.disabled = Boolean(reason) || live || !page.wanted.length;
  run.textContent = `Run ${plural(page.wanted.length + 1, "lane")}`;
  const { lanes, ms } = parse(stored.get("lanes-took"));
  part("took").textContent = lanes && !live ? `The last ${plural(lanes, "lane")} here took ${seconds(ms)}.` : "";
  if (page.framed) part("stop").hidden = !live;
  part("reason").textContent = reason ? `${reason} Recorded runs can be compared all the same.` : "";
  part("reason").hidden = !reason;
  if (Boolean(reason) !== page.runsAlone) part("from-runs", HTMLDetailsElement).open = Boolean(reason);
  page.runsAlone = Boolean(reason); // nothing else can be compared
}

/** A sentence beside the button. @type {(text: string, error?: boolean) => void} */
export const note = (text, error) => tell(part("note"), text, error);

/** Starts what is asked; ``begin`` follows the lanes. @param {(lanes: Partial<CompareLane>[]) => void} begin */
export async function run(begin) {
  const button = part("run", HTMLButtonElement);
  if (button.disabled) return;
  if (page.wanted.some((one) => one.wrong())) return note("A parameter is out of its range: it is marked red.", true);
  button.disabled = true;
  note("");
  try {
    const asked = {
      prompt: await prompt(),
      lanes: page.wanted.map((one) => ({ method: one.method, params: one.read() })),
      settings: page.readSettings(),
      session: await app.session(),
    };
    /** @type {StartedLanes} */
    const { lanes } = await post("start", asked);
    begin(lanes.map((lane) => ({ ...lane, mine: true })));
  } catch (problem) {
    note(sentence(problem), true);
  }
  drawGo();
}

/** Stops all lanes of this page. */
export function stop() {
  page.stopping = true;
  post("stop", { ids: page.lanes.filter((lane) => lane.id).map((lane) => lane.id) }).catch((problem) =>
    note(sentence(problem), true),
  );
}
