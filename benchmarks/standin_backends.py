"""Time from a step of a run to those who watch it, measured with stand-ins (``hosting``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from specviz.server.backend_host import Holder
from specviz.server.pool import SeatPool
from specviz.workers.executors import Hosting
from specviz.workers.kinds import Workers
from specviz.workers.supervisor import FREE
from tests import recordings
from tests.replay import StubRun

PAUSE_S, STEPS = 0.02, 300
AT = "told_at"  # when a step was done, in the run's record


class _Stamp(StubRun):
    """Says with every step when it was done."""

    def __iter__(self) -> Iterator[Mapping[str, Mapping[str, list[Any]]]]:
        for delta in super().__iter__():
            self.trace.run[AT] = time.time()  # pyright: ignore[reportGeneralTypeIssues]
            yield delta


def stamp(cancel: threading.Event) -> _Stamp:
    return _Stamp(recordings.repeat(recordings.tree(), STEPS // 10), cancel, pause_s=PAUSE_S)


def open_stamped(about: Mapping[str, Any]) -> Holder:
    return _StampHolder(None)  # pyright: ignore[reportArgumentType]


class _StampHolder(Holder):
    def run(self, arguments: Mapping[str, Any], cancel: threading.Event) -> _Stamp:
        return stamp(cancel)


def delays(kind: str) -> list[float]:
    """Milliseconds from a step's end to its event; ``kind`` "" for a run of the server's own."""
    from tests.stubs import PromptForm, StubDesk

    workers = Workers(1, kind or "processes", threads=1)
    pool = SeatPool(workers.opener("--backends"), workers.names("backend")) if kind else None
    desk = StubDesk(pool=pool)
    desk.begin()
    if pool is not None:
        pool.begin(Hosting(open_stamped, {}))
        while pool.seats["backend 1"].state != FREE:
            time.sleep(0.05)
    assert desk.loader.wait(60)
    desk.run_of = lambda target, prompt, method, title, cancel, **_: stamp(cancel)
    job, found = desk.submit(PromptForm("text", text="abc"), "pld", {}, {}), list[float]()
    publish = job.feed.publish

    def hear(event: Mapping[str, Any], *, last: bool = False) -> int:
        number = publish(event, last=last)
        if AT in event.get("run", {}):
            found.append(1000 * (time.time() - event["run"][AT]))
        return number

    job.feed.publish = hear
    assert job.finished.wait(120)
    desk.end()
    return found
