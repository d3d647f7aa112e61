/* The rule by which a method's drafts are judged: METHOD@VERIFIER as a method, and the field that chooses it. */

import { h } from "specviz/base/dom.js";

const UNDER = "@"; // decoders/names.py
const OWN = "The method's own";
const ASKED = "The rule that accepts a drafted token. Its parameters are among the method's.";

/** A method's name, and its verifier's ("": its own). @param {string} name */
export function parted(name) {
  const [base, rule = ""] = name.split(UNDER);
  return { base, rule };
}

/** The name of a method under a rule ("": its own). @param {string} base @param {string} rule */
export const joined = (base, rule) => (rule ? `${base}${UNDER}${rule}` : base);

/** The card of a method, or of METHOD@VERIFIER: ``decoders.method.method.under``. */
/** @type {(catalog: Pick<Catalog, "methods" | "verifiers">, name: string) => MethodCard | undefined} */
export function cardOf({ methods, verifiers = [] }, name) {
  const { base, rule } = parted(name);
  const method = methods.find((one) => one.name === base);
  if (!method || !rule) return method;
  const verifier = verifiers.find((one) => one.name === rule);
  if (!verifier || !(rule in (method.judges ?? {}))) return undefined;
  const [, short, rest] = /^([^:]*)(.*)$/s.exec(method.title) ?? [];
  const controls = method.controls.filter((one) => !method.verifier_params?.includes(one.name));
  return {
    ...method,
    name,
    title: `${short}, ${verifier.title}${rest}`,
    lossless: method.judges?.[rule] ?? false,
    controls: [...controls, ...verifier.controls],
  };
}

/** Rules in groups as they are offered; one that only matches in a greedy run cannot be chosen there (``off``). */
/** @type {(catalog: Pick<Catalog, "methods" | "verifiers">, base: string, greedy: boolean)
 *   => { label: string, rules: { rule: VerifierCard, lossless: boolean, off: boolean }[] }[]} */
export function rulesOf({ methods, verifiers = [] }, base, greedy) {
  const judges = methods.find((one) => one.name === base)?.judges ?? {};
  const rules = verifiers
    .filter((rule) => rule.name in judges)
    .map((rule) => ({ rule, lossless: judges[rule.name], off: greedy && rule.greedy_match }));
  return [
    { label: "Lossless: the target's own distribution", rules: rules.filter((one) => one.lossless) },
    { label: "Lossy: the text may differ from the target's", rules: rules.filter((one) => !one.lossless) },
  ].filter(({ rules: some }) => some.length > 0);
}

/** What a rule does, in words. */
/** @type {(catalog: Pick<Catalog, "verifiers">, name: string, greedy: boolean) => string} */
export function aboutRule({ verifiers = [] }, name, greedy) {
  const one = verifiers.find(({ name: own }) => own === parted(name).rule);
  if (!one) return ASKED + (greedy ? " Most need a temperature above 0: greedy tokens are matched." : "");
  const lossy = one.lossless ? "" : " Lossy: the text may differ from the target's own.";
  const same = greedy && one.greedy_match ? " At temperature 0 it matches the target's first choices." : "";
  return `${one.summary}${lossy}${same} (${one.source})`;
}

/** A row that chooses the rule; ``greedy`` says whether the run is, ``choose`` is called with METHOD@VERIFIER. */
/** @type {(catalog: Pick<Catalog, "methods" | "verifiers">, name: string, greedy: () => boolean,
 *   choose: (name: string) => void, prefix?: string) => { row: HTMLElement, update: () => void } | null} */
export function ruleField(catalog, name, greedy, choose, prefix = "") {
  const { base, rule: chosen } = parted(name);
  if (!rulesOf(catalog, base, false).length) return null;
  const id = `${prefix}svf-verifier`;
  const select = h("select.svp-select", { id, "aria-describedby": `${id}-help` });
  const help = h("p.svf-help", { id: `${id}-help` });
  select.addEventListener("change", () => choose(joined(base, select.value)));
  let drawn = /** @type {boolean | null} */ (null);
  const update = () => {
    if (drawn === greedy()) return;
    drawn = greedy();
    const groups = rulesOf(catalog, base, drawn);
    const option = (/** @type {ReturnType<typeof rulesOf>[number]["rules"][number]} */ { rule, lossless, off }) =>
      h(
        "option",
        { value: rule.name, disabled: off && rule.name !== chosen, title: rule.summary },
        rule.title + (lossless ? "" : " (lossy)") + (off ? " — temperature above 0" : ""),
      );
    select.replaceChildren(
      h("option", { value: "" }, OWN),
      ...groups.map(({ label, rules }) => h("optgroup", { label }, rules.map(option))),
    );
    select.value = chosen;
    help.textContent = aboutRule(catalog, name, drawn);
  };
  update();
  const row = h("div.svf-row.svf-rule", h("label", { for: id }, "Verifier"), h("div.svf-value.ui-row", select), help);
  return { row, update };
}
