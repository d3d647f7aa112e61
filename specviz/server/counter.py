"""The counter for model work: runs and other work, for the app's own model or for the backends behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from decoders.prompt.codec import to_json

from .backend_host import Holder, Work
from .forms import Refusal
from .job import Build, Job
from .loader import Loader
from .pool import LINE
from .runner import QueueFull, Runner


class Counter:
    """The queue before the model in use. ``memory``: what pages remember (``work_on``), where there are no backends."""

    def __init__(self, runner: Runner, loader: Loader) -> None:
        self.runner, self.loader = runner, loader
        self.memory: dict[str, Any] = {}

    def reason(self) -> str:
        """The reason why nothing can be run, in a sentence; "" where runs can be made."""
        if self.loader.state in ("none", "failed"):
            return self.loader.text
        if self.loader.state == "loading":
            return "The model is still loading."
        return self.runner.pool.reason if self.runner.pool is not None else ""

    def target(self) -> Any:
        """The loaded model. Raises Refusal with the sentence why there is none."""
        if self.loader.target is None:
            raise Refusal("model", self.reason() or "There is no model.")
        return self.loader.target

    def on_worker(self, work: Callable[[], Any]) -> Any:
        """Do ``work`` with the model when no run waits; its result. Raises QueueFull as the server goes down."""
        return self.runner.on_worker(work, device=self._device())

    def _device(self) -> str:
        return str(self.target().info.get("device", "cpu"))

    def uses_backends(self, target: Any) -> bool:
        """True where backends do the runs with a model: with the model in use, where there are any."""
        return self.runner.pool is not None and target is self.loader.target

    def work_on(self, target: Any, work: Work, question: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Call a function of a module with a model when no run waits: always by the backend that holds what is
        remembered under ``key``. Raises QueueFull as the server goes down.
        """
        pool = self.runner.pool
        if pool is None or not self.uses_backends(target):
            return self.on_worker(lambda: work(Holder(target, self.memory), question))
        seat = pool.home(key, self.runner.waiting())
        return self.runner.on_worker(lambda: pool.work(work, question), device=LINE, seat=seat)

    def kept_at(self, owner: str, work: Work, question: Mapping[str, Any]) -> dict[str, Any]:
        """Query a method's persistent state immediately; {} where there is none."""
        target, pool = self.loader.target, self.runner.pool
        if target is None:
            return {}
        if pool is None:
            return work(Holder(target, self.memory), question)
        seat = pool.home(_state_key(owner))
        return pool.at_once(seat, work, question) if seat else {}

    def seat_of(self, methods: Iterable[Any], owner: str) -> str:
        """The backend for runs that belong together: where methods keep something, the one that has it of the user's,
        else one that is free, or has the shortest queue. "" without backends.
        """
        pool = self.runner.pool
        if pool is None:
            return ""
        waiting = self.runner.waiting()
        keeps = any(method.keeps for method in methods)
        return pool.home(_state_key(owner), waiting) if keeps else pool.least(waiting)

    def queue(
        self, build: Build, *, title: str, owner: str = "", session: str = "", device: str = "", seat: str = ""
    ) -> Job:
        """Let the model's worker do a run. Raises Refusal where the queue is full, or its owner's share of it."""
        device = device or self._device()
        try:
            return self.runner.submit(build, title=title, owner=owner, session=session, device=device, seat=seat)
        except QueueFull as problem:
            raise Refusal("queue", str(problem), problem.retry_s) from None

    def queue_away(
        self, method: Any, prompt: Any, options: Mapping[str, Any], *, owner: str = "", session: str = "",
        seat: str = "",
    ) -> Job:  # fmt: skip
        """Let a backend do a run: ``options`` are ``Run``'s, with the method's name, its parameters and a title. Raises
        Refusal as ``queue`` does.
        """
        pool = self.runner.pool
        assert pool is not None
        if pool.reason:
            raise Refusal("model", pool.reason)
        arguments = {**options, "sampling": dataclasses.asdict(options["sampling"]), "prompt": to_json(prompt)}
        if method.keeps:
            seat = self.seat_of([method], owner)
        build = partial(pool.run, arguments, owner)
        return self.queue(build, title=options["title"], owner=owner, session=session, device=LINE, seat=seat)


def _state_key(owner: str) -> str:
    """The key of the backend that keeps something of a user's runs."""
    return f"kept {owner}"
