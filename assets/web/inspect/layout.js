/* Where an inspector's parts stand. */

import { button, h, icon } from "specviz/base/dom.js";
import * as controls from "specviz/inspect/controls.js";
import * as words from "specviz/inspect/summary.js";

/** Puts every part of an inspector in its place. @param {Inspector} inspector */
export function arrange(inspector) {
  const { candidates, diff, drafter, options, output, pool, prompt, prompts, regret, tree } = inspector;
  // folded in a low window, so that the tree is in sight; its title tells the outcomes all the same
  const breakdown = h(
    "details.sv-breakdown",
    { open: window.innerHeight >= 900 },
    inspector.breakdownTitle,
    inspector.breakdownParts,
  );
  const help = h(
    "div.sv-help",
    { role: "dialog", "aria-label": "Keyboard help", tabindex: "-1", hidden: true },
    words.help(),
    button("Close", { class: "sv-square sv-quiet", onclick: () => inspector.showHelp(false) }, icon("close")),
  );
  const head = h(
    "header.sv-head",
    inspector.heading,
    inspector.metrics,
    controls.actions(inspector),
    h("div.sv-run-facts", inspector.compression, options.strip, breakdown),
  );
  const steps = h(
    "section.sv-card.sv-steps",
    { "aria-label": "Steps" },
    controls.toolbar(inspector),
    inspector.timeline.element,
    inspector.timeline.note,
    inspector.sentence,
    inspector.facts.element,
    inspector.legend,
  );
  const lower = [tree, candidates, drafter, prompts].map((panel) => panel.element);
  const views = h(
    "div.sv-views",
    h("div.sv-grid.sv-texts", h("div.sv-sources", prompt.element, pool.element), output.element),
    diff.element,
    h("div.sv-grid.sv-grid-low", lower),
    regret.element,
  );
  inspector.root.prepend(head, inspector.message, steps, views, inspector.links.layer, help);
  inspector.host.replaceChildren(inspector.root);
  return { breakdown, help };
}
