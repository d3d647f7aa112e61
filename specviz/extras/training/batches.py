"""Training text as token batches: whole documents, bucketed by length."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

PROMPT, RESPONSE, IGNORED = 0, 1, 2


@dataclass(frozen=True)
class TrainingDocument:
    """Token ids and, per token, what it is: PROMPT, RESPONSE (to be learnt) or IGNORED. ``held_out``: it is meant for
    validation.
    """

    ids: tuple[int, ...]
    kinds: tuple[int, ...]
    held_out: bool = False


@dataclass(frozen=True)
class Batch:
    """`ids` and `kinds`, both (rows, length), padded at the right with IGNORED."""

    ids: Tensor
    kinds: Tensor

    @property
    def tokens(self) -> int:
        """Tokens that are not padding."""
        return int((self.kinds != IGNORED).sum())


def batches_of(documents: Sequence[TrainingDocument], budget: int, shuffle: str = "") -> list[Batch]:
    """Documents of like length together, at most ``budget`` tokens a batch, padding included; in an order that depends
    on the text ``shuffle`` alone where one is given.
    """
    groups = bucket(documents, budget)
    if shuffle:
        random.Random(shuffle).shuffle(groups)
    return [pad(group, 0) for group in groups]


def pad(documents: Sequence[TrainingDocument], padding: int, multiple: int = 8) -> Batch:
    """`documents` as one batch whose length is a multiple of `multiple`."""
    longest = max(len(d.ids) for d in documents)
    length = -(-longest // multiple) * multiple
    ids = torch.full((len(documents), length), padding)
    kinds = torch.full((len(documents), length), IGNORED)
    for row, document in enumerate(documents):
        ids[row, : len(document.ids)] = torch.tensor(document.ids)
        kinds[row, : len(document.kinds)] = torch.tensor(document.kinds)
    return Batch(ids, kinds)


def bucket(documents: Sequence[TrainingDocument], budget: int) -> list[list[TrainingDocument]]:
    """Documents of like length together, each group at most `budget` tokens with its padding."""
    groups: list[list[TrainingDocument]] = []
    for document in sorted(documents, key=lambda d: len(d.ids)):
        if groups and (len(groups[-1]) + 1) * len(document.ids) <= budget:
            groups[-1].append(document)
        else:
            groups.append([document])
    return groups
