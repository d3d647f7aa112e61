"""The parts of a transformers network: its decoder layers, its head, the device it is on."""

from __future__ import annotations

import torch
from torch import nn

from decoders.errors import UserError


def one_device(model: nn.Module, name: str) -> torch.device:
    """The device of all weights. Raises UserError for a model that is spread."""
    devices = sorted({str(weight.device) for weight in (*model.parameters(), *model.buffers())})
    if len(devices) > 1:
        raise UserError(
            f"{name} is spread over {', '.join(devices)}, and keys and values are kept on one device: load it on one, "
            "or choose a smaller model or dtype"
        )
    return next(model.parameters()).device


def decoder_stack(model: nn.Module, count: int) -> tuple[nn.Module, nn.ModuleList]:
    """The module that runs the decoder layers (its output is the last hidden state), and their list."""
    for parent in model.modules():
        for child in parent.children():
            if isinstance(child, nn.ModuleList) and len(child) == count:
                return parent, child
    raise UserError(
        f"no list of {count} decoder layers was found in {type(model).__name__}: this architecture is not supported"
    )


def put_in_place(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Puts a module where another one is."""
    for parent in model.modules():
        for name, child in parent.named_children():
            if child is old:
                setattr(parent, name, new)
                return
    raise UserError(f"{type(model).__name__} has no language-model head to read")
