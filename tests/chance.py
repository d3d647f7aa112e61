"""Chi-square tests: counts of many runs against the distribution that they should have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import chisquare

from decoders.draft.draft import Draft, Scored, emitted_tokens
from decoders.verifiers.verifier import Verifier


def p_value(counts: Any, expected: Any) -> float:
    """The chi-square test's; cells of which fewer than five are expected count as one, and it is 0 where something came
    that never should.
    """
    seen, wanted = (np.asarray(cells, dtype=float).ravel() for cells in (counts, expected))
    if seen[wanted == 0].any():
        return 0.0
    usual = wanted >= 5
    seen, wanted = (np.append(cells[usual], cells[~usual].sum()) for cells in (seen, wanted))
    return float(chisquare(seen[wanted > 0], wanted[wanted > 0] * seen.sum() / wanted.sum()).pvalue)


def first_tokens(draft: Draft, scored: Scored, verifier: Callable[[int], Verifier], runs: int) -> np.ndarray:
    """Counts of the first token that each seed's verifier emits."""
    counts = np.zeros(scored.logits.shape[-1])
    for seed in range(runs):
        counts[emitted_tokens(draft.tree.tokens, verifier(seed)(draft, scored))[0]] += 1
    return counts
