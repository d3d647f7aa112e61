/* Page "Lab": what it knows, and the small things its modules share. */

import { h, must, scrolled, table } from "specviz/base/dom.js";
import { getJson, postJson, tell } from "specviz/base/json.js";
import { plural, short } from "specviz/base/numbers.js";
import { addView, setAddress } from "specviz/shell/address.js";
import { onInspect } from "specviz/shell/open.js";
import { app } from "specviz/shell/state.js";
import { cardOf } from "specviz/shell/verifiers.js";

addView("lab", "lab");
export const OWN = "own";
export const BATCH = "batch";
export const SPEEDUP = "speedup";
/** What is looked at and not run, in place of an experiment: other pages' views, and the calculator. */
export const tools = () => [
  ...gallery().tools,
  { name: SPEEDUP, title: "Speedup of a draft length", about: "What a draft of K tokens is expected to gain" },
];
/** @param {string} name */
export const isTool = (name) => tools().some((tool) => tool.name === name);

/** A paper's short name. @param {string} paper */
export const shortPaper = (paper) => gallery().papers[paper]?.short ?? "";

export const lab = {
  /** @type {HTMLElement} */
  box: h("div"),
  /** @type {LabGallery | null} */
  gallery: null,
  /** @type {LabCatalog | null} */
  catalog: null,
  choice: "",
  /** By experiment, what its form asks for. @type {Record<string, LabForm>} */
  forms: {},
  /** The results shown; without ``charts`` until they are drawn. @type {LabProgress & Partial<LabResults> | null} */
  shown: null,
  id: "",
  /** Metrics to draw, in place of the experiment's. @type {string[] | null} */
  metrics: null,
  /** The model of the paper's table that stands beside ours. */
  paper: "",
  timer: 0,
  ticket: 0,
  check: 0,
  /** @type {{name: string, text: string} | null} */
  file: null,
  /** Experiments whose settings are unfolded, or folded. @type {Map<string, boolean>} */
  unfolded: new Map(),
  /** Methods whose verifiers are unfolded. @type {Set<string>} */
  rules: new Set(),
};

/** The parts that are filled as another experiment is chosen. */
export const parts = {
  gallery: h("div.svl-gallery"),
  main: h("section.ui-stack"),
  list: h("nav.svl-list", { "aria-label": "Experiments" }),
  chosen: h("summary"),
  setup: h("div.svl-setup"),
  run: h("button.svl-run", { id: "svl-run" }, "Run"),
  estimate: h("span.svl-estimate.ui-soft", { role: "status" }),
  note: h("p.svp-note.svl-note", { role: "status" }),
  verdict: h("div.svl-verdict"),
  results: h("div.svl-results.ui-stack"),
  tool: h("div", { hidden: true }),
  dialog: h("dialog.svl-dialog.ui-sheet"),
};

/** @type {(what: string, body: object) => Promise<any>} */
export const post = (what, body) => postJson(`api/lab/${what}`, body);

/** What comes along, small. */
export const gallery = () => must(lab.gallery, "gallery yet");

/** What there is to run, once it is known. */
export const catalog = () => must(lab.catalog, "catalog yet");

export const recipe = (name = lab.choice) => catalog().recipes.find((r) => r.name === name) || null;

/** A parameter as it is typed. @param {Setting} value */
export const typed = (value) =>
  value === null ? "off" : value === true ? "yes" : value === false ? "no" : String(value);

/** Puts what is shown into the address. */
export function address() {
  const shown = lab.id || lab.choice;
  // "recipe" is how other pages name what is to be chosen
  setAddress({ recipe: null, ...(!shown || app.tab === "lab" ? { lab: shown || null } : null) });
}

/** The form of one's own sweep, as the results shown were asked for. @param {LabAbout} about */
export function restore({ lines, axes, metrics, temperature, length }) {
  const form = state();
  form.methods = lines.map((line) => line.method);
  form.vary = [0, 1].map((n) =>
    axes[n] ? { param: axes[n].param, values: axes[n].values.map(typed).join(", ") } : { param: "", values: "" },
  );
  form.fixed = Object.fromEntries(
    lines.flatMap((line) => Object.entries(line.params).map(([name, value]) => [name, typed(value)])),
  );
  form.metric = metrics[0];
  form.temperature = temperature ? String(temperature) : "";
  form.length = length === "auto" ? length : "";
}

/** The form of what is chosen. */
export const state = () =>
  (lab.forms[lab.choice] ??= {
    prompts: "",
    count: "",
    max_new_tokens: "",
    training_steps: "",
    methods: null,
    vary: [{ param: "", values: "" }, { param: "", values: "" }],
    fixed: {},
    metric: "tokens_per_step",
    temperature: "",
    length: "",
    lines: null,
    repeats: "",
    workers: "",
    on: "processes",
  });

/** Parameters of the chosen methods by name. */
export function parameters() {
  const chosen = (state().methods || []).map((name) => cardOf(catalog(), name));
  /** @type {Record<string, Control>} */
  const byName = {};
  for (const control of chosen.flatMap((method) => method?.controls || [])) byName[control.name] ??= control;
  return byName;
}

