/* The method form: method, its parameters and the run's settings, made from the server's catalog. */

import { emit, on } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { field } from "specviz/base/field.js";
import { getJson } from "specviz/base/json.js";
import { stored } from "specviz/base/storage.js";
import { place } from "specviz/shell/place.js";
import { stop } from "specviz/shell/stage.js";
import { app } from "specviz/shell/state.js";

/** What stands beside the run button: why it is off, and that a lossy method may answer otherwise. */
function caution(reason, method) {
  const lossy =
    method && !method.lossless
      ? `≈ lossy: ${method.title.split(":")[0]} may answer otherwise than the model by itself; ` +
        "plain decoding runs too, to compare."
      : "";
  emit("caution", (app.caution = { reason, lossy }));
}

/** ``value`` is {"method", "params", "settings", "pooled"}; triggers "offered" with every catalog and "run". */
export function mount({ element, props, trigger }) {
  const box = place(element, "form");
  const kept = {}; // method → its values, so that changing the method back and forth loses nothing
  let catalog = { methods: [], settings: [], reason: "Looking for methods …" };
  let chosen = stored.get("method") || "";
  let fields = [],
    common = [],
    commonValues = null;

  let againTimer = 0;
  /** Runs with what the form has, in place of the run of this page that goes on. */
  function again() {
    clearTimeout(againTimer);
    againTimer = setTimeout(async () => {
      if (catalog.reason) return;
      if (app.mine.size) await stop();
      trigger("run");
    }, 350);
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || !event.target.closest("#sv-panel")) return;
    if (!catalog.reason) trigger("run");
  });

  function changed() {
    const collect = (list) => Object.fromEntries(list.map((f) => [f.name, f.read()]));
    kept[chosen] = collect(fields);
    commonValues = { ...commonValues, ...collect(common) };
    const method = catalog.methods.find((m) => m.name === chosen);
    props.value = JSON.stringify({
      method: chosen,
      params: kept[chosen],
      settings: commonValues,
      pooled: Boolean(method?.pooled),
    });
  }

  function draw() {
    const method =
      catalog.methods.find((m) => m.name === chosen) ||
      catalog.methods.find((m) => m.name === "pld+h" && !m.missing) ||
      catalog.methods.find((m) => !m.missing) ||
      catalog.methods[0];
    caution(catalog.reason, method);
    if (!method) return box.replaceChildren();
    chosen = method.name;
    const option = (m) =>
      h(
        "option",
        { value: m.name, disabled: Boolean(m.missing) },
        m.title + (m.lossless ? "" : " (lossy)") + (m.missing ? " — not available" : ""),
      );
    const lossless = catalog.methods.filter((m) => m.lossless && !m.missing),
      lenient = catalog.methods.filter((m) => !m.lossless && !m.missing),
      missing = catalog.methods.filter((m) => m.missing);
    const select = h(
      "select",
      { id: "svf-method", class: "svp-select", "aria-describedby": "svf-summary" },
      [
        h("optgroup", { label: "Lossless: the output is plain decoding's" }, lossless.map(option)),
        lenient.length ? h("optgroup", { label: "Lossy: the output may differ" }, lenient.map(option)) : null,
        missing.length ? h("optgroup", { label: "Not available here" }, missing.map(option)) : null,
      ].filter(Boolean),
    );
    select.value = chosen;
    select.addEventListener("change", () => {
      chosen = select.value;
      stored.set("method", chosen);
      draw();
      document.getElementById("svf-method").focus();
    });
    const values = kept[chosen] || {};
    document.body.classList.toggle("sv-pooled-method", Boolean(method.pooled));
    // a lossy threshold is there to be tried: letting go of its slider runs again
    const tried = (c) => !method.lossless && c.name === "delta";
    fields = method.controls.map((c) =>
      field(
        tried(c) ? { ...c, help: `${c.help} Letting go of the slider runs.` } : c,
        c.name in values ? values[c.name] : c.default,
        changed,
        tried(c) ? again : null,
      ),
    );
    const plain = method.name === "plain",
      upFront = (c) => c.name === "max_new_tokens" || (c.name === "compare" && method.lossless && !plain);
    const first = catalog.settings.filter(upFront),
      rest = catalog.settings.filter((c) => !upFront(c) && c.name !== "compare");
    const had = commonValues || {};
    const make = (c) => field(c, c.name in had ? had[c.name] : c.default, changed);
    const length = first.map(make),
      sampling = rest.map(make);
    common = [...length, ...sampling];
    const wasOpen = box.querySelector("details.svf-sampling")?.open,
      paramsOpen = box.querySelector("details.svf-params")?.open ?? true;
    box.replaceChildren(
      h("label", { for: "svf-method", class: "svf-title" }, "Method"),
      select,
      h(
        "p",
        { id: "svf-summary", class: "svf-summary" },
        h(
          "span",
          {
            class: `svf-badge ${method.lossless ? "svf-lossless" : "svf-lossy"}`,
            title: method.lossless
              ? "Its output is exactly what plain decoding gives."
              : "Its output may differ from plain decoding's.",
          },
          method.lossless ? "= lossless" : "≈ lossy",
        ),
        " ",
        method.summary,
        method.paper ? h("span", { class: "svf-paper" }, ` ${method.paper}`) : null,
      ),
      missing.length
        ? h(
            "details",
            { class: "svf-missing" },
            h("summary", {}, `${missing.length} not available here`),
            missing.map((m) => h("p", {}, h("b", {}, m.title), `: ${m.missing}`)),
          )
        : "",
      fields.length
        ? h(
            "details",
            { class: "svf-params", open: paramsOpen },
            h("summary", {}, "Parameters of the method"),
            fields.map((f) => f.row),
          )
        : "",
      ...length.map((f) => f.row),
      rest.length
        ? h(
            "details",
            { class: "svf-sampling", open: wasOpen },
            h("summary", {}, "Sampling"),
            sampling.map((f) => f.row),
          )
        : "",
    );
    changed();
  }

  async function load() {
    try {
      catalog = await getJson("api/methods");
      draw();
      trigger("offered");
    } catch (problem) {
      caution(problem.message);
    }
  }
  on("model", load);
  draw();
  load();
}
