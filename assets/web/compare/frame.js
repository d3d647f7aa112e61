/* Page "Compare", the results' frame: their cards, colours and letters, how the lanes are aligned. */

import { Tooltip, copyLink, h, must, readColors } from "specviz/base/dom.js";
import { BASELINE } from "specviz/base/methods.js";
import { firstDifference } from "specviz/compare/lane.js";
import {
  drawLasts, drawRows, key, limit, paint, pause, seek, setClock, setLimit, toggle,
} from "specviz/compare/race.js";
import { Ruler } from "specviz/compare/ruler.js";
import { slideItems } from "specviz/compare/slide_menu.js";
import { MARKS, about, drawn, going, name, page, part } from "specviz/compare/state.js";
import { html, render } from "specviz/ui/html.js";
import { Menu } from "specviz/ui/menu.js";

/** @type {Record<"time" | "step", string>} */
const CLOCKS = { time: "Time", step: "Forwards" };

const TURNS =
  "The lanes run one after another, so that none slows another down. When all are there, the race plays on one clock.";
const FIGURE = "For a paper: PDF and SVG one column wide, caption, the commands that make the runs again, BibTeX";

/** @type {(name: string, title: string, help: string | null, ...inside: Child[]) => HTMLElement} */
function card(name, title, help, ...inside) {
  return h(
    "section",
    { class: `svc-card svc-card-${name}`, "aria-label": title },
    h("header.ui-row", h("h3", title), help ? h("span.svc-help.ui-soft", help) : null),
    inside,
  );
}

/** The results' cards, empty. */
export function frame() {
  const clocks = /** @type {("time" | "step")[]} */ (Object.keys(CLOCKS)).map((clock) => {
    const choice = { type: "radio", name: "svc-clock", value: clock, checked: clock === page.by };
    return h("label", h("input", { ...choice, onchange: () => setClock(clock) }), h("span", CLOCKS[clock]));
  });
  const lasts = h("select.svp-select.svc-lasts", {
    "aria-label": "How long the race lasts",
    onchange: ({ currentTarget: { value } }) => (page.lasts = value === "real" ? "real" : Number(value)),
  });
  const whole = { min: 0, max: 1, step: 1, value: 0 };
  const slider = h("input.svc-slider", { type: "range", "aria-label": "Clock of the race", ...whole });
  slider.addEventListener("input", () => {
    pause();
    seek(Number(slider.value));
  });
  const ruler = (page.ruler = new Ruler((position) => {
    pause();
    if (page.clock !== "position") setClock("position", position);
    seek(position);
  }));
  const slides = h("div", { role: "status" });
  const drawSlides = (label = "Copy as slide") => {
    /** @param {string} outcome */
    const tell = (outcome) => {
      drawSlides(outcome);
      setTimeout(drawSlides, 1500);
    };
    const items = () => slideItems(() => tell("Slide copied"));
    render(html`<${Menu} label=${label} items=${items} failed=${() => tell("Not copied")} />`, slides);
  };
  drawSlides();
  const again = h("button.svp-link.svc-again", { hidden: true });
  const playing = { onclick: toggle, "aria-label": "Play the race", title: "Space" };
  const root = h(
    "div.sv.svc",
    { role: "group", tabindex: "-1", "aria-label": "Comparison", onkeydown: key },
    h(
      "header.svc-head.ui-row",
      h("div.svc-titles", h("h2.svc-title"), h("p.svc-about.ui-soft")),
      h("button.svp-button.svc-stop", { hidden: true, onclick: () => page.host.stop() }, "■ Stop all lanes"),
      h("button.svp-button.svc-link", { onclick: () => copyLink(location.href, part("link")) }, "Copy link"),
      slides,
      h("a.svp-button.svc-figure", { hidden: true, download: "", title: FIGURE }, "Figure"),
    ),
    h(
      "section.svc-card",
      { "aria-label": "Race" },
      h("div.svc-claim", { hidden: true }, h("b.svc-number"), h("p.svc-outcome", { role: "status" })),
      h("p.svc-once.ui-soft", h("span.svc-same"), " ", h("span.svc-repeats", { role: "status" }), " ", again),
      h(
        "div.svc-controls",
        h("button.svp-button.svc-play", playing, "▶ Race"),
        h("fieldset.svc-clocks.ui-seg", h("legend.svp-unseen", "Ordered by"), clocks),
        slider,
        h("output.svc-at"),
        lasts,
      ),
      h("p.svc-help.svc-turns.ui-soft", { role: "status", hidden: true }, TURNS),
      h("div.svc-scale.ui-soft", { "aria-hidden": "true" }, h("p.ui-row", h("span.svc-measure"), h("span.svc-marks",
        h("span.svc-acc", "accepted draft"), h("span.svc-own", "target's own"), h("span.svc-new", "last forward")))),
      h("ol.svc-lanes"),
    ),
    card(
      "ruler", "By output position", null,
      h(
        "ul.svc-key.ui-legend",
        { "aria-label": "Legend" },
        h("li", h("i.svc-k-acc"), "accepted draft, in one forward"),
        h("li", h("i.svc-k-own"), "the target's own token"),
        h("li", h("b", "12"), "the 12th forward of the model"),
        h("li", h("i.svc-k-off"), "writes something else"),
        h("li", h("i.svc-k-oracle"), "a forward of the oracle: a perfect ranking of the same candidates"),
      ),
      ruler.element,
      h("p.svc-reached", { "aria-live": "off" }),
    ),
    h(
      "div.ui-halves",
      card(
        "stretches", "Where do they differ most?",
        "Stretches in which one method needs fewer forwards than all others.",
        h("div.svc-stretches.ui-stack", h("p.svc-help.ui-soft", "Known when all lanes are over.")),
      ),
      card(
        "lens", "Against plain decoding", "Is every output what the target writes by itself?",
        h("div.svc-lens-rows.ui-stack", h("p.svc-help.ui-soft", "Checked when all lanes are over.")),
      ),
    ),
    card(
      "numbers", "Numbers", "Hover or focus a name for its formula.",
      h("div.svc-table.svl-scroll", h("p.svc-help.ui-soft", "Known when all lanes are over.")),
    ),
    h("div.svc-charts.ui-tiles"),
  );
  part("results").replaceChildren(root);
  page.tip = new Tooltip(root);
  page.framed = true;
  page.colors = null;
  drawLasts();
}

