"""Lookahead decoding (Fu et al. 2024): the target guesses ahead by Jacobi iteration; what it wrote becomes n-grams.

Beside the text the target reads a window of guesses: N − 1 rows of W columns, row l of column i standing l + i places
behind the root. What it writes behind the last row is a new token per column; with its column above it is an n-gram,
kept under the token before it. Then all rows move up. Of the n-grams kept under the root the target checks up to G in
the same forward. The window's rows are probes: no node sees them, and nothing of them is committed.

Two quirks of the released code are left out: on a full match it drops the n-gram's last token, and with
``POOL_FROM_PROMPT`` it takes the last n-gram in again and again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from decoders.draft.draft import Draft, Learned, Past, Probe, Scored, Verdict
from decoders.draft.growing import GrowingTree
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.model.target_model.target import SPARE_ROWS
from decoders.trace.origins import Origin


@dataclass(frozen=True)
class LookaheadParams:
    n: int = param(5, "N-gram N", "Tokens of an n-gram, the one it is kept under included.", low=2, high=16)
    w: int = param(7, "Window W", "Columns of the window: places that are guessed at once.", low=1, high=128)
    g: int = param(7, "Guesses G", "N-grams that are kept per token and checked in one forward.", low=0, high=128)
    prompt: bool = param(False, "N-grams of the prompt", "Fill the pool with the prompt's own n-grams first.")
    seed: int = param(0, "Seed", "Of the prompt's tokens that the window begins with.", low=0, high=9999)

    def __post_init__(self) -> None:
        sizes = {"n": self.n, "w": self.w, "g": self.g}
        if rows_of(**sizes) <= SPARE_ROWS:
            return
        largest = []
        for name, minimum in (("n", 2), ("w", 1), ("g", 0)):
            fit = [x for x in range(minimum, sizes[name]) if rows_of(**{**sizes, name: x}) <= SPARE_ROWS]
            largest += [f"{name}={fit[-1]}"] if fit else []
        options = " or ".join(largest)
        raise ValueError(
            f"n={self.n}, w={self.w}, g={self.g} take {rows_of(**sizes)} rows, and a forward has {SPARE_ROWS}: "
            + (f"the largest allowed, the others as they are, is {options}" if options else "lower two of them")
        )


def rows_of(n: int, w: int, g: int) -> int:
    """Input rows of a step at most: the root, the window (also while it is filled), and the guesses.

    >>> rows_of(5, 7, 7)
    56
    """
    filling = [(w + n - 3 - k) + k * (w + n - 2 - k) for k in range(n - 2)]
    return 1 + max([w * (n - 1) - 1 + g * (n - 1), *filling])


class NgramCache:
    """Up to ``most`` n-grams per token, the last seen ones; each without the token that it is kept under. Those of a
    ``text``, ``n`` tokens each, are in it from the beginning; they are looked up when a token is first asked about.

    >>> pool = NgramCache(2)
    >>> for tail in ((1, 2), (3, 4), (1, 2), (5, 6)):
    ...     pool.add(9, tail)
    >>> pool.of(9)
    [(1, 2), (5, 6)]
    """

    def __init__(self, capacity: int, text: Sequence[int] | np.ndarray = (), n: int = 0) -> None:
        self.capacity, self.n, self.text = capacity, n, np.asarray(text, dtype=np.int64)
        self._tails: dict[int, OrderedDict[tuple[int, ...], None]] = {}
        self._not_looked_up = self._in_text() if capacity and len(self.text) >= n > 0 else 0

    def __len__(self) -> int:
        return self._not_looked_up + sum(map(len, self._tails.values()))

    def _in_text(self) -> int:
        """Number of n-grams in the text, ``most`` per token at most."""
        different = np.unique(np.lib.stride_tricks.sliding_window_view(self.text, self.n), axis=0)
        return int(np.minimum(np.unique(different[:, 0], return_counts=True)[1], self.capacity).sum())

    def _ngrams(self, token: int) -> OrderedDict[tuple[int, ...], None]:
        """The n-grams under a token, those of the text included."""
        if token not in self._tails:
            last_seen: dict[tuple[int, ...], None] = {}
            starts = np.flatnonzero(self.text[: max(0, len(self.text) - self.n + 1)] == token) if self.n else ()
            for start in reversed(starts):
                last_seen.setdefault(tuple(self.text[start + 1 : start + self.n].tolist()))
                if len(last_seen) >= self.capacity:
                    break
            self._tails[token] = OrderedDict.fromkeys(reversed(last_seen))
            self._not_looked_up -= len(last_seen)
        return self._tails[token]

    def add(self, token: int, tail: tuple[int, ...]) -> None:
        """Keep an n-gram, or move it to the end; the one that was not seen for longest goes."""
        if not self.capacity:
            return
        ngrams = self._ngrams(token)
        ngrams[tail] = None
        ngrams.move_to_end(tail)
        if len(ngrams) > self.capacity:
            ngrams.popitem(last=False)

    def of(self, token: int) -> list[tuple[int, ...]]:
        """The tails kept under a token, the last seen one at the end."""
        return list(self._ngrams(token)) if self.capacity else []


@lru_cache(maxsize=64)
def window_probes(widths: tuple[int, ...]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Per row of a window with rows of these widths (the first one without the root): its place behind the root, and
    the earlier rows that it sees: row 0 up to its own column, and its column above it.
    """
    rows: list[tuple[int, tuple[int, ...]]] = []
    number: dict[tuple[int, int], int] = {}
    for level, width in enumerate(widths):
        for column in range(1 if level == 0 else 0, width + (level == 0)):
            number[level, column] = len(rows)
            sees = [number[0, i] for i in range(1, column + (level > 0))]
            sees += [number[upper_row, column] for upper_row in range(1, level)]
            rows.append((level + column, tuple(sees)))
    return tuple(rows)


