"""State of a method from one run to the next: a matrix, a cache of answers, an opened datastore.

A run is **cold** unless its parameters ask for what is kept, and its record says which it was and how much there was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decoders.model.target_model.target import Target

owner: ContextVar[str] = ContextVar("owner of what is kept", default="")  # a session of a server; "" where there is one
MOST_OWNERS = 64  # whoever has not been there for longest loses what is kept


@contextmanager
def owned_by(name: str) -> Iterator[None]:
    """For a while, what is kept is that of the owner ``name``."""
    token = owner.set(name)
    try:
        yield
    finally:
        owner.reset(token)


@dataclass(frozen=True, slots=True)
class Amount:
    """The amount that a method keeps for an owner: ``count`` of ``unit``, of ``runs`` runs."""

    count: int
    unit: str
    runs: int


class PersistentState:
    """State of the methods with one target, for each owner apart; each has a ``len`` and a ``unit`` that it counts.

    >>> class Rows(list):
    ...     unit = "rows"
    >>> kept = PersistentState()
    >>> kept.of("recycling", lambda: Rows()).append(1)
    >>> kept.of("recycling", lambda: Rows()), kept.sizes()
    ([1], {'recycling': '1 rows'})
    >>> kept.empty(), kept.sizes()
    (['recycling'], {})
    """

    def __init__(self) -> None:
        self._by_owner: dict[str, dict[str, Any]] = {}  # the one that came last at the end
        self._runs: dict[tuple[str, str], int] = {}
        self._lock = Lock()  # a server's user may ask while a run begins

    def of(self, name: str, make: Callable[[], Any], *, anew: bool = False) -> Any:
        """The state of ``name`` for the owner, made where there is none yet; ``anew`` drops what there is first. A run
        asks once.
        """
        owner_key = owner.get()
        with self._lock:
            owner_state = self._by_owner[owner_key] = self._by_owner.pop(owner_key, {})
            while len(self._by_owner) > MOST_OWNERS:
                oldest = next(iter(self._by_owner))
                for old_name in self._by_owner.pop(oldest):
                    del self._runs[oldest, old_name]
            if anew or name not in owner_state:
                owner_state[name] = make()
                self._runs[owner_key, name] = 0
            self._runs[owner_key, name] += 1
            return owner_state[name]

    def amounts(self) -> dict[str, Amount]:
        """Amounts kept for the owner, by name; names without anything are left out."""
        owner_key = owner.get()
        with self._lock:
            owner_state = self._by_owner.get(owner_key, {})
            return {
                name: Amount(len(value), value.unit, self._runs[owner_key, name])
                for name, value in owner_state.items()
                if len(value)
            }

    def sizes(self) -> dict[str, str]:
        """Amounts kept for the owner, by name, in words."""
        return {name: f"{amount.count:,} {amount.unit}" for name, amount in self.amounts().items()}

    def empty(self, name: str | None = None) -> list[str]:
        """Drop what ``name`` keeps for the owner, or all of it; what was dropped, by name."""
        owner_key = owner.get()
        with self._lock:
            owner_state = self._by_owner.get(owner_key, {})
            names = [
                state_name
                for state_name in ([name] if name is not None else list(owner_state))
                if state_name in owner_state
            ]
            for state_name in names:
                del owner_state[state_name], self._runs[owner_key, state_name]
        return names


def kept_with(target: Target) -> PersistentState:
    """The methods' state with a target."""
    return target.companions.setdefault("kept", PersistentState())
