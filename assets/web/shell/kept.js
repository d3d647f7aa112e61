/* What the chosen method keeps of this user's runs, beside its parameters: how much, and a button that empties it. */

import { on } from "specviz/base/bus.js";
import { h } from "specviz/base/dom.js";
import { getJson, postJson, sentence } from "specviz/base/json.js";
import { amount, plural } from "specviz/base/numbers.js";
import { capital } from "specviz/base/text.js";

export class KeptState {
  constructor() {
    /** @type {MethodCard | undefined} */
    this.card = undefined;
    this.element = h("p.svf-kept.ui-row.ui-soft", { role: "status", hidden: true });
    on("runs", () => this.show(this.card)); // a run is over, perhaps
  }

  /** Asks the server what a method keeps; one that keeps nothing has no line. @param {MethodCard | undefined} card */
  async show(card) {
    this.card = card;
    this.element.hidden = !card?.keeps;
    if (!card?.keeps) return;
    try {
      this.tell(card, (await getJson("api/inspect/kept"))[card.name]);
    } catch (problem) {
      this.element.replaceChildren(sentence(problem));
    }
  }

  /** @type {(card: MethodCard, kept: KeptAmount | undefined) => void} */
  tell(card, kept) {
    if (card !== this.card) return; // another method was chosen meanwhile
    const name = capital(card.keeps);
    if (!kept) return this.element.replaceChildren(`${name}: nothing is kept of your runs.`);
    const text = `${name}: ${amount(kept.count, kept.unit)}, from ${plural(kept.runs, "run")} `;
    const label = `Empty what ${card.title} keeps of your runs`;
    const empty = h("button.svp-button", { "aria-label": label, onclick: () => this.empty(card) }, "Empty");
    this.element.replaceChildren(text, empty);
  }

  /** @param {MethodCard} card */
  async empty(card) {
    try {
      await postJson("api/inspect/empty", { method: card.name });
      await this.show(card);
    } catch (problem) {
      this.element.replaceChildren(sentence(problem));
    }
  }
}
