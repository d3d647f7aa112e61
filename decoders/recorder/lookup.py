"""The source of a draft by transformers' prompt lookup: its search, repeated over the same tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decoders.draft.draft import Candidates
from decoders.drafters.pld import suffix_lengths


def rank(tokens: np.ndarray, drafted: Sequence[int], max_tokens: int, longest: int) -> tuple[Candidates | None, int]:
    """All places where the last token stands too, as PromptLookupCandidateGenerator ranks them, and where the draft
    begins (-1: there is none). The longest matched n-gram wins, then the earliest; ``max_tokens`` tokens are offered,
    at most ``longest`` compared. A place whose tokens the run's logits processors forbid loses to the next.

    >>> candidates, start = rank(np.array([5, 6, 7, 5, 6]), [7, 5], 2, 2)
    >>> candidates.position.tolist(), candidates.terms["ngram"].tolist(), start
    ([1], [2], 2)
    """
    last = len(tokens) - 1
    positions = np.flatnonzero(tokens[:last] == tokens[last])
    if not len(positions):
        return None, -1
    match_lengths = suffix_lengths(tokens, positions, longest)
    offer_lengths = np.minimum(last - positions, max_tokens)
    winner = -1
    if drafted:
        for place in np.argsort(-match_lengths, kind="stable"):
            start = positions[place] + 1
            if offer_lengths[place] >= len(drafted) and np.array_equal(tokens[start : start + len(drafted)], drafted):
                winner = int(place)
                break
    candidates = Candidates(
        positions, match_lengths.astype(np.float64), offer_lengths, winner, {"ngram": match_lengths}
    )
    return candidates, int(positions[winner]) + 1 if winner >= 0 else -1
