"""Peers: other ways to the same text, measured beside methods. generate() is the core's, annexes bring others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.extra import entries_of
from decoders.names import BASELINE

if TYPE_CHECKING:
    from decoders.model.target_model.target import Target

    from .stock import Generation, StockModel

GENERATE = "generate()"


class PeerLost(UserError):
    """A peer that takes no more part: why, in one sentence."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another way to the same text. ``generate``: prompt, most tokens to write and stop tokens → what was written.
    ``lossless``: its tokens ought to be plain decoding's.
    """

    name: str
    generate: Callable[[Sequence[int], int, Sequence[int]], Generation]
    lossless: bool = True


@dataclass(frozen=True, slots=True)
class PeerSetup:
    """A benchmark as peers see it: the target, transformers' own copy of it and its ``source``, the methods with their
    parameters, and the tokens of the longest prompt with its output.
    """

    target: Target
    stock: StockModel
    source: Path
    methods: Mapping[str, Any]
    longest: int


def peers_of(setup: PeerSetup) -> tuple[list[Peer], list[str]]:
    """generate(), then the peers of annexes; and a sentence for each that cannot take part."""
    peers, notes = [Peer(GENERATE, setup.stock.time_run)], list[str]()
    for _, module in entries_of("peers"):
        others, reasons = module.peers_of(setup)
        peers += others
        notes += reasons
    return peers, notes


def peer_pairs() -> list[tuple[str, str, str]]:
    """A method of ours, its peer, and what their ratio is called."""
    pairs = [(BASELINE, GENERATE, f"{BASELINE} ÷ {GENERATE}")]
    return pairs + [pair for _, module in entries_of("peers") for pair in module.PAIRS]