class LookaheadDrafter(Drafter):
    """``window[0]`` stands behind the root, which is column 0 of its row; later rows have W columns. Near ``limit``,
    the longest text that the target reads, there is no room for the window, and it rests.
    """

    def __init__(self, params: LookaheadParams, limit: int) -> None:
        self.params, self.limit = params, limit
        self.pool = NgramCache(params.g)
        self.window: list[list[int]] = []
        self.proposed: Draft | None = None
        self.resting = False

    def prepare(self, context: Context) -> None:
        p = self.params
        start_places = np.random.default_rng(p.seed).integers(0, context.prompt_length, p.w + p.n - 3)
        text = context.tokens[: context.prompt_length] if p.prompt else ()
        self.pool, self.proposed, self.window = (
            NgramCache(p.g, text, p.n),
            None,
            [context.tokens[start_places].tolist()],
        )

    @property
    def is_full(self) -> bool:
        """True once the window has all of its rows, so that n-grams come of it."""
        return len(self.window) == self.params.n - 1

    def probes(self, length: int) -> tuple[Probe, ...]:
        """The window's rows behind a root with ``length`` - 1 tokens before it; none where the target has no room."""
        places = window_probes(tuple(map(len, self.window)))
        self.resting = max((offset for offset, _ in places), default=0) > self.limit - length
        if self.resting:
            return ()
        tokens = [token for row in self.window for token in row]
        return tuple(
            Probe(0, offset, token=token, sees=sees, kind="window")
            for token, (offset, sees) in zip(tokens, places, strict=True)
        )

    def propose(self, context: Context, budget: int) -> Draft:
        if not self.window:
            self.prepare(context)
        tree = GrowingTree(context.root)
        tails = self.pool.of(context.root)[::-1] if self.is_full else []
        for age, tail in enumerate(tails):
            tree.chain(tail[:budget], "ngram", age=float(age))
        probes = self.probes(context.length)
        reason = "no n-gram is kept under the last token" if self.is_full else "the window is being filled"
        draft = tree.draft(route="n-grams", reason=reason)
        self.proposed = replace(draft, probes=probes, notes={"tried": float(len(tails))})
        return self.proposed

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> Learned | None:
        if draft.proposed is self.proposed and not self.resting:
            self.move(draft.tree.tokens[0], self._next_row(scored))
        return Learned(notes={"kept": float(len(self.pool))})

    def resume(self, context: Context, past: Sequence[Past]) -> None:
        """Have every step's window scored once more, from the one that the run began with."""
        for step in past:
            if step.probes is None:  # another method's: the window is as it was drawn
                return
            probes = self.probes(step.length)
            if not self.resting:
                self.move(step.draft.tree.tokens[0], self._next_row(step.scored(probes)))

    def _next_row(self, scored: Scored) -> list[int]:
        """The target's choices behind the window's last row; behind the root too where there is but one."""
        choices = [] if scored.probe_logits is None else scored.probe_logits.argmax(-1).tolist()
        if len(self.window) == 1:
            return [int(scored.logits[0].argmax()), *choices]
        return choices[-len(self.window[-1]) :]

    def move(self, root: int, new_tokens: list[int]) -> None:
        """Keep the columns' n-grams, once the window is filled, and move its rows up by one."""
        window = self.window
        if not self.is_full:  # every row is a column shorter, seen from the next root
            self.window = [*(row[1:] for row in window), new_tokens[1:]]
            return
        for column, token in enumerate([root, *window[0]]):
            self.pool.add(token, (*(row[column] for row in window[1:]), new_tokens[column]))
        rows = [*window[1:], new_tokens]
        self.window = [rows[0][1:], *rows[1:]]


METHOD = Method(
    name="lookahead",
    family="ngram",
    title="Lookahead decoding",
    paper="Fu et al. 2024, Break the sequential dependency of LLM inference using lookahead decoding",
    bibtex=r"""
@misc{fu2024lookahead,
  author = {Yichao Fu and Peter Bailis and Ion Stoica and Hao Zhang},
  title = {Break the Sequential Dependency of {LLM} Inference Using Lookahead Decoding},
  year = {2024},
  eprint = {2402.02057},
  archivePrefix = {arXiv},
}
""",
    summary="Lets the target guess several places at once beside the text, and checks the n-grams it wrote there.",
    params=LookaheadParams,
    build=lambda target, params: LookaheadDrafter(params, target.context_length),
    origins=(
        Origin("ngram", "N", "n-gram", "Of an n-gram that the target wrote in its window earlier.", "notched", 2),
    ),
    node_terms=(
        Term("age", "age", "N-grams under the last token that were seen after this one (0: the last seen).", 0, 0),
    ),
    step_terms=(
        Term("tried", "n-grams tried", "N-grams kept under the last token, all checked in this forward.", 0, 0),
        Term("kept", "n-grams kept", "N-grams in the pool after this step.", 0, 0),
    ),
    order=17,
)
