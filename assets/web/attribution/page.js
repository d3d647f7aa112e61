/* Page "Attribution": what an answer was copied from. Chooses and starts; the view draws. */

import { COUNTED, MOST_BITS } from "specviz/attribution/board.js";
import { choices } from "specviz/attribution/forms.js";
import { answerForm } from "specviz/attribution/own.js";
import { drawScores, scoreForm } from "specviz/attribution/quotes.js";
import { address, downloads, drawRuns, drawSignals, load, ordered, toggle } from "specviz/attribution/runs.js";
import { page, part, visible } from "specviz/attribution/state.js";
import { Attribution } from "specviz/attribution/view.js";
import { on } from "specviz/base/bus.js";
import { h, place } from "specviz/base/dom.js";
import { getJson, postJson, within } from "specviz/base/json.js";
import { onTheme } from "specviz/base/plotly.js";
import { offerModel } from "specviz/shell/made_with.js";
import { open } from "specviz/shell/open.js";
import { app } from "specviz/shell/state.js";
import { html, render } from "specviz/ui/html.js";
import { Menu } from "specviz/ui/menu.js";

function frame() {
  /** @type {(name: string, text: string) => HTMLElement} */
  const opens = (name, text) =>
    h("button.svp-button", { "data-opens": name, "aria-expanded": "false", onclick: () => toggle(name) }, text);
  const host = h("div");
  const exports = h("span");
  render(html`<${Menu} label="Export" items=${downloads} />`, exports);
  page.box.replaceChildren(
    h(
      "div.sva-head.ui-row",
      h("select.svp-select.sva-runs", {
        "aria-label": "Run to attribute",
        onchange: ({ currentTarget }) => {
          page.chosen = "";
          open(currentTarget.value);
        },
      }),
      opens("own", "Attribute a text"),
      opens("quotes", "Score quotes"),
      exports,
    ),
    h("section.sva-own.sva-card.ui-stack", { hidden: true }),
    h("section.sva-quotes.sva-card.ui-stack", { hidden: true }),
    h("p.sva-say.svp-note", { role: "status" }),
    h("p.sva-made.svm-offer.ui-row.ui-soft", { hidden: true }),
    host,
  );
  part("own").append(answerForm());
  part("quotes").append(scoreForm(), h("div.sva-scores.ui-stack"));
  page.view = new Attribution(host);
  page.view.heading.append(h("nav.sva-documents.ui-row", { "aria-label": "Recorded answers about documents" }));
  page.view.board.fold.append(h("div.sva-signals.ui-row", { hidden: true }));
  askModel();
  page.view.changed = ({ minRun, minBits, counted, active }) => {
    Object.assign(page, { minRun, minBits, counted, chosen: ordered()[active]?.id });
    address();
  };
}

/** Lets the view ask the model, where there is one. */
function askModel() {
  if (!page.view) return;
  /** @param {object} part */
  const ask = async (part) => postJson(`api/attribution/runs/${encodeURIComponent(page.id)}/without`, part);
  page.view.ask = page.catalog?.reason ? null : ask;
  if (page.docs.size) page.view.cause.draw();
}

async function begin() {
  const asked = new URLSearchParams(location.search);
  const n = Number.parseInt(asked.get("min_run") || "", 10);
  if (n >= 1 && n <= 10000) page.minRun = n;
  const bits = Number(asked.get("bits"));
  if (bits > 0 && bits <= MOST_BITS) page.minBits = bits;
  const counted = asked.get("counted");
  if (counted && counted in COUNTED) page.counted = /** @type {Counted} */ (counted);
  page.catalog = (await within(page.box, () => getJson("api/attribution"))) ?? null;
  if (!page.catalog) return;
  frame();
  const [document] = page.catalog.documents;
  const unasked = !app.early && !app.attributed && app.current === page.catalog.first;
  if (document && unasked) open(document.id);
  else if (app.current) load(app.current);
  else {
    toggle("own");
    page.box.dataset.ready = "none";
  }
}

/** What can be chosen, again: the model has loaded, or went. */
async function again() {
  if (!page.catalog) return;
  page.catalog = await getJson("api/attribution").catch(() => page.catalog);
  for (const name of ["own", "quotes"]) choices(name);
  askModel();
  drawSignals();
  offerModel(part("made"), page.id);
}

/** @param {Part} part */
export function mount({ element }) {
  app.pages.attribution = page;
  page.box = place(element, "attribution");
  page.box.replaceChildren(h("p.svp-empty", "Looking for links …"));
  let was = false;
  new ResizeObserver(() => {
    const now = visible();
    if (now && !page.seen) begin();
    else if (now && !was && page.view && !page.opening && !(app.current === page.id && page.docs.has(page.id)))
      load(app.current);
    page.seen ||= now;
    was = now;
  }).observe(page.box);
  on("current", (id) => {
    if (id === page.opening) page.opening = "";
    else if (page.view && id !== page.id) load(id);
  });
  on("runs", () => {
    if (page.view) drawRuns();
  });
  on("model", again);
  onTheme(drawScores);
}
