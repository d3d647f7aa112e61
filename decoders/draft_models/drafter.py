"""Drafts from a draft model: chains, drawn or greedy, expanded chains and beams. What SpS and GLIDE have in common."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, SupportsFloat

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.draft.draft import Draft, Looks, Past, Scored, Verdict
from decoders.draft.terms import Term
from decoders.draft.tree import DraftTree
from decoders.method.drafter import Drafter
from decoders.model.state.memory import Context
from decoders.model.state.transfer import Span, fetch, mark
from decoders.model.target_model.target import Tokens
from decoders.verifiers.block import NODE_TERMS as BLOCK_TERMS
from decoders.verifiers.residual import NODE_TERMS as VERIFIED_TERMS
from decoders.verifiers.sampling import Chooser, drawn_tokens

from .draft_run import DraftRun, common_prefix
from .expansion import Proposal, beam_search, bin_of, expand

NODE_TERMS = (
    Term("confidence", "confidence", "The drafter's highest probability at this position.", 0, 1),
    Term("bin", "confidence bin", "The tenth its confidence falls into: how many candidates CAPE puts here.", 0, 9),
    Term("draft_rank", "draft rank", "The token's rank in the drafter's own distribution (0 = first choice).", 0, 0),
    *VERIFIED_TERMS,
    *BLOCK_TERMS,
)
STEP_TERMS = (
    Term("gamma", "γ", "Tokens the drafter was asked for in this step.", 0, 0),
    Term("forward_ms", "draft forwards", "Milliseconds spent in the draft model.", 0, 0),
    Term("expand_ms", "building the tree", "Milliseconds spent on choosing further guesses and placing them.", 0, 0),
)
KV_DELAY = Term(
    "kv_delay", "KV delay", "Positions from the newest key of the target that was seen to the last token read.", 0, 0
)

# a token [1], which stays on the device, and what is kept of what the drafter said
Choose = Callable[[Float[Tensor, " vocab"]], tuple[Int[Tensor, "1"], Tensor]]


@dataclass(slots=True)
class Chain:
    """Tokens that a draft model wrote ahead and, for each, what it said there, the number of the draft forward that
    gave it (from 1; 0: known from an earlier step), and the prompt token that had guessed it (from 1; 0: none).

    ``forwards`` were made in all, those that only read the text included.
    """

    drafted: list[Int[Tensor, "1"]] = field(default_factory=list)
    logit_rows: list[Tensor] = field(default_factory=list)
    forward: list[int] = field(default_factory=list)
    distance: list[int] = field(default_factory=list)
    forwards: int = 0

    @property
    def tokens(self) -> list[int]:
        """Read from the device."""
        return fetch(torch.cat(self.drafted))[0].tolist() if self.drafted else []

    def add(self, token: Int[Tensor, "1"], distribution: Tensor, forward: int, distance: int = 0) -> None:
        """One more token."""
        self.drafted.append(token)
        self.logit_rows.append(distribution)
        self.forward.append(forward)
        self.distance.append(distance)


class Running(Protocol):
    """A draft model at work on a run; ``limit`` is the longest text it reads, ``looks_at`` what its looks are."""

    limit: int
    looks_at: dict[str, Any] | None

    def begin(self, context: Context) -> None:
        """Read the prompt, so that the first draft has only its own forwards to make."""
        ...

    def read(self, context: Context) -> Float[Tensor, " vocab"]:
        """Logits after the context's last token."""
        ...

    def extend(self, tokens: Tokens, parents: Sequence[int]) -> Float[Tensor, "rows vocab"]:
        """Logits after more draft tokens; ``parents`` count the draft's rows so far (-1: the root)."""
        ...

    def wrote(self, tokens: Sequence[int]) -> None:
        """Told what the tokens were that ``extend`` was given on the device, a chain."""
        ...

    def looks(self, rows: Sequence[int]) -> Callable[[], Float[Tensor, "layers heads rows keys"]] | None:
        """A function for the places in the target's cache where rows of this draft (0 = the root) looked; None if
        nowhere.
        """
        ...


def one_by_one(run: Running, context: Context, depth: int, choose: Choose) -> Chain:
    """A chain of ``depth`` tokens, a draft forward for each."""
    chain = Chain(forwards=depth)
    if isinstance(run, DraftRun) and isinstance(choose, FirstChoice | TokenDraw):
        chain_parts = run.chain(context, depth, choose.points(depth), choose.at, choose.key)
        if chain_parts is not None:
            for i, (token, distribution) in enumerate(zip(chain_parts[0].split(1), chain_parts[1], strict=True)):
                chain.add(token, distribution, i + 1)
            return chain
    for i in range(depth):
        logits = run.extend(chain.drafted[-1], [i - 2])[0] if i else run.read(context)
        chain.add(*choose(logits), i + 1)
    return chain


