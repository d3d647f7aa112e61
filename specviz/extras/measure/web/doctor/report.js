/* A report of the drafter doctor: ranked findings, acceptance by position, every control with its number. */

import { plural } from "specviz/base/numbers.js";
import { capital } from "specviz/base/text.js";
import { html } from "specviz/ui/html.js";
import { Table } from "specviz/ui/table.js";

/** @typedef {import("specviz/ui/table.js").Column<DoctorControl>[]} ControlColumns */

/** @type {(value: number, digits?: number) => string} */
const signed = (value, digits = 2) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;

/** @type {Record<string, string>} */
const MARKS = { fault: "✗", doubt: "?", ok: "✓" };

/** @param {{ finding: DoctorFinding }} props */
const Finding = ({ finding: { level, cause, number, control, advice } }) => html`<li class="svdr-finding ui-box"
  data-level=${level}>
  <h4><span class="svdr-level">${level}</span> ${cause}</h4>
  <p>${number}</p>
  <p class="ui-soft">Control: ${control}</p>
  <p class="svdr-advice">${capital(advice)}.</p>
</li>`;

/** @param {{ base: DoctorControl }} props */
function Positions({ base }) {
  const rows = base.conditional.map((rate, k) => ({ place: k + 1, rate, all: base.by_position[k] }));
  /** @typedef {typeof rows[number]} Row */
  /** @type {import("specviz/ui/table.js").Column<Row>[]} */
  const columns = [
    { head: "Position", cell: ({ place }) => String(place), number: true },
    { head: "Behind the text's own tokens", cell: ({ rate }) => rate.toFixed(3), number: true,
      tip: "How often the drafted token is the text's, behind tokens that are the text's own" },
    { head: "", cell: ({ rate }) => html`<i class="ui-bar svdr-bar" aria-hidden="true">
      <b style="width:${100 * rate}%" /></i>` },
    { head: "Of all drafts", cell: ({ all }) => all.toFixed(3), number: true,
      tip: "How many drafts stand so far: vLLM's acceptance per position" },
  ];
  return html`<${Table} label="Acceptance by position" columns=${columns} rows=${rows} />`;
}

/** @param {{ controls: DoctorControl[] }} props */
function Controls({ controls }) {
  /** @type {ControlColumns} */
  const columns = [
    { head: "Cause, and what is changed", cell: ({ cause, change, tried, places }) => html`${cause}
      <small class="ui-soft">${change}${tried > 1 ? ` (the best of ${tried}, at ${places} places)` : ""}</small>` },
    { head: "Gain", cell: ({ gain, unit }) => `${signed(gain)} ${unit}`, number: true,
      tip: "nats: mean rise of the log-probability that the drafter gives to the text's tokens; β: Σ min(p, q)" },
    { head: "z", cell: ({ z }) => signed(z, 1), number: true,
      tip: "The gain ÷ its standard error over the same places" },
    { head: "Acceptance length", cell: ({ length }) => length.toFixed(2), number: true,
      tip: "1 + mean of the hits that a draft begins with" },
  ];
  return html`<${Table} label="Controls" columns=${columns} rows=${controls} />`;
}

/** @param {{ id: string, report: DoctorReport }} props */
export function Report({ id, report }) {
  const { part, model, findings, base, beta, temperature, outside, texts, places, controls, skipped } = report;
  const { state, verdict } = report;
  const address = `api/doctor/of/${encodeURIComponent(id)}/report`;
  return html`<section class="svdr-report svp-part" aria-label="Report">
    <div class="svdr-head ui-row">
      <h3>${part} beside ${model}</h3>
      <span class="svdr-state" data-state=${state} role="status">
        ${MARKS[state]} ${verdict}</span>
      <span class="svdr-files ui-line"><a class="svp-button" href="${address}?format=html" download>Report: HTML</a>
        <a class="svp-button" href="${address}?format=json" download>JSON</a></span>
    </div>
    <p>${plural(places, "place")} of ${plural(texts, "greedy answer")} of the target itself. Acceptance length${" "}
      <b>${base.length.toFixed(2)}</b> = 1 + mean of the hits that a draft begins with; β <b>${beta.toFixed(3)}</b> =
      mean of Σ min(p, q) at the first position, temperature ${temperature}; ${(100 * outside).toFixed(1)} % of the
      text's tokens cannot be drafted.</p>
    <h4>Findings</h4>
    ${findings.length ? html`<ol class="ui-stack">
        ${findings.map((one) => html`<${Finding} finding=${one} />`)}</ol>`
      : html`<p>Nothing that was changed made it accept more.</p>`}
    <h4>Acceptance by position</h4>
    <${Positions} base=${base} />
    <h4>Controls</h4>
    <p class="ui-soft">The same drafter with one thing changed. A gain says that the change is right and
      the setup wrong: it is a fault from 0.1 nats on, at z ≥ 4.</p>
    <${Controls} controls=${controls} />
    ${skipped.length > 0 && html`<h4>Not examined</h4>
      <ul class="ui-soft">${skipped.map((why) => html`<li>${capital(why)}.</li>`)}</ul>`}
  </section>`;
}
