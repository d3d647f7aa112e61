"""The Lab's drafter doctor can be read by all (axe): its form, an examination and a report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specviz.extras.measure.doctor.controls import ControlOutcome
from specviz.extras.measure.doctor.doctor import Finding, Report
from tests.browser.test_access import axe, faults_of, looked_at  # noqa: F401
from tests.browser.views import answer_with, at

CURVE = {"points": [[100_000, 0.2], [200_000, 0.25]], "doubling": 0.05, "low": -0.21, "high": 0.31}


def doctor_page(report: Report | None, drawn: str) -> Callable[[Any], None]:
    """The doctor's page while a part is examined, or with its report."""
    card = {
        "id": "seen", "title": "EAGLE head (shipped)", "model": "specviz-demo", "total": 14, "done": 3, "error": "",
        "state": "done" if report else "running", "words": "layer 4 of 6", "faults": 1,
    }  # fmt: skip
    catalog = {
        "model": "specviz-demo", "reason": "", "sets": {"examples": "The examples"}, "examinations": [card, card],
        "parts": [{"id": "shipped:eagle", "title": "EAGLE head", "kind": "eagle", "own": False, "curve": CURVE}],
    }  # fmt: skip
    answers = {"api/doctor": catalog, "api/doctor/of/seen": {**card, "report": report and report.to_json()}}
    return answer_with(at("tab=lab&lab=doctor", drawn), answers)


def doctor_report() -> Report:
    """A report with a fault, a change that helps, and numbers below zero."""
    rates = ([0.62, 0.4, 0.21], [0.62, 0.25, 0.05])
    base = ControlOutcome("as it is", "nothing", 1.9, *rates, 0.0, 0.0)
    better = ControlOutcome("hidden states of layer 4", "of 6", 2.4, *rates, 0.51, 9.3)
    fault = Finding("fault", "hidden states of another layer", "+0.51 nats at 240 places (z 9.3)", "layer 4 of 6",
                    "train the part on layer 4, or name the layer that it was trained on", 0.51)  # fmt: skip
    return Report("specviz-demo", "EAGLE head", 12, 240, 1.0, base, 0.58, 0.03, [better], [fault], ["text: no chat"])


VIEWS: dict[str, Callable[[Any], None]] = {
    "form": at("tab=lab&lab=doctor", ".svp-doctor[data-ready] .svdr-form"),
    "at work": doctor_page(None, ".svdr-progress"),
    "report": doctor_page(doctor_report(), ".svdr-finding"),
}


@pytest.mark.matrix("every view in both themes and five sizes: ten seconds each, a minute on a busy machine")
@pytest.mark.parametrize("name", VIEWS)
def test_every_view_can_be_read_by_all(page: Any, looked_at: int, axe: str, name: str) -> None:
    assert faults_of(VIEWS[name], page, looked_at, axe, [*VIEWS].index(name)) == []
