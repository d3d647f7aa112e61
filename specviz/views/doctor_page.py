"""The drafter doctor's report as one HTML page: no script, no request, and every text in it is data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from decoders.errors import capital

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
STYLE = """
:root { color-scheme: light dark; --ink: #1b2430; --soft: #5b6673; --line: #d5dbe2; --paper: #ffffff; --back: #f6f7f9;
  --bad: #b3261e; --good: #1a7f4b; --bar: #3b6fd4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ef; --soft: #9aa6b3; --line: #303a46; --paper: #171d25;
  --back: #0f1318; --bad: #ff8a80; --good: #6fd39b; --bar: #7ea6f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 20px 16px 40px; max-width: 920px; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 28px 0 8px; }
p { margin: 4px 0; }
.soft { color: var(--soft); }
.state { display: inline-block; margin: 10px 0 0; padding: 3px 10px; border: 1px solid; border-radius: 99px;
  font-weight: 600; }
.state.bad, .level.fault { color: var(--bad); }
.state.good { color: var(--good); }
ol { margin: 0; padding: 0; list-style: none; }
li { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px;
  margin: 0 0 10px; }
li h3 { margin: 0; font-size: 1rem; }
.level { text-transform: uppercase; font-size: .75rem; font-weight: 700; letter-spacing: .04em; color: var(--soft);
  margin-right: 8px; }
.advice { margin-top: 8px; font-weight: 600; }
.wide { overflow-x: auto; background: var(--paper); border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: 6px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th { color: var(--soft); font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
.bar { width: 160px; height: 8px; border-radius: 4px; background: var(--line); }
.bar i { display: block; height: 100%; border-radius: 4px; background: var(--bar); }
@media (max-width: 600px) { th, td { padding: 6px 8px; } .drawn { display: none; } }
"""
UNITS = {"nats": "the log-probability that the drafter gives to the text's tokens", "β": "Σ min(p, q)"}


def doctor_page(report: Mapping[str, Any]) -> str:
    """The page of a report (``decoders.study.doctor.doctor.Report.to_json``)."""
    title = f"{report['part']} beside {report['model']}"
    faults = sum(one["level"] == "fault" for one in report["findings"])
    state = f"{faults} fault{'s' if faults > 1 else ''} found" if faults else "no fault found"
    base = report["base"]
    about = (
        f"{report['places']} places of {report['texts']} greedy answers of the target itself. Acceptance length "
        f"{base['length']:.2f} = 1 + mean of the hits that a draft begins with; β {report['beta']:.3f} = mean of Σ "
        f"min(p, q) at the first position, temperature {report['temperature']:g}; {report['outside']:.1%} of the "
        "text's tokens cannot be drafted."
    )
    body = [
        f"<h1>{escape(title)}</h1>", '<p class="soft">Drafter doctor: teacher-forced acceptance, with controls</p>',
        f'<p class="state {"bad" if faults else "good"}">{state}</p>', f"<p>{escape(about)}</p>",
        "<h2>Findings</h2>", _findings(report["findings"]),
        "<h2>Acceptance by position</h2>", _positions(base),
        "<h2>Controls</h2>",
        '<p class="soft">The same drafter with one thing changed. A gain says that the change is right and the setup '
        "wrong: it is a fault from 0.1 nats on, at z ≥ 4.</p>",
        _controls(report["controls"]),
    ]  # fmt: skip
    if report["skipped"]:
        body += ["<h2>Not examined</h2>", *(f"<p>{escape(why)}</p>" for why in report["skipped"])]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)} · specviz</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def _findings(findings: Sequence[Mapping[str, Any]]) -> str:
    if not findings:
        return "<p>None: with every control the drafter is as good as it is, or worse.</p>"
    items = (
        f'<li><h3><span class="level {escape(one["level"])}">{escape(one["level"])}</span>{escape(one["cause"])}</h3>'
        f'<p>{escape(one["number"])}</p><p class="soft">Control: {escape(one["control"])}</p>'
        f'<p class="advice">{escape(capital(one["advice"]))}.</p></li>'
        for one in findings
    )
    return f"<ol>{''.join(items)}</ol>"


def _positions(base: Mapping[str, Any]) -> str:
    rows = (
        f'<tr><td class="number">{place}</td><td class="number">{behind:.3f}</td>'
        f'<td class="drawn"><div class="bar"><i style="width: {behind:.1%}"></i></div></td>'
        f'<td class="number">{of_all:.3f}</td></tr>'
        for place, (behind, of_all) in enumerate(zip(base["conditional"], base["by_position"], strict=True), 1)
    )
    heads = (
        '<tr><th class="number">position</th><th class="number">behind the text’s own tokens</th>'
        '<th class="drawn"></th><th class="number">of all drafts (vLLM’s)</th></tr>'
    )
    return f'<div class="wide" tabindex="0"><table><thead>{heads}</thead><tbody>{"".join(rows)}</tbody></table></div>'


def _controls(controls: Sequence[Mapping[str, Any]]) -> str:
    rows = (
        f'<tr><td>{escape(one["cause"])}<div class="soft">{escape(one["change"])}</div></td>'
        f'<td class="number">{one["gain"]:+.2f} {escape(one["unit"])}</td><td class="number">{one["z"]:+.1f}</td>'
        f'<td class="number">{one["length"]:.2f}</td></tr>'
        for one in controls
    )
    heads = (
        '<tr><th>cause, and what is changed</th><th class="number">gain</th><th class="number">z</th>'
        '<th class="number">acceptance length</th></tr>'
    )
    units = "; ".join(f"{unit}: {words}" for unit, words in UNITS.items() if any(o["unit"] == unit for o in controls))
    table = f'<div class="wide" tabindex="0"><table><thead>{heads}</thead><tbody>{"".join(rows)}</tbody></table></div>'
    return f'{table}<p class="soft">{escape(units)}</p>'
