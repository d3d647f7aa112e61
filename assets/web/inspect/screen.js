/* Where an inspector's parts stand: numbers, steps, then the texts beside the draft, and views of the whole run. */

import { button, h, icon } from "specviz/base/dom.js";
import { Actions } from "specviz/inspect/actions.js";
import * as controls from "specviz/inspect/controls.js";
import { Regrets } from "specviz/inspect/regret.js";
import { TokenTab } from "specviz/inspect/token_tab.js";
import * as words from "specviz/inspect/summary.js";
import { Held } from "specviz/ui/element.js";
import { Split } from "specviz/ui/split.js";
import { Tabs } from "specviz/ui/tabs.js";
import { Tips } from "specviz/ui/tooltip.js";
import { html, render } from "specviz/ui/html.js";

/**
 * Puts every part of an inspector in its place. Without a drawer (in a lesson) the step's facts stand under the
 * sentence, and nothing is fitted to the window. Returns the help, which the keys open.
 *
 * @param {Inspector} inspector
 */
export function arrange(inspector) {
  const { root, options } = inspector;
  const help = h(
    "div.sv-help",
    { role: "dialog", "aria-label": "Keyboard help", tabindex: "-1", hidden: true },
    words.help(),
    button("Close", { class: "sv-square sv-quiet", onclick: () => inspector.showHelp(false) }, icon("close")),
  );
  const screen = h("div.sv-screen.ui-stack");
  const whole = h("div.sv-whole.ui-stack");
  root.classList.toggle("sv-fit", options.drawer !== false);
  root.classList.toggle("sv-barred", !!options.bar);
  root.prepend(screen, whole, inspector.links.layer, help);
  inspector.host.replaceChildren(root);
  const tips = (/** @type {import("preact").Drawn} */ inside) =>
    html`<${Tips.Provider} value=${inspector.tip}>${inside}</${Tips.Provider}>`;
  render(tips(html`<${Screen} inspector=${inspector} tools=${controls.toolbar(inspector)} />`), screen);
  render(tips(html`<${Held} of=${inspector.diff.element} /><${Regrets} inspector=${inspector} />`), whole);
  return help;
}

/** All but what is told of the whole run. @param {{ inspector: Inspector, tools: HTMLElement }} props */
function Screen({ inspector, tools }) {
  const { drawer, options, output, pool, prompt, timeline, tree } = inspector;
  const drawn = options.drawer !== false;
  const resized = () => inspector.model && inspector.resized();
  const sources = html`<${Held} class="sv-sources ui-stack" of=${[prompt.element, pool.element]} />`;
  const texts = html`<${Split} name="texts" class="sv-texts" label="Height of the output" down=${true} share=${42}
    moved=${resized} first=${html`<${Held} class="sv-held" of=${output.element} />`} second=${sources} />`;
  const lower = html`<${Lower} inspector=${inspector} />`;
  const drafts = html`<${Split} name="drafts" label="Height of the draft tree" down=${true}
    share=${54} moved=${resized} first=${html`<${Held} class="sv-held" of=${tree.element} />`} second=${lower} />`;
  const steps = [tools, timeline.element, inspector.legend, inspector.sentence, !drawn && drawer.facts.element];
  return html`
    <header class="sv-head ui-row">
      <${Held} class="sv-headline" of=${inspector.heading} />
      <${Held} class="sv-numbers" of=${inspector.metrics} />
      ${!options.bar && html`<${Actions} inspector=${inspector} />`}
      <${Held} class="sv-run-facts" of=${[!drawn && drawer.compression, options.strip]} />
    </header>
    <${Held} class="sv-said" of=${inspector.message} />
    <${Held} is="section" class="sv-card sv-steps" aria-label="Steps" of=${steps} />
    <div class="sv-views">
      <${Split} name="views" label="Width of the texts" share=${42} moved=${resized} first=${texts} second=${drafts} />
    </div>
    ${drawn && html`<${Held} class="sv-aside" of=${drawer.element} />`}`;
}

/** The panels below the tree, one in sight. @param {{ inspector: Inspector }} props */
function Lower({ inspector }) {
  const tabs = inspector.tabs.all.value.map(({ name, label, element, off, look }) => ({
    name, label, off, class: look,
    panel: element ? html`<${Held} class="sv-held" of=${element} />` : html`<${TokenTab} inspector=${inspector} />`,
  }));
  return html`<section class="sv-card sv-lower" aria-label="Panels">
    <${Tabs} label="Panels" tabs=${tabs} at=${inspector.tabs.at.value}
      choose=${(/** @type {string} */ name) => inspector.tabs.open(name)} />
  </section>`;
}
