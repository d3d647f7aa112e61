"""Weights of fewer bits (``--weights``) for a model's layers: annexes and plug-ins bring them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from decoders.errors import UserError
from decoders.extra import module_of
from decoders.names import OWN_WEIGHTS, weight_names

from ..files.shape import ModelShape


@dataclass(frozen=True, slots=True)
class RoundedWeights:
    """Facts on a model whose layers are on weights of fewer bits.

    ``info`` goes to a target's record. Keys and values are kept as ``cached_as`` (None: in the model's dtype), and
    transformers' own code attends by ``attention``.
    """

    info: Mapping[str, str]
    cached_as: torch.dtype | None
    attention: str


def weights_for(device: torch.device, dtype: torch.dtype) -> tuple[str, ...]:
    """The weights that a model on this device and in this dtype can be opened on."""
    modules = {name: module_of("weights", name) for name in weight_names()[1:]}
    fitting = (name for name, module in modules.items() if module is not None and module.fits(device, dtype))
    return (OWN_WEIGHTS, *fitting)


def round_model(
    model: Any, shape: ModelShape, weights: str | None, name: str, engine: str, activations: str | None = None
) -> RoundedWeights | None:
    """Put a model's layers on weights of fewer bits; None where it keeps its own. ``activations``: rows are rounded as
    those of the target whose record says so, whatever the engine.

    Raises UserError for unknown weights, and for a model that cannot be put on them.
    """
    if weights in (None, OWN_WEIGHTS):
        return None
    if (module := module_of("weights", weights)) is None:
        raise UserError(f"weights {weights!r} are unknown: use one of {', '.join(weight_names())}")
    return module.round_model(model, shape, weights, name, engine, activations)


def rounded_bytes(weights: str | None, count: int, head: int, tables: int, engine: str, itemsize: int) -> int:
    """Bytes of a model of ``count`` numbers, once its layers are on these weights: ``head`` numbers are its head's, and
    ``tables`` are those of its embedding and its head together.
    """
    module = None if weights is None else module_of("weights", weights)
    return count * itemsize if module is None else module.rounded_bytes(weights, count, head, tables, engine, itemsize)
