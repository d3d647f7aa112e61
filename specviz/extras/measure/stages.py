"""Long work in stages where the model is, by the app or by a backend of it; between two stages runs of others are made.

Functions of a ``Holder`` and plain JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from decoders.errors import UserError

if TYPE_CHECKING:
    from specviz.server.backend_host import Holder


class Stage(NamedTuple):
    """Progress of some work: ``done`` of ``total``, in ``words`` the stage, and the ``partial`` report."""

    done: int
    total: int
    words: str
    partial: dict[str, Any] | None = None


Stages = Generator[Stage, None, Any]


def advance(holder: Holder, memory: str, key: str, begin: Callable[[], Stages] | None, lost: str) -> dict[str, Any]:
    """Do the next stage of the work ``key`` that a holder has under ``memory``, which ``begin`` starts where it is the
    first: ``Stage``'s fields, or the {"report"} behind the last one. Raises UserError (``lost``) where the work is not
    held here (any more), and as the work does.
    """
    under_way: dict[str, Stages] = holder.memory.setdefault(memory, {})
    if begin is not None:
        under_way[key] = begin()
    if key not in under_way:
        raise UserError(lost)
    try:
        return next(under_way[key])._asdict()
    except StopIteration as end:
        del under_way[key]
        return {"report": end.value}
    except BaseException:
        del under_way[key]
        raise


def forget(holder: Holder, memory: str, key: str) -> dict[str, Any]:
    """Let go of work that was stopped."""
    holder.memory.get(memory, {}).pop(key, None)
    return {}
