"""SuffixDecoding (Oliaro et al. 2025; Arctic Inference): what followed the text's suffixes before, by how often.

A suffix tree over prompt and answer, and another over the answers of all requests, hold each string of up to ``depth``
tokens with its count. For every suffix of the text that occurs, the most frequent continuation is drafted (or a tree of
them), as many tokens as the suffix has; a token's probability is count ÷ count of the string before it, multiplied
along the path. The draft with the highest sum of probabilities wins. The trees themselves are not built: a string's
places are found in the text by vector operations, in earlier answers by a suffix array, and counted. Of equally
frequent continuations the one that the package's list of children has in front is drafted (``siblings``); numbers are
rounded to 32 bits, as they are there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush

import numpy as np
from jaxtyping import Int
from numpy.lib.stride_tricks import sliding_window_view

from decoders.draft.draft import Candidates, Draft, Learned, Scored, Verdict, emitted_tokens
from decoders.draft.growing import GrowingTree
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.method.drafter import Drafter
from decoders.method.kept import kept_with
from decoders.method.method import Method
from decoders.model.state.memory import Context
from decoders.model.target_model.target import Target
from decoders.prompt.pool import SEPARATOR, PoolIndex
from decoders.prompt.prompt import Pool
from decoders.trace.origins import Origin

from .pld import SuffixMatches

ROUNDED = 1e-3  # by which sums in 32 bits may be too high
MOST_COUNTED = 2048  # of more places of a string, so many are counted, spread evenly


@dataclass(frozen=True)
class SuffixParams:
    depth: int = param(
        24, "Depth", "Longest string that is counted: a suffix and its draft together. vLLM's default is 24, the "
        "package's 64.", low=2, high=128,
    )  # fmt: skip
    max_tokens: int = param(32, "Most tokens", "Drafted tokens at most.", low=1, high=128)
    factor: float = param(1.0, "Factor", "Drafted tokens at most per token of the suffix that matched.", low=0, high=8)
    offset: float = param(0.0, "Offset", "Drafted tokens more than that.", low=0, high=32)
    min_token_prob: float = param(
        0.1, "Least probability", "A token whose path has a lower estimated probability is not drafted.", low=0, high=1
    )
    tree: bool = param(False, "Tree", "Draft the likeliest nodes as a tree instead of one path.")
    warm: bool = param(
        False, "Warm start", "Draft from the answers of earlier warm runs with this model, too. Off: from this run's "
        "own text alone, as comparisons need it.",
    )  # fmt: skip
    anew: bool = param(False, "Empty it first", "With a warm start: forget the earlier answers before this run.")
    max_cached: int = param(1000, "Most answers kept", "The oldest answers go first.", low=1, high=10_000)

    def __post_init__(self) -> None:
        if self.anew and not self.warm:
            raise ValueError("anew=true forgets what warm runs share: set warm=true too")


class Answers:
    """Answers of earlier runs, oldest first, and an index over them, made when it is asked for."""

    unit = "answers"

    def __init__(self) -> None:
        self.texts: deque[list[int]] = deque()
        self._index: tuple[tuple[int, ...], PoolIndex] | None = None

    def __len__(self) -> int:
        return sum(map(bool, self.texts))

    def begin(self, capacity: int) -> list[int]:
        """A new answer, to be extended while it is written; of more than ``capacity`` the oldest go."""
        self.texts = deque((text for text in self.texts if text), capacity)
        self.texts.append([])
        return self.texts[-1]

    def index(self, depth: int) -> PoolIndex | None:
        """The index of strings of up to ``depth`` tokens; None without answers."""
        texts = [np.asarray(text, dtype=np.int64) for text in self.texts if text]
        if not texts:
            return None
        version = (depth, *map(len, texts))
        if self._index is None or self._index[0] != version:
            starts = np.cumsum([0, *map(len, texts)])[:-1].tolist()
            pool = Pool(np.concatenate(texts), tuple(starts), None, "earlier answers")
            self._index = version, PoolIndex(pool, depth, with_ends=True)
        return self._index[1]


@dataclass(slots=True)
class Guess:
    """A draft: per node its token, its parent's number (-1: the root), its estimated probability and where in the text
    its token stands (-1: not in the text). ``matched`` tokens of suffix stood before it ``count`` times.
    """

    matched: int = 0
    count: int = 0
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    score: float = 0.0  # Σ of the probabilities
    cut: bool = False  # whether the tree's depth ended it
    kind: str = "local"


def siblings(following: Iterable[int]) -> list[int]:
    """Tokens that followed a string, in the order in which they came, as the package's list of its children: the most
    frequent first. Of equally frequent ones, a token that led those of its former count goes to the front, any other
    to the back.

    >>> siblings([7, 8, 8, 7]), siblings([7, 8, 7, 8])
    ([7, 8], [8, 7])
    """
    counts: dict[int, int] = {}
    tokens_by_count: dict[int, list[int]] = {}  # by count
    for token in following:
        count = counts.get(token, 0)
        leads = False
        if count:
            leads = tokens_by_count[count][0] == token
            tokens_by_count[count].remove(token)
        counts[token] = count + 1
        peers = tokens_by_count.setdefault(count + 1, [])
        peers.insert(0 if leads else len(peers), token)
    return [token for count in sorted(tokens_by_count, reverse=True) for token in tokens_by_count[count]]


class MatchPlaces:
    """All places of one string: what follows them, ``rows`` ``[places, depth]`` (-1: the text is over), and where each
    of them ends in the text (-1: in an earlier answer; those stand last). Both are in the order of the texts. ``count``
    is how many there are; of many, some are looked at.
    """

    def __init__(self, rows: Int[np.ndarray, "places depth"], ends: Int[np.ndarray, " places"], count: int) -> None:
        self.rows, self.ends, self.count = rows, ends, count

    def draft(self, budget: int, deepest: int, threshold: float, tree: bool) -> Guess:
        """The draft of at most ``budget`` tokens, none deeper than ``deepest`` or of a probability below
        ``threshold``.
        """
        guess = Guess(count=self.count)
        if len(self.rows):
            (self._tree if tree else self._path)(guess, budget, deepest, threshold)
        return guess

    def _path(self, guess: Guess, budget: int, deepest: int, threshold: float) -> None:
        alive, probability = np.arange(len(self.rows)), 1.0
        for depth in range(min(budget, deepest)):
            token, count, followers = self._commonest(alive, depth)
            probability = share_of(probability, count, len(alive))
            if token == SEPARATOR or probability < threshold:
                return
            alive = followers
            self._add(guess, token, depth - 1, probability, int(alive[0]), depth)
        guess.cut = deepest < budget

    def _commonest(self, alive: np.ndarray, depth: int) -> tuple[int, int, np.ndarray]:
        """The token that most of the places go on with, how many do, and those places; -1 where all are over."""
        column = self.rows[alive, depth]
        first = int(column[0])
        if first != SEPARATOR:
            is_first = column == first
            if 2 * (count := int(np.count_nonzero(is_first))) > len(column):  # no other token can be as frequent
                return first, count, alive if count == len(column) else alive[is_first]
        tokens, counts = np.unique(column[column != SEPARATOR], return_counts=True)
        if not len(tokens):
            return SEPARATOR, 0, alive
        top_count = int(counts.max())
        best = tokens[counts == top_count]
        token = int(best[0]) if len(best) == 1 else self._children(alive, column)[0]
        return token, top_count, alive[column == token]

    def _children(self, alive: np.ndarray, column: np.ndarray) -> list[int]:
        """The tokens after these places, in the order of the package's list: earlier answers are older than the
        text.
        """
        local_count = int((self.ends[alive] >= 0).sum())
        return siblings(token for token in np.roll(column, -local_count).tolist() if token != SEPARATOR)

    def _tree(self, guess: Guess, budget: int, deepest: int, threshold: float) -> None:
        queue: list[tuple[float, int, int, int, int, np.ndarray]] = []
        push_count = 0

        def push(alive: np.ndarray, depth: int, parent: int, probability: float) -> None:
            nonlocal push_count
            if depth >= deepest:
                guess.cut = True
                return
            column = self.rows[alive, depth]
            for token in self._children(alive, column):
                followers = alive[column == token]
                chance = share_of(probability, len(followers), len(alive), multiplied_first=True)
                if chance < threshold:
                    break
                heappush(queue, (-chance, push_count, token, parent, depth, followers))
                push_count += 1

        push(np.arange(len(self.rows)), 0, -1, 1.0)
        while queue and len(guess.tokens) < budget:
            negative, _, token, parent, depth, branch_places = heappop(queue)
            self._add(guess, token, parent, -negative, int(branch_places[0]), depth)
            if len(guess.tokens) < budget:
                push(branch_places, depth + 1, len(guess.tokens) - 1, -negative)

    def _add(self, guess: Guess, token: int, parent: int, probability: float, place: int, depth: int) -> None:
        guess.tokens.append(token)
        guess.parents.append(parent)
        guess.probabilities.append(probability)
        guess.score = float(np.float32(guess.score) + np.float32(probability))
        end = int(self.ends[place])
        guess.sources.append(end + 1 + depth if end >= 0 else -1)


def share_of(probability: float, count: int, total: int, *, multiplied_first: bool = False) -> float:
    """``probability`` · count ÷ total, in 32 bits and in the package's order of operations."""
    if count == total:
        return probability
    path, part, whole = np.float32(probability), np.float32(count), np.float32(total)
    return float(path * part / whole if multiplied_first else path * (part / whole))


