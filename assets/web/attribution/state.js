/* Page "Attribution": what it knows, and the small things its modules share. */

import { short } from "specviz/base/numbers.js";
import { tell } from "specviz/base/json.js";
import { find } from "specviz/base/dom.js";

/** How scores are counted. @type {Record<Scored, string>} */
export const MODES = { whole: "whole quotations", drafted: "drafted tokens" };

export class AttributionPage {
  /** @type {HTMLElement} */
  box = document.body; // until the page is there
  /** @type {import("specviz/attribution/view.js").Attribution | null} */
  view = null;
  /** @type {SignalCatalog | null} */
  catalog = null;
  /** The run that was opened. */
  id = "";
  /** The run that is on its way to being opened. */
  opening = "";
  /** The run whose signal is chosen in the view. */
  chosen = "";
  /** Which form is unfolded. */
  panel = "";
  /** The runs of this answer that are shown, one per method. @type {Map<string, AttributedRun>} */
  docs = new Map();
  /** Method → its run that goes on. @type {Map<string, string>} */
  waiting = new Map();
  /** Run → what happens when it is over. @type {Map<string, (event: Partial<LiveEvent>) => void>} */
  feeds = new Map();
  /** @type {EventSource | null} */
  source = null;
  /** @type {string[]} */
  notes = [];
  /** Of the run that is asked for: an answer to an older one is dropped. */
  ticket = 0;
  /** The signals to begin when the model has written the answer. @type {{ id: string, signals: string[] } | null} */
  then = null;
  /** @type {{ id: string, counted: Scored, told?: Scores } | null} */
  scoring = null;
  minRun = 2;
  minBits = 0;
  /** @type {Counted} */
  counted = "words";
  seen = false;
}

export const page = new AttributionPage();

/** @param {string} name */
export const part = (name) => find(page.box, `.sva-${name}`, HTMLElement);

/** @param {string} method */
export const titleOf = (method) => short(page.catalog?.signals.find((one) => one.name === method)?.title || method);

export const visible = () => Boolean(page.box.offsetWidth);

/** A sentence above what is shown. @type {(text: string, error?: boolean) => void} */
export const say = (text, error) => tell(part("say"), text, error);
