"""The numbers that a trace keeps of a step's tensors: the target's choices, a draft model's, and where it looked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.draft.draft import Looks
from decoders.model.transfer import fetched, rows_of, sent
from decoders.trace.tables import TABLES
from decoders.verifiers.residual import overlap, residual
from decoders.verifiers.sampling import Chooser

from .decoding import Step

TARGET_CHOICES = 5  # the target's first choices kept after each visited node
DRAFTER_CHOICES = 8  # those of a draft model
MEAN_LOOKS, MEAN_LEAST = 24, 0.005  # attention weights kept per node, averaged over heads: so many, if so large
BLOCK = 256  # logits looked through together
HEAD_LOOKS, HEAD_LEAST = 8, 0.02  # the same per head


def finite(values: np.ndarray) -> list[float | None]:
    """Numbers as a trace keeps them: six decimals, None for what is not finite."""
    rounded: list[float | None] = values.round(6).tolist()
    return rounded if np.isfinite(values).all() else [v if math.isfinite(v) else None for v in rounded]  # type: ignore


def most_likely(logits: Float[Tensor, "rows vocab"], k: int) -> tuple[Tensor, Tensor]:
    """As ``topk``: values and places [rows, k]. A large vocabulary is read in blocks, of which those with the highest
    numbers are looked through: several times faster on a CPU.
    """
    rows, vocab = logits.shape
    if vocab % BLOCK or vocab < 2 * k * BLOCK:
        return logits.topk(min(k, vocab), dim=-1)
    blocks = logits.view(rows, -1, BLOCK)
    best = blocks.amax(-1).topk(k).indices
    values, place = blocks.gather(1, best[:, :, None].expand(-1, -1, BLOCK)).flatten(1).topk(k)
    return values, best.gather(1, place // BLOCK) * BLOCK + place % BLOCK


def higher(logits: Float[Tensor, "rows vocab"], mine: Float[Tensor, "rows 1"]) -> Int[Tensor, "rows"]:
    """How many of a row's numbers are higher. Ones are added as floats, which a CPU does several numbers at a time."""
    return torch.gt(logits, mine, out=torch.empty_like(logits)).sum(-1, dtype=torch.float32).int()


class TargetNumbers:
    """What a trace keeps of the logits of some steps, one list entry per step.

    The target's probability and rank of every node after its parent (None and -1 for the root) and of the bonus, its
    first choices after visited nodes, its entropy at the root.
    """

    def __init__(self, steps: list[Step]) -> None:
        parts = [step.scored.logits for step in steps]
        logits = parts[0] if len(parts) == 1 else torch.cat(parts)
        starts = [0, *accumulate(len(part) for part in parts[:-1])]
        normaliser, device = logits.logsumexp(-1), logits.device
        placed = list(zip(steps, starts, strict=True))
        parents = [start + p for step, start in placed for p in step.draft.tree.parents[1:]]
        tokens = [t for step in steps for t in step.draft.tree.tokens[1:]]
        drafted = len(tokens)
        parents += [start + step.verdict.path[-1] for step, start in placed]  # each step's bonus, behind the nodes
        tokens += [step.verdict.bonus or 0 for step in steps]
        visited = [(step.index, start, node) for step, start in placed for node in step.verdict.path]
        after = [start + node for _, start, node in visited]
        indexes = (np.asarray(numbers, dtype=np.int64) for numbers in (parents, tokens, after, starts))
        above, wanted, rows, at = sent(device, *indexes)
        before = logits[above]
        mine = before.gather(1, wanted[:, None])
        top, choice = most_likely(logits[rows], TARGET_CHOICES)
        width = top.shape[1]
        roots = logits[at] - normaliser[at][:, None]
        read = fetched(
            normaliser, mine[:, 0], higher(before, mine), choice,
            (top - normaliser[rows][:, None]).exp().double().mul_(1e6).round_().div_(1e6),
            -(roots.exp() * roots.clamp_min(-1e30)).sum(-1),
        )  # fmt: skip
        lse, own, ranks, likeliest, chances, entropy = (column.tolist() for column in read)
        probs = [round(math.exp(x - lse[p]), 6) for x, p in zip(own, parents, strict=True)]
        self.targets: dict[str, list[Any]] = {
            "step": [index for index, _, _ in visited for _ in range(width)],
            "node": [node for _, _, node in visited for _ in range(width)],
            "token": [token for row in likeliest for token in row],
            "prob": [chance for row in chances for chance in row],
        }
        self.entropy = [round(e, 6) for e in entropy]

        ended = [step.verdict.bonus is None for step in steps]
        self.bonus_prob = [None if e else p for e, p in zip(ended, probs[drafted:], strict=True)]
        self.bonus_rank = [-1 if e else r for e, r in zip(ended, ranks[drafted:], strict=True)]
        ends = accumulate((step.draft.tree.drafted for step in steps), initial=0)
        spans = [slice(*span) for span in pairwise(ends)]
        self.probs: list[list[float | None]] = [[None, *probs[span]] for span in spans]
        self.ranks: list[list[int]] = [[-1, *ranks[span]] for span in spans]


