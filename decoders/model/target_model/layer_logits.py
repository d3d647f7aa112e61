"""The logits of every layer of a model, as if it were the last: its output through the final norm and the head (the
logit lens: nostalgebraist, 2020, "interpreting GPT").

No list of families says what a model does behind its layers: it is seen in the forward itself, and checked in it. The
last layer read so must give the model's own logits, else nothing is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from decoders.errors import UserError

from .target import Session, Target

TOLERANCE = 1e-3  # of the logits' spread, or 1: how far the last layer's lens may be from the model's own logits


@torch.inference_mode()
def layer_logits(session: Session, tokens: Sequence[int]) -> tuple[Float[Tensor, "layers+1 vocab"], float]:
    """Logits after ``tokens`` (the session's root and what follows it) by layer: row 0 reads the embedding, row i what
    layer i hands on; the last row is the model's own prediction. And how far the check found that row from the model's
    own logits. Nothing is committed.

    Raises UserError for a model whose last layer does not give its logits so.
    """
    target = session.target
    states: list[Tensor] = []
    tail_calls: list[tuple[nn.Module, Tensor, Tensor]] = []  # modules behind the layers: with input and output
    positions = np.arange(session.length - 1, session.length - 1 + len(tokens))
    with ExitStack() as hooks, target.lock:
        _watch(target, hooks, states, tail_calls)
        own_logits = target.forward(session.cache, session.masks, tokens, positions, None)[-1]
        modules = _chain(states[-1], tail_calls)
    rows = torch.stack([state[0, -1] for state in states])[None]
    for module in modules:
        rows = _output(module(rows))
    logits = target.head.squash(target.head(rows)[0].float())
    distance = float((logits[-1] - own_logits).abs().max())
    if not distance <= TOLERANCE * max(1.0, float(own_logits.std())):
        raise UserError(
            f"{target.name} ({target.shape.family}) does more behind its last layer than norm and head: read through "
            f"them, that layer's logits are {distance:.2g} away from the model's own, so no layer is read"
        )
    logits[-1] = own_logits
    return logits, distance


def _watch(target: Target, hooks: ExitStack, states: list[Tensor], tail_calls: list[Any]) -> None:
    """Keep what enters the first layer and what each one hands on, and what runs behind the last one."""
    first, count = target.layers[0], len(target.layers)

    def enters(module: nn.Module, args: tuple, kwargs: dict) -> None:
        states.append(args[0] if args else kwargs["hidden_states"])

    hooks.callback(first.register_forward_pre_hook(enters, with_kwargs=True).remove)
    for layer in target.layers:
        hooks.callback(layer.register_forward_hook(lambda module, args, out: states.append(_output(out))).remove)

    def ran(module: nn.Module, args: tuple, out: Any) -> None:
        if len(states) == count + 1 and args:
            tail_calls.append((module, args[0], _output(out)))

    for child in target.stack.children():
        if child is not target.layers:
            hooks.callback(child.register_forward_hook(ran).remove)


def _chain(state: Tensor, tail_calls: list[tuple[nn.Module, Tensor, Tensor]]) -> list[nn.Module]:
    """The modules that the last layer's output went through, in order."""
    modules: list[nn.Module] = []
    for module, input_state, output in tail_calls:
        if input_state is state:
            modules.append(module)
            state = output
    return modules


def _output(out: Any) -> Tensor:
    return out[0] if isinstance(out, tuple) else out
