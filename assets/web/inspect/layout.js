/* An inspector's parts, made once and put in their places. */

import { Tooltip, button, h, icon } from "specviz/base/dom.js";
import { Presenter } from "specviz/base/present.js";
import { CandidateTable } from "specviz/inspect/candidates.js";
import * as controls from "specviz/inspect/controls.js";
import { DiffView } from "specviz/inspect/diff.js";
import { DrafterView } from "specviz/inspect/drafter.js";
import { Links } from "specviz/inspect/links.js";
import { PoolPane, TokenPane } from "specviz/inspect/pane.js";
import { PromptsView } from "specviz/inspect/prompts.js";
import { RegretView } from "specviz/inspect/regret.js";
import * as shares from "specviz/inspect/shares.js";
import * as words from "specviz/inspect/summary.js";
import { Timeline } from "specviz/inspect/timeline.js";
import { TreeView } from "specviz/inspect/tree.js";

/** Makes every part of an inspector. */
export function build(inspector) {
  inspector.root = h("div", { class: "sv", tabindex: "-1", role: "group", "aria-label": "Inspector" });
  inspector.tip = new Tooltip(inspector.root);
  inspector.heading = h("div", { class: "sv-headline" });
  inspector.metrics = h("dl", { class: "sv-metrics" });
  inspector.timeline = new Timeline(inspector);
  inspector.sentence = h("p", { class: "sv-sentence", "aria-live": "polite" });
  inspector.facts = new shares.StepFacts(inspector);
  // folded in a low window, so that the tree is in sight; its title tells the outcomes all the same
  inspector.breakdown = h("details", { class: "sv-breakdown", open: window.innerHeight >= 900 });
  inspector.breakdownTitle = h("summary", {});
  inspector.breakdownParts = h("div", { class: "sv-breakdown-parts" });
  inspector.breakdown.append(inspector.breakdownTitle, inspector.breakdownParts);
  inspector.compression = h("p", { class: "sv-compression" });
  inspector.diff = new DiffView(inspector);
  inspector.legend = h("ul", { class: "sv-legend", "aria-label": "Legend" });
  inspector.heatButton = controls.toggle(
    inspector,
    "Score heat",
    "heat",
    "Shade the places compared this step by their score",
  );
  inspector.offerButton = controls.toggle(
    inspector,
    "Losing offers",
    "offers",
    "Show what the candidates that lost would have offered (O)",
  );
  inspector.prompt = new TokenPane(inspector, "prompt", "Prompt", inspector.heatButton, inspector.offerButton);
  inspector.pinNote = h("span", { class: "sv-pin-note", hidden: true });
  inspector.output = new TokenPane(inspector, "output", "Output", inspector.pinNote);
  inspector.pool = new PoolPane(inspector);
  inspector.panes = [inspector.prompt, inspector.output, inspector.pool];
  inspector.tree = new TreeView(inspector);
  inspector.candidates = new CandidateTable(inspector);
  inspector.regret = new RegretView(inspector);
  inspector.drafter = new DrafterView(inspector);
  inspector.prompts = new PromptsView(inspector);
  inspector.links = new Links(inspector);
  inspector.message = h("p", { class: "sv-message", role: "status", hidden: true });
  const shut = { class: "sv-button sv-square sv-quiet", onclick: () => inspector.showHelp(false) };
  inspector.help = h("div", {
    class: "sv-help",
    role: "dialog",
    "aria-label": "Keyboard help",
    tabindex: "-1",
    hidden: true,
  });
  inspector.help.append(words.help(), button("Close", shut, icon("close")));
  const head = h(
    "header",
    { class: "sv-head" },
    inspector.heading,
    inspector.metrics,
    controls.actions(inspector),
    h("div", { class: "sv-run-facts" }, inspector.compression, inspector.options.strip, inspector.breakdown),
  );
  const steps = h(
    "section",
    { class: "sv-card sv-steps", "aria-label": "Steps" },
    controls.toolbar(inspector),
    inspector.timeline.element,
    inspector.sentence,
    inspector.facts.element,
    inspector.legend,
  );
  inspector.views = h(
    "div",
    { class: "sv-views" },
    h(
      "div",
      { class: "sv-grid sv-texts" },
      h("div", { class: "sv-sources" }, inspector.prompt.element, inspector.pool.element),
      inspector.output.element,
    ),
    inspector.diff.element,
    h(
      "div",
      { class: "sv-grid sv-grid-low" },
      inspector.tree.element,
      inspector.candidates.element,
      inspector.drafter.element,
      inspector.prompts.element,
    ),
    inspector.regret.element,
  );
  inspector.root.prepend(head, inspector.message, steps, inspector.views, inspector.links.layer, inspector.help);
  inspector.host.replaceChildren(inspector.root);
  inspector.zoom = 1; // of what is drawn in fixed sizes
  if (inspector.options.present !== false) {
    const hashed = !!inspector.options.actions && inspector.options.actions.link === true;
    inspector.presenter = new Presenter(inspector.root, { hashed, changed: (on) => inspector.zoomed(on) });
  }
  inspector.root.classList.add("sv-waiting");
}
