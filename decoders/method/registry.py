"""The methods that are registered in this process, by name. ``decoders.drafters`` finds and adds them; a method that is
made of others looks them up here.
"""

from __future__ import annotations

import contextlib
from typing import Any

from decoders.errors import UserError
from decoders.names import UNDER
from decoders.verifiers.registry import registered_verifiers

from .method import Method, under


class Methods(dict[str, Method]):
    """Methods by name. ``METHOD@VERIFIER`` is there too, though no list of them names it."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self._judge(name) is not None

    def __getitem__(self, name: str) -> Method:
        if super().__contains__(name):
            return super().__getitem__(name)
        if (method := self._judge(name)) is None:
            raise KeyError(name)
        return method

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 (dict's own get would not ask us)

    def _judge(self, name: object) -> Method | None:
        base, mark, judge = str(name).partition(UNDER)
        cards = registered_verifiers() if mark else {}
        with contextlib.suppress(UserError):  # their parameters collide: ``find_method`` says so
            return under(super().__getitem__(base), cards[judge]) if judge in cards and base in self else None
        return None


REGISTRY = Methods()