/** The theme's colours, and each lane's. @returns {LaneColors} */
function laneColors() {
  const root = must(part("results").firstElementChild, "comparison");
  const style = getComputedStyle(root);
  for (const lane of page.lanes) lane.color = style.getPropertyValue(`--svc-lane-${lane.n}`).trim();
  return { ...readColors(root), on: style.getPropertyValue("--svc-on").trim() };
}

/** Plain decoding is P; the others are A, B, … in their order. Whether anything changed. */
function letters() {
  let next = 0;
  let moved = false;
  for (const lane of page.lanes) {
    const n = lane.method === BASELINE ? 0 : ++next;
    moved ||= n !== lane.n;
    Object.assign(lane, { n, mark: MARKS[n] });
  }
  return moved;
}

/** The lane that the others are aligned with: plain decoding, else the longest lossless one. */
function reference() {
  const lanes = drawn();
  const lossless = lanes.filter((lane) => lane.lane.run.method.lossless !== false);
  const plain = lanes.find((lane) => lane.method === BASELINE);
  /** @param {DrawnLane[]} some */
  const longest = (some) => some.reduce((a, b) => (b.lane.length > a.lane.length ? b : a));
  if (plain && lossless.every((lane) => lane.lane.length <= plain.lane.length)) return plain;
  return lanes.length ? longest(lossless.length ? lossless : lanes) : null;
}

/** The ruler's legend: the marks that these lanes have. @param {DrawnLane[]} lanes */
function drawKey(lanes) {
  const oracle = lanes.map(({ id }) => page.numbers[id]?.oracle);
  const marks = {
    acc: lanes.some(({ lane }) => lane.accepted.some((count) => count > 0)),
    off: lanes.some(({ aligned, lane }) => aligned < lane.length),
    oracle: oracle.some((one) => one && !("why" in one)),
  };
  for (const [mark, shown] of Object.entries(marks)) must(part(`k-${mark}`).parentElement).hidden = !shown;
}

/** The lanes grew: what is drawn of all of them, once per frame. */
export function changed() {
  if (!page.framed) return;
  if (letters()) {
    part("lanes").replaceChildren();
    page.colors = null;
  }
  const colors = (page.colors ??= laneColors());
  const lanes = drawn();
  const first = reference();
  if (first)
    for (const lane of lanes)
      lane.aligned = lane === first ? lane.lane.length : firstDifference(first.lane.output, lane.lane.output);
  part("title").textContent = page.title || "Comparison";
  part("about").textContent = lanes.length ? about(lanes[0].lane.run) : "";
  const figure = part("figure", HTMLAnchorElement);
  const address = page.host.figure(lanes.map((lane) => lane.id));
  figure.hidden = page.live || lanes.length < 2 || !address;
  figure.href = address;
  part("once").hidden = going();
  part("turns").hidden = !going() || page.lanes.length < 2;
  part("controls").hidden = going() && page.lanes.length > 1; // no race before all are there
  drawRows();
  drawKey(lanes);
  must(page.ruler).element.hidden = !first; // a canvas without a size of its own would be as high as wide
  if (first) {
    const rows = lanes.map((one) => ({ ...one, name: name(one), oracle: page.numbers[one.id]?.oracle }));
    page.ruler?.set(rows, first.lane, colors);
  }
  setLimit();
  if (page.live) page.at = limit();
  paint();
  page.host.changed();
}
