"""LogitSpec (Liu et al. 2026): the logits behind the last token also guess the one after the next; n-grams extend each.

The target's likeliest tokens at the last processed position stood for the root; those that came second, third … are
tried as the token behind the root. Below the root hang the continuation of the last n-gram, uncut, and one branch per
tried token: the token, and what followed it (with the tokens before it) earlier in the text. Better ranks get longer
branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from decoders.draft.draft import Candidates, Draft
from decoders.draft.growing import GrowingTree
from decoders.draft.needs import Needs
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.model.state.transfer import fetch
from decoders.trace.origins import MAIN, Origin

from .pld import suffix_lengths

MOST_SHOWN = 256  # places recorded of one step


@dataclass(frozen=True)
class LogitSpecParams:
    tried: int = param(
        64, "Tokens tried", "The likeliest tokens of the last logits that are tried as the token behind the last one.",
        low=1, high=64,
    )  # fmt: skip
    capacity: int = param(64, "Capacity", "Nodes of the tree at most, the last token included.", low=2, high=256)
    max_ngram: int = param(
        3, "Longest n-gram", "Continuations follow the last n tokens, from this n down to 1.", low=1, high=8
    )
    copy_length: int = param(20, "Copy length", "Tokens kept behind an n-gram.", low=1, high=64)


def places_after(
    text: Int[np.ndarray, " text"], last: Sequence[int], tokens: Sequence[int], longest: int, length: int
) -> tuple[Int[np.ndarray, " tokens"], Int[np.ndarray, " tokens"]]:
    """For each of ``tokens`` (no two alike), written behind ``last``: where the text goes on behind the longest n-gram
    that ends with it and stands there, and that n (at most ``longest``); -1 and 0 where the text has none.

    Of several places the latest one that ``length`` tokens follow; where so many follow none, the first one (the
    released pool keeps of two places the later one if its continuation is at least as long).

    >>> text = np.array([1, 2, 3, 4, 1, 2, 5])
    >>> [values.tolist() for values in places_after(text, [1], [2, 5, 4], 2, 2)]
    [[2, -1, 4], [2, 0, 1]]
    """
    body = text[:-1]  # behind these stands a token
    count, zeros = len(body), np.zeros(len(tokens), dtype=np.int64)
    if not count or not len(tokens):
        return zeros - 1, zeros
    number = np.full(max(int(body.max()), *tokens) + 1, -1, dtype=np.int32)
    number[list(tokens)] = np.arange(len(tokens))
    numbers = number[body]
    at = np.flatnonzero(numbers >= 0)
    match_lengths = suffix_lengths(body, at, longest, np.append(last, 0))
    whole = at + 1 + length <= len(text)
    best = zeros.copy()
    np.maximum.at(best, numbers[at], match_lengths * 2 * count + np.where(whole, count + at, count - 1 - at))
    n, order = np.divmod(best, 2 * count)
    places = np.where(order >= count, order - count, count - 1 - order) + 1
    return np.where(n, places, -1), n


def branch_length(index: int) -> int:
    """Tokens of a branch by its token's index among the last logits, that token included (the released code's)."""
    return 4 if index <= 8 else 3 if index <= 32 else 1


class LogitSpecDrafter(Drafter):
    """Candidates are the earlier places of the last token; the one that ``places_after`` chooses is copied uncut."""

    def __init__(self, params: LogitSpecParams) -> None:
        self.params = params

    def propose(self, context: Context, budget: int) -> Draft:
        p, text, root = self.params, context.tokens[:-1], context.root
        last = context.tokens[-p.max_ngram :].tolist()
        place, match_length = (int(a[0]) for a in places_after(text, last[:-1], [root], p.max_ngram, p.copy_length))
        tree, room = GrowingTree(root), p.capacity - 1
        if place >= 0:
            count = min(p.copy_length, len(text) - place, room)
            room -= count
            count = min(count, budget)
            tree.chain(text[place : place + count].tolist(), "main", source=place)
        ids, probabilities = self._last(context)
        lookups = ids[: sum(branch_length(index) > 1 for index in range(len(ids)))]
        next_places = places_after(text, last, lookups, p.max_ngram, p.copy_length)[0].tolist()
        for index, token in enumerate(ids):
            if room < 1:
                break
            if token == root:
                continue
            branch_size = min(branch_length(index), room)
            source_place = next_places[index] if branch_size > 1 else -1
            continuation = (
                text[source_place : source_place + min(branch_size - 1, p.copy_length)].tolist()
                if source_place >= 0
                else []
            )
            room -= 1 + len(continuation)
            node = tree.add(0, token, "logit", rank=index, last_prob=probabilities[index])
            tree.chain(continuation[: budget - 1], "main", parent=node, source=source_place)
        return tree.draft(
            route="n-gram" if place >= 0 else "last logits",
            reason="the last token occurs nowhere before, and there are no logits yet",
            candidates=self._candidates(context, place - 1),
            notes={"matched": float(match_length)},
        )

    def _last(self, context: Context) -> tuple[list[int], list[float]]:
        """The likeliest tokens after the last position that was scored, and their probabilities, in one copy."""
        if context.length < 2:
            return [], []
        ids, logprobs = fetch(context.top_ids[-1], context.top_logprobs[-1])
        return ids[: self.params.tried].tolist(), np.exp(logprobs).tolist()

    def _candidates(self, context: Context, choice: int) -> Candidates | None:
        tokens = context.tokens
        ends = np.flatnonzero(tokens[:-2] == tokens[-1]) if context.length > 2 else np.zeros(0, dtype=np.int64)
        if not len(ends):
            return None
        if len(ends) > MOST_SHOWN:
            ends = np.unique(np.append(ends[-MOST_SHOWN:], choice if choice >= 0 else ends[-1]))
        match_lengths = suffix_lengths(tokens, ends, self.params.max_ngram).astype(np.float64)
        length = np.minimum(self.params.copy_length, context.length - 2 - ends)
        at = int(np.searchsorted(ends, choice)) if choice >= 0 else -1
        return Candidates(ends, match_lengths, length, at, {"matched": match_lengths})


METHOD = Method(
    name="logitspec",
    family="ngram",
    title="LogitSpec",
    paper="Liu et al. 2026, LogitSpec: accelerating retrieval-based speculative decoding via next next token "
    "speculation",
    bibtex=r"""
@misc{liu2026logitspec,
  author = {T. Liu and Q. Lv and H. Li and X. Gao and X. Sun and X. Sun},
  title = {{LogitSpec}: Accelerating Retrieval-Based Speculative Decoding via Next Next Token Speculation},
  year = {2026},
  eprint = {2507.01449},
  archivePrefix = {arXiv},
}
""",
    summary="Tries the runners-up of the last logits as the token after the next, each with what followed it before.",
    params=LogitSpecParams,
    build=lambda target, params: LogitSpecDrafter(params),
    needs=lambda target, params: Needs(top_tokens=params.tried),
    origins=(
        MAIN,
        Origin("logit", "L", "last logits", "A runner-up of the logits that gave the last token.", "pointed", 1),
    ),
    terms=(Term("matched", "matched", "Tokens up to this place that equal the last tokens of the text.", 0, 8),),
    node_terms=(
        Term("rank", "rank", "The token's rank in the last logits (0: the likeliest).", 0, 63),
        Term("last_prob", "probability before", "What the target gave the token one position earlier.", 0, 1),
    ),
    step_terms=(Term("matched", "matched", "n of the n-gram whose continuation was copied; 0: none.", 0, 8),),
    order=15,
)
