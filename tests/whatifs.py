"""One step of a recorded run drafted again, by a run read for it alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from decoders.method.method import Method
from decoders.model.target_model.target import Target
from decoders.study.look.run_settings import redraft_method
from decoders.study.look.whatif import ReadRun, WhatIf, bounded_needs
from decoders.trace.trace import Trace


def whatif(
    target: Target, trace: Trace, step: int, method: str | Method | None = None, params: Mapping[str, Any] | None = None
) -> WhatIf:
    entry, values = redraft_method(trace, method, params)
    read = ReadRun(target, trace, bounded_needs(entry.needs(target, values)))
    return replace(read.redraft(step, entry, values), read_ms=read.ms)