class ModelDrafter(Drafter):
    """Drafts ``gamma`` tokens with a draft model.

    ``expansion`` is one of ``decoders.draft_models.expansion.EXPANSIONS``. Without one, a sampled run draws its tokens,
    for verification by ratio and residual; trees hold the drafter's first choices. ``heuristic`` adapts γ as
    transformers' assistant does: two more after a fully accepted draft, else one less. ``chain`` writes chains where
    not token by token: as it says ``(context, depth, choose)``, the same tokens.
    """

    def __init__(
        self, run: Running, gamma: int, expansion: str = "none", size: int = 4, *, heuristic: bool = False,
        is_delayed: bool = False, chain: Callable[[Context, int, Choose], Chain] | None = None,
    ) -> None:  # fmt: skip
        self.run, self.expansion, self.size = run, expansion, size
        self.heuristic, self.is_delayed, self.looks_at = heuristic, is_delayed, run.looks_at
        self.chain, self.counts_forwards = chain or partial(one_by_one, run), chain is not None
        self.chooser: Chooser | None = None
        self.gammas = {0: gamma}  # γ from a context length on
        self.tokens = np.zeros(0, dtype=np.int64)
        self.max_length = 32  # γ's bound under the heuristic

    def sample_with(self, chooser: Chooser) -> None:
        if not chooser.sampling.greedy:
            self.chooser = chooser

    def prepare(self, context: Context) -> None:
        if context.length < self.run.limit:
            self.run.begin(context)

    def gamma(self, context: Context) -> int:
        """γ at this point of the run, whatever was decoded after it."""
        prefix_length = common_prefix(self.tokens, context.tokens)
        if prefix_length == len(self.tokens):  # the run went on
            prefix_length = context.length
        self.gammas = {length: gamma for length, gamma in self.gammas.items() if length <= prefix_length}
        self.tokens = context.tokens.copy()
        return self.gammas[max(self.gammas)]

    def resume(self, context: Context, past: Sequence[Past]) -> None:
        """Take up γ as the heuristic left it after the steps ``past``; all else follows from the text."""
        for step in past:
            self._adapt(step.draft.tree, step.length, step.verdict.accepted)

    def _adapt(self, tree: DraftTree, length: int, accepted: int) -> None:
        """γ from behind a step on, by the heuristic; ``length`` tokens were committed before it."""
        if self.heuristic and tree.drafted:
            gamma = self.gammas[max(self.gammas)]
            whole = accepted == max(tree.depths)
            self.gammas[length + accepted + 1] = min(self.max_length, gamma + 2) if whole else max(1, gamma - 1)

    def propose(self, context: Context, budget: int) -> Draft:
        gamma = self.gamma(context)
        depth = min(gamma, budget, self.run.limit - context.length)
        if depth < 1:
            return Draft.empty(context.root, f"the drafter reads at most {self.run.limit:,} tokens")
        if self.expansion.startswith("beam"):
            return self._beams(context, depth, gamma)
        drawing = self.chooser if self.expansion == "none" else None
        choose = first_choice if drawing is None else TokenDraw(drawing, context.length)
        device = context.device
        start_mark = mark(device)
        chain = self.chain(context, depth, choose)
        forward_mark = mark(device)
        distributions = (
            torch.stack(chain.logit_rows) if drawing is not None else torch.stack(chain.logit_rows).softmax(-1)
        )
        proposal = expand(context.root, torch.cat(chain.drafted), distributions, self.expansion, self.size)
        self.run.wrote(proposal.tree.tokens[1:depth])  # the last one was not read
        notes = {"forward_ms": Span((start_mark, forward_mark)), "expand_ms": Span((forward_mark, mark(device)))}
        return self._draft(proposal, distributions, drawing is not None, gamma, notes, chain)

    def _beams(self, context: Context, depth: int, gamma: int) -> Draft:
        device = context.device
        marks = [mark(device)]  # before and after each forward

        def extend(tokens: list[int], parents: list[int]) -> Tensor:
            marks.append(mark(device))
            logits = self.run.extend(tokens, parents)
            marks.append(mark(device))
            return logits

        first = self.run.read(context)
        marks.append(mark(device))
        width = int(self.expansion.split()[1])
        proposal, distributions = beam_search(context.root, first, extend, width, depth)
        marks.append(mark(device))
        spans = list(pairwise(marks))
        notes = {"forward_ms": Span(*spans[::2]), "expand_ms": Span(*spans[1::2])}
        return self._draft(proposal, distributions, False, gamma, notes)

    def _draft(
        self, proposal: Proposal, distributions: Tensor, is_drawn: bool, gamma: int, times: Mapping[str, Span],
        chain: Chain | None = None,
    ) -> Draft:  # fmt: skip
        tree, rows = proposal.tree, proposal.rows
        confidence = [float("nan"), *(proposal.confidences[rows[parent]] for parent in tree.parents[1:])]
        terms = {
            "confidence": np.asarray(confidence),
            "bin": np.asarray([np.nan, *(bin_of(p) for p in confidence[1:])], dtype=float),
            "draft_rank": np.asarray([np.nan, *proposal.ranks[1:]], dtype=float),
        }
        if self.is_delayed:
            terms["kv_delay"] = np.asarray([np.nan, *tree.depths[1:]], dtype=float)
        route = "drawn" if is_drawn else {"none": "chain", "confidence": "cape"}.get(self.expansion, self.expansion)
        spread = tuple("expansion" if extra else "drafter" for extra in proposal.is_expanded[1:])
        by_node = {node: distributions[row] for node, row in rows.items()}
        notes: dict[str, SupportsFloat] = {"gamma": float(gamma), **times}
        if self.is_delayed:
            notes["kv_delay"] = float(max(tree.depths))
        if self.counts_forwards and chain is not None:
            missing = [np.nan] * (len(tree) - len(chain.drafted) - 1)  # expansions
            terms["draft_forward"] = np.asarray([np.nan, *chain.forward, *missing])
            terms["distance"] = np.asarray([np.nan, *(d or np.nan for d in chain.distance), *missing])
            notes["draft_forwards"] = float(chain.forwards)
            notes["hits"] = float(sum(d > 0 for d in chain.distance))
        weights = self.run.looks(list(rows.values()))
        looks = Looks(tuple(rows), tuple(self.looks_at["layers"]), weights) if weights and self.looks_at else None
        return Draft(
            tree, ("root", *spread), (-1,) * len(tree), proposal.probabilities, route=route, terms=terms, notes=notes,
            distributions=by_node, drawn=is_drawn, looks=looks,
        )  # fmt: skip

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> None:
        self._adapt(draft.tree, len(self.tokens), verdict.accepted)


