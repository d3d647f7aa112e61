/* What the next run is to do: its method, parameters and settings, and the server's catalog of what there is. */

import { on } from "specviz/base/bus.js";
import { getJson, sentence } from "specviz/base/json.js";
import { stored } from "specviz/base/storage.js";
import { cardOf, parted } from "specviz/shell/verifiers.js";
import { computed, signal } from "specviz/ui/html.js";

/** @typedef {Record<string, Setting>} Values */

/** @type {Catalog} */
const NOTHING = { methods: [], settings: [], state: "loading", reason: "Looking for methods …" };
export const catalog = signal(NOTHING);
/** The method's name as it was chosen, METHOD@VERIFIER under another rule; one that is not there yet is waited for. */
export const chosen = signal(stored.get("method") || "");
/** By method, so that changing the method back and forth loses nothing. @type {Record<string, Values>} */
export const params = {};
/** The run's own settings; a baseline for the speedup is there unless it is switched off. @type {Values} */
export const settings = { compare: true };
/** Grows with every parameter and setting that is changed by other hands than the form's. */
export const renewed = signal(0);
/** Parameters of the method that are not at their default. */
export const changed = signal(0);

/** What was changed by hand since the run shown was asked for: the form keeps it when that run is there. */
/** @type {Set<"method" | "settings" | "prompt">} the method with its parameters, the run's settings, the prompt */
export const touched = new Set();

/** The method that runs: what is chosen, else what usually is. */
export const method = computed(() => {
  const { methods, opening } = catalog.value;
  const there = methods.filter((one) => !one.missing);
  return (
    cardOf(catalog.value, chosen.value) ??
    cardOf(catalog.value, parted(chosen.value).base) ??
    there.find((one) => one.name === opening) ??
    there.find((one) => one.usual) ??
    there[0] ??
    methods[0]
  );
});

/** Whether plain decoding may run beside a method, to compare. */
export const comparable = computed(() => !!method.value?.lossless && !method.value.baseline);

/** Chooses a method by hand. @param {string} name */
export function choose(name) {
  touched.add("method");
  stored.set("method", name);
  chosen.value = name;
}

/** Chooses the rule that judges the method's drafts; parameters that both cards have stay as they are. */
/** @param {string} name METHOD@VERIFIER */
export function chooseRule(name) {
  params[name] = { ...params[name], ...params[method.value?.name ?? ""] };
  choose(name);
}

/** Takes a run's settings over, and the method with its parameters, unless they stay as they were chosen. */
/** @type {(run: Run, method?: boolean, common?: boolean) => void} */
export function takeOver(run, method = true, common = true) {
  const { name, params: own } = run.method;
  if (method && !cardOf(catalog.value, name)?.missing) {
    params[name] = { ...params[name], .../** @type {Values} */ (own) };
    chosen.value = name;
  }
  if (common) Object.assign(settings, { max_new_tokens: run.max_new_tokens }, run.sampling);
  renewed.value++;
}

/** A sentence about a lossy method that is chosen; "" for others. */
export const lossy = computed(() => {
  const card = method.value;
  return card && !card.lossless
    ? `≈ lossy: ${card.title.split(":")[0]} may give another answer than the model alone; ` +
        "plain decoding runs too, to compare."
    : "";
});

/** Whether the form of a run is open. */
export const editing = signal(false);

/** @type {Promise<Catalog> | null} */
let loading = null;

/** Asks the server for its catalog anew. */
export function reload() {
  return (loading = getJson("api/methods")
    .catch((problem) => ({ ...catalog.value, reason: sentence(problem) }))
    .then((/** @type {Catalog} */ answer) => (catalog.value = answer)));
}

/** The catalog, once it is there. */
export const known = () => loading ?? reload();

on("model", reload);
