/* What one does with a run that is shown: share it, present it. */

import { copyLink, icon } from "specviz/base/dom.js";
import { citation } from "specviz/generated/terms.js"; // made by specviz/views/terms.py
import * as downloads from "specviz/inspect/downloads.js";
import { Held } from "specviz/ui/element.js";
import { html } from "specviz/ui/html.js";
import { Menu } from "specviz/ui/menu.js";
import { Hint } from "specviz/ui/tooltip.js";

/** @type {Record<string, string>} */
const NAMES = {
  trace: "Trace file",
  html: "Interactive page (HTML)",
};

/** The entries of the Share menu, as the run and the step are now. */
/** @type {(inspector: Inspector) => import("specviz/ui/menu.js").Item[]} */
function entries(inspector) {
  const { link, attribute, figure, downloads: urls = {} } = inspector.options.actions || {};
  /** @type {import("specviz/ui/menu.js").Item[]} */
  const items = [];
  const url = () => new URL(link === true ? inspector.address() : link?.() ?? "", location.href).href;
  const copied = async () => (await copyLink(url())) && inspector.say("The link to this step is copied.");
  if (link) items.push({ label: "Copy link to this step", act: copied });
  if (attribute) items.push({ label: "Attribute this run", act: attribute, about: "What the answer was copied from." });
  if (figure) {
    const act = () => {
      downloads.fetchFile(figure(inspector.state()));
      inspector.say("The figure is downloaded: a .zip with PDF, SVG, caption, command and BibTeX.");
    };
    items.push({ label: "Figure of this step", act, about: "For a paper: PDF and SVG, caption, command, BibTeX." });
  }
  /** @type {import("specviz/ui/menu.js").Item[][]} */
  const [named, others] = [[], []];
  for (const [key, at] of Object.entries(urls)) {
    const href = typeof at === "function" ? at(inspector.state()) : at;
    if (NAMES[key]) named.push({ label: NAMES[key], href });
    else others.push({ label: key, href });
  }
  others.push(...downloads.made(inspector));
  const cite = async () => (await copyLink(citation)) && inspector.say("The BibTeX entry of specviz is copied.");
  others.push({ label: "Cite specviz", act: cite, about: "Copies its BibTeX entry." });
  const more = { label: "More files …", items: others, about: "Tables (CSV), drawings, BibTeX." };
  return [...items, ...named, more];
}

/** Share, presenter mode; nothing where the page offers none of it. @param {{ inspector: Inspector }} props */
export function Actions({ inspector }) {
  if (inspector.options.actions === false) return null;
  /** @param {Error} problem */
  const failed = ({ message }) => inspector.say(`Download failed: ${message}`);
  const present = inspector.options.present !== false;
  return html`<div class="sv-actions">
    <${Menu} label="Share" items=${() => entries(inspector)} failed=${failed} />
    ${present && html`<${Hint} is="button" type="button" class="ui-button ui-square" aria-label="Present"
      tip="Large type and keys only, for a class (F)" onClick=${() => inspector.presenter?.toggle()}>
      <${Held} is="span" of=${icon("present")} /></${Hint}>`}
  </div>`;
}