def looked_at(looks: Looks) -> Iterator[dict[str, Any]]:
    """The largest attention weights of each node's query, averaged over heads (head -1), then head by head."""
    weights = looks.weights()
    for mean, shown, most, least in (
        (True, weights.mean(1, keepdim=True), MEAN_LOOKS, MEAN_LEAST),
        (False, weights, HEAD_LOOKS, HEAD_LEAST),
    ):
        top, place = (kept.numpy(force=True) for kept in shown.topk(min(most, shown.shape[-1])))
        kept = layer, head, node, _ = np.nonzero(top >= least)
        yield {
            "node": np.asarray(looks.nodes)[node].tolist(),
            "layer": np.asarray(looks.layers)[layer].tolist(),
            "head": -1 if mean else head.tolist(),
            "position": place[kept].tolist(),
            "weight": finite(top[kept].astype(np.float64)),
        }


def guesses(steps: list[Step], warpers: Chooser) -> tuple[dict[str, list[Any]], dict[tuple[int, int], float]]:
    """What the drafter and the target would say after each node that brings a distribution, side by side: the columns
    of the table guesses, per node in the order of the drafter's ranks. And β of each (step, node).
    """
    places = [(step, node) for step in steps for node in step.draft.distributions or ()]
    if not places:
        return {column.name: [] for column in TABLES["guesses"]}, {}
    drawn = places[0][0].draft.drawn  # of a run, all drafts or none
    q = torch.stack([step.draft.distributions[node] for step, node in places]).float()  # type: ignore[index]
    logits = torch.cat([rows_of(s.scored.logits, list(s.draft.distributions)) for s in steps if s.draft.distributions])
    p = (warpers.probabilities(logits) if drawn else logits.softmax(-1)).float()
    best, first = q.topk(min(DRAFTER_CHOICES, q.shape[1]))
    likeliest = p.topk(min(TARGET_CHOICES, p.shape[1])).indices
    ranks = (best[:, None, :] > best[:, :, None]).sum(-1)  # of the drafter's first; equals share one
    read = (column.tolist() for column in fetched(first, likeliest, ranks, overlap(p, q)))
    drafter_firsts, target_firsts, among, both = read
    betas = {(step.index, node): beta for (step, node), beta in zip(places, both, strict=True)}
    children = {step.index: step.draft.tree.children() for step in steps}
    at, token, rank = list[int](), list[int](), list[int]()
    unranked: list[int] = []  # rows that are not among the drafter's first
    redrawn: list[tuple[int, int, int]] = []  # place, and its rows, of a draw that was replaced
    for i, (step, node) in enumerate(places):
        path, bonus = step.verdict.path, step.verdict.bonus
        ends = [bonus] if node == path[-1] and bonus is not None else []
        wanted = dict(zip(drafter_firsts[i], among[i], strict=True))
        for other in (*target_firsts[i], *children[step.index][node], *ends):
            wanted.setdefault(other, -1)
        if ends and drawn and len(path) < len(step.draft.tree):
            redrawn.append((i, len(token), len(token) + len(wanted)))
        unranked += range(len(token) + len(drafter_firsts[i]), len(token) + len(wanted))
        at += [i] * len(wanted)
        token += wanted
        rank += wanted.values()
    where, ids = torch.tensor(at, device=q.device), torch.tensor(token, device=q.device)
    chosen = q[where, ids]
    ahead = q[where[unranked]] > chosen[unranked][:, None]
    for row, count in zip(unranked, ahead.sum(-1, dtype=torch.int32).tolist(), strict=True):
        rank[row] = count
    residuals: list[float | None] = [None] * len(at)
    for i, start, stop in redrawn:
        residuals[start:stop] = finite(residual(p[i], q[i])[ids[start:stop]].double().numpy(force=True))
    order = sorted(range(len(at)), key=lambda row: (at[row], rank[row]))
    columns: dict[str, list[Any]] = {
        "step": [places[i][0].index for i in at],
        "node": [places[i][1] for i in at],
        "token": token,
        "rank": rank,
        "draft_prob": finite(chosen.double().numpy(force=True)),
        "prob": finite(p[where, ids].double().numpy(force=True)),
        "residual": residuals,
    }
    return {name: [values[row] for row in order] for name, values in columns.items()}, betas
