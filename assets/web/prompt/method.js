/* How a run drafts and samples: the method, its verifier and parameters, the run's settings. */

import { coded, h, replace, rested } from "specviz/base/dom.js";
import { field, fields, valuesOf } from "specviz/base/field.js";
import { run } from "specviz/prompt/start.js";
import { KeptState } from "specviz/shell/kept.js";
import { badge, methodGroups, missingMethods } from "specviz/shell/methods.js";
import * as request from "specviz/shell/request.js";
import { stop } from "specviz/shell/stage.js";
import { app } from "specviz/shell/state.js";
import { parted, ruleField } from "specviz/shell/verifiers.js";
import { effect } from "specviz/ui/html.js";

/** The methods to choose from; the next run's is chosen. */
function methodSelect() {
  const select = h("select.svp-select", { id: "svf-method", "aria-label": "Method" });
  select.addEventListener("change", () => request.choose(select.value));
  effect(() => {
    const card = request.method.value;
    const { base, rule } = parted(card?.name ?? "");
    const methods = request.catalog.value.methods.map((one) =>
      rule && card && one.name === base ? { ...one, title: card.title, lossless: card.lossless } : one,
    );
    select.replaceChildren(...methodGroups(methods).filter((one) => one !== false));
    select.value = base;
    select.title = request.method.value?.summary ?? "";
  });
  return select;
}

/** Plain decoding beside the run, for its speedup. */
function versus() {
  const box = h("input", { type: "checkbox", id: "svf-compare" });
  box.addEventListener("change", () => {
    request.touched.add("settings");
    request.settings.compare = box.checked;
  });
  const help = "Runs plain decoding on the same prompt afterwards: its text beside the output, and the speedup.";
  const row = h(
    "div.svf-row",
    h("label", { for: "svf-compare" }, "Compare with plain decoding"),
    h("div.svf-value", box),
    h("p.svf-help", help),
  );
  effect(() => {
    request.renewed.value;
    row.hidden = !request.comparable.value;
    box.checked = request.settings.compare !== false;
  });
  return row;
}

/** The form of the next run's method and settings, drawn for the server's catalog. */
export function methodForm() {
  const box = h("div.svp-form.ui-stack", { id: "sv-form" });
  const select = methodSelect();
  const beside = versus();
  const keptState = new KeptState();
  /** @type {import("specviz/base/field.js").Field[]} of the method, and of the run */
  let own = [];
  /** @type {import("specviz/base/field.js").Field[]} */
  let common = [];
  /** @type {ReturnType<typeof ruleField>} */
  let rule = null;
  const greedy = () => !Number(request.settings.temperature);
  const sampling = h("summary");
  const setting = h("summary");

  /** Runs with what the form has, in place of the run of this page that goes on. */
  const again = rested(async () => {
    if (request.catalog.value.reason) return;
    if (app.mine.size) await stop();
    run();
  }, 350);

  function changed() {
    const card = request.method.value;
    if (!card) return;
    const params = (request.params[card.name] = valuesOf(own));
    Object.assign(request.settings, valuesOf(common));
    const other = card.controls.filter((c) => String(params[c.name]) !== String(c.default));
    const verifier = parted(card.name).rule;
    request.changed.value = other.length + (verifier ? 1 : 0);
    const set = other.map(({ label, name }) => `${label} ${params[name] ?? "off"}`);
    setting.textContent = ["Parameters", ...(verifier ? [`verifier ${verifier}`] : []), ...set].join(" · ") +
      (verifier || set.length ? "" : ": all as the method has them");
    rule?.update();
    const heat = request.settings.temperature;
    sampling.textContent = greedy() ? "Sampling: greedy" : `Sampling: drawn at temperature ${heat}`;
  }

  /** @type {(what: "method" | "settings") => () => void} */
  const byHand = (what) => () => {
    request.touched.add(what);
    changed();
  };

  function draw() {
    const { methods, settings } = request.catalog.value;
    request.renewed.value;
    const card = request.method.value;
    if (!card) return box.replaceChildren();
    // a lossy threshold is there to be tried: letting go of its slider runs again
    const values = request.params[card.name] || {};
    own = card.controls.map((c) => {
      const value = c.name in values ? values[c.name] : c.default;
      if (card.lossless || c.name !== "delta") return field(c, value, byHand("method"));
      return field({ ...c, help: `${c.help} Letting go of the slider runs.` }, value, byHand("method"), again);
    });
    rule = ruleField(request.catalog.value, card.name, greedy, request.chooseRule);
    common = fields(settings.filter((c) => c.name !== "compare"), request.settings, byHand("settings"));
    const upFront = common.filter(({ name }) => name === "max_new_tokens");
    const drawn = common.filter((row) => !upFront.includes(row));
    /** @type {(name: string, summary: HTMLElement, rows: { row: HTMLElement }[], open: boolean) => Child} */
    const folded = (name, summary, rows, open) =>
      rows.length > 0 && h("details.ui-fold", { class: name, open }, summary, rows.map(({ row }) => row));
    const samplingOpen = Boolean(box.querySelector(".svf-sampling[open]"));
    const opened = box.querySelector(".svf-params");
    const ownOpen = (opened instanceof HTMLDetailsElement && opened.open) || !card.lossless;
    replace(box, [
      select,
      h(
        "p.svf-summary",
        { id: "svf-summary" },
        badge(card), " ", h("b", card.title), " ", coded(card.summary),
        card.paper && h("span.svf-paper", ` ${card.paper}`),
      ),
      missingMethods(methods),
      folded("svf-params", setting, [...(rule ? [rule] : []), ...own], ownOpen),
      keptState.element,
      upFront.map(({ row }) => row),
      folded("svf-sampling", sampling, drawn, samplingOpen),
      beside,
    ]);
    keptState.show(card);
    changed();
  }

  effect(draw);
  return box;
}
