"""What a method keeps from one run to the next: a matrix, a cache of answers, an opened datastore.

A run is **cold** unless its parameters ask for what is kept, and its record says which it was and how much there was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decoders.model.target import Target

owner: ContextVar[str] = ContextVar("owner of what is kept", default="")  # a session of a server; "" where there is one
MOST_OWNERS = 64  # whoever has not been there for longest loses what is kept


class Kept:
    """What the methods keep with one target, for each owner apart; each has a ``len`` and a ``unit`` that it counts.

    >>> class Rows(list):
    ...     unit = "rows"
    >>> kept = Kept()
    >>> kept.of("recycling", lambda: Rows()).append(1)
    >>> kept.of("recycling", lambda: Rows()), kept.sizes()
    ([1], {'recycling': '1 rows'})
    >>> kept.empty(), kept.sizes()
    (['recycling'], {})
    """

    def __init__(self) -> None:
        self._by_owner: dict[str, dict[str, Any]] = {}  # the one that came last at the end

    def of(self, name: str, make: Callable[[], Any], *, anew: bool = False) -> Any:
        """What ``name`` keeps for the owner, made where there is none yet; ``anew`` drops what there is first."""
        mine = self._by_owner[owner.get()] = self._by_owner.pop(owner.get(), {})
        while len(self._by_owner) > MOST_OWNERS:
            del self._by_owner[next(iter(self._by_owner))]
        if anew:
            mine.pop(name, None)
        if name not in mine:
            mine[name] = make()
        return mine[name]

    def sizes(self) -> dict[str, str]:
        """How much is kept for the owner, by name, in words."""
        mine = self._by_owner.get(owner.get(), {})
        return {name: f"{len(what):,} {what.unit}" for name, what in mine.items() if len(what)}

    def empty(self, name: str | None = None) -> list[str]:
        """Drop what ``name`` keeps for the owner, or all of it; what was dropped, by name."""
        mine = self._by_owner.get(owner.get(), {})
        names = [one for one in ([name] if name is not None else list(mine)) if one in mine]
        for one in names:
            del mine[one]
        return names


def kept_with(target: Target) -> Kept:
    """What is kept with a target."""
    return target.companions.setdefault("kept", Kept())
