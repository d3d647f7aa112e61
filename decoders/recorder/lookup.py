"""The source of a draft by transformers' prompt lookup: its search, repeated over the same tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decoders.draft.draft import Candidates
from decoders.drafters.pld import suffix_lengths


def rank(tokens: np.ndarray, drafted: Sequence[int], most: int, longest: int) -> tuple[Candidates | None, int]:
    """All places where the last token stands too, as PromptLookupCandidateGenerator ranks them, and where the draft
    begins (-1: there is none). The longest matched n-gram wins, then the earliest; ``most`` tokens are offered, at most
    ``longest`` compared. A place whose tokens the run's logits processors forbid loses to the next.

    >>> candidates, start = rank(np.array([5, 6, 7, 5, 6]), [7, 5], 2, 2)
    >>> candidates.position.tolist(), candidates.terms["ngram"].tolist(), start
    ([1], [2], 2)
    """
    last = len(tokens) - 1
    positions = np.flatnonzero(tokens[:last] == tokens[last])
    if not len(positions):
        return None, -1
    matched = suffix_lengths(tokens, positions, longest)
    offered = np.minimum(last - positions, most)
    chosen = -1
    if drafted:
        for place in np.argsort(-matched, kind="stable"):
            start = positions[place] + 1
            if offered[place] >= len(drafted) and np.array_equal(tokens[start : start + len(drafted)], drafted):
                chosen = int(place)
                break
    candidates = Candidates(positions, matched.astype(np.float64), offered, chosen, {"ngram": matched})
    return candidates, int(positions[chosen]) + 1 if chosen >= 0 else -1
