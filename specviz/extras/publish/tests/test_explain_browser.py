"""The sentences of ``specviz explain`` are those of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specviz.extras.publish.explain.sentences import sentences_of
from tests import recordings
from tests.stubs import StubDesk
from tests.waiting import becomes

RUNS = (
    recordings.chain(), recordings.tree(), recordings.casd(), recordings.glide(), recordings.ppd(), recordings.nasty(),
    recordings.gallery_run("lighthouse-story-eagle3"),
)  # fmt: skip


@pytest.fixture(scope="module")
def desk(module_home: Path) -> StubDesk:
    return StubDesk(gallery=RUNS)


@pytest.mark.slow("seven runs on the page")
def test_every_step_is_worded_as_on_the_page(page: Any, port: int, desk: StubDesk) -> None:
    for number, trace in enumerate(RUNS):
        page.goto(f"http://127.0.0.1:{port}/?trace=gallery-{number}")
        becomes(page, lambda number=number: page.evaluate("specviz.app.shown"), f"gallery-{number}")
        steps = range(0, trace.rows("steps"), max(1, trace.rows("steps") // 12))
        shown = page.evaluate(
            """steps => steps.map((step) => {
              specviz.inspector.setStep(step);
              return specviz.inspector.sentence.textContent;
            })""",
            [*steps],
        )
        worded = ["".join(text for text, _ in told.words) for told in sentences_of(trace, steps)]
        assert worded == shown, trace.run["method"]["name"]
