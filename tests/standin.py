"""Work for workers that needs no model: it waits, fails, or ends its worker, as a unit's payload says;
and a worker in the test's own process.

A payload is ``{"name", "ms"?, "do"?, "mark"?}``. ``do``: "fail" raises; "die" ends its process with SIGKILL, each time;
"die once" does so unless the file ``mark`` is there, which it makes; "stay" makes ``mark`` and waits for ever; "stay
once" does so unless ``mark`` is there. ``mark`` holds the id of the Ray node where it was made.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specviz.workers.executors import OVER, Call, Hosting, Opener, WorkerExecutor, WorkerRefused
from specviz.workers.supervisor import Supervisor
from specviz.workers.work import SweepJob, Unit, UnitResult, Work, Worker

VERSION = "1"
ABOUT = {"version": VERSION}


def open_standin(about: Mapping[str, Any]) -> Work:
    """Work that writes a row and a file for each unit. ``about`` may ask for a clock that is wrong by ``clock_s``, and
    for a ``disk`` that takes so many bytes a file.
    """
    if about["version"] != VERSION:
        raise WorkerRefused(f"this worker has version {VERSION} and the sweep version {about['version']}")
    if shift := about.get("clock_s"):
        real = time.time
        time.time = lambda: real() + shift * (1 if os.getpid() % 2 else -1)
    if (most := about.get("disk")) is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    def work(payload: Mapping[str, Any]) -> UnitResult:
        do, mark = payload.get("do", ""), Path(payload.get("mark", "/"))
        if do == "fail":
            raise ValueError(f"{payload['name']} always fails")
        if do == "die" or (do == "die once" and not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if do == "stay" or (do == "stay once" and not mark.exists()):
            part = mark.with_suffix(".part")
            part.write_text(_node())
            part.replace(mark)
            time.sleep(3600)
        time.sleep(payload.get("ms", 0) / 1000)
        row = {"name": payload["name"], "pid": os.getpid(), "threads": about["threads"], "error": ""}
        return UnitResult([row], {f"traces/{payload['name']}.txt": payload["name"].encode()})

    return work


class HereWorker(WorkerExecutor):
    """A worker in this process: a call is over as soon as it is submitted."""

    def __init__(self, name: str, hosting: Hosting, order: list[str]) -> None:
        super().__init__(name)
        self.opened, self.order = hosting.open(hosting.about), order
        self._thread.start()
        self._hear(0, OVER, None)

    def _follow(self) -> str:
        return self.loss.result()

    def _send(self, call: Call) -> None:
        assert call.function is not None
        self.order += [str(unit.payload.get("name", unit.key)) for unit in call.args]
        self._hear(call.number, OVER, call.function(self.opened, *call.args))

    def _end(self) -> None:
        pass


class Here(Supervisor, Opener):
    """A sweep's only worker, in this process. ``order``: the units that it was given."""

    def __init__(self, job: SweepJob) -> None:
        super().__init__(self, ["worker 1"])
        self.job, self.order, self.workers = job, list[str](), list[HereWorker]()
        self.begin(Hosting(Worker, job))

    def open(self, name: str, number: int, hosting: Hosting) -> HereWorker:
        self.workers.append(HereWorker(name, hosting, self.order))
        return self.workers[-1]

    def close(self) -> None:
        if not self._closing.is_set():  # asked as the opener, too
            super().close()


def _node() -> str:
    """The Ray node that this process is on; "" where it is no worker of Ray's."""
    ray = sys.modules.get("ray")
    return ray.get_runtime_context().get_node_id() if ray is not None and ray.is_initialized() else ""


def units(count: int, **more: Any) -> list[Unit]:
    return [Unit.of(ABOUT, {"name": f"u{number}", **more}) for number in range(count)]


def unit(name: str, **more: Any) -> Unit:
    return Unit.of(ABOUT, {"name": name, **more})
