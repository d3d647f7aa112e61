"""A network's drafts along texts that are given, as the drafter doctor asks for them (``Kind.chain``)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from decoders.model.state.memory import Context

from .draft_run import DraftRun, target_rotary

if TYPE_CHECKING:
    from decoders.model.target_model.target import Target

# logits [depth, drafted] of the tokens behind a context, each behind the tokens that are given before it
Chain = Callable[[Context, Sequence[int]], Float[Tensor, "depth drafted"]]
# the same behind several contexts, which are one text as far as different places
Chains = Callable[[Sequence[Context], Sequence[Sequence[int]]], Float[Tensor, "contexts depth drafted"]]


@dataclass(frozen=True, slots=True)
class Option:
    """A network with a switch of its description that changes no shape set otherwise: the ``cause`` in a word or two,
    the change in a clause, and what to do where it helps. ``is_screened``: it is tried at a few places first.
    """

    cause: str
    change: str
    advice: str
    network: Any
    is_screened: bool = True


class ForcedChain:
    """Drafts of a network along texts that are given; a kind's own says what differs.

    ``parallel``: all positions are guessed from one state, so that they are all asked at once. ``feeds_back``: later
    positions read the network's own states. ``borrows``: it has the target's embedding and head, or tables like these.
    """

    parallel, feeds_back, borrows = False, True, False

    def __init__(self, network: Any, target: Target) -> None:
        self.network, self.target, self.config = network, target, network.config

    @property
    def layers(self) -> tuple[int, ...]:
        """The target's states that it asks for."""
        return tuple(getattr(self.config, "features", ()))

    @property
    def reads_text(self) -> bool:
        """True where its drafts depend on more of the text than the last state and the draft."""
        return True

    @property
    def rotary_part(self) -> Any:
        """Its part whose ``config`` has rotary positions (``rope``, ``windows``); None where they are the target's."""
        return None

    def with_rotary_part(self, part: Any) -> Any:
        """The network with another such part."""
        return part

    def depth(self, limit: int) -> int:
        """Tokens of its drafts, where at most so many are wanted."""
        return limit

    def chain(self, depth: int) -> Chain:
        """The logits along drafts that are given, for one text."""
        raise NotImplementedError

    def chains(self, depth: int) -> Chains:
        """The logits along drafts behind several places of one text; one after another, where its kind says no more."""
        chain = self.chain(depth)
        return lambda contexts, drafts: torch.stack([chain(*pair) for pair in zip(contexts, drafts, strict=True)])

    def options(self, depth: int) -> Iterator[Option]:
        """Switches of its description that change no shape, each set otherwise."""
        yield from ()


class ModelChain(ForcedChain):
    """A draft model's."""

    def chain(self, depth: int) -> Chain:
        return chain_of(DraftRun(self.network, target_rotary(self.target.stack)), depth, self.network.drafted)


def chain_of(run: Any, depth: int, drafted: Tensor | None) -> Chain:
    """The chain of a run that reads a text and goes on by a token at a time, with logits over all tokens."""

    def chain(context: Context, tokens: Sequence[int]) -> Tensor:
        step_logits = [run.read(context)]
        step_logits += [run.extend([token], [place - 1])[0] for place, token in enumerate(tokens[: depth - 1])]
        logits = torch.stack(step_logits)
        return logits if drafted is None else logits[:, drafted.long()]

    return chain


def with_settings(network: Any, **changes: Any) -> Any:
    """The network with other settings in its configuration, on the same weights."""
    variant = copy.copy(network)
    variant._modules = dict(network._modules)
    variant.config = replace(network.config, **changes)
    return variant


def usual_states(layers: int) -> tuple[int, ...]:
    """The states that a network of several usually reads of a target with so many layers: 2, n // 2 and n - 3; of one
    too shallow for three of these, n // 4, n // 2 and n - 1.
    """
    n = layers
    return (2, n // 2, n - 3) if 2 < n // 2 < n - 3 else tuple(sorted({n // 4, n // 2, n - 1}))
