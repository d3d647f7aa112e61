"""Survival: how likely a drafted token and all before it stand, estimated before the target sees them.

A node stands after its parent with probability σ(Σ weights), a logistic model as in vLLM's adaptive verification
(``acceptance_estimator``), of what is known when it is drafted: where it came from and its rank among its siblings,
its depth, and each number that the method itself gives it or the candidate it is copied from (q, cosine, n-gram length,
rank), in bins. The model is refitted after every step, by AdaGrad on the log loss of what was judged, and goes on from
run to run. One weight, of the run, begins anew with each.

It reads distributions, drafted tokens' numbers and past verdicts; never the target's distribution after the root.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .draft import Draft, Verdict

BINS = 16
RATE = 0.4  # AdaGrad's step
LEAST, MOST = 0.005, 0.995  # a conditional acceptance
MATCHED = 12  # tokens back that a copied place is compared with the text's end
# at first, in logits: by rank among siblings; of copies by depth and by the tokens that match before the place
RANKS = np.array([0.4, -1.2, -1.8, -2.2, -2.5, -2.7, -2.9, -3.0] + [-3.2] * (BINS - 8))
COPIED, MATCHING = np.array([0.0, 0.0, 1.2] + [2.0] * (BINS - 3)), np.clip(0.3 * (np.arange(BINS) - 2), -0.3, 1.2)
DEPTHS = np.array([0, 1, 2, 3, 4, 5, 5, 6, 6, 7, 7, 7, 8, 8, 8, 8, 9])  # depth → bin; deeper: the next ones
SLOPE, SHIFT = 0.5, -0.2  # of a probability's logit at first: vLLM's start
PROBABLE = ("q", "confidence", "share", "last_prob")  # numbers of a node that mean its probability after its parent
PATHS = ("path_prob",)  # of a node and all above it
NO_SIGNAL = ("bin", "distance", "kv_delay", "next_state", "draft_forward", "branch_anchor", "layer", "head", "survival")


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of a draft's nodes, the root first: the probability that each stands after its parent, and with all above it;
    ``buckets`` are the weights that each is made of.
    """

    conditional: np.ndarray
    survival: np.ndarray
    buckets: np.ndarray


