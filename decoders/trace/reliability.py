"""The reliability of a method's confidence: reliability by bins, ECE, Brier score and AUROC (numpy only).

Each confidence is held against what happened to the very thing it was told of: a node's token, the path to a node, or
what a candidate offers. Where the method means a probability, the expected calibration error (Guo et al. 2017) and the
Brier score are given; of other scores (a cosine, attention) only how well they part right from wrong: the AUROC.

Left out are probabilities of drawn drafts, which stand with min(1, p/q) and not with q, and whatever was drafted behind
a stop token. A drafter's ``confidence`` is its highest probability at a place: that of its first choice there alone.

>>> made = Reliability.of(np.array([0.9, 0.8, 0.2, 0.1]), np.array([True, True, False, False]), low=0.0, high=1.0)
>>> made.auroc, round(made.ece, 3), round(made.brier, 3), made.rate
(1.0, 0.15, 0.025, 0.5)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from decoders.names import NEVER_JUDGED

from .decisions import draws, first_choices
from .trace import Trace

BINS = 10
PROBABILITIES = {"draft_prob", "confidence", "path_prob", "last_prob", "share", "survival"}  # what means a chance
OF_PATHS = {"path_prob", "survival"}  # told of a node and all above it
# numbers that the target has a part in
TARGETS = {"overlap", "accept_ratio", "draw", "block_p", "block_h", "p_eos", "typical"}
TOKEN, PATH, OFFER = (
    "the token was accepted, where all before it were",
    "the token and all before it were accepted",
    "its first token is what followed",
)


@dataclass(frozen=True, slots=True)
class Signal:
    """A confidence that runs recorded. ``outcome`` says what counts as right."""

    key: str
    table: str
    label: str
    help: str
    low: float
    high: float
    outcome: str

    @property
    def probability(self) -> bool:
        return self.key.split(":")[-1] in PROBABILITIES


@dataclass(frozen=True, slots=True)
class Reliability:
    """Of one confidence: per bin its limits, how many, their mean confidence and the share that came true; and in all.

    ``auroc`` is None where all were right or all wrong.
    """

    count: int
    rate: float
    bins: list[dict[str, float]]
    ece: float
    brier: float
    auroc: float | None

    @classmethod
    def of(cls, confidence: np.ndarray, right: np.ndarray, *, low: float, high: float) -> Reliability:
        """Raises ValueError where nothing was told."""
        if not len(confidence):
            raise ValueError("no confidence was recorded: choose runs of a method that tells one")
        place = np.clip(((confidence - low) / (high - low) * BINS).astype(np.int64), 0, BINS - 1)
        size = np.bincount(place, minlength=BINS)
        mean, share = (
            np.bincount(place, values, BINS) / np.maximum(size, 1) for values in (confidence, right.astype(np.float64))
        )
        edges = np.linspace(low, high, BINS + 1).tolist()
        rows = [
            {
                "low": edges[b], "high": edges[b + 1], "count": int(size[b]), "told": float(mean[b]),
                "right": float(share[b]),
            }
            for b in np.flatnonzero(size)
        ]  # fmt: skip
        return cls(
            len(confidence), float(right.mean()), rows, float((size * np.abs(share - mean)).sum() / len(confidence)),
            float(((confidence - right) ** 2).mean()), _auroc(confidence, right),
        )  # fmt: skip

    def to_json(self, signal: Signal) -> dict[str, Any]:
        """As a page draws it: no ECE and no Brier score of what is no probability."""
        record = {**asdict(self), **asdict(signal), "probability": signal.probability}
        return record if signal.probability else {**record, "ece": None, "brier": None}


def signals(traces: Iterable[Trace]) -> list[Signal]:
    """The confidences of which any of the runs recorded what came of them, those of nodes first."""
    signal_by_key: dict[tuple[str, str], Signal] = {}
    for trace in traces:
        for signal in _signals_of(trace):
            key = signal.table, signal.key
            if key not in signal_by_key and len(outcomes(trace, signal)[0]):
                signal_by_key[key] = signal
    return sorted(signal_by_key.values(), key=lambda signal: (signal.table != "nodes", not signal.probability))


def _signals_of(trace: Trace) -> Iterator[Signal]:
    q = (
        "The drafter's probability of the token, after the token before it. Drawn drafts are left out: they are "
        "accepted with min(1, p ÷ q), not with q."
    )
    yield Signal("draft_prob", "nodes", "draft probability q", q, 0, 1, TOKEN)
    for table, terms in (("nodes", "node_terms"), ("candidates", "terms")):
        for term in trace.run.get(terms, ()):
            key, (low, high) = term["key"], _limits(term)
            if not -1 <= low < high <= 1 or key in TARGETS:
                continue
            outcome = OFFER if table == "candidates" else PATH if key in OF_PATHS else TOKEN
            yield Signal(f"term:{key}", table, term.get("label", key), term.get("help", ""), low, high, outcome)


def _limits(term: Mapping[str, Any]) -> tuple[float, float]:
    """From where to where a recorded number goes; (0, 0) where its declaration, which may be anybody's, says none."""
    low, high = term.get("low", 0), term.get("high", 0)
    return (float(low), float(high)) if {type(low), type(high)} <= {int, float} else (0.0, 0.0)


def pool_runs(parts: Sequence[tuple[np.ndarray, np.ndarray]], signal: Signal) -> Reliability:
    """Of what ``outcomes`` gives of several runs. Raises ValueError where none told the confidence."""
    confidence = np.concatenate([np.zeros(0), *(part[0] for part in parts)])
    right = np.concatenate([np.zeros(0, dtype=bool), *(part[1] for part in parts)])
    return Reliability.of(confidence, right, low=signal.low, high=signal.high)


def outcomes(trace: Trace, signal: Signal) -> tuple[np.ndarray, np.ndarray]:
    """A run's confidences and outcomes: floats and bools [told]; empty where it has no such confidence."""
    column = trace.tables[signal.table].get(signal.key)
    if column is None:
        return np.zeros(0), np.zeros(0, dtype=bool)
    values = np.array([np.nan if value is None else value for value in column], dtype=np.float64)
    verdict_mask, came_true = _outcomes(trace, signal)
    use = verdict_mask & np.isfinite(values)
    return values[use], came_true[use]


def _outcomes(trace: Trace, signal: Signal) -> tuple[np.ndarray, np.ndarray]:
    """Per row of the signal's table: whether it is known what happened, and whether it came true."""
    if signal.table == "candidates":
        candidates = trace.tables["candidates"]
        would, length = (np.array(candidates[name], dtype=np.int64) for name in ("would_accept", "length"))
        return (would >= 0) & (length > 0), would > 0
    nodes = trace.tables["nodes"]
    status, reason = (np.array(nodes[name], dtype=object) for name in ("status", "reason"))
    accepted_mask = status == "accepted"
    verdict_mask = accepted_mask | (status == "rejected")
    if signal.outcome == PATH:
        verdict_mask = (
            (status != "root") & ~np.isin(reason, NEVER_JUDGED) if len(reason) == len(status) else status != "root"
        )
    if signal.key == "term:confidence":
        verdict_mask &= first_choices(trace)
    if signal.probability:
        verdict_mask &= ~draws(trace)
    return verdict_mask, accepted_mask


def _auroc(confidence: np.ndarray, right: np.ndarray) -> float | None:
    """The chance that something right was told with more confidence than something wrong; equals count half."""
    good, bad = int(right.sum()), int((~right).sum())
    if not good or not bad:
        return None
    _, place, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2  # of equal values, from 1
    return float((mean_rank[place][right].sum() - good * (good + 1) / 2) / (good * bad))
