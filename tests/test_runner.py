from __future__ import annotations

import asyncio
import gzip
import json
import threading
from typing import Any

import pytest
import recordings

from decoders.trace.trace import Trace
from specviz.server.feed import EventFeed
from specviz.server.loader import Loader
from specviz.server.runner import Job, QueueFull, Runner
from specviz.server.store import TraceStore
from specviz.words import sentence

from .stubs import StubRun, StubTarget, in_thread
from .waiting import WAIT_S, until


@pytest.fixture
def runner() -> Any:
    made = Runner(TraceStore())
    yield made
    made.close()


class Gate:
    """A run that waits to be let through."""

    def __init__(self, whole: Trace) -> None:
        self.whole, self.open, self.begun = whole, threading.Event(), threading.Event()

    def __call__(self, cancel: threading.Event) -> Any:
        self.begun.set()
        while not self.open.wait(0.005) and not cancel.is_set():
            pass
        return StubRun(self.whole, cancel)


def events(job: Job) -> list[dict[str, Any]]:
    texts, _ = job.feed.events_after(-1)
    assert texts is not None
    return [json.loads(text) for text in texts]


def four_steps(job: Job) -> None:
    """A gated run has told all it does before its gate: queued, running and four steps."""
    until(lambda: job.feed.seq == 5, "four steps are told")


def body(job: Job) -> dict[str, Any]:
    return json.loads(gzip.decompress(job.snapshot()))


def test_a_run_ends_up_in_the_store_and_its_events_add_up_to_it(runner: Runner, chain: Trace) -> None:
    job = runner.submit(lambda cancel: StubRun(chain, cancel), title="mine", owner="ann")
    assert job.finished.wait(WAIT_S)
    kept = runner.store.get(job.id)
    assert kept.run["id"] == job.id and kept.run["title"] == "mine" and kept.output_ids == chain.output_ids
    found = events(job)
    assert [e["seq"] for e in found] == list(range(len(found)))
    assert found[-1]["done"] and found[-1]["stop"] == "eos"
    followed, _ = recordings.deltas(chain)
    for event in found:
        followed.extend(event.get("delta", {}))
    assert followed.tables["tokens"] == chain.tables["tokens"]
    assert runner.job(job.id) is None and runner.load() == {"running": 0, "waiting": 0}


def test_a_snapshot_and_the_events_after_it_give_the_whole_run(runner: Runner, chain: Trace) -> None:
    gate = threading.Event()
    job = runner.submit(lambda cancel: StubRun(chain, cancel, gate=gate))
    four_steps(job)
    snap = body(job)
    gate.set()
    assert job.finished.wait(WAIT_S)
    followed = Trace(snap["run"], {name: snap[name] for name in chain.tables})
    for event in events(job):
        if event["seq"] > snap["live"]["seq"]:
            followed.extend(event.get("delta", {}))
    assert followed.tables["tokens"] == chain.tables["tokens"] and followed.tables["nodes"] == chain.tables["nodes"]


def test_runs_wait_for_each_other_and_hear_their_place(runner: Runner, chain: Trace) -> None:
    gate = Gate(chain)
    first = runner.submit(gate)
    assert gate.begun.wait(WAIT_S)
    second, third = (runner.submit(lambda cancel: StubRun(chain, cancel)) for _ in range(2))
    assert [e["ahead"] for e in events(second)] == [1] and events(third)[-1] == {
        "seq": 0,
        "state": "queued",
        "ahead": 2,
    }
    assert body(third)["live"]["state"] == "queued" and "tokens" not in body(third)
    runner.cancel(second)
    assert events(second)[-1]["done"] and not events(second)[-1]["started"]
    assert events(third)[-1]["ahead"] == 1
    gate.open.set()
    assert first.finished.wait(WAIT_S) and third.finished.wait(WAIT_S)
    assert first.id in runner.store and third.id in runner.store and second.id not in runner.store


def test_a_runner_is_busy_while_a_run_or_other_work_waits_or_goes_on(runner: Runner, chain: Trace) -> None:
    gate, seen = threading.Event(), list[bool]()
    assert not runner.busy()
    job = runner.submit(lambda cancel: StubRun(chain, cancel, gate=gate))
    assert runner.busy()
    four_steps(job)
    assert runner.busy()
    gate.set()
    until(lambda: not runner.busy(), "the run is over")
    runner.on_worker(lambda: seen.append(runner.busy()))
    assert seen == [True]
    until(lambda: not runner.busy(), "the other work is over")


def test_two_devices_run_side_by_side(runner: Runner, chain: Trace) -> None:
    gate = Gate(chain)
    runner.submit(gate, device="cpu")
    other = runner.submit(lambda cancel: StubRun(chain, cancel), device="cuda:0")
    assert other.finished.wait(WAIT_S)
    gate.open.set()


def test_stopping_keeps_what_was_decoded(runner: Runner, chain: Trace) -> None:
    job = runner.submit(lambda cancel: StubRun(chain, cancel, gate=threading.Event()))
    four_steps(job)
    runner.cancel(job)
    assert job.finished.wait(WAIT_S)
    kept = runner.store.get(job.id)
    assert kept.run["stop"] == "cancelled" and 0 < kept.rows("steps") < chain.rows("steps")


