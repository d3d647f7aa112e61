"""Kinds of trained parts, as the cards of the methods that draft with them declare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

from decoders.errors import UserError
from decoders.extra import has_command

if TYPE_CHECKING:
    from torch import nn

    from decoders.model.files.shape import ModelShape
    from decoders.model.target_model.target import Target

COMPANION = "drafter"  # a target's companion: the draft model of runs that name none (``Method.offered``)
DRAFT_MODELS, PROMPT_TOKENS, HEADS = FAMILIES = "draft models", "prompt tokens", "heads"
MINUTES = 45.0  # of computing, for a kind that says nothing else


class PartConfig(Protocol):
    """The shape of a part, as its description holds it."""

    def to_json(self) -> dict[str, Any]: ...

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Back from ``to_json``. Raises KeyError, TypeError or ValueError for anything else."""
        ...

    def misfit(self, shape: ModelShape) -> str | None:
        """The reason why a part of this shape cannot run on such a target, in a clause; None if it can."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """Training of a kind of part: a line of ``specviz train``, and what experiments may vary.

    ``family`` (of ``FAMILIES``) names the training loop and its options, ``own`` those settings of its recipe that not
    every kind of the family has. ``minutes`` is the usual computing time. ``settings`` are passed to the loop as they
    are. ``lesson`` is what heads learn: a ``decoders.draft_models.lesson.HeadKind``, or a function that gives one when
    a training begins. ``varies`` names the settings that an experiment may vary between parts. ``defaults`` are
    settings of its recipe whose default differs from the family's. ``worth`` is its share of a budget for all kinds,
    beside the others'; the greatest is trained first.
    """

    family: str
    summary: str
    about: str
    minutes: float = MINUTES
    own: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    lesson: Any = None
    varies: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    worth: float = 0.08


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of trained part: its name in commands and folders, its title, its configuration, the network of that
    shape, how one that others published is fitted to a target, and how it is trained here. ``formats`` are the
    published ones that it can be written in, by name: each makes a ``decoders.draft_models.part_files.PartFiles`` of a
    ``PartSource``, or raises UserError. ``reads`` are those that others publish it in, each a
    ``decoders.draft_models.published.Format``. ``compiled`` gives a network's forwards by a target's engine, which
    has none of its own of most networks (None). ``chain`` gives its drafts along given texts,
    which the drafter doctor examines (``decoders.draft_models.forced_chain.ForcedChain``). ``ranks`` gives, of guesses
    that follow from a position alone, per distance the ranks of the tokens that came, for a target, a network, tokens
    and the number of those that are the prompt's.
    """

    name: str
    title: str
    config: type[PartConfig]
    network: Callable[[Any], nn.Module]
    published: Callable[[Any, Target], Any] | None = None
    training: Training | None = None
    formats: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    reads: tuple[Any, ...] = ()
    compiled: Callable[[Target, Any], Any] | None = None
    chain: Callable[[Any, Target], Any] | None = None
    ranks: Callable[[Target, Any, Sequence[int], int], list[Any]] | None = None


_kinds: dict[str, Kind] = {}
_sources: list[Callable[[], object]] = []  # each registers the kinds of the methods that it knows


def register_kind(kind: Kind) -> None:
    """Add the kind of part that a registered method drafts with."""
    _kinds[kind.name] = kind


def register_kinds_from(source: Callable[[], object]) -> None:
    """Add a function that registers kinds, called before they are listed: the registry of methods stands above."""
    _sources.append(source)


def kinds() -> Mapping[str, Kind]:
    """Kinds of parts by name: those of all registered methods, in their order."""
    for source in _sources:
        source()
    return _kinds


def training_of(kind: str) -> Training:
    """The training of parts of a kind. Raises UserError where they are not trained here."""
    training = kinds()[kind].training
    if training is None:
        raise UserError(f"parts of the kind {kind} are not trained here: keep a published one with `specviz parts add`")
    return training


def train_command(kind: str, model: str = "") -> str:
    """The command that trains a part of a kind for a model; "" where nothing that is installed does."""
    if kinds()[kind].training is None or not has_command("train"):
        return ""
    return f"specviz train {kind}" + (f" --model {model}" if model else "")


def how_to_get(kind: str, model: str = "") -> str:
    """A clause with the command that brings a model's part of a kind: it trains one, or keeps one that is there."""
    if command := train_command(kind, model):
        return f"make one with `{command}`"
    published = "name a published one (`part`), or " if kinds()[kind].published is not None else ""
    return f"{published}keep one with `specviz parts add PLACE --model {model or 'M'}`"
