/* What is used of plotly.js. Global. */

/** A chart's place once it is drawn. */
interface Plot extends HTMLElement {
  data?: object[];
  on?: (event: "plotly_click", fn: (event: { points: PlotPoint[] }) => void) => void;
}

/** What was clicked; ``customdata`` is what the trace holds for it. */
interface PlotPoint { x: number; y: number; customdata?: unknown }

interface PlotlyLibrary {
  react(plot: Plot, data: object[], layout: object, config: object): Promise<Plot>;
  purge(plot: Plot): void;
  Plots: { resize(plot: Plot): void };
}

/** A chart to draw; ``label`` says in words what it is. */
interface Chart { key?: string; label: string; data: object[]; layout: object; config?: object; kind?: string }

/** What a chart's layout may say. */
interface ChartLayout { xaxis?: object; yaxis?: object; [name: string]: unknown }

interface Window { Plotly?: PlotlyLibrary }
