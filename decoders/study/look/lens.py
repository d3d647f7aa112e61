"""At which layer the target leaves a drafted token: the logit lens at one place of a recorded run.

The text up to the place is read teacher-forced, and what every layer hands on is read as if it were the last one. It is
computed when it is asked for, and no part of the run. Its limits: only the last layer was trained to be read so. Early
ones often say little through the head, and a token that is far down there may well be on its way (Belrose et al. 2023,
"tuned lens"); which layer *causes* a prediction it cannot say.

>>> seen = lens(ReadRun(target, trace), 12, 3)                  # doctest: +SKIP
>>> seen.decided, seen.layers                                   # doctest: +SKIP
(24, 30)
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from decoders.draft.needs import Needs
from decoders.errors import UserError
from decoders.model.target_model.layer_logits import layer_logits
from decoders.model.target_model.target import Target

from .run_settings import check_step
from .whatif import ReadRun

LIMITS = (
    "Only the last layer was trained to be read through the head: early layers often say little, and what they say "
    "is no cause."
)


@dataclass(frozen=True, slots=True)
class Course:
    """A token through the layers: its probability and its rank (0: the first choice), of the embedding first."""

    token: int
    probs: tuple[float, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lens:
    """The layers' guesses at the place of node ``node`` of step ``step`` (from 0; node 0 is the root), at temperature
    1: of the ``drafted`` token, and of the target's ``own`` one, which is what was written there or (off the accepted
    path) the target's first choice. ``tops`` are the layers' first choices, with their probabilities.

    ``deciding_layer`` is the layer from which on the own token stands above the drafted one (0: the embedding already);
    None where both are one token, or where it never does. ``settled`` is the layer from which on the own token is the
    first choice, None where it is none in the end. ``position`` is the place's in the text; ``apart`` how far the
    self-check found the last layer from the model's own logits; ``ms`` the time it took. ``pieces`` are the bytes of
    all tokens that are named, as the trace's table of that name has them.
    """

    step: int
    node: int
    position: int
    drafted: Course
    own: Course
    tops: tuple[tuple[int, float], ...]
    decided: int | None
    settled: int | None
    apart: float
    ms: float
    pieces: Mapping[str, list[Any]]

    def text(self, token: int) -> str:
        """A token's text; of a character that is cut into tokens, a replacement sign."""
        return bytes.fromhex(self.pieces["hex"][self.pieces["id"].index(token)]).decode("utf-8", "replace")

    @property
    def layers(self) -> int:
        return len(self.tops) - 1

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "layers": self.layers, "limits": LIMITS}


def lens(read: ReadRun, step: int, node: int) -> Lens:
    """The lens at a drafted node. Raises UserError for a step or node that is not there, a place that was not recorded,
    and a model that cannot be read so (``layer_logits``).
    """
    start_time = time.perf_counter()
    trace = read.trace
    check_step(trace, step)
    table, rows = trace.tables["nodes"], read.rows("nodes", step)
    if not 1 <= node < len(rows):
        has = f"nodes 1 to {len(rows) - 1}" if len(rows) > 1 else "no drafted token"
        raise UserError(f"there is no node {node} in step {step + 1}: it has {has}")
    path = [node]
    while path[0]:
        path.insert(0, table["parent"][rows[path[0]]])
    ids = [table["token"][rows[number]] for number in path]
    if not all(0 <= token < read.target.info["vocab"] for token in ids):
        raise UserError("what was drafted there was not recorded")
    length = trace.tables["steps"]["context"][step]
    ids[0] = trace.tables["tokens"]["id"][length - 1]
    if length + len(ids) - 2 >= read.target.context_length:
        raise UserError(f"this place is beyond the {read.target.context_length:,} tokens that the model reads")
    with read.session.at(length, Needs()) as part:
        logits, deviation = layer_logits(part, ids[:-1])
    probs = logits.double().softmax(-1)
    own_token = _written_token(read, step, path[-2])
    own_token = int(logits[-1].argmax()) if own_token is None else own_token
    drafted, own_course = (_course(logits, probs, token) for token in (ids[-1], own_token))
    best = probs.max(-1)
    return Lens(
        step, node, length + len(ids) - 2, drafted, own_course,
        tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True)), deciding_layer(drafted, own_course),
        _onwards([rank == 0 for rank in own_course.ranks]), deviation, (time.perf_counter() - start_time) * 1e3,
        _pieces(read.target, {ids[-1], own_token, *best.indices.tolist()}),
    )  # fmt: skip


def deciding_layer(drafted: Course, own_course: Course) -> int | None:
    """The layer from which on ``own_course`` ranks above ``drafted``; None where it is the same token, or does not in
    the end.

    >>> deciding_layer(Course(5, (0.9, 0.2, 0.1), (0, 3, 4)), Course(7, (0.0, 0.6, 0.8), (9, 0, 0)))
    1
    """
    if drafted.token == own_course.token:
        return None
    return _onwards(
        [own_rank < draft_rank for own_rank, draft_rank in zip(own_course.ranks, drafted.ranks, strict=True)]
    )


def _onwards(holds: Sequence[bool]) -> int | None:
    """The first layer from which on something holds; None where it does not hold of the last."""
    layer = len(holds)
    while layer and holds[layer - 1]:
        layer -= 1
    return layer if layer < len(holds) else None


def _written_token(read: ReadRun, step: int, parent: int) -> int | None:
    """The token that the run wrote after a node, where it stands on the accepted path."""
    table, rows = read.trace.tables["nodes"], read.rows("nodes", step)
    if parent and table["status"][rows[parent]] != "accepted":
        return None
    for row in rows:
        if table["parent"][row] == parent and table["status"][row] == "accepted":
            return table["token"][row]
    bonus = read.trace.tables["steps"]["bonus"][step]
    return bonus if bonus >= 0 else None


def _pieces(target: Target, tokens: Collection[int]) -> dict[str, list[Any]]:
    pieces = target.pieces
    entries = [(token, *(pieces.of(token) if pieces else (f"<{token}>".encode(), False))) for token in sorted(tokens)]
    return {
        "id": [token for token, _, _ in entries],
        "hex": [data.hex() for _, data, _ in entries],
        "special": [special for _, _, special in entries],
    }


def _course(logits: torch.Tensor, probs: torch.Tensor, token: int) -> Course:
    """Ranks count the tokens with more, and among equals those before: no two tokens share one."""
    token_logits = logits[:, token, None]
    ranks = (logits > token_logits).sum(-1) + (logits[:, :token] == token_logits).sum(-1)
    return Course(token, tuple(probs[:, token].tolist()), tuple(ranks.tolist()))
