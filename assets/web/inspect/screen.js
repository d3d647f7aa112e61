/* Where an inspector's parts stand: numbers, steps, then the text beside one panel, and views of the whole run. */

import { button, h, icon } from "specviz/base/dom.js";
import { Actions } from "specviz/inspect/actions.js";
import * as controls from "specviz/inspect/controls.js";
import { Regrets } from "specviz/inspect/regret.js";
import * as words from "specviz/inspect/summary.js";
import { Why } from "specviz/inspect/why.js";
import { Held } from "specviz/ui/element.js";
import { Split } from "specviz/ui/split.js";
import { Tabs } from "specviz/ui/tabs.js";
import { Tips } from "specviz/ui/tooltip.js";
import { html, render } from "specviz/ui/html.js";

/**
 * Puts every part of an inspector in its place. Without details (in a lesson) the step's facts stand under the
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
  render(tips(html`<${Held} of=${inspector.diff.element} />`), whole);
  const regrets = h("div.ui-stack");
  (options.drawer === false ? whole : inspector.details.regrets).append(regrets); // Inspect's page never scrolls
  render(tips(html`<${Regrets} inspector=${inspector} />`), regrets);
  return help;
}

/** All but what is told of the whole run. */
/** @param {{ inspector: Inspector, tools: ReturnType<typeof controls.toolbar> }} props */
function Screen({ inspector, tools }) {
  const { details, options, pool, text, timeline, tree } = inspector;
  const drawn = options.drawer !== false;
  const resized = () => inspector.model && inspector.resized();
  const panels = html`<${Panels} inspector=${inspector} />`;
  const texts = html`<${Held} class="sv-texts ui-stack" of=${[text.element, pool.element]} />`;
  const drafts = drawn ? panels : html`<${Split} name="drafts" label="Height of the draft tree" down=${true}
    share=${54} moved=${resized} first=${html`<${Held} class="sv-held" of=${tree.element} />`} second=${panels} />`;
  const below = drawn ? [] : [inspector.sentence, details.facts.element];
  const head = html`<header class="sv-head ui-row">
      <${Held} class="sv-headline" of=${inspector.heading} />
      <${Held} class="sv-numbers" of=${inspector.metrics} />
      ${!options.bar && html`<${Actions} inspector=${inspector} />`}
      <${Held} class="sv-run-facts" of=${[!drawn && details.compression, options.strip]} />
    </header>`;
  return html`
    ${!options.bar && head}
    <${Held} class="sv-said" of=${inspector.message} />
    <section class="sv-card sv-steps" aria-label="Steps">
      <div class="sv-step-row">
        ${options.bar && head}
        <${Held} class="sv-step-parts" of=${[tools.first, timeline.element, tools.last]} />
      </div>
      <${Held} class="sv-step-more" of=${[tools.more, inspector.legend, ...below]} />
    </section>
    <div class="sv-views">
      <${Split} name="canvas" label="Width of the text" share=${55} least=${25} moved=${resized}
        first=${texts} second=${drafts} />
    </div>`;
}

/** The panels beside the text, one in sight. @param {{ inspector: Inspector }} props */
function Panels({ inspector }) {
  const { options, tabs } = inspector;
  const drawn = options.drawer !== false;
  const at = tabs.at.value;
  const drawing = inspector.tree.element;
  const lent = tabs.all.value.some(({ name, tree }) => tree && name === at);
  const all = tabs.all.value.map(({ name, label, element, off, look, forms, form, tree, below }) => {
    const shown = element === drawing && lent ? [] : element; // another tab has it for now
    const choice = forms && forms.length > 1 && html`<${Forms} tabs=${tabs} forms=${forms} form=${form} />`;
    const panel = !element ? html`<${Why} inspector=${inspector} />` : html`${choice}
      <${Held} class=${below ? "sv-held sv-short" : "sv-held"} of=${shown} />
      ${tree && name === at && html`<${Held} class="sv-held sv-with-tree" of=${drawing} />`}
      ${below && html`<${Held} of=${below} />`}`;
    return { name, label, off, class: look, panel };
  });
  const choose = (/** @type {string} */ name) => {
    tabs.open(name);
    if (!drawn) return;
    inspector.root.querySelector(".sv-lower")?.scrollIntoView({ block: "nearest" }); // it may lie below the text
    if (inspector.model?.stepCount) inspector.scroll(inspector.model.step(inspector.number));
  };
  return html`<section class="sv-card sv-lower" aria-label="Panels">
    <${Tabs} label="Panels" tabs=${all} at=${at} choose=${choose} />
  </section>`;
}

/** The forms of a tab. */
/** @param {{ tabs: import("specviz/inspect/panel_tabs.js").PanelTabs, forms: PanelTab[], form?: string }} props */
const Forms = ({ tabs, forms, form }) => html`<div class="sv-forms"><div class="ui-seg" role="group" aria-label="Form">
  ${forms.map(({ name, label }) => html`<button type="button" key=${name} aria-pressed=${String(name === form)}
    onClick=${() => tabs.open(name)}>${label}</button>`)}</div></div>`;
