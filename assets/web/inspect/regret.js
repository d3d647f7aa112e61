/* Ranking regret over a run: the steps where the ranking chose badly, by how much, the worst first. */

import { format, plural } from "specviz/base/numbers.js";
import { explain } from "specviz/base/terms.js";
import { Hint } from "specviz/ui/tooltip.js";
import { Table } from "specviz/ui/table.js";
import { html, useState } from "specviz/ui/html.js";

const FIRST = 12; // rows shown before the rest is asked for
const KEY = "ranking_regret";

/** The steps that lost tokens by their ranking; nothing where no ranking was recorded, or the run goes on. */
/** @param {{ inspector: Inspector }} props */
export function Regrets({ inspector }) {
  const [whole, setWhole] = useState(/** @type {Model | null} */ (null)); // the run whose rows are all wanted
  inspector.version.value; // drawn anew where the run has grown, or is another one
  const { model } = inspector;
  if (!model) return null;
  const { value, regret, ranked } = model.metric(KEY);
  if (!model.run.complete || !ranked) return null;
  const worst = model.report?.regrets ?? [];
  const shown = whole === model ? worst : worst.slice(0, FIRST);
  const left = worst.length - shown.length;
  /** @param {Regret} one */
  const go = ({ step }) => {
    inspector.pause();
    inspector.setStep(step);
    if (["why", "details"].includes(inspector.tabs.at.peek())) inspector.tabs.open("candidates"); // where it is ranked
  };
  /** @param {Regret} one */
  const after = ({ step }) =>
    html`<code class="sv-token">${model.pieces.label(model.id(model.steps.context[step] - 1), 14)}</code>`;
  /** @param {Regret} one */
  const bar = ({ tokens }) =>
    html`<span class="sv-lost"><i style="width:${(100 * tokens) / worst[0].tokens}%" /></span><b>${tokens}</b>`;
  /** @type {import("specviz/ui/table.js").Column<Regret>[]} */
  const columns = [
    { head: "Step", cell: ({ step }) => `Step ${step + 1}` },
    { head: "Copied after", cell: after },
    { head: "The chosen place accepts", cell: ({ chosen }) => chosen, number: true },
    { head: "The best would have", cell: ({ best }) => best, number: true },
    { head: "Tokens lost", cell: bar, number: true },
  ];
  const where = `${plural(regret ?? 0, "token")} at ${worst.length} of ${plural(ranked, "step")}`;
  const said = worst.length ? `${format(value, 2)} tokens per ranked step · ${where}` : "0";
  return html`<section class="sv-card sv-regrets" aria-label="Ranking regret">
    <header class="sv-bar">
      <h3 class="sv-heading">Ranking regret</h3>
      <${Hint} class="sv-note ui-soft ui-clip" tip=${() => explain(inspector, KEY)}>${said}</${Hint}>
    </header>
    <${Table} label="Steps by ranking regret, the worst first" class="sv-regret-table" columns=${columns} rows=${shown}
      pick=${go} current=${(/** @type {Regret} */ { step }) => step === inspector.at.value}
      empty="At no step would another place have accepted more." />
    ${left > 0 && html`<button type="button" class="ui-button" onClick=${() => setWhole(model)}>
      Show ${plural(left, "more step")}</button>`}
  </section>`;
}
