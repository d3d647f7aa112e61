"""Drafts of block drafters: a chain out of one forward, with the lattice that it was walked through."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from decoders.draft.distributions import OUTSIDE_VOCAB, DraftVocab, NodeDistributions, note_outside
from decoders.draft.draft import Draft, Learned, Scored, Verdict
from decoders.draft.lattice import Lattice
from decoders.draft.terms import Term
from decoders.draft.tree import DraftTree
from decoders.draft_models.drafter import TokenDraw, first_choice
from decoders.method.drafter import Drafter
from decoders.model.state.memory import Context
from decoders.model.state.transfer import Mark, Span, fetch, mark
from decoders.verifiers.block import NODE_TERMS as BLOCK_TERMS
from decoders.verifiers.residual import NODE_TERMS as VERIFIED_TERMS
from decoders.verifiers.sampling import Chooser

from .block_tree import best_tree
from .block_walk import Walk, confidences, lattice_of, tokens_at, walk_blocks

NODE_TERMS = (
    Term("distance", "distance", "Places behind the root.", 1, 16),
    Term("confidence", "confidence", "The drafter's highest probability at this position, given the walk.", 0, 1),
    Term("alone_rank", "rank alone", "The token's rank by its position alone, without transitions (0 = first).", 0, 0),
    Term("path_logprob", "Σ log p", "Of a tree: the log-probabilities from the root to here added up.", 0, 0),
    *VERIFIED_TERMS,
    *BLOCK_TERMS,
)
ACCEPTANCE = Term("acceptance", "acceptance guess", "The confidence head's probability that the token stands.", 0, 1)
STEP_TERMS = (
    Term("forward_ms", "block forward", "Milliseconds of reading the target's new states and of the block.", 0, 0),
    Term("walk_ms", "walk", "Milliseconds of choosing the block's tokens.", 0, 0),
    Term("draft_forwards", "draft forwards made", "One: a block is drafted at once.", 0, 0),
    OUTSIDE_VOCAB,
)  # fmt: skip
NOTHING_READ = "nothing was processed yet: a block reads the target's states before its root"


class BlockDrafter(Drafter):
    """Drafts the first ``tokens`` (None: all) of the blocks that ``run`` gives, or those before the first whose
    acceptance the confidence head puts below ``threshold``. Where it ``draws``, a sampled run's tokens come from the
    drafter's distributions. A ``tree`` of so many nodes takes the chain's place.
    """

    learns = False  # drafts follow from the text

    def __init__(
        self, network: Any, run: Any, tokens: int | None = None, threshold: float = 0.0, draws: bool = False,
        tree: int | None = None,
    ) -> None:  # fmt: skip
        self.network, self.run, self.tree = network, run, tree
        self.tokens, self.threshold, self.draws = tokens or network.config.places, threshold, draws
        self.vocab = DraftVocab.of(network.drafted, network.config.vocab)
        self.chooser: Chooser | None = None

    def sample_with(self, chooser: Chooser) -> None:
        if self.draws and not chooser.sampling.greedy:
            self.chooser = chooser

    def prepare(self, context: Context) -> None:
        """Read the prompt, so that the first step has only its own rows to read."""
        if context.root_position:
            self.run.read(context)

    def propose(self, context: Context, budget: int) -> Draft:
        if not context.root_position:
            return Draft.empty(context.root, NOTHING_READ)
        device, root = context.device, context.root
        start_mark = mark(device)
        states = self.run.block(context)[: min(self.tokens, budget)]
        read = mark(device)
        choose = first_choice if self.chooser is None else TokenDraw(self.chooser, context.length)
        walk = walk_blocks(self.network, states, root, choose)
        if self.tree is not None:
            return self._draft_tree(lattice_of(self.network, walk, root), walk, root, start_mark, read, device)
        is_drawn = self.chooser is not None
        normal = walk.logits if is_drawn else walk.logits.softmax(-1)
        token_probs = normal.gather(1, walk.places[:, None])[:, 0]
        rank = (walk.unigram_logits > walk.unigram_logits.gather(1, walk.places[:, None])).sum(1)
        sure = confidences(self.network, walk, root) if self.network.config.confidence else token_probs
        parts = fetch(tokens_at(self.network, walk.places), token_probs, normal.amax(1), rank, sure)
        tokens, probabilities, best, ranks, acceptance = (part.tolist() for part in parts)
        count = len(tokens)
        if self.network.config.confidence:
            count = next((i for i, probability in enumerate(acceptance) if probability < self.threshold), count)
        terms = {
            "distance": np.asarray([np.nan, *range(1, count + 1)]),
            "confidence": np.asarray([np.nan, *best[:count]]),
            "alone_rank": np.asarray([np.nan, *ranks[:count]]),
        }
        if self.network.config.confidence:
            terms["acceptance"] = np.asarray([np.nan, *acceptance[:count]])
        draft = Draft(
            DraftTree.chain(root, tokens[:count]),
            ("root", *("drafter",) * count),
            (-1,) * (count + 1),
            (1.0, *probabilities[:count]),
            route="drawn" if is_drawn else "block",
            terms=terms,
            notes={
                "forward_ms": Span((start_mark, read)), "walk_ms": Span((read, mark(device))), "draft_forwards": 1.0,
            },
            distributions=NodeDistributions(dict(enumerate(normal[:count])), self.vocab, normal=True),
            drawn=is_drawn,
            lattice=partial(lattice_of, self.network, walk, root),
        )  # fmt: skip
        if count or not acceptance:
            return draft
        return replace(
            draft, route="none", drawn=False, distributions=None,
            reason=f"the confidence head puts the first token's acceptance at {acceptance[0]:.2f}, below "
            f"{self.threshold:.2f}",
        )  # fmt: skip

    def _draft_tree(
        self, lattice: Lattice, walk: Walk, root: int, start_mark: Mark, read: Mark, device: torch.device
    ) -> Draft:
        """The likeliest paths through the lattice. The distribution after a node is its position's, whatever is before:
        it is not recorded.
        """
        assert self.tree is not None
        best = best_tree(root, lattice, self.tree)
        count = best.tree.drafted
        return Draft(
            best.tree, ("root", *("drafter",) * count), (-1,) * (count + 1), (1.0, *best.probabilities), route="tree",
            terms={
                "distance": np.asarray([np.nan, *best.tree.depths[1:]]),
                "alone_rank": np.asarray([np.nan, *best.ranks]),
                "path_logprob": np.asarray([np.nan, *best.path_logprobs]),
            },
            notes={
                "forward_ms": Span((start_mark, read)), "walk_ms": Span((read, mark(device))), "draft_forwards": 1.0,
            },
            lattice=partial(lattice_of, self.network, walk, root),
        )  # fmt: skip

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> Learned | None:
        return note_outside(self.vocab, verdict)
