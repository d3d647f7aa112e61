"""A run that replays a recorded trace: it needs neither torch nor Gradio."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from decoders.trace.trace import Trace

from . import recordings


class StubRun:
    """``decoders.Run``'s face: deltas of a recorded trace.

    It may pause between steps, wait after the fourth until ``gate`` is set, and fail at a step.
    """

    def __init__(
        self,
        whole: Trace,
        cancel: threading.Event,
        *,
        pause_s: float = 0.0,
        fail_at: int = -1,
        gate: threading.Event | None = None,
    ) -> None:
        self._gate = gate
        self.trace, self._parts = recordings.deltas(copy.deepcopy(whole))
        self._whole, self._cancel, self._pause_s, self._fail_at = whole, cancel, pause_s, fail_at
        self.trace.run.update(stop="", timings={"prefill_ms": 1.0, "decode_ms": 1.0})

    def __iter__(self) -> Iterator[Mapping[str, Mapping[str, list[Any]]]]:
        for number, part in enumerate(self._parts):
            while number == 4 and self._gate and not (self._gate.wait(0.01) or self._cancel.is_set()):
                pass
            if self._cancel.is_set():
                self.trace.run.update(complete=True, stop="cancelled")
                return
            if number == self._fail_at:
                raise RuntimeError("the stub broke")
            time.sleep(self._pause_s)
            self.trace.extend(part)
            yield part
        self.trace.run.update({k: v for k, v in self._whole.run.items() if k not in ("id", "title")})