class FirstChoice:
    """Takes the drafter's first choice."""

    key = "likeliest"

    def points(self, depth: int) -> Float[np.ndarray, " depth"]:
        """Numbers to draw by: none is looked at."""
        return np.zeros(depth)

    def at(self, logits: Float[Tensor, " vocab"], point: Float[Tensor, "1"]) -> tuple[Int[Tensor, "1"], Tensor]:
        """The first choice, and its logits."""
        return self(logits)

    def __call__(self, logits: Float[Tensor, " vocab"]) -> tuple[Int[Tensor, "1"], Tensor]:
        return logits.argmax(-1, keepdim=True), logits


first_choice = FirstChoice()


class TokenDraw:
    """Draws after the chooser's warpers, from a stream of its own for a text of this length: a run that is cut there
    draws the same again.
    """

    def __init__(self, chooser: Chooser, length: int) -> None:
        self.chooser = chooser
        self.random = np.random.default_rng([chooser.sampling.seed, 1, length])

    @property
    def key(self) -> Hashable:
        """Names all that a draw depends on but its number."""
        return replace(self.chooser.sampling, seed=0)

    def points(self, depth: int) -> Float[np.ndarray, " depth"]:
        """The next numbers to draw by; they stay to be drawn."""
        return copy.deepcopy(self.random).random(depth)

    def at(self, logits: Float[Tensor, " vocab"], point: Float[Tensor, "1"]) -> tuple[Int[Tensor, "1"], Tensor]:
        """The token that a number in [0, 1] stands for, and the distribution."""
        probabilities = self.chooser.probabilities(logits[None])
        return drawn_tokens(probabilities, point), probabilities[0]

    def __call__(self, logits: Float[Tensor, " vocab"]) -> tuple[Int[Tensor, "1"], Tensor]:
        probabilities = self.chooser.probabilities(logits[None])
        return drawn_tokens(probabilities, [float(self.random.random())]), probabilities[0]
