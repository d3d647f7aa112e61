"""Limits of one user of a server: which actions, and how often; runs, prompt characters, new tokens, uploads."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from cachetools import LRUCache

from decoders.draft.params import controls, param

MAX_KEYS = 20_000

caller: ContextVar[str] = ContextVar("caller", default="")  # who asks: a user, or the address the request came from


@dataclass(frozen=True)
class Rules:
    """A server's limits. ``public`` and ``accounts`` say what kind of server it is; the numbers are per user.

    A server of one's own has no limits but those of its memory; a shared one (``shared``) keeps its users apart.
    """

    public: bool = param(False, "Public", "Whoever can reach the server may use it.")
    accounts: bool = param(False, "Accounts", "Users sign in.")
    runs: int = param(0, "Runs per minute", "0: any number.", low=0, high=10_000)
    waiting: int = param(32, "Waiting runs", "Runs that wait or go on.", low=1, high=1000)
    prompt: int = param(400_000, "Prompt characters", "Of a prompt, its context included.", low=100, high=400_000)
    new_tokens: int = param(4096, "New tokens", "Of a run.", low=1, high=4096)
    upload: int = param(64, "Upload size", "MiB of an uploaded file.", low=1, high=128)
    asks: int = param(0, "Requests per minute", "That make work; 0: any number.", low=0, high=100_000)
    pickers: str = param("", "Who picks", "Users who may choose the model, with commas between them.")

    @property
    def is_shared(self) -> bool:
        return self.public or self.accounts

    @property
    def upload_bytes(self) -> int:
        return self.upload << 20

    def may_pick(self, user: str) -> bool:
        """True where a user ("" where nobody signs in) may exchange the model that everybody uses."""
        return not self.public and (not self.accounts or (user != "" and user in self.pickers.split(",")))

    def to_json(self) -> dict[str, Any]:
        """For the page: the kind of server and the numbers."""
        return {"public": self.public, "accounts": self.accounts} | {name: getattr(self, name) for name in NUMBERS}


NUMBERS = {control.name: control for control in controls(Rules) if control.kind == "int"}
SHARED = Rules(accounts=True, runs=60, waiting=12, asks=600)
PUBLIC = Rules(public=True, runs=20, waiting=6, prompt=40_000, new_tokens=1024, upload=8, asks=300)


def rules_for(
    *, public: bool, accounts: bool, overrides: Mapping[str, str] | None = None, pickers: Sequence[str] = ()
) -> Rules:
    """A server's rules; ``overrides``: numbers as typed; ``pickers``: who may choose the model. Raises ValueError."""
    start = replace(PUBLIC, accounts=accounts) if public else SHARED if accounts else Rules()
    numbers: dict[str, int] = {}
    for name, text in (overrides or {}).items():
        if name not in NUMBERS:
            raise ValueError(f"there is no limit {name[:40]!r}: choose one of {', '.join(NUMBERS)}")
        numbers[name] = NUMBERS[name].check(text)
    if pickers and (public or not accounts):
        raise ValueError(
            "--picks names users who may choose the model where users sign in: it goes with --auth-file, and not with "
            "--public, where nobody may"
        )
    return replace(start, **numbers, pickers=",".join(pickers))


class Window:
    """At most ``most`` of something in ``seconds``, for every key on its own.

    Written by hand: the package ``limits`` holds every key until its time is over, however many come; here a flood of
    addresses pushes out the oldest ones.

    >>> times = iter([0.0, 1.0, 2.0, 61.0])
    >>> window = Window(2, 60.0, clock=lambda: next(times))
    >>> [window.take("ann") for _ in range(4)]
    [0.0, 0.0, 58.0, 0.0]
    """

    def __init__(self, limit: int, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self.seconds, self._clock = limit, seconds, clock
        self._times: LRUCache[str, deque[float]] = LRUCache(MAX_KEYS)
        self._lock = threading.Lock()

    def take(self, key: str) -> float:
        """0 where there is room (and one is taken), else the seconds until there is."""
        if not self.limit:
            return 0.0
        current_time = self._clock()
        with self._lock:
            times = self._times.setdefault(key, deque(maxlen=self.limit))
            if len(times) == self.limit and times[0] > current_time - self.seconds:
                return times[0] + self.seconds - current_time
            times.append(current_time)  # in place of the oldest, where there are as many
        return 0.0
