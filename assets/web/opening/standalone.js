/* The entry of a run's own page: the inspector, and the run's race against plain decoding. */

import { h } from "specviz/base/dom.js";
import { BASELINE } from "specviz/base/methods.js";
import { inspector } from "specviz/inspect/standalone.js";
import { RaceCard } from "specviz/opening/card.js";
import { lanes } from "specviz/opening/race.js";

export { inspector };

/** Plain decoding of the prompt, where the page has it. @type {() => Promise<Trace | null>} */
let plain = async () => null;
/** @type {RaceCard | null} */
let shown = null;

/** Where the plain run is read that is raced against. @param {typeof plain} read */
export const raceAgainst = (read) => (plain = read);

class OwnRace extends RaceCard {
  /** @param {boolean} goes */
  ask(goes) {
    super.ask(goes);
    this.buttons.replaceChildren(h("button.ui-button", { onclick: play }, "↻ Race again"));
  }
}

async function play() {
  const read = await plain().catch(() => null);
  shown?.close();
  shown = new OwnRace(lanes(inspector.model.trace, read), inspector.host);
  shown.start();
}

const { run, stepCount } = inspector.model;
if (run.complete && stepCount && run.method.name !== BASELINE && !run.unknown?.length) {
  const title = "Plain decoding against this run, in five seconds";
  const button = h("button.ui-button", { onclick: play, title }, "▶ Race");
  inspector.root.querySelector(".sv-actions")?.prepend(button);
}
