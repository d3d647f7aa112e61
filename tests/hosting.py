"""Backends that need no model: their runs replay a recorded trace, a step in so many milliseconds."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import Any

from specviz.server.backend_host import Holder
from specviz.workers.executors import WorkerRefused

from . import recordings
from .replay import StubRun

VERSION = "1"


def open_stub(about: Mapping[str, Any]) -> Stub:
    """``about``: {"version", "ms"?}; the prompt's text says what a run does (``Stub.run``)."""
    if about["version"] != VERSION:
        raise WorkerRefused(f"a backend has version {VERSION} and the app {about['version']}")
    return Stub(about)


class Stub(Holder):
    def __init__(self, about: Mapping[str, Any]) -> None:
        super().__init__(None)  # pyright: ignore[reportArgumentType]
        self.about = about

    def run(self, arguments: Mapping[str, Any], cancel: threading.Event) -> StubRun:
        """By the prompt's text: "fail" fails at the third step, "hold" waits after the fourth until it is stopped,
        "hold deaf" for ever, and "die" ends the process before the run begins.
        """
        text = "".join(map(chr, arguments["prompt"]["tokens"]))
        if "die" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        gate = threading.Event() if "hold" in text else None
        whole = recordings.chain()
        whole.run["pid"] = os.getpid()
        pause_s = self.about.get("ms", 0) / 1000
        cancel = threading.Event() if "deaf" in text else cancel
        return StubRun(whole, cancel, pause_s=pause_s, fail_at=2 if "fail" in text else -1, gate=gate)


def count_calls(holder: Holder, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Count the questions under a name here; the process too."""
    counts = holder.memory.setdefault("counts", {})
    counts[asked["name"]] = counts.get(asked["name"], 0) + 1
    return {"count": counts[asked["name"]], "pid": os.getpid()}
