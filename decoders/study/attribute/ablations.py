"""Ablations: an answer's log-probability under random subsets of its sources, and a sparse linear fit of it.

Left out one at a time, two sources that say the same seem to be worth nothing: each stands in for the other.
ContextCite (Cohen-Wang et al. 2024, arXiv 2409.00729) leaves out random subsets and fits log p by a lasso; a source's
weight is what it adds, whichever others are there. ``lds`` and ``top_drop`` are its measures of a fit. ``pairs`` says
which two sources stand in for each other, or need each other, exactly: both are left out together.

>>> masks = np.array([[1, 1], [1, 0], [0, 1], [0, 0]])
>>> sparse_fit(masks, np.array([-1.0, -1.0, -9.0, -9.0]), tokens=4, penalty=0.0)[0].round(2).tolist()
[8.0, 0.0]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from decoders.trace.trace import Trace

from .attribution import SourcePassage
from .evidence import DECISIVE, evidence_sources, sentences

if TYPE_CHECKING:
    from .without import ReadAnswer

SUBSETS, SEED = 32, 0
PENALTY = 0.01  # of the lasso, in nats per token: ContextCite's
MIN_HELD = 5  # subsets below which a rank correlation says nothing
MAX_PAIRED = 4  # sources of which every pair is left out together
INTERACTS = 1 / 3  # of what two sources are worth together: below that they are not called a pair
TOP = (1, 3, 5)  # sources left out for the drop


@dataclass(frozen=True, slots=True)
class Ablations:
    """Subsets of sources and the answer's log-probability under them, the first ``fit_rows`` for fits, the others for
    judging them.
    """

    masks: Int[np.ndarray, "subsets sources"]  # 1: the source is there
    logp: Float[np.ndarray, "subsets tokens"]
    fit_rows: int


def subsets(sources: int, count: int, seed: int = SEED) -> Int[np.ndarray, "subsets sources"]:
    """Distinct random subsets, each source in it with a chance of one half; all there are where these are fewer."""
    random = np.random.default_rng(seed)
    if 2**sources <= count:
        return random.permutation(np.array([*itertools.product((0, 1), repeat=sources)]))
    rows: dict[tuple[int, ...], None] = {}
    while len(rows) < count:
        rows[tuple(random.integers(0, 2, sources).tolist())] = None
    return np.array([*rows])


def logp_without(answer: ReadAnswer, sources: Sequence[SourcePassage]) -> Float[np.ndarray, " tokens"]:
    """The answer's log-probability without some sources, masked where the model can be."""
    part = [at for source in sources for at in source.at]
    return answer.logp - np.array(answer.without(part, reread=False).falls) if part else answer.logp


