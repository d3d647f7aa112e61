"""The drafter doctor's report as one HTML page (``doctor.html``): no script, no request, every text in it is data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment

from decoders.errors import capital
from specviz.views.export import page

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
UNITS = {"nats": "the log-probability that the drafter gives to the text's tokens", "β": "Σ min(p, q)"}


def doctor_page(report: Mapping[str, Any]) -> str:
    """The page of a report (``specviz.extras.measure.doctor.doctor.Report.to_json``)."""
    markup = Environment(autoescape=True)
    markup.filters["capital"] = capital
    template = markup.from_string(Path(__file__).with_name("doctor.html").read_text(encoding="utf-8"))
    title = f"{report['part']} beside {report['model']} · specviz"
    return page(title, "", template.render(report, units=UNITS.items()), POLICY)
