"""Drafts from parallel heads: a tree settled beforehand, its tokens read off the heads of the last processed position.

Medusa's guesses at a distance are the same below every node. Hydra's are made level by level, each with the tokens on
its own path.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.draft.distributions import OUTSIDE_VOCAB, DraftVocab, NodeDistributions, note_outside
from decoders.draft.draft import Draft, Learned, Scored, Verdict
from decoders.draft.terms import Term
from decoders.draft.tree import DraftTree
from decoders.draft_models.draft_graphs import DraftGraphs
from decoders.method.drafter import Drafter
from decoders.model.engines.engines import Engines
from decoders.model.state.memory import Context
from decoders.model.state.transfer import Span, fetch, mark
from decoders.trace.origins import Origin
from decoders.verifiers.residual import NODE_TERMS as VERIFIED_TERMS

from .head_trees import NodePlaces, Ranks, RankTree, SettledTrees
from .heads import ParallelHeads
from .heads_prefix import PrefixRun

HEAD = Origin("head", "H", "head", "Guessed by a trained head; H2: its second guess there.", "ear", 1)
NODE_TERMS = (
    Term("distance", "distance", "Places behind the root; the head of this number guessed it.", 1, 5),
    Term("draft_rank", "guess rank", "The token's rank among its head's guesses there (0 = first).", 0, 0),
    Term("confidence", "confidence", "The head's highest probability at this position.", 0, 1),
    Term("path_logprob", "cumulative log-prob", "Sum of the heads' log-probabilities from the root to here.", 0, 0),
    VERIFIED_TERMS[0],
)
STEP_TERMS = (
    Term("forward_ms", "heads", "Milliseconds spent in the heads.", 0, 0),
    OUTSIDE_VOCAB,
)  # fmt: skip
# tokens, their log-probabilities and their head's highest one, level by level; and per level the log-probabilities of
# all tokens that can be drafted, after each node with children
Guesses = tuple[
    Int[Tensor, " drafted"], Float[Tensor, " drafted"], Float[Tensor, " drafted"], list[Float[Tensor, "inner all"]]
]
NOTHING_READ = "nothing was processed yet: heads read the state before the last token"


class HeadsDrafter(Drafter):
    """Drafts the tree of ``paths`` (ranks from the root on), as far as there are heads and first ``top_k`` guesses.

    ``layer`` is the target's hidden state that the heads read.
    """

    learns = False  # drafts follow from the text

    def __init__(
        self, heads: ParallelHeads, layer: int, paths: Sequence[Ranks], count: int, top_k: int,
        engines: Engines | None = None,
    ) -> None:  # fmt: skip
        self.graphs = DraftGraphs(engines, heads, "heads")
        self.heads, self.layer, self.count = heads, layer, count
        self.trees = SettledTrees(paths, min(top_k, heads.config.draft_vocab or heads.config.vocab))
        self.vocab = DraftVocab.of(heads.drafted, heads.config.vocab)
        self.prefix = None if heads.prefix is None else PrefixRun(heads.prefix, layer)

    def prepare(self, context: Context) -> None:
        """Have the prefix layer read the prompt, so that the first step has only its own rows to read."""
        if self.prefix is not None and context.root_position:
            self.prefix.read(context)

    def propose(self, context: Context, budget: int) -> Draft:
        if context.root_position < 1:
            return Draft.empty(context.root, NOTHING_READ)
        device = context.device
        start_mark = mark(device)
        tree, places = self.trees.at(min(budget, self.count), device)
        state = context.hidden_at(self.layer)[-1] if self.prefix is None else self.prefix.read(context)
        root = torch.full((1, 1), context.root, device=device)
        ids, logs, best, levels = self.guesses(state, root, tree, places)
        rows = {
            node: logprobs for level, of in zip(tree.levels, levels, strict=True)
            for node, logprobs in zip(level.inner, of, strict=True)
        }  # fmt: skip
        tokens, token_logprobs, confidence = fetch(ids, logs, best)
        order = np.concatenate([level.children for level in tree.levels]).argsort() + 1
        order = np.concatenate([[0], order])  # the guesses stand level by level, nodes depth first
        drafted, logs_of = (
            np.append(context.root, tokens)[order].tolist(),
            np.append(0.0, token_logprobs)[order].tolist(),
        )
        path = [0.0]
        for node, parent in enumerate(tree.parents[1:], 1):
            path.append(path[parent] + logs_of[node])
        nodes = len(drafted)
        return Draft(
            DraftTree(tuple(drafted), tree.parents),
            ("root",) + (HEAD.name,) * (nodes - 1),
            (-1,) * nodes,
            tuple(np.exp(logs_of).tolist()),
            route="heads",
            terms={
                **tree.terms,
                "confidence": np.append(np.nan, np.exp(confidence))[order],
                "path_logprob": np.asarray(path),
            },
            notes={"forward_ms": Span((start_mark, mark(device)))},
            distributions=NodeDistributions(rows, self.vocab),
            layout=tree.layout,
        )

    @torch.inference_mode()
    def guesses(
        self, state: Float[Tensor, " hidden"], root: Int[Tensor, "1 1"], tree: RankTree, places: Sequence[NodePlaces]
    ) -> Guesses:  # fmt: skip
        """The heads' guesses for a tree's nodes; by a graph where the target's forwards are captured."""
        memory, say = self.graphs.memory, partial(self._say, tree=tree, places=places)
        if memory is None:
            return say(state, root)
        result = self.graphs.replay(memory.companions, ("guesses", tree.paths), say, state, root)
        if result is None:
            return say(state, root)
        *said, levels = result
        return *said, [logprobs.clone() for logprobs in levels]

    def _say(self, state: Tensor, root: Tensor, *, tree: RankTree, places: Sequence[NodePlaces]) -> Guesses:
        heads, grounded = self.heads, self.heads.config.grounded
        tokens, logs, best, levels = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
        path = all_heads = state
        if grounded:
            path = heads.embedding(root)
        else:
            all_heads = heads.say_all(state, len(places)).float().log_softmax(-1)
        for number, (level, place) in enumerate(zip(tree.levels, places, strict=True)):
            if grounded:
                head_states = heads.state(number, state.expand(len(level.inner), -1), path)
                logprobs = heads.say(number, head_states).float().log_softmax(-1)
            else:
                logprobs = all_heads[number].expand(len(level.inner), -1)
            top, ids = logprobs.topk(int(level.ranks.max()) + 1)
            level_tokens = ids[place.rows, place.ranks]
            if self.vocab is not None:
                level_tokens = self.vocab.tokens[level_tokens]
            tokens.append(level_tokens)
            logs.append(top[place.rows, place.ranks])
            best.append(top[place.rows, 0])
            levels.append(logprobs)
            if grounded and len(place.inner):
                path = torch.cat(
                    [path[place.rows[place.inner]], heads.embedding(level_tokens[place.inner])[:, None]], 1
                )
        return torch.cat(tokens), torch.cat(logs), torch.cat(best), levels

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> Learned | None:
        return note_outside(self.vocab, verdict)
