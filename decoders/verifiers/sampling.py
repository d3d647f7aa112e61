"""From logits to choices: one target token per visited node, greedy or sampled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from decoders.draft.settings import Sampling
from decoders.model.state.transfer import fetch, send


def drawn_token(distribution: Float[Tensor, " vocab"], point: float) -> int:
    """The token that a uniform number in [0, 1] stands for, by inverting the distribution.

    >>> drawn_token(torch.tensor([0.5, 0.0, 0.5]), 0.6)
    2
    """
    return int(drawn_tokens(distribution[None], [point]))


def drawn_tokens(
    distributions: Float[Tensor, "rows vocab"], points: Float[Tensor, " rows"] | Sequence[float]
) -> Int[Tensor, " rows"]:
    """The token that each row's number in [0, 1] stands for, on the device; a tensor of numbers stands there too.

    >>> drawn_tokens(torch.tensor([[0.5, 0.0, 0.5], [0.2, 0.8, 0.0]]), torch.tensor([0.6, 1.0])).tolist()
    [2, 1]
    """
    cumulative = distributions.double().cumsum(-1)
    total = cumulative[:, -1:].contiguous()
    if isinstance(points, Tensor):
        at = total * points[:, None]
    else:
        at = torch.cat([row * point for row, point in zip(total.split(1), points, strict=True)])
    last = torch.searchsorted(cumulative, total)  # the last token that has a share: rounding may lead behind it
    return torch.minimum(torch.searchsorted(cumulative, at, right=True), last)[:, 0]


class Chooser:
    """Draws the target's token after a node.

    A sampled run draws one uniform number per emitted token and inverts the distribution, so plain decoding and any
    lossless method emit the same tokens from the same seed. ``warpers`` take the place of the sampling's own.
    """

    row: Callable[[int], Float[Tensor, "1 vocab"]] | None = None  # of a step's node, where scores are processed by node

    def __init__(self, sampling: Sampling, warpers: LogitsProcessorList | None = None) -> None:
        self.sampling = sampling
        self.random = np.random.default_rng(sampling.seed)
        self.warpers = _warpers(sampling) if warpers is None else warpers

    def probabilities(self, logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        """The distribution tokens are drawn from (temperature, top-k and top-p applied)."""
        return torch.softmax(self.warpers(None, logits), -1)  # type: ignore[arg-type]

    def choices(self, logits: Float[Tensor, "nodes vocab"], depths: Sequence[int] = (0,)) -> Choices:
        """Choices for the nodes of one draft, which stand at ``depths``, drawn as nodes are visited from the root."""
        return Choices(self, logits, depths)

    def draws_ahead(self, count: int) -> np.ndarray:
        """The uniform numbers that will be drawn next; they stay to be drawn."""
        return copy.deepcopy(self.random).random(count)


def _warpers(sampling: Sampling) -> LogitsProcessorList:
    warpers = LogitsProcessorList()
    if not sampling.greedy:
        if sampling.temperature != 1:
            warpers.append(TemperatureLogitsWarper(float(sampling.temperature)))
        if sampling.top_k:
            warpers.append(TopKLogitsWarper(int(sampling.top_k)))
        if sampling.top_p < 1:
            warpers.append(TopPLogitsWarper(float(sampling.top_p)))
    return warpers


class Choices:
    """The target's token after each visited node of one draft.

    A sampled run on a CPU draws when a node is visited, as most are not; on a GPU it draws for all of them, as asking
    again and again costs more. The numbers are the same: one per visited node, the d-th for a node at depth d.
    """

    def __init__(self, chooser: Chooser, logits: Float[Tensor, "nodes vocab"], depths: Sequence[int]) -> None:
        self.chooser, self.logits, self.greedy = chooser, logits, chooser.sampling.greedy
        self.choices: list[int] | None = None
        if chooser.row is not None:
            return
        if self.greedy:
            self.choices = fetch(logits.argmax(-1))[0].tolist()
        elif logits.device.type != "cpu":
            random_points = chooser.draws_ahead(max(depths) + 1)[list(depths)]
            points = random_points.tolist() if len(random_points) == 1 else send(logits.device, random_points)[0]
            self.choices = fetch(drawn_tokens(chooser.probabilities(logits), points))[0].tolist()

    def draw_after(self, node: int) -> int:
        """The target's own next token after ``node``; ask once per visited node, from the root on."""
        point = None if self.greedy else float(self.chooser.random.random())
        if self.choices is not None:
            return self.choices[node]
        row = self.logits[node : node + 1] if self.chooser.row is None else self.chooser.row(node)
        return int(row.argmax(-1)) if point is None else drawn_token(self.chooser.probabilities(row)[0], point)
