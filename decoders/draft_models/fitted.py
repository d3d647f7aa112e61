"""A published head, checked against one target: configuration, weights and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Fitted:
    """A published head, checked against a target: its configuration here, its weights by the network's names, and what
    a run's record says of it (``about``).

    ``tried`` is called with the network once it stands beside the target: it may settle what the checkpoint leaves
    open, and gives what the record says of that.
    """

    config: Any
    weights: Mapping[str, Tensor]
    about: dict[str, Any] = field(default_factory=dict)
    tried: Callable[[nn.Module], dict[str, Any]] | None = None
