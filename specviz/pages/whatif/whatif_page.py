"""Service of "what if": steps of stored runs drafted again, and looked at layer by layer, with the loaded model; a few
runs stay read (``reading``).

All model work is done by the device's worker (or the backend that has read the run), when no run waits.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from cachetools import FIFOCache
from pydantic import Field

from decoders.errors import UserError
from specviz.places import is_id, new_id
from specviz.server.backend_host import Holder, Work
from specviz.server.bodies import Body, PageSession, Params, needs
from specviz.server.desk import Desk, Service, get, post
from specviz.server.forms import Refusal
from specviz.server.http import Owner
from specviz.server.runner import QueueFull
from specviz.words import sentence

from . import reading

if TYPE_CHECKING:
    from decoders import Trace

MOST_ASKED, RETRY_S = 12, 5  # questions that wait at a time; seconds after which a further one may be asked again
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
    """A step to go on from, by a method or another candidate; the run ends with the open page ``session``."""

    session: PageSession = None


class PlaceRequest(Body):
    """A drafted node of a step, whose root is node 0."""

    step: Number
    node: Number


class ReadingRequest(Body):
    """An imported run to read with the model in use; with a ``method`` every step is drafted again, too."""

    method: str | None = None
    params: Params | None = None


class WhatIfs(Service):
    """Redrafts of single steps, and runs that go on from one."""

    name = "whatif"  # asked for on the page Inspect
    cannot = "A step cannot be asked to"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._reasons: FIFOCache[str, str] = FIFOCache(MOST_REASONS)
        self._waiting = threading.BoundedSemaphore(MOST_ASKED)

    def model_changed(self) -> None:
        self._reasons.clear()

    @get("{key}")
    def able(self, key: str) -> dict[str, str]:
        """The ``reason`` why a run's steps cannot be drafted again, "" where they can."""
        return {"reason": self.reason(key)}

    def reason(self, key: str) -> str:
        """The reason why no step of a run can be drafted again here, in a sentence; "" where it can. Raises
        UnknownTrace.
        """
        if is_id(key) and self.desk.runner.job(key) is not None:
            return GOES_ON
        target = self.desk.loader.target
        if target is None:
            self.desk.trace(key)
            return self.desk.reason() or "There is no model."
        if key not in self._reasons:
            trace = self.desk.trace(key)  # before torch is imported: the run may be deleted meanwhile
            from decoders.study.look.run_settings import other_model
            from specviz.views.prompts import check_tokens

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
    def redraft(self, key: str, request: Redraft) -> dict[str, Any]:
        """One step (from 0) drafted again: the step as a trace of its own, and how it compares with the recorded one.

        By ``method`` with its ``params``, or on from a ``candidate`` of the step; without either as it was recorded.
        Raises UserError with a sentence, UnknownTrace for a run that is not there.
        """
        self._check(key)
        result = self._redraft(key, request)
        return {**result, "emitted": len(result["emitted"])}

    def _redraft(self, key: str, request: Redraft) -> dict[str, Any]:
        """A step of a run that may be asked, drafted again: ``reading.redraft``."""
        target = self.desk.target_of(self.desk.trace(key).run)
        name, params = None, None
        if request.candidate is None:
            method, params = self._method(request.method, request.params, target)
            name = None if method is None else method.name
        question = {"step": request.step, "method": name, "params": params, "candidate": request.candidate}
        return self._do(key, target, reading.redraft, question)

    def _do(self, key: str, target: Any, work: Work, question: Mapping[str, Any]) -> dict[str, Any]:
        """Something done with a run by whoever has read it, or reads it now."""
        if not self.desk.uses_backends(target):
            answer = self._in_turn(lambda: self.desk.work_on(
                target, work, {**question, "key": key, "trace": self.desk.trace(key)}, key
            ))  # fmt: skip
            if not self.desk.loader.is_open(target):  # it was exchanged meanwhile, and is to go
                reading.forget(Holder(target, self.desk.memory), key)
            return answer
        answer = self._in_turn(lambda: self.desk.work_on(target, work, {**question, "key": key}, key))
        if answer == reading.LACKS:
            whole = {**question, "key": key, "trace": reading.to_text(self.desk.trace(key))}
            answer = self._in_turn(lambda: self.desk.work_on(target, work, whole, key))
        return answer

    @post("{key}/lens")
    def lens(self, key: str, place: PlaceRequest) -> dict[str, Any]:
        """Each layer's first choices at a drafted node's place: ``decoders.study.look.lens.Lens``, computed now.

        Raises UserError with a sentence, also for a model that cannot be read so; UnknownTrace.
        """
        self._check(key)
        target = self.desk.target_of(self.desk.trace(key).run)
        return self._do(key, target, reading.lens, {"step": place.step, "node": place.node})

    @post("{key}/read")
    def read(self, key: str, request: ReadingRequest, owner: Owner) -> dict[str, str]:
        """An imported run read by the model in use, a new run among the owner's (``decoders.study.look.imported_run``).

        Raises UserError with a sentence, UnknownTrace for a run that is not there.
        """
        trace, target = self.desk.trace(key), self.desk.target()
        if not trace.run.get("imported"):
            raise UserError("this run was recorded here: there is nothing that a server left out")
        if trace.run.get("recomputed") and trace.run["model"].get("key") != target.key:
            raise UserError("another model read this run already: open the server's file again")
        if request.method is not None and trace.rows("steps") > MOST_REDRAFTED:
            raise UserError(
                f"this run has {trace.rows('steps'):,} steps and at most {MOST_REDRAFTED:,} are drafted again here: "
                "specviz import FILE --target MODEL --methods NAME takes any number"
            )
        method, params = self._method(request.method, request.params, target)

        def work() -> Trace:
            from decoders.study.look.imported_run import read_again, redraft

            reread_trace = trace if trace.run.get("recomputed") else read_again(target, trace)
            return reread_trace if method is None else redraft(target, reread_trace, method.name, params)

        new_run: Trace = self._in_turn(lambda: self.desk.on_worker(work))
        drafts = "" if method is None else f", drafted again with {method.title}"
        new_run.run.update(id=new_id(), title=f"{trace.run.get('title', '')}, read again{drafts}"[:200])
        return {"id": self.desk.store.put(new_run, kind="opened", owner=owner)}

    def _in_turn(self, work: Callable[[], Any]) -> Any:
        """The result of ``work`` once it is done. Raises Refusal where too many questions wait."""
        if not self._waiting.acquire(blocking=False):
            raise Refusal("queue", "Many steps wait to be drafted again: try again in a moment.", RETRY_S)
        try:
            return work()
        except QueueFull as problem:
            raise Refusal("queue", str(problem), RETRY_S) from None
        finally:
            self._waiting.release()

    @post("{key}/continue")
    def go_on(self, key: str, request: Continuation, owner: Owner) -> dict[str, str]:
        """A new run that starts where a step began: what was written before it is prompt. With a ``candidate`` what
        that place gives is prompt too, and the run's own method goes on; else ``method`` does.

        Raises UserError with a sentence, UnknownTrace for a run that is not there.
        """
        from decoders.study.look.whatif import go_on

        self._check(key)
        trace = self.desk.trace(key)
        target = self.desk.target_of(trace.run)
        place, emitted = "", ()
        if request.candidate is None:
            if request.method is None:
                raise UserError("name the method that goes on, or a candidate")
            method, method_params = self._method(request.method, request.params, target)
        else:
            emitted = self._redraft(key, request)["emitted"]
            method_params = reading.own_of(trace)
            method, method_params = self._method(str(trace.run["method"]["name"]), method_params, target)
            place = " after a place picked by hand,"
        run = go_on(target, trace, request.step, method, method_params, emitted=emitted)
        self.desk.check_size("", run["max_new_tokens"])
        name = trace.run.get("title") or "Untitled run"
        title = f"{name}, from step {request.step + 1}{place} with {method.title}"[:200]

        def build(cancel: threading.Event) -> Any:
            from decoders import Run

            return Run(target, **run, title=title, cancel=cancel)

        if self.desk.uses_backends(target):
            prompt, stops = run.pop("prompt"), run["stop_ids"]
            options = {**run, "method": method.name, "params": dataclasses.asdict(run["params"]), "title": title}
            options["stop_ids"] = None if stops is None else list(map(int, stops))
            job = self.desk.queue_away(method, prompt, options, owner=owner, session=request.session or "")
        else:
            job = self.desk.queue(build, title=title, owner=owner, session=request.session or "")
        return {"id": job.id, "title": job.title}

    # --- runs that were read ---

    def _check(self, key: str) -> None:
        if reason := self.reason(key):
            raise UserError(reason)

    def _method(
        self, name: str | None, params: Mapping[str, Any] | None, target: Any
    ) -> tuple[Any, dict[str, Any] | None]:
        """A method and its parameters for a model; (None, None) for the run's own."""
        if name is None:
            return None, None
        method, checked_params = self.desk.params_of(name, params or {}, target)
        return method, dataclasses.asdict(checked_params)
