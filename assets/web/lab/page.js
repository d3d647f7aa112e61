/* Page "Lab": what there is to run, what is asked, progress, charts and the runs behind every point. */

import { on } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { getJson } from "specviz/base/json.js";
import { drawMain } from "specviz/lab/form.js";
import { drawResults, show } from "specviz/lab/results.js";
import { BATCH, OWN, SHORT, address, lab, note, recipe, refresh, restore, when } from "specviz/lab/state.js";
import { app } from "specviz/shell/state.js";

function side() {
  const item = (name, tag, title, more) =>
    h(
      "button",
      {
        type: "button",
        class: "svl-item",
        "data-name": name,
        "aria-current": name === lab.choice ? "true" : null,
        onclick: () => choose(name),
        title: more || null,
      },
      tag ? h("span", { class: "svl-tag" }, tag) : null,
      h("span", { class: "svl-name" }, title),
    );
  const groups = Object.entries(lab.catalog.papers)
    .filter(([key]) => key)
    .map(([key, title]) => [
      h("h3", { title }, SHORT[key] || title),
      lab.catalog.recipes.filter((r) => r.paper === key).map((r) => item(r.name, r.figure, r.title, r.question)),
    ]);
  const results = lab.catalog.results.map((about) =>
    h(
      "button",
      {
        type: "button",
        class: "svl-item svl-result",
        "data-result": about.id,
        "aria-current": about.id === lab.id ? "true" : null,
        onclick: () => reopen(about),
      },
      h(
        "span",
        { class: "svl-name" },
        about.figure ? `${SHORT[about.paper] || ""} ${about.figure}: ${about.title}` : about.title,
      ),
      h(
        "span",
        { class: "svl-when" },
        [when(about.created), about.state === "complete" ? "" : about.state].filter(Boolean).join(" · "),
      ),
    ),
  );
  const open = lab.box.querySelector(".svl-earlier")?.open ?? false;
  return [
    item(OWN, "", "Your own sweep", "A method, one or two parameters, values, prompts and a metric"),
    item(BATCH, "", "Methods × prompts", "Batch mode: a table of tasks and methods, as in the papers"),
    results.length
      ? h("details", { class: "svl-earlier", open }, h("summary", {}, `Results (${results.length})`), results)
      : null,
    groups,
  ];
}

function drawSide() {
  const list = lab.box.querySelector(".svl-list");
  const top = list.scrollTop;
  list.replaceChildren(...side().flat(Infinity).filter(Boolean));
  list.scrollTop = top;
  const chosen = recipe();
  lab.box.querySelector(".svl-side > summary").textContent = chosen
    ? `${SHORT[chosen.paper]} ${chosen.figure}: ${chosen.title}`
    : lab.choice === BATCH
      ? "Methods × prompts"
      : "Your own sweep";
}

function choose(name) {
  lab.choice = name;
  const latest = lab.catalog.results.find((about) => about.name === name);
  if (!recipe(name) && latest && !lab.asked[name]) return reopen(latest);
  show(latest ? latest.id : "");
  if (innerWidth < 900) lab.box.querySelector(".svl-side").open = false;
  draw();
}

async function reopen(about) {
  lab.choice = recipe(about.name) || about.name === BATCH ? about.name : OWN;
  if (!recipe()) {
    try {
      const found = (await getJson(`api/lab/results/${encodeURIComponent(about.id)}`)).about;
      if (lab.choice === BATCH) lab.batch.restore(found);
      else restore(found);
    } catch {
      /* told where the results are shown */
    }
  }
  if (innerWidth < 900) lab.box.querySelector(".svl-side").open = false;
  show(about.id);
  draw();
}

function draw() {
  drawSide();
  drawMain();
  address();
}

export async function mount({ element }) {
  app.pages.lab = lab;
  lab.box = element.querySelector(".svp-lab");
  lab.box.replaceChildren(h("p", { class: "svp-empty" }, "Looking for experiments …"));
  try {
    await refresh();
  } catch (problem) {
    lab.box.replaceChildren(h("p", { class: "svp-note svp-error", role: "alert" }, problem.message));
    return;
  }
  lab.box.replaceChildren(
    h(
      "details",
      { class: "svl-side", open: innerWidth >= 900 },
      h("summary", {}),
      h("nav", { class: "svl-list", "aria-label": "Experiments" }),
    ),
    h("section", { class: "svl-main" }, h("div", { class: "svl-setup" }), h("div", { class: "svl-results" })),
    h("dialog", { class: "svl-dialog" }),
  );
  const address_ = new URLSearchParams(location.search);
  const wanted = address_.get("recipe") || address_.get("lab") || "";
  if ([OWN, BATCH].includes(wanted) || recipe(wanted)) choose(wanted);
  else if (wanted) {
    try {
      const { about } = await getJson(`api/lab/results/${encodeURIComponent(wanted)}?have=-1`);
      reopen(about);
    } catch (problem) {
      choose(lab.catalog.recipes[0].name);
      note(problem.message, true);
    }
  } else choose(lab.catalog.recipes[0].name);
  lab.box.querySelector(".svl-item[aria-current]")?.scrollIntoView({ block: "nearest" });
  on("lab", drawSide); // what there is has changed
  on("model", async () => {
    await refresh();
    draw();
  });
  new MutationObserver(() => {
    if (lab.shown?.charts) drawResults();
  }).observe(document.body, { attributeFilter: ["class"] });
}
