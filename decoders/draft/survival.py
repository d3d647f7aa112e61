"""Survival: how likely a drafted token and all before it stand, estimated before the target sees them.

A node stands after its parent with probability σ(Σ weights), a logistic model as in vLLM's adaptive verification
(``acceptance_estimator``), of what is known when it is drafted: where it came from and its rank among its siblings,
its depth, and each number that the method itself gives it or the candidate it is copied from (q, cosine, n-gram length,
rank), in bins. The model is refitted after every step, by AdaGrad on the log loss of what was judged, and goes on from
run to run. One weight, of the run, begins anew with each.

It reads distributions, drafted tokens' numbers and past verdicts; never the target's distribution after the root.

All of it is plain Python over lists. A verify forward leaves nothing of other code in the processor's caches, and there
a numpy call costs some 10 µs however short its arrays: a step's estimate and refit by numpy took .4 ms, this .1.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .draft import Draft, Verdict

BINS = 16
RATE = 0.25  # AdaGrad's step
LOWEST, HIGHEST = 0.005, 0.995  # a conditional acceptance
TREES = 512  # whose places are kept
MATCHED = 12  # tokens back that a copied place is compared with the text's end
# at first, in logits: by rank among siblings; of copies by depth and by the tokens that match before the place
RANKS = [0.4, -1.2, -1.8, -2.2, -2.5, -2.7, -2.9, -3.0] + [-3.2] * (BINS - 8)
COPIED, MATCHING = [0.0, 0.0, 1.2] + [2.0] * (BINS - 3), [max(-0.3, min(0.3 * (n - 2), 1.2)) for n in range(BINS)]
DEPTHS = (0, 1, 2, 3, 4, 5, 5, 6, 6, 7, 7, 7, 8, 8, 8, 8, 9)  # depth → bin; deeper: the next ones
SLOPE, SHIFT = 0.5, -0.2  # of a probability's logit at first: vLLM's start
PROBABLE = ("q", "confidence", "share", "last_prob")  # numbers of a node that mean its probability after its parent
PATHS = ("path_prob",)  # of a node and all above it
COPIED_MATCH = "copied_match"  # of a merged tree's nodes: those that match before the place that they are copied from
NO_SIGNAL = ("bin", "distance", "kv_delay", "next_state", "draft_forward", "branch_anchor", "layer", "head", "survival")


class DraftShape(NamedTuple):
    """Of a tree: each node's ``depth`` and the bins of its depth and of its rank among its siblings, the ``deepest``
    node's depth, and whether it is a chain.
    """

    depth: list[int]
    bins: list[int]
    rank: list[int]
    deepest: int
    chain: bool


class Estimate(NamedTuple):
    """Of a draft's nodes, the root first: the probability that each stands after its parent, and with all above it.

    It is made of the weights at ``places`` [numbers][nodes], one a node for each number that it has, and at ``common``
    of all nodes. ``shape`` is the tree's.
    """

    conditional: list[float]
    survival: list[float]
    places: list[list[int]]
    common: list[int]
    shape: DraftShape

    def of_nodes(self, order: Sequence[int], parents: tuple[int, ...]) -> Estimate:
        """The estimate of the same nodes in another order, in which they have these ``parents``."""
        conditional, survival = ([row[node] for node in order] for row in (self.conditional, self.survival))
        places = [[row[node] for node in order] for row in self.places]
        return Estimate(conditional, survival, places, self.common, shape_of(parents))


class Survival:
    """The fitted model; ``len`` counts the judged tokens that it was fitted on."""

    unit = "judged tokens"

    def __init__(self) -> None:
        self.weights: list[float] = []
        self.squares: list[float] = []  # sums of squared slopes, from 1
        self.blocks: dict[str, int] = {}  # number of a node → its first weight
        self._bases: dict[tuple[tuple[int, ...], tuple[str, ...], bool], tuple[DraftShape, list[list[int]]]] = {}
        self.count = 0
        self.losses = 0.0

    def __len__(self) -> int:
        return self.count

    def begin(self) -> None:
        """A new run: its own weight begins anew."""
        at = self._block("run")
        self.weights[at], self.squares[at] = 0.0, 0.0

    def _block(self, name: str) -> int:
        """The first of a number's weights, made where there are none."""
        at = self.blocks.get(name)
        if at is None:
            at = self.blocks[name] = len(self.weights)
            first = [0.0] * BINS
            if name.startswith("origin "):
                first = RANKS
            elif name.startswith("copied "):
                first = COPIED
            elif name == "matched":
                first = MATCHING
            elif name == COPIED_MATCH:
                first = [0.0] + [MATCHING[max(0, min(round(match), BINS - 1))] for match in MIDDLES]
            elif name in PROBABLE:
                first = [0.0] + [SLOPE * (n - BINS // 2) + SHIFT for n in range(1, BINS)]  # 0: not defined
            self.weights += first
            self.squares += [1.0] * BINS
        return at

    def estimate(self, draft: Draft, tokens: np.ndarray, state: int = 0) -> Estimate:
        """Of a draft behind ``tokens``; ``state`` says how the last step ended (0 to 15)."""
        copies = bool(draft.sources) and draft.sources[1] > 0
        parents = draft.tree.parents
        shape, base = self._base(parents, draft.origins, copies)
        numbers = self._numbers(draft) if draft.terms or draft.probabilities is not None else []
        common = [self._block("run"), self._block("state") + min(state, BINS - 1)]
        common += [self._block(name) + place for name, place in _of_candidate(draft)]
        if copies:
            common.append(self._block("matched") + count_match(tokens, draft.sources[1] - 1))
        weights, exp = self.weights, math.exp
        whole = sum([weights[place] for place in common])
        logits = [whole + weights[origin] + weights[deep] for origin, deep in zip(*base, strict=True)]
        for row in numbers:
            logits = [z + weights[place] for z, place in zip(logits, row, strict=True)]
        conditional, survival = [1.0], [1.0]
        for node in range(1, len(parents)):
            z = logits[node]
            probability = 1 / (1 + exp(-z)) if z > -20 else LOWEST
            probability = LOWEST if probability < LOWEST else HIGHEST if probability > HIGHEST else probability
            conditional.append(probability)
            survival.append(survival[parents[node]] * probability)
        return Estimate(conditional, survival, [*base, *numbers], common, shape)

    def _base(
        self, parents: tuple[int, ...], origins: tuple[str, ...], copies: bool
    ) -> tuple[DraftShape, list[list[int]]]:
        """A tree's shape, and its nodes' places by origin and rank, and by depth; worked out once for trees alike."""
        key = parents, origins, copies
        if (base := self._bases.get(key)) is not None:
            return base
        shape = shape_of(parents)
        of = origins[1:] or ("drafter",) * (len(parents) - 1)
        at = {kind: self._block(f"origin {kind}") for kind in dict.fromkeys(of)}
        deep = self._block(f"{'copied' if copies else 'depth'} {next(iter(at)) if len(at) == 1 else 'all'}")
        origin = [0, *(at[kind] + rank for kind, rank in zip(of, shape.rank[1:], strict=True))]  # the root stands
        if len(self._bases) >= TREES:
            self._bases.clear()
        base = self._bases[key] = shape, [origin, [deep + place for place in shape.bins]]
        return base

    def _numbers(self, draft: Draft) -> list[list[int]]:
        """The places of a method's own numbers of the nodes."""
        terms, numbers = draft.terms, []
        probabilities = None if draft.drawn else draft.probabilities
        likeliest = ""
        if probabilities is not None:
            # a token's own probability says more than the first choice's; of drawn ones it would tell what was drawn
            likeliest = "confidence" if "confidence" in terms else "q"
            numbers.append(_places(self._block(likeliest), probabilities, LOGITS))
        for name, values in terms.items():
            if name in NO_SIGNAL or name == likeliest or (draft.drawn and name != "confidence"):
                continue
            row = np.asarray(values, dtype=np.float64).tolist()
            if name in PROBABLE:
                numbers.append(_places(self._block(name), row, LOGITS))
            elif name in PATHS:
                parent_values = [row[max(parent, 0)] for parent in draft.tree.parents]
                conditionals = [p / q if 0 < q < math.inf else p for p, q in zip(row, parent_values, strict=True)]
                numbers.append(_places(self._block("q"), conditionals, LOGITS))
            else:
                numbers.append(_places(self._block(name), row, AMOUNTS))
        return numbers

    def fit(self, estimate: Estimate, draft: Draft, verdict: Verdict) -> None:
        """Take in which of the nodes stood; ``draft`` is what was verified of the estimated one."""
        nodes, conditional, places = draft.nodes, estimate.conditional, estimate.places
        total: dict[int, float] = {}
        slope_sum = 0.0
        for node, status in enumerate(verdict.status):
            if status != "accepted" and status != "rejected":
                continue
            place = nodes[node] if nodes else node
            probability = conditional[place]
            if status == "accepted":
                slope = 1 - probability
                self.losses -= math.log(probability)
            else:
                slope = -probability
                self.losses -= math.log(1 - probability)
            self.count += 1
            slope_sum += slope
            for row in places:
                at = row[place]
                total[at] = total.get(at, 0.0) + slope
        if not total:
            return
        weights, squares, root = self.weights, self.squares, math.sqrt
        for at in estimate.common:
            total[at] = slope_sum
        for at, slope in total.items():
            square = squares[at] = squares[at] + slope * slope
            weights[at] += RATE * slope / root(square)

    def to_json(self) -> dict[str, Any]:
        """The fitted weights by number, for people to look at; of the bins that were used."""
        return {
            "judged": self.count,
            "log_loss": self.losses / self.count if self.count else None,
            "weights": {
                name: {
                    str(place): round(self.weights[at + place], 3)
                    for place in range(BINS)
                    if self.squares[at + place] != 1.0
                }
                for name, at in self.blocks.items()
            },
        }


def shape_of(parents: tuple[int, ...]) -> DraftShape:
    """The shape of the tree with these parents."""
    depths, ranks, child_counts = [0], [0], [0] * len(parents)
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
        ranks.append(min(child_counts[parent], BINS - 1))
        child_counts[parent] += 1
    deepest = max(depths)
    bins = [DEPTHS[d] if d < len(DEPTHS) else min(10 + (d - len(DEPTHS)) // 16, BINS - 1) for d in depths]
    return DraftShape(depths, bins, ranks, deepest, deepest == len(parents) - 1)


HALVES = [n - BINS / 2 + 0.5 for n in range(1, BINS - 1)]
LOGITS = [1 / (1 + math.exp(-z)) for z in HALVES]  # where the rounded logit of a probability changes
AMOUNTS = [math.copysign(2 ** (abs(z) / 2) - 1, z) for z in HALVES]  # … sign · 2 log₂(1 + |value|) of another number
MIDDLES = [math.copysign(2 ** (abs(z) / 2) - 1, z) for z in range(1 - BINS // 2, BINS // 2)]  # of those bins


def _places(block: int, values: Sequence[float], ends: Sequence[float]) -> list[int]:
    """Places of numbers from ``block`` on, by the bins' ``ends``; the first one for what is not defined."""
    first = block + 1
    return [block if value != value else first + bisect_right(ends, value) for value in values]


def _of_candidate(draft: Draft) -> list[tuple[str, int]]:
    """The numbers of the candidate that the draft is copied from, each with its bin."""
    ranking = draft.candidates
    if ranking is None or ranking.chosen < 0:
        return []
    features, choice, scores = list[tuple[str, int]](), ranking.chosen, ranking.score
    if (first := _amount_bin(float(scores[choice]))) is not None:
        features.append(("candidate score", first))
    for name, values in ranking.terms.items():
        if name in NO_SIGNAL:
            continue
        place = first if values is scores else _amount_bin(float(values[choice]))
        if place is not None:
            features.append((f"candidate {name}", place))
    return features


def _amount_bin(value: float) -> int | None:
    """The bin of a candidate's number; None for one that is not finite."""
    if not math.isfinite(value):
        return None
    if -1 <= value < 1:  # a cosine or a weight: the nearer to 1, the finer
        return max(0, min(round(-2 * math.log2(max(1 - value, 2**-7))), BINS - 1))
    return min(round(2 * math.log2(1 + abs(value))), BINS - 1)


def count_match(tokens: np.ndarray, place: int) -> int:
    """Count the tokens up to ``place`` that equal the last ones of ``tokens``, at most ``MATCHED``.

    >>> count_match(np.array([1, 2, 3, 9, 2, 3]), 2)
    2
    """
    limit = min(MATCHED, place + 1)
    text, last = tokens.data, len(tokens) - 1  # whose items are Python's own numbers at once
    for offset in range(limit):
        if text[place - offset] != text[last - offset]:
            return offset
    return limit
