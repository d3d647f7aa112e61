/* Figures for papers: of a step, in the menu Share; of several runs, on the page Compare. */

import { app } from "specviz/shell/state.js";

app.shares.push((id) => {
  /** @type {(form: string) => (state: { step?: number }) => string} */
  const figure = (form) => (state) => `api/figures/step/${encodeURIComponent(id)}?form=${form}&step=${state.step || 0}`;
  const names = { "Figure of this step (PDF)": figure("pdf"), "Figure of this step (SVG)": figure("svg") };
  return { figure: figure("zip"), downloads: names };
});
app.figureOfRuns = (ids) => `api/figures/runs?runs=${ids.map(encodeURIComponent).join(",")}`;