/** Values worth trying. @param {Control} control */
export function suggested(control) {
  if (control.kind === "bool") return "no, yes";
  if (control.kind === "choice") return control.choices.join(", ");
  const low = control.low ?? 0,
    high = control.high ?? low + 100;
  if (control.kind === "float") return `${low}..${high} step ${Number(((high - low) / 5).toPrecision(2))}`;
  const middle = typeof control.default === "number" ? control.default : Math.min(high, low + 4);
  const values = [Math.round(middle / 4), Math.round(middle / 2), middle, middle * 2, middle * 4];
  return [...new Set(values.map((v) => Math.min(high, Math.max(low, v))))].join(", ");
}

/** A line's name as other pages have it: the method's title in place of its id. @param {string} label */
export function lineName(label) {
  const [name] = label.split(", ");
  const method = cardOf(catalog(), name);
  return method ? short(method.title) + label.slice(name.length) : label;
}

/** What may be typed. @param {Control} control */
export function allowed({ kind, choices, low, high, optional }) {
  if (kind === "bool") return "yes or no";
  if (kind === "choice") return choices.join(", ");
  const range = low === null ? "any" : high === null ? `${low} or more` : `${low} to ${high}`;
  return `${kind === "int" ? "whole numbers, " : ""}${range}${optional ? ", or off" : ""}`;
}

/** @type {(label: string, input: Child, help?: string) => HTMLElement} */
export const field = (label, input, help) =>
  h("label.svl-field.ui-above", h("span", label), input, help ? h("small", help) : null);

/** The charts' colours on a dark page, as lanes have them. @type {Record<string, string>} */
const DARK = {
  "#0072b2": "#56b4e9", "#d55e00": "#f08537", "#009e73": "#4fcaa3", "#cc79a7": "#e09bc4", "#e69f00": "#dcb65a",
  "#b8860b": "#dcb65a", "#56b4e9": "#a5d8f6", "#7a6fb0": "#b3a9e6", "#7a4fbf": "#b3a0ea",
  "#332288": "#7d8ef0", "#8c564b": "#c99a8e", "#882255": "#d9658f", "#999933": "#c6c96a",
};

/** A chart's colour where the page is dark. @param {string} color */
export const onDark = (color) => DARK[color.toLowerCase()] ?? color;

/** A button that looks like a link. @param {string} text @param {() => void} onclick */
export const link = (text, onclick) => h("button.svp-link", { onclick }, text);

/** How the numbers are defined. @param {LabResults["formulas"]} formulas */
export const formulaList = (formulas) =>
  h("dl.svl-formulas.ui-soft", formulas.map((f) => [h("dt", f.label), h("dd", `= ${f.formula}. `, h("span", f.help))]));

/** A table that scrolls by itself. @type {(...parts: Parameters<typeof table>) => HTMLElement} */
export const tabled = ({ class: name = "", ...attributes }, ...inside) =>
  scrolled("Results", table({ class: `svl-table svp-sheet ${name}`, ...attributes }, ...inside));

/** A sentence below the run button. @param {string} text @param {boolean} [error] */
export const note = (text, error) => tell(parts.note, text, error);

/** Asks anew what there is to run and what results there are. */
export async function refresh() {
  lab.catalog = await getJson("api/lab");
}

/** A link to the results as a file. @param {string} format @param {string} text */
export const file = (format, text) =>
  h(
    "a.svp-button",
    { href: `api/lab/results/${encodeURIComponent(lab.id)}/download?format=${format}`, download: "" },
    text,
  );

/** Asks, or shows, in front of the page. @param {Node[]} content */
export function dialog(...content) {
  parts.dialog.replaceChildren(...content);
  parts.dialog.showModal();
}

/** A button of the dialog. @param {string} text @param {() => void} [then] */
export const closing = (text, then, kind = "svp-button") =>
  h(
    "button",
    {
      class: kind,
      onclick: () => {
        parts.dialog.close();
        then?.();
      },
    },
    text,
  );

/** Runs to open: the only one at once, else by name. @param {string} title @param {LabRun[]} runs */
export function list(title, runs) {
  if (runs.length === 1 && !runs[0].word) return onInspect(runs[0].trace);
  const name = (/** @type {LabRun} */ { trace, prompt }) => {
    if (!trace) return h("span", prompt);
    const link = closing(prompt, () => onInspect(trace), "svp-link");
    link.dataset.trace = trace;
    return link;
  };
  const names = lab.shown?.names ?? {};
  const word = (/** @type {LabRun} */ run) =>
    run.word || [names[run.category] ?? run.category, run.params].filter(Boolean).join(" · ");
  const rows = runs.map((run) => h("li.ui-line", name(run), h("span", word(run))));
  dialog(
    h("h3", `${plural(runs.length, "run")}: ${title}`),
    h("ul.svl-runs", rows),
    h("div.ui-line", closing("Close")),
  );
}
