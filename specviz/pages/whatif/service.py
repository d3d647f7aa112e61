"""What if, on a server: steps of stored runs drafted again with the loaded model; a few runs stay read.

All model work is done by the device's worker, when no run waits: nothing here is done twice at a time.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from specviz.server.runner import Job, QueueFull, sentence
from specviz.server.store import UnknownTrace, is_id

if TYPE_CHECKING:
    from decoders import Trace
    from decoders.method.method import Method
    from decoders.study.whatif import ReadRun
    from specviz.server.desk import Desk

MOST_READ, MOST_BYTES = 3, 2 << 30  # runs that stay read, and what they hold together
MOST_ASKED = 12  # questions that wait at a time
MOST_REASONS = 200
GOES_ON = "This run still goes on: its steps can be drafted again when it is over."


class Busy(ValueError):
    """Too many questions wait; the same may be asked again after ``retry_s`` seconds."""

    retry_s = 5


class WhatIfs:
    """Redrafts of single steps, and runs that go on from one."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._read: OrderedDict[str, ReadRun] = OrderedDict()  # the worker's alone
        self._reasons: OrderedDict[str, str] = OrderedDict()
        self._waiting = threading.BoundedSemaphore(MOST_ASKED)

    def reason(self, key: str) -> str:
        """Why no step of a run can be drafted again here, in a sentence; "" where it can. Raises UnknownTrace."""
        if is_id(key) and self.desk.runner.job(key) is not None:
            return GOES_ON
        target = self.desk.loader.target
        if target is None:
            trace = self._stored(key)
            return "" if trace is None else self.desk.catalog()["reason"] or "There is no model."
        if key not in self._reasons:
            from decoders.study.whatif import other_model
            from specviz.experiments.prompts import check_tokens

            trace = self._stored(key)
            words = "it has no step" if not trace.rows("steps") else other_model(target, trace.run)
            if words is None:
                try:
                    check_tokens(target, trace)
                except UserError as problem:
                    words = str(problem)
            self._reasons[key] = "" if words is None else sentence(ValueError(words))
            while len(self._reasons) > MOST_REASONS:
                self._reasons.popitem(last=False)
        return self._reasons[key]

    def ask(self, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """One step drafted again: the step as a trace of its own, and how it compares with the recorded one.

        ``given`` is {"step" (from 0), "method", "params", "candidate"}; the last three may be left out. Raises
        ValueError with a sentence, UnknownTrace for a run that is not there.
        """
        step, candidate = _number(given, "step"), given.get("candidate")
        if candidate is not None:
            candidate = _number(given, "candidate")
        self._check(key)
        target = self.desk.loader.target
        method, params = self._method(given) if candidate is None else (None, None)

        def work() -> Any:
            read, read_ms = self._ready(key, target, method, params)
            chosen = None if method is None else method.name
            own = params if params is not None else _own(read.trace, self.desk.methods())
            found = read.redraft(step, chosen, own if candidate is None else None, candidate=candidate)
            return dataclasses.replace(found, read_ms=read_ms)

        if not self._waiting.acquire(blocking=False):
            raise Busy("Many steps wait to be drafted again: try again in a moment.")
        try:
            found = self.desk.runner.between(work, device=str(target.info.get("device", "cpu")))
        except QueueFull as problem:
            raise Busy(str(problem)) from None
        finally:
            self._waiting.release()
        return {
            "trace": found.trace.to_json(), "step": found.step, "recorded": found.recorded, "accepted": found.accepted,
            "more": found.accepted - found.recorded, "emitted": len(found.emitted), "same": found.same,
            "read_ms": round(found.read_ms, 1), "ms": round(found.ms, 1), "notes": list(found.notes),
        }  # fmt: skip

    def go_on(self, key: str, given: Mapping[str, Any], *, owner: str = "", session: str = "") -> Job:
        """A new run with another method that starts where a step began: what was written before it is prompt. It ends
        with the open page ``session``.

        Raises ValueError with a sentence, UnknownTrace for a run that is not there.
        """
        from decoders.study.whatif import go_on

        step = _number(given, "step")
        self._check(key)
        target, trace = self.desk.loader.target, self._stored(key)
        method, params = self._method(given)
        run = go_on(target, trace, step, method, params)
        self.desk.check_size("", run["max_new_tokens"])
        title = f"{trace.run.get('title') or 'Untitled run'}, from step {step + 1} with {method.title}"[:200]

        def build(cancel: threading.Event) -> Any:
            from decoders import Run

            return Run(target, **run, title=title, cancel=cancel)

        try:
            device = str(target.info.get("device", "cpu"))
            return self.desk.runner.submit(build, title=title, owner=owner, session=session, device=device)
        except QueueFull as problem:
            raise Busy(str(problem)) from None

    # --- runs that were read ---

    def _check(self, key: str) -> None:
        if why := self.reason(key):
            raise ValueError(why)

    def _stored(self, key: str) -> Trace:
        if not is_id(key):
            raise UnknownTrace(str(key)[:40])
        if key not in self.desk.store:
            self.desk.bring(key)
        return self.desk.store.get(key)

    def _method(self, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any] | None]:
        """A method and its parameters, as they were sent; (None, None) for the run's own."""
        name = given.get("method")
        if name is None:
            return None, None
        method, params = self.desk.params_of(str(name), given.get("params") or {})
        return method, dataclasses.asdict(params)

    def _ready(self, key: str, target: Any, method: Method | None, params: Any) -> tuple[ReadRun, float]:
        """The run, read; and the milliseconds that took, 0 where it was read before. The worker's alone."""
        from decoders.draft.params import make_params
        from decoders.drafters import find_method
        from decoders.study.whatif import ReadRun, wanted

        found = self._read.pop(key, None)
        trace = self._stored(key) if found is None or found.target is not target else found.trace
        chosen = method or find_method(str(trace.run["method"]["name"]))
        given = params if params is not None else _own(trace, self.desk.methods())
        needs = wanted(chosen.needs(target, make_params(chosen.params, given)))
        took = 0.0
        if found is None or found.target is not target or not found.serves(needs):
            found = ReadRun(target, trace, needs)
            took = found.ms
        self._read[key] = found
        while len(self._read) > 1 and (
            len(self._read) > MOST_READ or sum(one.bytes for one in self._read.values()) > MOST_BYTES
        ):
            self._read.popitem(last=False)
        return found, took


def _number(given: Mapping[str, Any], name: str) -> int:
    value = given.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise ValueError(f"{name} is a whole number from 0")
    return value


def _own(trace: Trace, methods: Mapping[str, Any]) -> dict[str, Any]:
    """The run's own parameters but those that name files."""
    from decoders.study.whatif import own_params

    name = str(trace.run["method"]["name"])
    if name not in methods:
        raise ValueError(f"This run's method {name[:40]!r} is not known here: choose another one.")
    return own_params(trace, methods[name])