def ablate(
    answer: ReadAnswer, sources: Sequence[SourcePassage], count: int = SUBSETS, seed: int = SEED,
    progress: Callable[[int, int], None] = lambda count, total: None,
) -> Ablations:  # fmt: skip
    """The answer under ``count`` random subsets of its sources, and half as many more to judge a fit by; of fewer
    sources, all subsets, a third of them held back.
    """
    masks = subsets(len(sources), count + count // 2, seed)
    fit_rows = len(masks) - len(masks) // 3
    logp = []
    for row in masks:
        logp.append(logp_without(answer, [source for source, is_kept in zip(sources, row, strict=True) if not is_kept]))
        progress(len(logp), len(masks))
    return Ablations(masks, np.array(logp), fit_rows)


def sparse_fit(
    masks: Int[np.ndarray, "subsets sources"], logp: Float[np.ndarray, " subsets"], tokens: int,
    penalty: float = PENALTY,
) -> tuple[Float[np.ndarray, " sources"], float]:  # fmt: skip
    """Each source's weight (nats) and the log-probability without any: a lasso over standardised columns, of log p per
    token, by coordinate descent (ContextCite §3).
    """
    mean, scale = masks.mean(0), masks.std(0)
    scale = np.where(scale > 0, scale, 1.0)
    columns, mean_logp = (masks - mean) / scale, logp.mean() / tokens
    residual = logp / tokens - mean_logp
    weights = np.zeros(masks.shape[1])
    for _ in range(1000):
        step = 0.0
        for k in range(len(weights)):
            column = columns[:, k]
            norm = float((column**2).mean())
            pull = float((column * residual).mean()) + norm * weights[k]
            weight = np.sign(pull) * max(abs(pull) - penalty, 0.0) / norm if norm else 0.0
            step = max(step, abs(weight - weights[k]))
            residual = residual - column * (weight - weights[k])
            weights[k] = weight
        if step < 1e-9:
            break
    return weights / scale * tokens, float(mean_logp - (mean / scale) @ weights) * tokens


def lds(predicted: Float[np.ndarray, " subsets"], logp: Float[np.ndarray, " subsets"]) -> float | None:
    """The linear datamodeling score: Spearman's rank correlation of a fit with log p, over subsets that it has not
    seen. None for fewer than five, and where nothing varies.
    """
    if len(logp) < MIN_HELD:
        return None
    ranks = [_ranks(values) - (len(values) - 1) / 2 for values in (predicted, logp)]
    size = float(np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float(ranks[0] @ ranks[1]) / size if size else None


def _ranks(values: Float[np.ndarray, " values"]) -> Float[np.ndarray, " values"]:
    """Ranks from 0; equal values share their mean."""
    _, group, counts = np.unique(values.round(9), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[group]


def top_drop(answer: ReadAnswer, sources: Sequence[SourcePassage], weights: Sequence[float], k: int) -> float:
    """The fall of the answer's log p (nats) without the ``k`` sources of the largest weights."""
    order = sorted(range(len(sources)), key=lambda n: -weights[n])[:k]
    return float((answer.logp - logp_without(answer, [sources[n] for n in order])).sum())


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sources (by their places in the list) in tokens [start, stop) of the answer: the fall of log p without the
    first, without the second, and without both (nats).
    """

    first: int
    second: int
    start: int
    stop: int
    falls: tuple[float, float]
    joint_fall: float

    @property
    def kind(self) -> str:
        """"stand in" where both together are worth more than the two alone say, "need" where less, else "": by a
        factor of ten in probability, and a third of what both are worth.
        """
        extra = self.joint_fall - sum(self.falls)
        if abs(extra) < max(DECISIVE, INTERACTS * abs(self.joint_fall)):
            return ""
        return "stand in" if extra > 0 else "need"


def pairs(
    answer: ReadAnswer, sources: Sequence[SourcePassage], weights: Sequence[float], spans: Sequence[tuple[int, int]],
) -> list[Pair]:  # fmt: skip
    """The pairs that stand in for each other or need each other, in each span; of the ``MAX_PAIRED`` sources with the
    largest weights.
    """
    order = sorted(sorted(range(len(sources)), key=lambda n: -abs(weights[n]))[:MAX_PAIRED])
    single_falls = {n: answer.logp - logp_without(answer, [sources[n]]) for n in order}
    interactions = []
    for first, second in itertools.combinations(order, 2):
        joint_fall = answer.logp - logp_without(answer, [sources[first], sources[second]])
        for start, stop in spans:
            falls = (float(single_falls[first][start:stop].sum()), float(single_falls[second][start:stop].sum()))
            pair = Pair(first, second, start, stop, falls, float(joint_fall[start:stop].sum()))
            if pair.kind:
                interactions.append(pair)
    return interactions


def describe_pair(pair: Pair, names: Sequence[str]) -> str:
    """A pair in a sentence."""
    first, second = names[pair.first], names[pair.second]
    numbers = f"log p falls by {pair.falls[0]:.1f} and {pair.falls[1]:.1f} alone, by {pair.joint_fall:.1f} without both"
    verb = "stand in for each other" if pair.kind == "stand in" else "need each other"
    return f"{first} and {second} {verb}: {numbers}."


def ablation_report(
    trace: Trace, answer: ReadAnswer, count: int = SUBSETS,
    progress: Callable[[int, int], None] = lambda count, total: None,
) -> dict[str, Any]:  # fmt: skip
    """A run's answer under random subsets of its sources, as JSON: "weights" of each source in the whole answer and in
    each sentence with the fit's ``lds``, the "drops" of the whole answer without its first 1, 3 and 5 sources, and the
    "pairs" that interact.
    """
    sources, names = evidence_sources(trace), [source.name for source in evidence_sources(trace)]
    spans = [(0, len(answer.answer)), *sentences(trace)]
    ablations = ablate(answer, sources, count, progress=progress)
    fits = []
    for start, stop in spans:
        logp = ablations.logp[:, start:stop].sum(1)
        weights, bias = sparse_fit(ablations.masks[: ablations.fit_rows], logp[: ablations.fit_rows], stop - start)
        held_masks = ablations.masks[ablations.fit_rows :]
        score = lds(held_masks @ weights + bias, logp[ablations.fit_rows :])
        fits.append({"start": start, "stop": stop, "weights": [round(w, 4) for w in weights.tolist()], "lds": score})
    whole = fits[0]["weights"]
    interactions = pairs(answer, sources, whole, spans[1:])
    return {
        "sources": names, "fitted": ablations.fit_rows, "held": len(ablations.masks) - ablations.fit_rows, "fits": fits,
        "drops": {str(k): round(top_drop(answer, sources, whole, k), 4) for k in TOP if k <= len(sources)},
        "pairs": [{**asdict(pair), "kind": pair.kind, "said": describe_pair(pair, names)} for pair in interactions],
    }  # fmt: skip