@pytest.mark.parametrize("broken", ["build", "step"])
def test_a_run_that_breaks_ends_with_a_sentence_and_the_next_one_runs(
    runner: Runner, chain: Trace, broken: str
) -> None:
    def build(cancel: threading.Event) -> Any:
        if broken == "build":
            raise ValueError("the prompt has 9 tokens and 8 fit")
        return StubRun(chain, cancel, fail_at=3)

    job = runner.submit(build)
    after = runner.submit(lambda cancel: StubRun(chain, cancel))
    assert job.finished.wait(WAIT_S) and after.finished.wait(WAIT_S)
    last = events(job)[-1]
    assert last["done"] and last["stop"] == "error"
    if broken == "build":
        assert last["error"] == "The prompt has 9 tokens and 8 fit." and job.id not in runner.store
    else:
        kept = runner.store.get(job.id)
        assert kept.rows("steps") == 3 and "internal error (RuntimeError: the stub broke)" in kept.run["error"]
    assert runner.store.get(after.id).run["stop"] == "eos"


def test_a_delta_that_hides_rows_makes_watchers_fetch_again(runner: Runner, chain: Trace) -> None:
    class Sly(StubRun):
        def __iter__(self) -> Any:
            for number, part in enumerate(super().__iter__()):
                yield {"steps": part["steps"]} if number == 2 else part

    job = runner.submit(lambda cancel: Sly(chain, cancel))
    assert job.finished.wait(WAIT_S)
    assert [e["seq"] for e in events(job) if "reload" in e] == [4]  # queued, running, two deltas, then this
    assert runner.store.get(job.id).output_ids == chain.output_ids


def test_the_queue_is_bounded(chain: Trace) -> None:
    runner = Runner(TraceStore(), max_waiting=1)
    gate = Gate(chain)
    runner.submit(gate)
    assert gate.begun.wait(WAIT_S)
    runner.submit(gate)
    with pytest.raises(QueueFull, match="1 runs are waiting"):
        runner.submit(gate)
    gate.open.set()
    runner.close()
    with pytest.raises(QueueFull, match="going down"):
        runner.submit(gate)


def test_a_closed_page_ends_its_runs_unless_somebody_watches(runner: Runner, chain: Trace) -> None:
    watched_gate, lone_gate = Gate(chain), Gate(chain)
    watched = runner.submit(watched_gate, session="tab", device="one")
    lone = runner.submit(lone_gate, session="tab", device="two")

    async def watching() -> None:
        async for _ in watched.feed.watch(heartbeat_s=0.01):
            if not runner.job(lone.id):
                return

    watcher = threading.Thread(target=lambda: asyncio.run(asyncio.wait_for(watching(), WAIT_S)))
    watcher.start()
    until(lambda: watched.feed.watchers, "the run is watched")
    runner.leave("tab", after_s=0.05)
    assert lone.finished.wait(WAIT_S)
    watcher.join(WAIT_S)
    assert lone.cancel.is_set() and not watched.cancel.is_set()
    watched_gate.open.set()


def test_a_watcher_that_falls_behind_is_told_so() -> None:
    feed = EventFeed(max_bytes=200)
    for number in range(50):
        feed.publish({"n": number})
    assert feed.events_after(0) == (None, 49)

    async def first() -> Any:
        async for text in feed.watch(0):
            return json.loads(text or "{}")

    assert in_thread(first) == {"seq": 49, "reload": True}


def test_watchers_get_events_as_they_come_and_leave_no_trace() -> None:
    feed = EventFeed()

    async def watch() -> list[int]:
        return [json.loads(text)["seq"] async for text in feed.watch() if text]

    async def main() -> list[list[int]]:
        tasks = [asyncio.create_task(watch()) for _ in range(5)]
        for number in range(20):
            await asyncio.to_thread(feed.publish, {"n": number}, last=number == 19)
        return await asyncio.gather(*tasks)

    assert in_thread(main) == [list(range(20))] * 5
    assert feed.watchers == 0


def test_loader_tells_how_it_goes() -> None:
    ready = Loader(StubTarget, name="stub")
    assert ready.info()["state"] == "loading"
    ready.start()
    assert ready.wait(WAIT_S) and ready.info()["text"] == "stub · 5.3M parameters · float32 · cpu"

    def refuse() -> Any:
        raise ValueError("the folder x has no config.json")

    failed = Loader(refuse)
    failed.start()
    assert failed.wait(WAIT_S) and failed.state == "failed"
    assert failed.text.startswith("The folder x has no config.json. Recorded runs still open; restart with --model")

    def missing() -> Any:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    bare = Loader(missing)
    bare.start()
    assert bare.wait(WAIT_S) and bare.state == "none" and "torch is not installed" in bare.text
    viewing = {"state": "none", "text": "viewing", "name": "", "info": {}, "number": 0, "coming": None}
    assert Loader(None, reason="viewing").info() == viewing


def test_sentences() -> None:
    assert sentence(ValueError("no such thing")) == "No such thing."
    assert sentence(ValueError("a.spectrace is cut off")) == "a.spectrace is cut off."
    assert "out of memory" in sentence(MemoryError())
    assert sentence(KeyError("x")).startswith("The run stopped on an internal error (KeyError")
