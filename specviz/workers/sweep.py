"""The loop that hands units out to workers, whatever kind they are, and tells how far it is.

What is finished is in the results folder, and what was lost with a worker is handed out again: a unit that has cost
``LOSSES`` workers is given up, as one that failed. A unit's own error is kept, and not tried again in the same sweep.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from decoders.errors import UserError
from specviz.words import plural

from .folder import ResultFolder
from .pool import Cannot, Ready, WorkDone, WorkerLost, WorkerPool
from .supervisor import BUSY, FREE, LOSSES, STARTING
from .work import Unit

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
    units: Sequence[Unit], pool: WorkerPool, folder: ResultFolder, *,
    on_progress: OnProgress = lambda standing, key: None,
    cancel: threading.Event | None = None,
) -> Standing:  # fmt: skip
    """Do the units that are not finished. Units of the same key are one.

    Where some are finished already, it begins at the end: of two drivers on one folder the second comes to meet the
    first, and each skips what the other has finished.

    Raises UserError where the sweep cannot go on (the folder refuses, a worker is of another version); what is finished
    is kept. The workers are ended in any case, Ctrl+C included.
    """
    keys = list(dict.fromkeys(unit.key for unit in units))
    by_key = {unit.key: unit for unit in units}
    finished_units, _ = folder.list_units()
    finished_keys = [key for key in keys if key in finished_units]
    open_keys = deque(key for key in keys if key not in finished_units)
    if finished_keys:
        open_keys.reverse()
    standing = Standing(
        len(keys), len(finished_keys), len(finished_keys), workers=[WorkerState(name) for name in pool.names]
    )
    if not open_keys:
        return standing
    loop = _Loop(by_key, open_keys, pool, folder, standing, on_progress)
    try:
        loop.start()
        while loop.goes_on and not (cancel is not None and cancel.is_set()):
            loop.turn()
    finally:
        pool.close()
    return standing


class _Loop:
    """Who is at what, and what is left."""

    def __init__(
        self,
        units: dict[str, Unit],
        open_keys: deque[str],
        pool: WorkerPool,
        folder: ResultFolder,
        standing: Standing,
        on_progress: OnProgress,
    ) -> None:
        self.units, self.open_keys, self.pool, self.folder = units, open_keys, pool, folder
        self.standing, self.on_progress = standing, on_progress
        self.states = {state.name: state for state in standing.workers}
        self.at_work: dict[str, list[str]] = {name: [] for name in pool.names}
        self.idle: deque[str] = deque()  # those that told Ready and were given nothing since
        self.costs: Counter[str] = Counter()
        self.begun = False

    @property
    def goes_on(self) -> bool:
        return bool(self.open_keys) or any(self.at_work.values())

    def start(self) -> None:
        self.pool.start()
        for name in self.states:
            self._set_state(name, STARTING)
        self.on_progress(self.standing, None)

    def turn(self) -> None:
        """Hand out what can be, and hear what is told meanwhile."""
        while self.idle and self.open_keys:
            self._hand_out(self.idle[0])
        if not self.goes_on:
            return
        answers = self.pool.wait(LOOK_S)
        for answer in answers:
            match answer:
                case Ready(name):
                    if not self.begun:  # what starting takes is not the units' time
                        self.begun, self.standing.started = True, time.monotonic()
                    self._set_state(name, FREE)
                    self.idle.append(name)
                case WorkDone(name, outcome):
                    if outcome.stops:
                        raise UserError(outcome.stops)
                    if outcome.key in self.at_work[name]:  # a unit may be told twice, and counts once
                        self.at_work[name].remove(outcome.key)
                        self.states[name].done += 1
                        self.states[name].since = time.monotonic()
                        self._over(outcome.key, outcome.error)
                case WorkerLost(name, reason):
                    self._on_loss(name, reason)
                case Cannot(_, reason):
                    raise UserError(reason)
        if not answers:
            self.on_progress(self.standing, None)

    def _hand_out(self, name: str) -> None:
        """The next units to a worker, unless another driver has finished them."""
        share: list[str] = []
        limit = self.pool.concurrency(len(self.open_keys))
        while self.open_keys and len(share) < limit:
            key = self.open_keys.popleft()
            if self.folder.has(key):
                self._over(key)
            else:
                self.folder.forget_failure(key)
                share.append(key)
        if share:
            self.idle.popleft()
            self.at_work[name] = share
            self._set_state(name, BUSY)
            self.pool.give(name, [self.units[key] for key in share])

    def _over(self, key: str, error: str = "") -> None:
        self.standing.done += 1
        if error:
            self.standing.failures[key] = error
        self.on_progress(self.standing, key)

    def _on_loss(self, name: str, reason: str) -> None:
        """Its units are handed out again, before all others; the first of them is the one that it was at."""
        self.states[name].losses += 1
        self._set_state(name, STARTING)
        if name in self.idle:
            self.idle.remove(name)
        share, self.at_work[name] = self.at_work[name], []
        if share:
            first = share[0]
            self.costs[first] += 1
            if self.costs[first] >= LOSSES:
                share = share[1:]
                error = f"The worker was lost {LOSSES} times with this unit: {reason}."
                self.folder.finish(first, [{"error": error}], error)
                self._over(first, error)
        self.open_keys.extendleft(reversed(share))
        self.on_progress(self.standing, None)

    def _set_state(self, name: str, state: str) -> None:
        self.states[name].state, self.states[name].since = state, time.monotonic()
