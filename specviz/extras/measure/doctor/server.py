"""A server's acceptance, held against teacher-forced drafts of the same drafter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from decoders.errors import UserError
from decoders.importers import open_log
from decoders.trace.acceptance import Acceptance

from .controls import ControlOutcome
from .forced_drafts import PlacedDrafts

LOSS = 0.7  # of the drafted tokens that the same drafter has accepted here; below it the server loses them
LENGTHS = (
    "Mean acceptance length", "Mean acceptance length, about", "mean acceptance length (1 + accepted ÷ drafts)",
    "mean acceptance length",
)  # fmt: skip
POSITIONS = ("Per-position acceptance rate", "acceptance by position (of all drafts)", "acceptance rate per position")
NEAR = 0.5  # of the distance to the drafter as it is: a control that is nearer looks like the server's fault


@dataclass(frozen=True, slots=True)
class ServerNumbers:
    """Acceptance of a server: mean acceptance length (the target's own token included), and the share of drafts that
    stand so far per position, as far as it is known.
    """

    length: float
    by_position: tuple[float, ...] = ()

    @classmethod
    def read(cls, data: bytes, name: str) -> ServerNumbers:
        """From any file of a server that can be imported. Raises UserError where it says nothing of acceptance."""
        contents, total = open_log(data, name), Acceptance()
        for trace in contents.traces:
            total += Acceptance.of(trace)
        length = total.pooled.values()["acceptance_length"] or total.pooled.values()["tokens_per_step"]
        if length is not None:
            return cls(length, tuple(row["unconditional"] or 0.0 for row in total.depths()))
        lengths, rates = list[float](), list[list[float]]()
        for numbers in contents.numbers:
            mean = next((numbers.values[name] for name in LENGTHS if name in numbers.values), None)
            position = next((numbers.values[name] for name in POSITIONS if name in numbers.values), None)
            if isinstance(mean, int | float):
                lengths.append(float(mean))
            if isinstance(position, list):
                rates.append([float(rate) for rate in position])
        if not lengths:
            raise UserError(
                f"{name} says nothing of how much was accepted: give a log or an answer that does (vLLM's lines "
                "“SpecDecoding metrics”, or --per-request-spec-decode-metrics detailed; llama.cpp's log; SGLang's "
                "answers)"
            )
        shortest = min(map(len, rates), default=0)
        by_position = tuple(sum(row[place] for row in rates) / len(rates) for place in range(shortest))
        return cls(sum(lengths) / len(lengths), by_position)


def compare(server: ServerNumbers, base: PlacedDrafts, outcomes: Sequence[ControlOutcome]) -> Iterator[tuple[Any, ...]]:
    """Findings, as ``doctor.Finding``'s fields: whether the server loses what the drafter has accepted here, and which
    control's acceptance its own looks like.
    """
    depth = len(server.by_position) or base.hits.shape[1]
    local_length = sum(base.by_position[:depth])
    served_length = sum(server.by_position[: base.hits.shape[1]]) if server.by_position else server.length - 1
    if served_length >= LOSS * local_length:
        return
    like = _like(server, base, outcomes)
    yield (
        "fault", "server", f"{server.length:.2f} tokens per step there, {base.length:.2f} teacher-forced here",
        f"the server's acceptance looks like the control “{like.change}” ({like.cause})" if like else
        "no control's acceptance looks like the server's",
        (f"look for this in the server: {like.cause}" if like else
         "the part drafts well beside this target, so the loss is in the server: compare its layer ids, chat template, "
         "precision and prefix cache with those of the training"), max(0.5, 2 * (local_length - served_length)),
    )  # fmt: skip


def _like(server: ServerNumbers, base: PlacedDrafts, outcomes: Sequence[ControlOutcome]) -> ControlOutcome | None:
    """The control whose acceptance per position is nearest to the server's, if it is much nearer than the drafter's."""

    def distance(rates: Sequence[float]) -> float:
        if not server.by_position:
            return abs(sum(rates) - (server.length - 1))
        return sum(abs(a - b) for a, b in zip(server.by_position, rates, strict=False))

    nearest = min(outcomes, key=lambda measurement: distance(measurement.by_position), default=None)
    if nearest is None or distance(nearest.by_position) > NEAR * distance(base.by_position):
        return None
    return nearest
