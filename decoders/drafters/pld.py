"""Prompt lookup decoding (Saxena, 2023): copy what followed the last n-gram where it occurred first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from decoders.draft.draft import Candidates, Draft
from decoders.draft.params import check_order, param
from decoders.draft.terms import Term
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context

MAX_PLACES, MIN_TAIL = 4, 16  # of so few places the rest is compared whole, unless it is as short as this


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


def suffix_lengths(
    text: np.ndarray, ends: np.ndarray, longest: int | None = None, ending: np.ndarray | None = None
) -> np.ndarray:
    """For each place, where the last token stands: how many tokens up to it equal the text's last ones, or those of
    ``ending``; at most ``longest``.

    >>> suffix_lengths(np.array([1, 2, 3, 9, 2, 3]), np.array([2]), 3)
    array([2])
    """
    ending = text if ending is None else ending
    last, lengths, alive, offset = len(ending) - 1, np.ones(len(ends), dtype=np.int64), np.arange(len(ends)), 1
    limit = len(ending) if longest is None else min(longest, len(ending))
    small_count = MAX_PLACES if limit > MIN_TAIL else 0
    while len(alive) > small_count and offset < limit:
        alive = alive[ends[alive] >= offset]
        alive = alive[text[ends[alive] - offset] == ending[last - offset]]
        lengths[alive] += 1
        offset += 1
    for place in alive.tolist() if offset < limit else ():  # the few that go on: compared whole
        end = int(ends[place])
        count = min(limit, end + 1)
        differs = text[end - count + 1 : end - offset + 1][::-1] != ending[last - count + 1 : last - offset + 1][::-1]
        lengths[place] = offset + int(differs.argmax()) if differs.any() else count
    return lengths


class SuffixMatches:
    """Of a text that grows: for each place how many tokens up to it equal the text's last ones, whatever their number.

    A place's match is one longer than that of the place before it was, so each new token costs one pass; only a text
    that is no continuation of the last one is searched anew.

    >>> matches = SuffixMatches()
    >>> [part.tolist() for part in matches.of(np.array([1, 2, 3, 9, 2, 3]))]
    [[2], [2]]
    >>> [part.tolist() for part in matches.of(np.array([1, 2, 3, 9, 2, 3, 9, 2]))]
    [[1, 4], [1, 4]]
    """

    def __init__(self) -> None:
        self._text = np.zeros(0, dtype=np.int64)
        self._lengths = np.zeros(0, dtype=np.int64)  # of every place of the text; the end itself counts 0

    def of(self, text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The earlier places of the text's last token, and their matches."""
        known_length = len(self._text)
        if not 0 < known_length <= len(text) or not np.array_equal(self._text, text[:known_length]):
            self._lengths = whole_matches(text)
        else:
            lengths = np.zeros(len(text), dtype=np.int64)
            lengths[:known_length] = self._lengths
            for end in range(known_length, len(text)):
                places = np.flatnonzero(text[:end] == text[end])
                match_lengths = np.where(places > 0, lengths[places - 1], 0) + 1
                lengths[:end] = 0
                lengths[places] = match_lengths
            self._lengths = lengths
        self._text = text.copy()
        places = np.flatnonzero(text[:-1] == text[-1])
        return places, self._lengths[places]


def whole_matches(text: np.ndarray) -> np.ndarray:
    """For each place the number of tokens up to it that equal the text's last ones; 0 for the end itself (Z-algorithm).

    >>> whole_matches(np.array([7, 7, 7])).tolist()
    [1, 2, 0]
    """
    backwards, count = text[::-1].tolist(), len(text)
    matches, start, stop = [0] * count, 0, 0
    for place in range(1, count):
        length = min(stop - place, matches[place - start]) if place < stop else 0
        while place + length < count and backwards[length] == backwards[place + length]:
            length += 1
        if place + length > stop:
            start, stop = place, place + length
        matches[place] = length
    return np.asarray(matches[::-1], dtype=np.int64)


class RankedCopier(Drafter):
    """Copies after one of the earlier places of the root's token: the best by ``scores`` of those that ``exclude``
    leaves, of equally good ones the earliest (PLD; PLD+ eq. 2–4). ``params.k`` tokens at most.
    """

    def __init__(self, params: Any) -> None:
        self.params = params

    def scores(self, context: Context, positions: np.ndarray) -> dict[str, np.ndarray]:
        """Score terms of the candidates, each ``[candidates]``; the first one is what they are ranked by."""
        raise NotImplementedError

    def exclude(self, score: np.ndarray, follow: np.ndarray) -> np.ndarray | None:
        """The reason why each candidate cannot win ("": it can), by its score and the tokens that follow it; None:
        all can.
        """
        raise NotImplementedError

    def empty_reason(self, score: np.ndarray) -> str:
        """The reason why there is no draft where all candidates are excluded."""
        raise NotImplementedError

    def propose(self, context: Context, budget: int) -> Draft:
        tokens, root, prompt_only = context.tokens, context.root_position, getattr(self.params, "prompt_only", False)
        search_end = min(root, context.prompt_length) if prompt_only else root
        positions = np.flatnonzero(tokens[:search_end] == tokens[root])
        if not len(positions):
            region = "in the prompt" if prompt_only else "before"
            return Draft.empty(context.root, f"the last token occurs nowhere {region}")
        terms, follow = self.scores(context, positions), root - positions
        score, offer_lengths = next(iter(terms.values())).astype(np.float64), np.minimum(follow, self.params.k)
        exclusions, eligible = self.exclude(score, follow), np.ones(len(positions), dtype=bool)
        if exclusions is not None:
            eligible = exclusions == ""
        choice = int(np.argmax(np.where(eligible, score, -np.inf))) if eligible.any() else -1
        reasons = () if exclusions is None else tuple(exclusions.tolist())
        candidates = Candidates(positions, score, offer_lengths, choice, terms, reasons)
        if choice < 0:
            return Draft.empty(context.root, self.empty_reason(score), route="filtered", candidates=candidates)
        start = int(positions[choice]) + 1
        copy_tokens = tokens[start : start + min(int(offer_lengths[choice]), budget)].tolist()
        return Draft.copy_from(context.root, copy_tokens, start, route="lexical", candidates=candidates)


class PldDrafter(RankedCopier):
    """The longest matched n-gram wins."""

    params: PldParams

    def scores(self, context: Context, positions: np.ndarray) -> dict[str, np.ndarray]:
        return {"ngram": suffix_lengths(context.tokens, positions, self.params.max_ngram)}

    def exclude(self, score: np.ndarray, follow: np.ndarray) -> np.ndarray:
        p = self.params
        exclusions = np.where(score >= p.min_ngram, "", f"fewer than {p.min_ngram} tokens match")
        short = (exclusions == "") & (follow < p.k) & (not p.clip)
        return np.where(short, f"fewer than K = {p.k} tokens follow", exclusions)

    def empty_reason(self, score: np.ndarray) -> str:
        short = score.max() < self.params.min_ngram
        return "no match is long enough" if short else f"no match has K = {self.params.k} tokens after it"


METHOD = Method(
    name="pld",
    family="copy",
    title="PLD: prompt lookup",
    paper="Saxena 2023, Prompt lookup decoding",
    bibtex=r"""
@misc{saxena2023pld,
  author = {Apoorv Saxena},
  title = {Prompt Lookup Decoding},
  year = {2023},
  howpublished = {\url{https://github.com/apoorvumang/prompt-lookup-decoding}},
}
""",
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
