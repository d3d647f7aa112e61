"""AdaPLD (papers: AdaPLD, §3 and algorithm 1): look the last token up by its identity, else by its meaning; copy what
followed, and branch over what the target thought could follow there.

An anchor j is an earlier position that holds the root's token (lexical) or one whose embedding is alike (semantic,
only where no lexical one exists). The best anchor by hidden states, as in PLD+, gives a small tree: the tokens after it
(main, lexical anchors only), the target's own likeliest tokens at the anchor (branches), and one token more after a
branch, copied from wherever the branch's token stood before (successor).
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from decoders.draft.draft import Candidates, Draft
from decoders.draft.growing import GrowingTree
from decoders.draft.needs import Needs
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.model.engines.linear import table_rows
from decoders.model.state.memory import Context, Memory
from decoders.model.state.transfer import fetch
from decoders.model.target_model.target import Target
from decoders.trace.origins import BRANCH, MAIN, SUCCESSOR

from .pldplus import LAYER, NO_PREDECESSOR, hidden_layer

TOP_TOKENS = 64  # likeliest next tokens kept per position: the widest branching the paper tries
RECORDED = 256  # candidates recorded of one semantic retrieval
DECIMALS = 6  # cosines are compared as a trace keeps them, so that a tie or an exact τ is what it looks like
BRANCHES_OFF = "the place found holds another token, so there are branches only: they are off"
GATHER_BELOW = 0.3  # share of the positions up to which gathering their states is cheaper than comparing all


@dataclass(frozen=True)
class AdaPldParams:
    layer: int | None = LAYER
    k: int = param(
        8, "Branches K", "How many of the target's likeliest tokens at the chosen place are tried as the next token.",
        low=1, high=TOP_TOKENS,
    )  # fmt: skip
    copy_length: int = param(
        30, "Copy length L", "Most tokens copied after a place that holds the last token itself.", low=1, high=256
    )
    tau: float = param(
        0.1, "Threshold τ",
        "How alike two tokens' embeddings must be to stand for one another. The paper tuned 0.1 on Vicuna.", low=-1.0,
        high=1.0, step=0.05,
    )  # fmt: skip
    branches: bool = param(
        True, "Branches", "Try other next tokens beside the copy. Off (the paper's ablation): the copy alone."
    )
    successors: bool = param(True, "Successors", "Extend a branch by one more token, copied from an earlier place.")
    successor_on_lexical: bool = param(
        False,
        "Successors beside a copy",
        "Extend branches also where there is a copy, as the paper's §3.5 reads. Off: only where there is none, as its "
        "algorithm 1 does.",
    )
    semantic: bool = param(
        True,
        "Semantic fallback",
        "Look for tokens of like meaning where the same token is not found. Off: the same token only.",
    )
    center_embeddings: bool = param(
        False,
        "Center embeddings",
        "Take the vocabulary's mean off the embeddings first: in small models all tokens are alike without it.",
    )


class UnitEmbeddings:
    """Rows of a target's input embedding table at length 1; with ``center``, the table's mean is taken off before.

    The table itself, not what the model makes of it: a family's scaling of embeddings leaves cosines as they are.
    """

    def __init__(self, target: Target, center: bool = False) -> None:
        self.embeddings, self.center = target.embeddings, center

    @cached_property
    def mean(self) -> Float[Tensor, " width"]:
        return cast(Tensor, self.embeddings.weight).mean(0, dtype=torch.float32)

    def rows(self, ids: Sequence[int]) -> Float[Tensor, "ids width"]:
        rows = table_rows(self.embeddings, ids).float()
        return normalize(rows - self.mean if self.center else rows, dim=-1)


class KeptRows:
    """Rows that are made once and kept; there is always room for as many again."""

    def __init__(self) -> None:
        self.rows, self.row_count = torch.zeros((0, 1)), 0

    def first(self, count: int, make: Callable[[int, int], Tensor]) -> Tensor:
        """The first ``count`` rows; ``make(start, stop)`` makes those that are new."""
        if count > self.row_count:
            fresh, old_rows = make(self.row_count, count), self.rows[: self.row_count]
            if count > len(self.rows):
                self.rows = fresh.new_empty((2 * count, fresh.shape[1]))
                if self.row_count:
                    self.rows[: self.row_count] = old_rows
            self.rows[self.row_count : count] = fresh
            self.row_count = count
        return self.rows[:count]


class History:
    """The index of one run for retrieval, worked out once per position: where every token stands, the hidden states at
    length 1, and the embeddings of the distinct tokens at length 1.

    Append-only, as the run is: a context cut short reads the first rows of it. Holds positions before the root only.
    """

    def __init__(self, memory: Memory, embeddings: UnitEmbeddings) -> None:
        self.memory, self.embeddings = memory, embeddings
        self.length = 0
        self.first: list[int] = []  # of each distinct token its first position, ascending
        self.distinct: list[int] = []  # those tokens
        self._row: dict[int, int] = {}  # token → its row among the distinct ones
        self._rows = np.zeros(0, dtype=np.int64)  # position → row
        self._states, self._embedded = KeptRows(), KeptRows()

    def read(self, context: Context) -> None:
        """Take in the tokens before the context's root that are new."""
        fresh = context.tokens[self.length : context.root_position]
        if not len(fresh):
            return
        if self.length + len(fresh) > len(self._rows):
            self._rows = np.resize(self._rows, 2 * (self.length + len(fresh)))
        for position, token in enumerate(fresh.tolist(), self.length):
            if (row := self._row.get(token)) is None:
                row = self._row[token] = len(self.distinct)
                self.distinct.append(token)
                self.first.append(position)
            self._rows[position] = row
        self.length += len(fresh)

    def occurrences(self, token: int, limit: int) -> np.ndarray:
        """Positions below ``limit`` that hold ``token``, ascending."""
        row = self._row.get(token, -1)
        return np.flatnonzero(self._rows[: min(limit, self.length)] == row)

    def states(self, context: Context) -> Float[Tensor, "processed hidden"]:
        """The hidden states of the processed positions, at length 1."""
        return self._states.first(
            context.root_position, lambda start, stop: normalize(context.hidden[start:stop].float(), dim=-1)
        )

    def hidden_cosines(self, context: Context, anchors: np.ndarray, query: int) -> np.ndarray:
        """cos(h[j-1], h[query]) for every anchor j (AdaPLD eq. 6 and 13), ``[anchors]``; -1 where j is the first."""
        states = self.states(context)
        predecessors = np.maximum(anchors - 1, 0)
        if states.device.type == "cpu" and len(anchors) < GATHER_BELOW * len(states):
            cosines = _round(states.index_select(0, torch.from_numpy(predecessors)) @ states[query])
        else:
            cosines = _round(states @ states[query])[predecessors]
        if len(anchors) and anchors[0] == 0:
            cosines[0] = NO_PREDECESSOR
        return cosines

    def embedding_cosines(self, context: Context, queries: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """cos(embedding[x_j], embedding[query]) of the positions j before the root (AdaPLD eq. 4: what τ is compared
        with): ``[queries, distinct tokens]``, and the column of each position.
        """
        count = bisect_left(self.first, context.root_position)
        cosines = _round(self.embeddings.rows(queries) @ self.first_embeddings(count).T)
        return cosines, self._rows[: context.root_position]

    def first_embeddings(self, count: int) -> Float[Tensor, "tokens width"]:
        """The embeddings of the first ``count`` distinct tokens, at length 1."""
        return self._embedded.first(count, lambda start, stop: self.embeddings.rows(self.distinct[start:stop]))


def _round(cosines: Tensor) -> np.ndarray:
    return fetch(cosines)[0].astype(np.float64).round(DECIMALS)


@dataclass(slots=True)
class Laps:
    """Milliseconds per component of one step."""

    notes: dict[str, float] = field(default_factory=dict)
    _at: float = field(default_factory=time.perf_counter)

    def lap(self, component: str) -> None:
        moment = time.perf_counter()
        key = f"{component}_ms"
        self.notes[key] = self.notes.get(key, 0.0) + (moment - self._at) * 1e3
        self._at = moment


@dataclass(frozen=True, slots=True)
class Successor:
    """The token to append to a branch: ``source`` is its position, ``cosine`` the rerank score of the anchor before it,
    ``embedding`` that anchor's embedding cosine (nan: it holds the branch's own token).
    """

    source: int
    cosine: float
    embedding: float


class AdaPldDrafter(Drafter):
    """Algorithm 1 of AdaPLD.

    A semantic retrieval may let thousands of positions pass. All of them are reranked, but only the 256 best by rerank
    are recorded as candidates; the step's numbers say how many were compared and how many passed τ.
    """

    def __init__(self, params: AdaPldParams, embeddings: UnitEmbeddings) -> None:
        self.params, self.embeddings = params, embeddings
        self.history: History | None = None

    @torch.inference_mode()
    def prepare(self, context: Context) -> None:
        """Index the prompt, so that the first step costs what the others do."""
        history = self._read(context)
        history.states(context)
        if self.params.semantic:
            history.first_embeddings(len(history.distinct))

    def _read(self, context: Context) -> History:
        if self.history is None or self.history.memory is not context.memory:
            self.history = History(context.memory, self.embeddings)
        self.history.read(context)
        return self.history

    @torch.inference_mode()
    def propose(self, context: Context, budget: int) -> Draft:
        params, root, at = self.params, context.root, context.root_position
        laps = Laps()
        history = self._read(context)
        anchors = history.occurrences(root, at)
        route, alike = "lexical", np.full(len(anchors), np.nan)
        if not len(anchors) and params.semantic:
            route = "semantic"
            anchors, alike = self._like(history, context, laps.notes)
        laps.lap("retrieval")
        if not len(anchors):
            reason = "the last token occurs nowhere before"
            reason += f", and no earlier token is as alike as τ = {params.tau:g}" if params.semantic else ""
            return replace(Draft.empty(root, reason), notes=laps.notes)

        score = history.hidden_cosines(context, anchors, at - 1)
        choice = int(score.argmax())  # ties: the earliest
        anchor, is_copy = int(anchors[choice]), route == "lexical"
        candidates = _candidates(anchors, score, alike, choice, at, params.copy_length if is_copy else 0)
        laps.lap("rerank")

        main = context.tokens[anchor + 1 : anchor + 1 + min(params.copy_length, budget)].tolist() if is_copy else []
        branches: list[tuple[int, int, float]] = []  # rank, token, log-probability
        if params.branches:
            top = fetch(*(of[anchor, : params.k] for of in (context.top_ids, context.top_logprobs)))
            pairs = zip(*(column.tolist() for column in top), strict=True)
            branches = [(rank, token, p) for rank, (token, p) in enumerate(pairs) if token not in main[:1]]
        laps.lap("branches")
        successors: dict[int, Successor] = {}
        if branches and budget > 1 and params.successors and (not is_copy or params.successor_on_lexical):
            successors = self._successors(history, context, anchor, [token for _, token, _ in branches])
            laps.lap("successors")

        tree = GrowingTree(root)
        tree.chain(main, "main", source=anchor + 1)
        for number, (rank, token, logprob) in enumerate(branches):  # of the anchor's distribution: nothing is copied
            node = tree.add(0, token, "branch", branch_anchor=anchor, branch_rank=rank, branch_logprob=logprob)
            if (successor := successors.get(number)) is not None:
                tree.add(
                    node, int(context.tokens[successor.source]), "successor", successor.source,
                    successor_cosine=successor.cosine,
                    successor_embedding=successor.embedding,
                )  # fmt: skip
        probabilities = (1.0, *np.exp(tree.term("branch_logprob")[1:]).tolist())
        draft = tree.draft(route=route, candidates=candidates, reason=BRANCHES_OFF)
        draft = replace(draft, route=route, probabilities=probabilities, notes=laps.notes)
        laps.lap("branches")
        return draft

    def _like(self, history: History, context: Context, notes: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """Positions whose token is alike enough to the root (eq. 4), and how alike."""
        notes["semantic_seen"], notes["semantic_passed"] = context.root_position, 0
        if not context.root_position:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        cosines, column = history.embedding_cosines(context, [context.root])
        alike = cosines[0][column]
        anchors = np.flatnonzero(alike >= self.params.tau)
        notes["semantic_passed"] = len(anchors)
        return anchors, alike[anchors]

    def _successors(self, history: History, context: Context, anchor: int, branches: list[int]) -> dict[int, Successor]:
        """For each branch, by its number, the token after the place most like the anchor that holds the branch's token
        or, if none does, one alike (eq. 13–15). A place is before the root, so one token at least follows it.
        """
        root_position = context.root_position
        token_places = [history.occurrences(token, root_position) for token in branches]
        unseen = (
            [number for number, places in enumerate(token_places) if not len(places)] if self.params.semantic else []
        )
        place_mask = np.zeros(root_position, dtype=bool)
        for places in token_places:
            place_mask[places] = True
        if unseen:
            alike, column = history.embedding_cosines(context, [branches[number] for number in unseen])
            passing = alike >= self.params.tau
            place_mask |= np.logical_or.reduce(passing)[column]
        places = np.flatnonzero(place_mask)
        score = np.full(root_position, -np.inf)
        score[places] = history.hidden_cosines(context, places, anchor)

        successors: dict[int, Successor] = {}
        for number, places in enumerate(token_places):
            if len(places):
                best = int(places[score[places].argmax()])
                successors[number] = Successor(best + 1, float(score[best]), float("nan"))
        if unseen:
            winners = np.where(passing.take(column, axis=1), score, -np.inf).argmax(1)
            for row, (number, best) in enumerate(zip(unseen, winners.tolist(), strict=True)):
                if passing[row, column[best]]:
                    successors[number] = Successor(best + 1, float(score[best]), float(alike[row, column[best]]))
        return successors


def _candidates(
    anchors: np.ndarray, score: np.ndarray, alike: np.ndarray, choice: int, root_position: int, copy_length: int
) -> Candidates:
    """The ranking as it is recorded: all lexical anchors, the best ``RECORDED`` semantic ones."""
    if not copy_length and len(anchors) > RECORDED:
        border = np.partition(score, -RECORDED)[-RECORDED]  # ties there: the earliest are recorded
        higher_places, ties = np.flatnonzero(score > border), np.flatnonzero(score == border)
        best = np.sort(np.concatenate([higher_places, ties[: RECORDED - len(higher_places)]]))
        anchors, score, alike, choice = anchors[best], score[best], alike[best], int(np.searchsorted(best, choice))
    offer_lengths = np.minimum(root_position - anchors, copy_length)
    return Candidates(anchors, score, offer_lengths, choice, {"cosine": score, "embedding": alike})


METHOD = Method(
    name="adapld",
    family="copy",
    title="AdaPLD",
    paper="AdaPLD: adaptive retrieval and reuse for efficient model-free speculative decoding",
    bibtex=r"""
@misc{liu2026adapld,
  author = {Runheng Liu and Jincheng Xie and Wen Hu and Xingchen Xiao and Heyan Huang},
  title = {{AdaPLD}: Adaptive Retrieval and Reuse for Efficient Model-Free Speculative Decoding},
  year = {2026},
  eprint = {2606.05742},
  archivePrefix = {arXiv},
}
""",
    summary="Copies after the most alike place, else one of like meaning, and tries the model's own next tokens there.",
    params=AdaPldParams,
    build=lambda target, params: AdaPldDrafter(params, UnitEmbeddings(target, params.center_embeddings)),
    origins=(MAIN, BRANCH, SUCCESSOR),
    signal="the place whose hidden state is most alike, or what followed a branch",
    needs=lambda target, params: Needs(
        layers=(hidden_layer(target, params.layer),),
        top_tokens=TOP_TOKENS if params.branches else 0,
    ),
    terms=(
        Term("cosine", "hidden cosine", "cos(H[j-1], H[t-1]): how alike the states before both places are.", -1, 1),
        Term("embedding", "embedding cosine",
             "How alike the candidate's token is to the last one; empty on the lexical route, where it is the same.",
             -1, 1),
    ),
    node_terms=(
        Term("branch_anchor", "anchor", "Position whose next-token distribution the branch was taken from.", 0, 0),
        Term("branch_rank", "rank at the anchor", "The branch's place in that distribution: 0 = likeliest.", 0, 63),
        Term("branch_logprob", "log-prob at the anchor", "The target's log-probability of the branch there.", -12, 0),
        Term("successor_cosine", "successor's cosine",
             "cos(H[t'-1], H[j]): how alike the states before the place t' copied from and at the anchor j are.",
             -1, 1),
        Term("successor_embedding", "successor's embedding",
             "How alike the token at that place is to the branch; empty where it is the same token.", -1, 1),
    ),
    step_terms=(
        Term("retrieval_ms", "retrieval ms", "Finding the candidates, the semantic fallback included.", 0, 0),
        Term("rerank_ms", "rerank ms", "Comparing the candidates' hidden states.", 0, 0),
        Term("branches_ms", "branches ms", "Reading the anchor's distribution and building the tree.", 0, 0),
        Term("successors_ms", "successors ms", "Finding successors; empty where none were looked for.", 0, 0),
        Term("semantic_seen", "positions compared", "Earlier positions compared by embedding; empty if none.", 0, 0),
        Term("semantic_passed", "positions passing τ", "Of them, those alike enough; 256 are recorded at most.", 0, 0),
    ),
    order=10,
)  # fmt: skip
