"""The loop that hands units out to workers, whatever kind they are, and tells how far it is.

What is finished is in the results folder, and what was lost with a worker is handed out again: a unit that has cost
``LOSSES`` workers is given up, as one that failed. A unit's own error is kept, and not tried again in the same sweep.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from decoders.errors import UserError
from specviz.words import plural

from .executors import WorkerLost
from .folder import ResultFolder
from .supervisor import BUSY, FREE, LOSSES, STARTING, Supervisor
from .work import Unit, Worker

LOOK_S = 0.5  # between looks at whether the sweep was stopped


@dataclass(slots=True)
class WorkerState:
    """The state of a worker: ``state`` since ``since`` (by the driver's own clock), and how many units it has done."""

    name: str
    state: str = STARTING
    since: float = 0.0
    done: int = 0
    losses: int = 0


@dataclass(slots=True)
class Standing:
    """Progress of a sweep, or of an experiment without workers: ``done`` of ``total`` units (runs), ``before`` of them
    in earlier sweeps; units that failed, with their reasons (key → sentence). Before the runs, where parts are trained:
    training steps of all of them; ``trains`` names the one at work.
    """

    total: int
    before: int = 0
    done: int = 0
    started: float = field(default_factory=time.monotonic)
    failures: dict[str, str] = field(default_factory=dict)
    workers: list[WorkerState] = field(default_factory=list)
    trains: str = ""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def rate(self) -> float | None:
        """Units per second, of this sweep."""
        new, seconds = self.done - self.before, self.seconds
        return new / seconds if new and seconds > 0 else None

    @property
    def left_s(self) -> float | None:
        rate = self.rate
        return None if rate is None else (self.total - self.done) / rate

    def text(self) -> str:
        """All of it in a line, as a command shows it (without what can be drawn as a bar).

        >>> Standing(9, before=4, done=4, workers=[WorkerState("worker 1", BUSY), WorkerState("worker 2")]).text()
        'workers: 1 busy, 1 starting'
        """
        states = Counter(worker.state for worker in self.workers)
        parts = [f"{self.rate:.2g} units/s"] if self.rate is not None else []
        parts.append("workers: " + ", ".join(f"{count} {state}" for state, count in states.items()))
        if loss_count := sum(worker.losses for worker in self.workers):
            parts.append(f"{plural(loss_count, 'worker')} lost and started again")
        if self.failures:
            parts.append(f"{len(self.failures)} failed")
        return " · ".join(parts)


OnProgress = Callable[
    [Standing, "str | None"], None
]  # hears how far it is, and the key of a unit that is over (or None)


def sweep(
    units: Sequence[Unit], pool: Supervisor, folder: ResultFolder, *,
    on_progress: OnProgress = lambda standing, key: None,
    cancel: threading.Event | None = None,
) -> Standing:  # fmt: skip
    """Do the units that are not finished. Units of the same key are one.

    Of several drivers on one folder each leaves what another has begun to the last, and skips what is finished.

    Raises UserError where the sweep cannot go on (the folder refuses, a worker is of another version); what is finished
    is kept. The workers are ended in any case, Ctrl+C included.
    """
    by_key = {unit.key: unit for unit in units}
    finished_units, _ = folder.list_units()
    open_keys = deque(key for key in by_key if key not in finished_units)
    finished_count = len(by_key) - len(open_keys)
    standing = Standing(len(by_key), finished_count, finished_count, workers=[WorkerState(name) for name in pool.seats])
    if not open_keys:
        return standing
    with ThreadPoolExecutor(len(pool.seats)) as threads:
        loop = _Loop(by_key, open_keys, pool, threads, folder, standing, on_progress)
        try:
            on_progress(standing, None)
            while loop.goes_on and not (cancel is not None and cancel.is_set()):
                loop.turn()
        finally:
            pool.close()
    return standing


class _Loop:
    """Each worker's unit, and the units that are left. A future waits for a worker that is opened, or for its unit."""

    def __init__(
        self,
        units: dict[str, Unit],
        open_keys: deque[str],
        pool: Supervisor,
        threads: ThreadPoolExecutor,
        folder: ResultFolder,
        standing: Standing,
        on_progress: OnProgress,
    ) -> None:
        self.units, self.open_keys, self.pool, self.threads, self.folder = units, open_keys, pool, threads, folder
        self.standing, self.on_progress = standing, on_progress
        self.states = {state.name: state for state in standing.workers}
        self.pending: dict[Future[Any], tuple[str, str]] = {}  # a worker, and its unit's key; "" while it is opened
        self.idle: list[str] = []
        self.driver = secrets.token_hex(8)
        self.tail: set[str] = set()  # units that another driver has begun
        self.costs: Counter[str] = Counter()
        self.begun = False
        for name in self.states:
            self._prepare(name)

    @property
    def goes_on(self) -> bool:
        return bool(self.open_keys) or any(key for _, key in self.pending.values())

    def turn(self) -> None:
        """Hand out what can be, and hear what is over."""
        while self.idle and self.open_keys:
            self._hand_out(self.idle.pop(0))
        if not self.goes_on:
            return
        over, _ = wait(self.pending, LOOK_S, FIRST_COMPLETED)
        for future in over:
            name, key = self.pending.pop(future)
            if key:
                self._on_answer(name, key, future)
            elif future.result():
                self._on_open(name)
            else:
                seat = self.pool.seats[name]
                begun = f"no worker can begin: {name} ended {LOSSES} times before its first unit, "
                raise UserError((begun if seat.failures >= LOSSES else "") + seat.reason)
        if not over:
            self.on_progress(self.standing, None)

    def _prepare(self, name: str) -> None:
        """Have a worker opened."""
        self.pending[self.threads.submit(self.pool.prepare, name)] = name, ""
        self._set_state(name, STARTING)

    def _on_open(self, name: str) -> None:
        if not self.begun:  # what starting takes is not the units' time
            self.begun, self.standing.started = True, time.monotonic()
        self._set_state(name, FREE)
        self.idle.append(name)

    def _hand_out(self, name: str) -> None:
        """The next unit to a worker, unless another driver has finished or begun it."""
        key = self.open_keys.popleft()
        if self.folder.has(key):
            self.idle.append(name)
            self._over(key)
            return
        if key not in self.tail and not self.folder.begin(key, self.driver):
            self.idle.append(name)
            self.tail.add(key)
            self.open_keys.append(key)
            return
        self.folder.forget_failure(key)
        worker = self.pool.seats[name].worker
        assert worker is not None
        try:
            future = worker.submit(Worker.do, self.units[key])
        except WorkerLost:  # while it had nothing to do: the unit is not to blame
            self.open_keys.appendleft(key)
            self._on_loss(name)
            return
        self.pending[future] = name, key
        self._set_state(name, BUSY)

    def _on_answer(self, name: str, key: str, future: Future[Any]) -> None:
        try:
            outcome = future.result()
        except WorkerLost as loss:
            self.costs[key] += 1
            if self.costs[key] < LOSSES:  # it is handed out again, before all others
                self.open_keys.appendleft(key)
            else:
                error = f"The worker was lost {LOSSES} times with this unit: {loss}."
                self.folder.finish(key, [{"error": error}], error)
                self._over(key, error)
            self._on_loss(name)
            return
        if outcome.stops:
            raise UserError(outcome.stops)
        self.states[name].done += 1
        self._set_state(name, FREE)
        self.idle.append(name)
        self._over(key, outcome.error)

    def _on_loss(self, name: str) -> None:
        self.states[name].losses += 1
        self._prepare(name)
        self.on_progress(self.standing, None)

    def _over(self, key: str, error: str = "") -> None:
        self.standing.done += 1
        if error:
            self.standing.failures[key] = error
        self.on_progress(self.standing, key)

    def _set_state(self, name: str, state: str) -> None:
        self.states[name].state, self.states[name].since = state, time.monotonic()
