"""The page "Trees": what it is told with and without a model, prompt tokens and a measurement, and how it measures."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from decoders.parts import own_place
from decoders.prompt_tokens.design import compare_sizes, design, trees_for
from decoders.prompt_tokens.latency import Latency, Setup, save_latency
from decoders.prompt_tokens.trees import FILE, save_trees
from specviz.server.limits import rules_for
from specviz.shell.frame import tab_titles
from tests.drafts import save_tiny_part
from tests.models import tiny_target
from tests.stubs import StubDesk, app_of, at_work, start_desk
from tests.test_pages import tabs
from tests.waiting import WAIT_S, until

TABLE = ((0.6, 0.15, 0.05), (0.4, 0.1, 0.05), (0.2, 0.1, 0.05))
ROWS = (1, 8, 32, 64)


pytestmark = pytest.mark.usefixtures("home")


def latency_of(target: Any, ms: tuple[float, ...] = (5.0, 6.0, 9.0, 14.0), spread: float = 0.01) -> Latency:
    low, high = tuple(x * (1 - spread) for x in ms), tuple(x * (1 + spread) for x in ms)
    return Latency(Setup.of(target), target.name, 256, ROWS, ms, low, high, 15)


class Tiny:
    """A tiny target with prompt tokens, their measured trees, and a latency."""

    def __init__(self) -> None:
        self.target = tiny_target("llama")
        self.part = save_tiny_part(self.target, "ppd")
        self.latency = latency_of(self.target)
        save_trees(design(TABLE, 16), self.part / FILE)
        save_latency(self.latency)


@pytest.fixture
def tiny(home: Path) -> Tiny:
    return Tiny()


def desk_of(load: Callable[[], Any] | None) -> StubDesk:
    return start_desk(StubDesk(load=load))


@pytest.fixture
def stub() -> Iterator[StubDesk]:
    with at_work(StubDesk()) as desk:
        yield desk


def test_all_sizes_and_budgets_are_those_of_the_design(tiny: Tiny) -> None:
    shown = desk_of(lambda: tiny.target).services["trees"].show()
    assert json.loads(json.dumps(shown))["m"] == 3 and list(shown["budgets"]) == [1, 2, 3]
    assert shown["measured"] and "specviz tree design" in shown["source"] and not shown["problem"]
    for m, budget in shown["budgets"].items():
        sizes = [point["size"] for point in budget["points"]]
        for point, known in zip(budget["points"], compare_sizes(TABLE[:m], sizes, 1, tiny.latency), strict=True):
            assert {**known.to_json(), "states": known.trees.to_json()["states"]} == {
                key: value for key, value in point.items() if key != "transitions"
            }
        worth = {point["size"]: point["tokens_per_ms"] for point in budget["points"]}
        assert worth[budget["best"]] == max(worth.values()) and budget["chosen"] == budget["best"]
    assert 16 in sizes  # the kept trees' size is among them
    used = trees_for(tiny.part, 3, None, tiny.latency)
    assert shown["in_use"] == {"rows": used.size, "tokens_per_step": used.tokens_per_step}
    assert shown["latency"]["note"] == "" and shown["measuring"] is None


def test_a_disturbed_measurement_says_so(tiny: Tiny) -> None:
    save_latency(latency_of(tiny.target, spread=0.4))
    assert "something else was running" in desk_of(lambda: tiny.target).services["trees"].show()["latency"]["note"]


def test_without_a_latency_the_kept_trees_are_shown(tiny: Tiny) -> None:
    for file in (own_place("ppd", tiny.target.key).parents[2] / "latency").iterdir():
        file.unlink()
    shown = desk_of(lambda: tiny.target).services["trees"].show()
    assert shown["latency"] is None and shown["budgets"][3]["best"] is None and shown["budgets"][3]["chosen"] == 16
    assert all(point["ms"] is None for point in shown["budgets"][3]["points"]) and shown["in_use"]["rows"] == 16


def test_without_prompt_tokens_the_acceptance_is_assumed_and_named_so() -> None:
    shown = desk_of(StubDesk().loader._load).services["trees"].show()
    assert not shown["measured"] and shown["source"].startswith("assumed") and shown["in_use"] is None
    assert "no set of prompt tokens" in shown["missing"] and shown["budgets"][3]["chosen"] == 24


def test_prompt_tokens_without_a_measured_table_say_how_to_measure(tiny: Tiny) -> None:
    (tiny.part / FILE).unlink()
    shown = desk_of(lambda: tiny.target).services["trees"].show()
    assert not shown["measured"] and "`specviz tree design` measures it" in shown["source"] and shown["trained"]


@pytest.mark.parametrize(("file", "said"), [("{", "no usable tree file"), ("small", "have 1 of 3 prompt tokens")])
def test_a_tree_file_that_does_not_fit_is_told(tiny: Tiny, file: str, said: str) -> None:
    if file == "small":
        save_trees(design(TABLE[:1], 8), tiny.part / FILE)
    else:
        (tiny.part / FILE).write_text(file)
    shown = desk_of(lambda: tiny.target).services["trees"].show()
    assert said in shown["problem"] and not shown["measured"] and len(shown["budgets"]) == 3


def test_a_table_without_an_accepted_guess_draws_nothing(tiny: Tiny) -> None:
    trees = design(TABLE, 16)
    none = replace(trees, acceptance=((0.0, 0.0, 0.0), *TABLE[1:]))
    save_trees(none, tiny.part / FILE)
    shown = desk_of(lambda: tiny.target).services["trees"].show()
    assert "No guess at distance 1 was ever accepted" in shown["problem"] and shown["budgets"] == {}


def test_many_vectors_need_larger_trees(home: Path) -> None:
    target = tiny_target("llama")
    save_tiny_part(target, "ppd", vectors=30)
    points = desk_of(lambda: target).services["trees"].show()["budgets"][3]["points"]
    assert [points[0]["size"], points[-1]["size"]] == [92, 184]


def test_the_routes_answer_without_a_model() -> None:
    desk = StubDesk(load=None)
    with TestClient(app_of(desk)) as client:
        shown = client.get("/api/trees").json()
        assert shown["reason"] == "Opened for viewing only." and shown["budgets"]["3"]["points"]
        assert shown["plotly"].startswith("web/plotly.")
        answer = client.post("/api/trees/measure", json={})
        assert (answer.status_code, answer.json()) == (422, {"error": "Opened for viewing only.", "place": "model"})
        assert client.post("/api/trees/measure", content="{}").status_code == 422  # another site's form
        assert client.get("/api/trees/latency").json() == {"latency": None, "measuring": None, "failed": ""}


def test_a_public_server_measures_nothing() -> None:
    desk = StubDesk()
    desk.keep_to(rules_for(public=True, accounts=False))
    with TestClient(app_of(desk)) as client:
        assert client.post("/api/trees/measure", json={}).status_code == 403


def finish(desk: StubDesk) -> dict[str, Any]:
    until(lambda: desk.services["trees"].latency()["measuring"] is None, "the measurement is over")
    return desk.services["trees"].latency()


def test_a_measurement_gives_way_to_a_run_and_begins_again(stub: StubDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    began, order, go = threading.Event(), [], threading.Event()

    def measure(target: Any, most: int, *, refresh: bool, progress: Callable[[int, int], None]) -> Latency:
        order.append("measure")
        began.set()
        assert go.wait(WAIT_S) and refresh and most == 64
        progress(1, 51)
        order.append("measured")
        save_latency(latency_of(target))
        return latency_of(target)

    def build(_: threading.Event) -> Any:
        order.append("run")
        raise ValueError("not this time")

    monkeypatch.setattr("decoders.study.measure.latency.latency_for", measure)
    assert stub.services["trees"].measure()["measuring"] == {"done": 0, "total": 1}
    assert stub.services["trees"].measure()["measuring"] is not None  # one at a time
    assert began.wait(WAIT_S)
    job = stub.runner.submit(build)
    go.set()
    assert finish(stub)["latency"]["rows"] == ROWS and job.finished.wait(WAIT_S)
    assert order == ["measure", "run", "measure", "measured"]


def test_a_server_that_ends_waits_for_the_forwards_of_a_measurement(
    stub: StubDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended = threading.Event(), threading.Event()

    def measure_slowly(*_: Any, progress: Callable[[int, int], None], **__: Any) -> None:
        began.set()
        try:
            while True:
                progress(1, 51)
        finally:
            ended.set()

    monkeypatch.setattr("decoders.study.measure.latency.latency_for", measure_slowly)
    stub.services["trees"].measure()
    assert began.wait(WAIT_S)
    stub.services["trees"].close()
    assert ended.is_set()


def test_a_failed_measurement_is_told_and_can_be_repeated(stub: StubDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: Any, **__: Any) -> Latency:
        raise MemoryError

    monkeypatch.setattr("decoders.study.measure.latency.latency_for", break_down)
    stub.services["trees"].measure()
    assert "out of memory" in finish(stub)["failed"]
    monkeypatch.setattr("decoders.study.measure.latency.latency_for", lambda *_, **__: None)
    stub.services["trees"].measure()
    assert finish(stub)["failed"] == ""


def test_nothing_is_measured_unasked(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with prompt tokens and no latency starts no thread of this page, and times no forward."""
    for file in (own_place("ppd", tiny.target.key).parents[2] / "latency").iterdir():
        file.unlink()
    asked = threading.Event()
    monkeypatch.setattr("decoders.study.measure.latency.latency_for", lambda *_, **__: asked.set())
    before = {thread.name for thread in threading.enumerate()}
    desk = desk_of(lambda: tiny.target)
    desk.services["trees"].begin()
    try:
        assert not {t.name for t in threading.enumerate() if "latency" in t.name} - before and not asked.is_set()
        assert desk.services["trees"].show()["latency"] is None
        desk.services["trees"].measure()
        assert asked.wait(WAIT_S)
    finally:
        desk.end()


def test_views_have_tabs_where_no_page_lists_them() -> None:
    """The views stand in such a page's list instead; a browser's module draws them in either place."""
    desk = StubDesk()
    for service in desk.services.values():
        service.lists_tools = False
    with TestClient(app_of(desk)) as client:
        names = tabs(client)
        assert names.index("Trees") > names.index("Compare")
        assert "specviz/trees/view.js" in json.dumps(client.get("/config").json())
    desk.services["compare"].lists_tools = True
    assert {*tab_titles(desk)}.isdisjoint({"doctor", "trees"}) and tab_titles(desk)["compare"] == "Compare"
