"""What if, on a server: steps of stored runs drafted again, and looked at layer by layer, with the loaded model; a few
runs stay read.

All model work is done by the device's worker, when no run waits: nothing here is done twice at a time.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from cachetools import FIFOCache
from pydantic import Field

from decoders.errors import UserError
from decoders.trace.report import payload
from specviz.places import is_id, new_id
from specviz.server.bodies import Body, PageSession, Params, needs
from specviz.server.desk import Desk, Service, get, post
from specviz.server.http import Owner
from specviz.server.runner import QueueFull
from specviz.words import sentence

if TYPE_CHECKING:
    from decoders import Needs, Trace
    from decoders.method.method import Method
    from decoders.study.whatif import ReadRun, WhatIf

MOST_READ, MOST_BYTES = 3, 2 << 30  # runs that stay read, and what they hold together
MOST_ASKED = 12  # questions that wait at a time
MOST_REASONS = 200
MOST_REDRAFTED = 1000  # steps of an imported run that are drafted again while others wait
GOES_ON = "This run still goes on: its steps can be drafted again when it is over."


Number = Annotated[
    int, Field(ge=0, lt=2**31), needs("steps and candidates are whole numbers from 0; given was {given}")
]


class Redraft(Body):
    """A step to draft again, by another method or on from another candidate."""

    step: Number
    method: str | None = None
    params: Params | None = None
    candidate: Number | None = None


class Continuation(Redraft):
    """A step that another method goes on from, or the run's own after another candidate; the run ends with the open
    page ``session``.
    """

    session: PageSession = None


class Place(Body):
    """A drafted node of a step, whose root is node 0."""

    step: Number
    node: Number


class Reading(Body):
    """An imported run to read with the model in use; with a ``method`` every step is drafted again, too."""

    method: str | None = None
    params: Params | None = None


class Busy(UserError):
    """Too many questions wait; the same may be asked again after ``retry_s`` seconds."""

    retry_s = 5


class WhatIfs(Service):
    """Redrafts of single steps, and runs that go on from one."""

    name = "whatif"  # asked for on the page Inspect
    cannot = "A step cannot be asked to"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._read: OrderedDict[str, ReadRun] = OrderedDict()  # the worker's alone
        self._reasons: FIFOCache[str, str] = FIFOCache(MOST_REASONS)
        self._waiting = threading.BoundedSemaphore(MOST_ASKED)

    def model_changed(self) -> None:
        self._reasons.clear()
        self._read.clear()

    @get("{key}")
    def able(self, key: str) -> dict[str, str]:
        """Whether a run's steps can be drafted again."""
        return {"reason": self.reason(key)}

    def reason(self, key: str) -> str:
        """Why no step of a run can be drafted again here, in a sentence; "" where it can. Raises UnknownTrace."""
        if is_id(key) and self.desk.runner.job(key) is not None:
            return GOES_ON
        target = self.desk.loader.target
        if target is None:
            self.desk.trace(key)
            return self.desk.reason() or "There is no model."
        if key not in self._reasons:
            from decoders.study.recorded import other_model
            from specviz.experiments.prompts import check_tokens

            trace = self.desk.trace(key)
            target = self.desk.target_of(trace.run)
            words = "it has no step" if not trace.rows("steps") else other_model(target, trace.run)
            if words is None:
                try:
                    check_tokens(target, trace)
                except UserError as problem:
                    words = str(problem)
            self._reasons[key] = "" if words is None else sentence(UserError(words))
        return self._reasons[key]

    @post("{key}/draft")
    def redraft(self, key: str, asked: Redraft) -> dict[str, Any]:
        """One step (from 0) drafted again: the step as a trace of its own, and how it compares with the recorded one.

        By ``method`` with its ``params``, or on from a ``candidate`` of the step; without either as it was recorded.
        Raises UserError with a sentence, UnknownTrace for a run that is not there.
        """
        again = self._again(key, asked)
        return {
            "trace": payload(again.trace), "step": again.step, "recorded": again.recorded, "accepted": again.accepted,
            "more": again.accepted - again.recorded, "emitted": len(again.emitted), "same": again.same,
            "read_ms": round(again.read_ms, 1), "ms": round(again.ms, 1), "notes": list(again.notes),
        }  # fmt: skip

    def _again(self, key: str, asked: Redraft) -> WhatIf:
        """A step drafted again, by the worker."""
        self._check(key)
        target = self.desk.target_of(self.desk.trace(key).run)
        candidate = asked.candidate
        chosen, own = self._method(asked.method, asked.params, target) if candidate is None else (None, None)

        def work() -> Any:
            run, read_ms = self._ready(key, target, self._needs(key, target, chosen, own))
            name = None if chosen is None else chosen.name
            used = own if own is not None else _own(run.trace, self.desk.methods())
            redrafted = run.redraft(asked.step, name, used if candidate is None else None, candidate=candidate)
            return dataclasses.replace(redrafted, read_ms=read_ms)

        return self._in_turn(work)

    @post("{key}/lens")
    def lens(self, key: str, asked: Place) -> dict[str, Any]:
        """What every layer of the target says at a drafted node's place: ``decoders.study.lens.Lens``, computed now.

        Raises UserError with a sentence, also for a model that cannot be read so; UnknownTrace.
        """
        self._check(key)
        target = self.desk.target_of(self.desk.trace(key).run)

        def work() -> dict[str, Any]:
            from decoders.draft.needs import Needs
            from decoders.study.lens import lens

            run, read_ms = self._ready(key, target, Needs())
            return {**lens(run, asked.step, asked.node).to_json(), "read_ms": round(read_ms, 1)}

        return self._in_turn(work)

    @post("{key}/read")
    def read(self, key: str, asked: Reading, owner: Owner) -> dict[str, str]:
        """An imported run read by the model in use, as a new run among the owner's: ``decoders.study.imported``.

        Raises UserError with a sentence, UnknownTrace for a run that is not there.
        """
        trace, target = self.desk.trace(key), self.desk.target()
        if not trace.run.get("imported"):
            raise UserError("this run was recorded here: there is nothing that a server left out")
        if trace.run.get("recomputed") and trace.run["model"].get("key") != target.key:
            raise UserError("another model read this run already: open the server's file again")
        if asked.method is not None and trace.rows("steps") > MOST_REDRAFTED:
            raise UserError(
                f"this run has {trace.rows('steps'):,} steps and at most {MOST_REDRAFTED:,} are drafted again here: "
                "specviz import FILE --target MODEL --method NAME takes any number"
            )
        chosen, params = self._method(asked.method, asked.params, target)

        def work() -> Trace:
            from decoders.study.imported import read_again, redraft

            again = trace if trace.run.get("recomputed") else read_again(target, trace)
            return again if chosen is None else redraft(target, again, chosen.name, params)

        made: Trace = self._in_turn(work)
        made.run["id"] = new_id()
        return {"id": self.desk.store.put(made, kind="opened", owner=owner)}

    def _in_turn(self, work: Callable[[], Any]) -> Any:
        """What ``work`` returns, done by the worker. Raises Busy where too many questions wait."""
        if not self._waiting.acquire(blocking=False):
            raise Busy("Many steps wait to be drafted again: try again in a moment.")
        try:
            return self.desk.on_worker(work)
        except QueueFull as problem:
            raise Busy(str(problem)) from None
        finally:
            self._waiting.release()

    @post("{key}/continue")
    def go_on(self, key: str, asked: Continuation, owner: Owner) -> dict[str, str]:
        """A new run that starts where a step began: what was written before it is prompt. With a ``candidate`` what
        that place gives is prompt too, and the run's own method goes on; else ``method`` does.

        Raises UserError with a sentence, UnknownTrace for a run that is not there.
        """
        from decoders.study.whatif import go_on

        self._check(key)
        trace = self.desk.trace(key)
        target = self.desk.target_of(trace.run)
        place, emitted = "", ()
        if asked.candidate is None:
            if asked.method is None:
                raise UserError("name the method that goes on, or a candidate")
            chosen, own = self._method(asked.method, asked.params, target)
        else:
            emitted = self._again(key, asked).emitted
            own = _own(trace, self.desk.methods())
            chosen, own = self._method(str(trace.run["method"]["name"]), own, target)
            place = " after a place picked by hand,"
        run = go_on(target, trace, asked.step, chosen, own, emitted=emitted)
        self.desk.check_size("", run["max_new_tokens"])
        name = trace.run.get("title") or "Untitled run"
        title = f"{name}, from step {asked.step + 1}{place} with {chosen.title}"[:200]

        def build(cancel: threading.Event) -> Any:
            from decoders import Run

            return Run(target, **run, title=title, cancel=cancel)

        job = self.desk.queue(build, title=title, owner=owner, session=asked.session or "")
        return {"id": job.id, "title": job.title}

    # --- runs that were read ---

    def _check(self, key: str) -> None:
        if why := self.reason(key):
            raise UserError(why)

    def _method(
        self, name: str | None, params: Mapping[str, Any] | None, target: Any
    ) -> tuple[Any, dict[str, Any] | None]:
        """A method and its parameters for a model; (None, None) for the run's own."""
        if name is None:
            return None, None
        method, checked = self.desk.params_of(name, params or {}, target)
        return method, dataclasses.asdict(checked)

    def _needs(self, key: str, target: Any, method: Method | None, params: Any) -> Needs:
        """What a method reads of a run; the run's own method with its parameters where none is named."""
        from decoders.draft.params import make_params
        from decoders.drafters import find_method
        from decoders.study.whatif import wanted

        trace = self.desk.trace(key)
        chosen = method or find_method(str(trace.run["method"]["name"]))
        used = params if params is not None else _own(trace, self.desk.methods())
        return wanted(chosen.needs(target, make_params(chosen.params, used)))

    def _ready(self, key: str, target: Any, needs: Needs) -> tuple[ReadRun, float]:
        """The run, read; and the milliseconds that took, 0 where it was read before. The worker's alone."""
        from decoders.study.whatif import ReadRun

        run = self._read.pop(key, None)
        if run is not None and run.target is not target:
            run = None
        took = 0.0
        if run is None or not run.serves(needs):
            run = ReadRun(target, self.desk.trace(key), needs)
            took = run.ms
        if self.desk.loader.is_open(target):  # else it was exchanged meanwhile, and is to go
            self._read[key] = run
        while len(self._read) > 1 and (
            len(self._read) > MOST_READ or sum(one.bytes for one in self._read.values()) > MOST_BYTES
        ):
            self._read.popitem(last=False)
        return run, took


def _own(trace: Trace, methods: Mapping[str, Any]) -> dict[str, Any]:
    """The run's own parameters but those that name files."""
    from decoders.study.recorded import own_params

    name = str(trace.run["method"]["name"])
    if name not in methods:
        raise UserError(f"This run's method {name[:40]!r} is not known here: choose another one.")
    return own_params(trace, methods[name])
