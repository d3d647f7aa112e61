"""Trained parts as files of a published format: from which writers of formats start, and to which they come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from decoders.model.target_model.target import Target


@dataclass(frozen=True, slots=True)
class PartSource:
    """A trained part before it is written: its configuration, its tensors as they are stored (int8 dequantised), the
    target that it belongs to and the name that others open that target by (``verifier``). ``place`` names the part.
    """

    place: str
    config: Any
    weights: Mapping[str, Tensor]
    target: Target
    verifier: str

    @property
    def architectures(self) -> list[str]:
        """The target's classes in transformers."""
        return list(getattr(self.target.config, "architectures", None) or ())

    def rows(self, config: Any) -> Tensor:
        """Rows [drafted, hidden] of the target's output layer, of the tokens that can be drafted, as the part uses
        them.
        """
        head = self.target.head.weight.detach().cpu()[:, : config.hidden]
        return head[self.weights["drafted"].long()] if config.draft_vocab else head


@dataclass(frozen=True, slots=True)
class PartFiles:
    """A part in a published format: its config.json, its tensors by their names there, ``notes`` for who serves it, a
    sentence each, and the tokenizer (transformers') of one that is a model by itself.
    """

    config: dict[str, Any]
    weights: dict[str, Tensor]
    notes: tuple[str, ...] = ()
    tokenizer: Any = None
