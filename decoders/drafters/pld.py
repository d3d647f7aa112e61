"""Prompt lookup decoding (Saxena, 2023): copy what followed the last n-gram where it occurred first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decoders.draft.draft import Candidates, Draft
from decoders.draft.params import check_order, param
from decoders.draft.terms import Term
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context


@dataclass(frozen=True)
class PldParams:
    max_ngram: int = param(
        3, "Longest n-gram", "The last n tokens are looked up, from this n down to the shortest.", low=1, high=16
    )
    min_ngram: int = param(1, "Shortest n-gram", "Lookup gives up below this n.", low=1, high=16)
    k: int = param(10, "Draft length K", "Tokens copied after the match.", low=1, high=128)
    clip: bool = param(
        False,
        "Clip at the end",
        "Off: a match counts only if K tokens follow it (Spec-Bench's rule). On: copy what there is.",
    )

    def __post_init__(self) -> None:
        check_order(self, "min_ngram", "max_ngram")


def suffix_lengths(tokens: np.ndarray, positions: np.ndarray, longest: int) -> np.ndarray:
    """For each position: how many tokens up to it equal the sequence's last tokens, at most ``longest``.

    >>> suffix_lengths(np.array([1, 2, 3, 9, 2, 3]), np.array([2]), 3)
    array([2])
    """
    lengths = np.ones(len(positions), dtype=np.int64)
    alive = np.ones(len(positions), dtype=bool)
    last = len(tokens) - 1
    for back in range(1, min(longest, last + 1)):
        alive &= positions >= back
        alive &= tokens[np.maximum(positions - back, 0)] == tokens[last - back]
        if not alive.any():
            break
        lengths[alive] += 1
    return lengths


class PldDrafter(Drafter):
    """Candidates are all earlier positions of the root's token; the longest matched n-gram wins, then the earliest."""

    def __init__(self, params: PldParams) -> None:
        self.params = params

    def propose(self, context: Context, budget: int) -> Draft:
        p, tokens, root = self.params, context.tokens, context.root_position
        positions = np.flatnonzero(tokens[:root] == tokens[root])
        if not len(positions):
            return Draft.empty(context.root, "the last token occurs nowhere before")
        matched = suffix_lengths(tokens, positions, p.max_ngram)
        follow = root - positions  # tokens after the anchor, up to the root
        wins = matched >= p.min_ngram
        excluded = np.where(wins, "", f"fewer than {p.min_ngram} tokens match")
        if not p.clip:
            excluded = np.where(wins & (follow < p.k), f"fewer than K = {p.k} tokens follow", excluded)
            wins &= follow >= p.k
        chosen = int(np.argmax(np.where(wins, matched, 0))) if wins.any() else -1
        score, offered = matched.astype(np.float64), np.minimum(follow, p.k)
        candidates = Candidates(positions, score, offered, chosen, {"ngram": matched}, tuple(excluded.tolist()))
        if chosen < 0:
            short = matched.max() < p.min_ngram
            reason = "no match is long enough" if short else f"no match has K = {p.k} tokens after it"
            return Draft.empty(context.root, reason, route="filtered", candidates=candidates)
        start = int(positions[chosen]) + 1
        copied = tokens[start : start + min(p.k, budget, int(follow[chosen]))].tolist()
        return Draft.copy_from(context.root, copied, start, route="lexical", candidates=candidates)


BIBTEX = r"""
@misc{saxena2023pld,
  author = {Apoorv Saxena},
  title = {Prompt Lookup Decoding},
  year = {2023},
  howpublished = {\url{https://github.com/apoorvumang/prompt-lookup-decoding}},
}
"""

METHOD = Method(
    name="pld",
    family="copy",
    title="PLD: prompt lookup",
    paper="Saxena 2023, Prompt lookup decoding",
    bibtex=BIBTEX,
    summary="Copies what followed the last n-gram at its first occurrence in the text so far.",
    params=PldParams,
    build=lambda target, params: PldDrafter(params),
    terms=(
        Term(
            "ngram",
            "n-gram",
            "Tokens up to the anchor that equal the last tokens of the text (1 = only the last one).",
            0,
            3,
        ),
    ),
    order=1,
)
