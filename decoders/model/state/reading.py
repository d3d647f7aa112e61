"""Probes that are read in a way of their own (PPD appendix D): trained keys and values that only they see, the states
of several layers, another head. The target's own rows keep every bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from decoders.draft.draft import Reading

from .cache import TreeCache


@contextmanager
def read_with(
    reading: Reading | None, cache: TreeCache, stack: nn.Module, layers: nn.ModuleList, nodes: int
) -> Iterator[Callable[[Float[Tensor, "rows vocab"]], Float[Tensor, "rows vocab"]]]:
    """While a forward runs whose rows from ``nodes`` on are probes: arranges for their reading, and gives what makes
    its logits of the target's.
    """
    if reading is None:
        yield lambda logits: logits
        return
    states: list[Tensor] = []
    hooks: list[Any] = []
    if reading.exits is not None:
        hooks += _join_exits(reading.exits, layers, nodes)
    if reading.head is not None:
        hooks.append(stack.register_forward_hook(lambda module, args, output: states.append(output[0][0, nodes:])))

    def read(logits: Tensor) -> Tensor:
        if reading.head is None:
            return logits
        return torch.cat([logits[:nodes], F.linear(states[-1].float(), reading.head)])

    cache.prefix = reading.prefix
    try:
        yield read
    finally:
        cache.prefix = None
        for hook in hooks:
            hook.remove()


def _join_exits(weights: Float[Tensor, " exits"], layers: nn.ModuleList, nodes: int) -> list[Any]:
    """Hooks that put the weighted sum of the last layers' states in place of the probes' last state."""
    last: Sequence[nn.Module] = list(layers)[-len(weights) :]
    exit_states: list[Tensor] = []

    def catch(module: nn.Module, args: Any, output: Any) -> Any:
        states = output if isinstance(output, Tensor) else output[0]
        exit_states.append(states[0, nodes:])
        if module is not last[-1]:
            return None
        joint_states = states.clone()
        joint_states[0, nodes:] = torch.einsum("erh,e->rh", torch.stack(exit_states).float(), weights.float()).to(
            states
        )
        exit_states.clear()
        return joint_states if isinstance(output, Tensor) else (joint_states, *output[1:])

    return [layer.register_forward_hook(catch) for layer in last]