class Survival:
    """The fitted model; ``len`` counts the judged tokens that it was fitted on."""

    unit = "judged tokens"

    def __init__(self) -> None:
        self.weights = np.zeros(0)
        self.squares = np.zeros(0)
        self.blocks: dict[str, int] = {}  # number of a node → its first weight
        self.count = 0
        self.losses = 0.0

    def __len__(self) -> int:
        return self.count

    def begin(self) -> None:
        """A new run: its own weight begins anew."""
        at = self._block("run")
        self.weights[at] = self.squares[at] = 0.0

    def _block(self, name: str) -> int:
        """The first of a number's weights, made where there are none."""
        at = self.blocks.get(name)
        if at is None:
            at = self.blocks[name] = len(self.weights)
            first = np.zeros(BINS)
            if name.startswith("origin "):
                first = RANKS
            elif name.startswith("copied "):
                first = COPIED
            elif name == "matched":
                first = MATCHING
            elif name in PROBABLE:
                first = SLOPE * (np.arange(BINS) - BINS // 2) + SHIFT
                first[0] = 0.0  # not defined
            self.weights = np.concatenate([self.weights, first])
            self.squares = np.concatenate([self.squares, np.full(BINS, 1.0)])
        return at

    def estimate(self, draft: Draft, tokens: np.ndarray, state: int = 0) -> Estimate:
        """Of a draft behind ``tokens``; ``state`` says how the last step ended (0 to 15)."""
        tree = draft.tree
        count = len(tree)
        _, depth, rank = shape_of(tree.parents)
        origins = draft.origins or ("root",) + ("drafter",) * (count - 1)
        kinds = set(origins[1:])
        copies = bool(draft.sources) and draft.sources[1] > 0
        deeper = "copied" if copies else "depth"
        if len(kinds) == 1:
            origin = np.full(count, self._block(f"origin {origins[1]}"))
            deep = self._block(f"{deeper} {origins[1]}")
        else:
            at = {kind: self._block(f"origin {kind}") for kind in kinds}
            at["root"] = 0
            origin = np.fromiter((at[one] for one in origins), np.int64, count)
            deep = self._block(f"{deeper} all")
        columns = [origin + rank, deep + depth]
        names, values = self._numbers(draft)
        if names:
            columns += list(_bins(values) + np.array([self._block(name) for name in names])[:, None])
        whole = [self._block("run"), self._block("state") + min(state, BINS - 1)]
        whole += [self._block(name) + place for name, place in _of_candidate(draft)]
        if copies:
            whole.append(self._block("matched") + matched(tokens, draft.sources[1] - 1))
        buckets = np.empty((count, len(columns) + len(whole)), dtype=np.int64)
        buckets[:, : len(columns)] = np.stack(columns, 1)
        buckets[:, len(columns) :] = whole
        total = self.weights[buckets].sum(1)
        conditional = np.minimum(np.maximum(1 / (1 + np.exp(-total)), LEAST), MOST)
        conditional[0] = 1.0
        return Estimate(conditional, _along(tree.parents, conditional), buckets)

    @staticmethod
    def _numbers(draft: Draft) -> tuple[list[str], np.ndarray]:
        """A method's own numbers of the nodes, each as something whose bins are evenly wide: [numbers, nodes]."""
        names, rows, chances = [], [], []
        terms: Mapping[str, Any] = draft.terms
        if draft.probabilities is not None and not draft.drawn and "confidence" not in terms:
            terms = {"q": np.asarray(draft.probabilities, dtype=np.float64), **terms}
        elif draft.probabilities is not None and not draft.drawn:
            # a token's own probability says more than the first choice's; of drawn ones it would tell what was drawn
            terms = {**terms, "confidence": np.asarray(draft.probabilities, dtype=np.float64)}
        for name, values in terms.items():
            if name in NO_SIGNAL or (draft.drawn and name != "confidence"):
                continue
            row = np.asarray(values, dtype=np.float64)
            chance = name in PROBABLE or name in PATHS
            if name in PATHS:
                above = row[np.maximum(draft.tree.parents, 0)]
                row = row / np.where(np.isfinite(above) & (above > 0), above, 1.0)
                name = "q"
            names.append(name)
            rows.append(row)
            chances.append(chance)
        values = np.array(rows)
        likely = np.array(chances, dtype=bool)
        if likely.any():
            q = np.minimum(np.maximum(values[likely], 1e-4), 1 - 1e-4)
            values[likely] = np.log(q / (1 - q))
        if not likely.all():
            values[~likely] = np.copysign(np.log2(1 + np.abs(values[~likely])) * 2, values[~likely])
        return names, values

    def fit(self, estimate: Estimate, draft: Draft, verdict: Verdict) -> None:
        """Take in which of the nodes stood; ``draft`` is what was verified of the estimated one."""
        status = verdict.status
        judged = [node for node, one in enumerate(status) if one == "accepted" or one == "rejected"]
        if not judged:
            return
        stood = np.array([status[node] == "accepted" for node in judged], dtype=np.float64)
        place = np.asarray([draft.nodes[node] for node in judged] if draft.nodes else judged)
        said = estimate.conditional[place]
        slope = stood - said
        self.count += len(judged)
        self.losses -= float(np.log(np.where(stood > 0, said, 1 - said)).sum())
        at = estimate.buckets[place]
        used, where = np.unique(at, return_inverse=True)
        total = np.bincount(where.reshape(-1), np.repeat(slope, at.shape[1]), len(used))
        self.squares[used] += total * total
        self.weights[used] += RATE * total / np.sqrt(self.squares[used])

    def to_json(self) -> dict[str, Any]:
        """The fitted weights by number, for people to look at; of the bins that were used."""
        return {
            "judged": self.count,
            "log_loss": self.losses / self.count if self.count else None,
            "weights": {
                name: {
                    str(place): round(float(self.weights[at + place]), 3)
                    for place in range(BINS)
                    if self.squares[at + place] != 1.0
                }
                for name, at in self.blocks.items()
            },
        }


@lru_cache(maxsize=1024)
def shape_of(parents: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each node's depth, and the bins of its depth and of its rank among its siblings."""
    depth, rank, seen = [0], [0], [0] * len(parents)
    for parent in parents[1:]:
        depth.append(depth[parent] + 1)
        rank.append(min(seen[parent], BINS - 1))
        seen[parent] += 1
    deep = [int(DEPTHS[d]) if d < len(DEPTHS) else min(10 + (d - len(DEPTHS)) // 16, BINS - 1) for d in depth]
    return np.asarray(depth), np.asarray(deep), np.asarray(rank)


def _along(parents: Sequence[int], conditional: np.ndarray) -> np.ndarray:
    """The product from the root to each node."""
    values = conditional.tolist()
    for node in range(1, len(values)):
        values[node] *= values[parents[node]]
    return np.asarray(values)


def _bins(values: np.ndarray) -> np.ndarray:
    """Places from 0 to ``BINS`` - 1; the first one for what is not defined."""
    middle = BINS // 2
    places = np.minimum(np.maximum(np.rint(values) + middle, 1), BINS - 1)  # these keep what is not a number
    return np.where(np.isnan(values), 0, places).astype(np.int64)


def _of_candidate(draft: Draft) -> list[tuple[str, int]]:
    """The numbers of the candidate that the draft is copied from, each with its bin."""
    ranking = draft.candidates
    if ranking is None or ranking.chosen < 0:
        return []
    made = []
    for name, values in {"score": ranking.score, **ranking.terms}.items():
        if name in NO_SIGNAL:
            continue
        value = float(values[ranking.chosen])
        if not math.isfinite(value):
            continue
        if -1 <= value < 1:  # a cosine or a weight: the nearer to 1, the finer
            place = round(-2 * math.log2(max(1 - value, 2**-7)))
        else:
            place = round(2 * math.log2(1 + abs(value)))
        made.append((f"candidate {name}", max(0, min(place, BINS - 1))))
    return made


def matched(tokens: np.ndarray, place: int) -> int:
    """How many tokens up to ``place`` equal the last ones of ``tokens``, at most ``MATCHED``.

    >>> matched(np.array([1, 2, 3, 9, 2, 3]), 2)
    2
    """
    most = min(MATCHED, place + 1)
    same = tokens[place - most + 1 : place + 1] == tokens[len(tokens) - most :]
    return int(same[::-1].argmin()) if not same.all() else most
