/* Where an inspector's parts stand. */

import { button, h, icon } from "specviz/base/dom.js";
import * as controls from "specviz/inspect/controls.js";
import { Regrets } from "specviz/inspect/regret.js";
import * as words from "specviz/inspect/summary.js";
import { html, render } from "specviz/ui/html.js";
import { Tips } from "specviz/ui/tooltip.js";

/**
 * Puts every part of an inspector in its place: a step's sentence, timeline, texts, tree and candidates on one screen,
 * what is told of the whole run below it, everything else in the drawer. Without a drawer (in a lesson) the legend and
 * the step's facts stand under the sentence, and nothing is fitted to the window.
 *
 * @param {Inspector} inspector
 */
export function arrange(inspector) {
  const { candidates, diff, drawer, drafter, options, output, pool, prompt, prompts, tree } = inspector;
  const drawn = options.drawer !== false;
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
    controls.actions(inspector, drawn ? drawer.button : null),
    h("div.sv-run-facts", !drawn && drawer.compression, options.strip),
  );
  const steps = h(
    "section.sv-card.sv-steps",
    { "aria-label": "Steps" },
    controls.toolbar(inspector),
    inspector.timeline.element,
    inspector.timeline.note,
    inspector.sentence,
    !drawn && [drawer.facts.element, inspector.legend],
  );
  const lower = [tree, candidates, drafter, prompts].map((panel) => panel.element);
  const views = h(
    "div.sv-views",
    h("div.sv-grid.sv-texts", h("div.sv-sources", prompt.element, pool.element), output.element),
    h("div.sv-grid.sv-grid-low", lower),
  );
  const whole = h("div.sv-whole");
  const regrets = html`<${Regrets} inspector=${inspector} />`;
  render(html`<${Tips.Provider} value=${inspector.tip}>${regrets}</${Tips.Provider}>`, whole);
  const below = h("div.sv-views.sv-below", diff.element, whole);
  const screen = h("div.sv-screen", head, inspector.message, steps, views, drawn && drawer.element);
  inspector.root.classList.toggle("sv-fit", drawn);
  inspector.root.prepend(screen, below, inspector.links.layer, help);
  inspector.host.replaceChildren(inspector.root);
  return help;
}