@dataclass(frozen=True, slots=True)
class Class:
    """Suffixes of ``above`` + 1 to ``upto`` tokens, which occur at the same places. A draft from them is ``reach``
    tokens deep at most.
    """

    matches_above: int
    upto: int
    reach: int
    places: Callable[[], MatchPlaces]


class SuffixDrafter(Drafter):
    """Candidates are the drafts of all suffixes that occur in this run's text."""

    learns = False  # drafts follow from the text
    learns_from_any_draft = True  # where it keeps answers: all that is emitted

    def __init__(self, params: SuffixParams, answers: Answers, *, warm: bool = False) -> None:
        self.params, self.keeps, self.warm = params, answers, warm
        self.index: PoolIndex | None = None
        self.matches = SuffixMatches()
        self.answer: list[int] | None = None  # this run's own among the kept ones

    def prepare(self, context: Context) -> None:
        self.index = self.keeps.index(self.params.depth)
        self.matches.of(context.tokens)

    def propose(self, context: Context, budget: int) -> Draft:
        tokens = context.tokens
        match_ends, match_lengths = self.matches.of(tokens)
        ends = np.append(match_ends, len(tokens) - 1)  # the end itself is no match, but it counts
        lengths = np.minimum(np.append(match_lengths, match_lengths.max(initial=0)), self.params.depth - 1)
        local = [self._guess(match_class) for match_class in self._classes(tokens, 0, ends, lengths)]
        best = _best(local)
        global_guess = self._better(self._everywhere(context, ends, match_lengths), 0.0 if best is None else best.score)
        if global_guess is not None and (best is None or global_guess.score > best.score):
            best = global_guess
        if best is None or not (local or best.tokens):
            return Draft.empty(context.root, "the last token occurs nowhere before")
        candidates, notes = self._candidates(local, best), {"matched": float(best.matched), "score": best.score}
        if not best.tokens:
            reason = f"nothing follows the last tokens with a probability of {self.params.min_token_prob:g} or more"
            return replace(Draft.empty(context.root, reason, candidates=candidates), notes=notes)
        tree, nodes, depths = GrowingTree(context.root), [0], [0]
        for number, parent in enumerate(best.parents):
            depths.append(depths[parent + 1] + 1)
            if depths[-1] > budget:
                nodes.append(-1)
                continue
            source = best.sources[number]
            origin = "local" if source >= 0 else "global"
            chance = best.probabilities[number]
            nodes.append(tree.add(nodes[parent + 1], best.tokens[number], origin, source, path_prob=chance))
        return tree.draft(route=best.kind, candidates=candidates, notes=notes)

    def _guess(self, match_class: Class, kind: str = "local") -> Guess:
        """The best draft of a class: of equally good ones that of its longest suffix. A shorter suffix allows fewer
        tokens, but deeper ones: it is asked where the depth ended a draft.
        """
        p, best, places = self.params, None, match_class.places()
        for match_length in range(match_class.upto, match_class.matches_above, -1):
            depth, threshold = p.depth - match_length, float(np.float32(p.min_token_prob))
            guess = places.draft(self._budget(match_length), depth, threshold, p.tree)
            if best is None or guess.score > best.score:
                best = replace(guess, matched=match_length, kind=kind)
            if not guess.cut:
                break
        assert best is not None
        return best

    def _better(self, classes: Sequence[Class], threshold: float) -> Guess | None:
        """The best draft of all classes, if its score is above ``threshold``: those that cannot have a higher one, by
        the tokens that they may draft, are not drafted from.
        """
        best = None
        for match_class in sorted(classes, key=lambda group: group.reach, reverse=True):
            bound = match_class.reach + ROUNDED  # at each depth the probabilities add up to 1
            if bound <= threshold or (best is not None and bound < best.score):
                break
            guess = self._guess(match_class, "global")
            best = guess if best is None else _best([best, guess])
        return best

    def _classes(
        self,
        text: np.ndarray,
        first: int,
        ends: np.ndarray,
        lengths: np.ndarray,
        intervals: Sequence[tuple[int, int]] = (),
    ) -> list[Class]:
        """The classes of suffixes by their places in ``text``, which begins at position ``first``, and in the index,
        where ``intervals`` has an interval for each length.
        """
        changes = {n for n, interval in enumerate(intervals, 1) if intervals[n : n + 1] != [interval]}
        classes, lower_length, p = [], 0, self.params
        padded = np.append(text, np.full(p.depth, SEPARATOR))
        for upto in sorted(changes | set(lengths[lengths > 0].tolist())):
            interval = intervals[upto - 1] if upto <= len(intervals) else (0, 0)
            reach = max((min(self._budget(n), p.depth - n) for n in range(lower_length + 1, upto + 1)), default=0)
            places = partial(self._places, padded, first, ends[lengths >= upto], interval, max(1, reach))
            classes.append(Class(lower_length, upto, reach, places))
            lower_length = upto
        return classes

    def _budget(self, matched: int) -> int:
        """Drafted tokens at most behind a suffix of so many."""
        p = self.params
        return max(0, min(p.max_tokens, int(matched * p.factor + p.offset + 1e-6)))

    def _places(
        self, padded: np.ndarray, first: int, ends: np.ndarray, interval: tuple[int, int], width: int
    ) -> MatchPlaces:
        """The places of a string; ``padded`` is the text with separators behind it."""
        local_count, offsets = len(ends), np.arange(1, width + 1)
        if local_count > MOST_COUNTED:
            ends = ends[np.arange(MOST_COUNTED) * local_count // MOST_COUNTED]
        rows = sliding_window_view(padded, width)[ends + 1]
        global_count = interval[1] - interval[0]
        if not global_count or self.index is None:
            return MatchPlaces(rows, ends + first, local_count)
        sample_size = min(global_count, MOST_COUNTED)
        global_places = np.sort(self.index.order[interval[0] + np.arange(sample_size) * global_count // sample_size])
        global_rows = self.index.text[np.minimum(global_places[:, None] + offsets, len(self.index.text) - 1)]
        global_rows = np.where(np.logical_and.accumulate(global_rows != SEPARATOR, axis=1), global_rows, SEPARATOR)
        return MatchPlaces(
            np.concatenate([rows, global_rows]),
            np.append(ends + first, np.full(sample_size, -1)),
            local_count + global_count,
        )

    def _everywhere(self, context: Context, ends: np.ndarray, matched: np.ndarray) -> list[Class]:
        """The same over all answers, this run's own as far as it is written among them."""
        tokens, first = context.tokens, context.prompt_length
        intervals = [] if self.index is None else list(self.index.intervals(tokens[1:][1 - self.params.depth :]))
        answer_start = int(np.searchsorted(ends, first))  # of the answer alone, to whose begin a match goes at most
        places = ends[answer_start:] - first
        lengths = np.minimum(np.append(matched, len(tokens))[answer_start:], places + 1)
        lengths = np.minimum(lengths, self.params.depth - 1)
        return self._classes(tokens[first:], first, places, lengths, intervals)

    def _candidates(self, guesses: list[Guess], best: Guess) -> Candidates | None:
        """Every suffix's draft from this text: where its first token stands, its score, its length as a chain."""
        shown_guesses = [guess for guess in guesses if guess.tokens]
        if not shown_guesses:
            return None
        return Candidates(
            np.array([guess.sources[0] - 1 for guess in shown_guesses]),
            np.array([guess.score for guess in shown_guesses]),
            np.array([_run(guess) for guess in shown_guesses]),
            next((i for i, guess in enumerate(shown_guesses) if guess is best), -1),
            {
                "matched": np.array([float(guess.matched) for guess in shown_guesses]),
                "count": np.array([float(guess.count) for guess in shown_guesses]),
            },
        )

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> Learned | None:
        if self.params.warm:
            answer: list[int] = self.keeps.begin(self.params.max_cached) if self.answer is None else self.answer
            answer.extend(emitted_tokens(draft.tree.tokens, verdict))
            self.answer = answer
        return None


def _best(guesses: list[Guess]) -> Guess | None:
    """The highest score; of equal ones the longest suffix."""
    return max(guesses, key=lambda guess: (guess.score, guess.matched), default=None)


def _run(guess: Guess) -> int:
    """Number of its tokens that stand behind each other where the first one stands."""
    source = guess.sources[0] if guess.sources else -1
    return next(
        (n for n, at in enumerate(guess.sources) if at != source + n or guess.parents[n] != n - 1), len(guess.sources)
    )


def build(target: Target, params: SuffixParams) -> SuffixDrafter:
    answers = kept_with(target).of("suffix", Answers, anew=params.anew) if params.warm else Answers()
    return SuffixDrafter(params, answers, warm=params.warm and len(answers) > 0)


METHOD = Method(
    name="suffix",
    family="copy",
    title="SuffixDecoding",
    paper="Oliaro et al. 2025, SuffixDecoding: extreme speculative decoding for emerging AI applications",
    bibtex=r"""
@inproceedings{oliaro2025suffix,
  author = {G. Oliaro and Z. Jia and D. F. Campos and A. Qiao},
  title = {{SuffixDecoding}: Extreme Speculative Decoding for Emerging {AI} Applications},
  booktitle = {The Thirty-Ninth Annual Conference on Neural Information Processing Systems},
  year = {2025},
}
""",
    summary="Drafts the most frequent continuation of the text's own suffixes, in it and in earlier answers.",
    params=SuffixParams,
    build=build,
    origins=(
        Origin("local", "", "this text", "Followed the last tokens before in this prompt or answer."),
        Origin("global", "G", "earlier answer", "Followed the last tokens in an answer of an earlier run.", "spine", 3),
    ),
    terms=(
        Term("matched", "matched", "Tokens of the suffix whose continuation this is.", 0, 0),
        Term("count", "count", "How often that suffix occurs, the end of the text included.", 0, 0),
    ),
    node_terms=(
        Term("path_prob", "estimated probability", "Counts divided by counts, multiplied from the root on.", 0, 1),
    ),
    step_terms=(
        Term("matched", "matched", "Tokens of the suffix that was drafted from.", 0, 0),
        Term("score", "score", "Σ of the drafted tokens' estimated probabilities.", 0, 0),
    ),
    cold=lambda params: replace(params, warm=False, anew=False),
    keeps="answers",
    order=16,
)
