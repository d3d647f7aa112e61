"""The signals that tell an answer's sources: methods that copy, and what each looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from specviz.server.desk import Desk

if TYPE_CHECKING:
    from decoders import Prompt


def chosen_signals(desk: Desk, names: Sequence[str]) -> tuple[str, ...]:
    """Names of signals, each once. Raises UserError where there is none, or one is no signal."""
    allowed = [name for name, method in desk.methods().items() if method.signal]
    if not names:
        raise UserError(f"no signal is chosen: choose at least one of {', '.join(allowed)}")
    for name in names:
        if name not in allowed:
            raise UserError(f"there is no signal {name[:40]!r}: choose of {', '.join(allowed)}")
    return tuple(dict.fromkeys(names))


def unfit(desk: Desk, name: str, prompt: Prompt) -> str:
    """Why a method cannot draft for this prompt on the loaded model; "" if it can."""
    target: Any = desk.target()
    method = desk.methods()[name]
    if missing := method.missing(target):
        return f"{method.title} was left out: {missing}"
    if method.needs(target, method.params()).pool and prompt.context_pool() is None:
        return f"{method.title} was left out: it drafts from passages, and this prompt has none"
    return ""
