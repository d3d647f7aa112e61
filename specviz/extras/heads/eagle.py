"""EAGLE-1, -2 and -3: a small head drafts from the target's own hidden states (Li et al. 2024a, 2024b, 2025).

EAGLE-1 fills a tree that is settled before the step; EAGLE-2 lets the head's confidence grow it; EAGLE-3 grows the same
tree with a head that reads three states of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from decoders.draft.distributions import OUTSIDE_VOCAB, DraftVocab, NodeDistributions
from decoders.draft.draft import Draft, Learned, PrunedNodes, Scored, Verdict
from decoders.draft.needs import Needs
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.draft_models.drafter import STEP_TERMS
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.method.part import HEADS, Kind, Training
from decoders.model.state.memory import Context
from decoders.model.state.transfer import Span, mark
from decoders.model.target_model.target import Target
from decoders.parts import TrainedPart, load_part
from decoders.trace.origins import DRAFTER, EXPANSION
from decoders.verifiers.residual import NODE_TERMS as VERIFIED_TERMS
from decoders.verifiers.residual import ResidualVerifier
from decoders.verifiers.sampling import Chooser
from decoders.verifiers.turns import TurnsVerifier
from decoders.verifiers.verifier import Verifier

from . import eagle_export, eagle_published
from .eagle_head import EagleConfig, EagleHead
from .eagle_run import EagleRun
from .eagle_trees import EAGLE_TREE, CandidateTree, Expansion, dynamic, expand_static
from .head_chains import EagleChain
from .head_formats import EAGLE3_FORMATS, EAGLE_FORMATS
from .head_trees import SettledTrees

MOST_PRUNED = 64  # nodes of a step that were reranked away and are recorded: the best of them

PART = param(
    None,
    "Head",
    "Folder, file or hub id of a published EAGLE head, or folder of one that was trained here. Off: the one trained "
    "for this target.",
)
RULE = param(
    "match", "Sampled verification",
    "Match: the target's draw is looked for in the tree, so that a seed gives plain decoding's tokens. In turn: "
    "EAGLE's own, which tries a token's children one after another. Both have the target's distribution.",
    choices=("match", "in turn"),
)  # fmt: skip


@dataclass(frozen=True)
class EagleParams:
    part: str | None = PART
    depth: int = param(5, "Depth", "Levels of the settled tree: 4, 8, 8, 3 and 2 tokens.", low=1, high=5)
    rule: str = RULE


@dataclass(frozen=True)
class DynamicParams:
    part: str | None = PART
    depth: int = param(
        5, "Depth", "How often the head goes on from its best tokens: a tree is at most one token deeper.", low=1,
        high=16,
    )  # fmt: skip
    top_k: int = param(
        10, "Top k", "Choices after each token that the head goes on from, and how many it goes on from per level.",
        low=1, high=32,
    )  # fmt: skip
    total_tokens: int = param(
        60, "Total tokens", "Rows that the target checks, the root included: the best by cumulative probability stay.",
        low=2, high=256,
    )  # fmt: skip
    rule: str = RULE


NODE_TERMS = (
    Term("path_logprob", "cumulative log-prob", "Sum of the head's log-probabilities from the root to here.", 0, 0),
    Term("confidence", "confidence", "The head's highest probability at this position.", 0, 1),
    Term("draft_rank", "draft rank", "The token's rank among the head's choices after its parent (0 = first).", 0, 0),
    *VERIFIED_TERMS,
)
FORWARDS = Term("draft_forwards", "draft forwards made", "Forwards of the head in this step, the first included.", 0, 0)
SCORED = Term("scored", "tokens scored by the head", "All that it guessed, those that were reranked away too.", 0, 0)
COSINE = Term(
    "feature_cosine", "feature cosine",
    "Of the state that the head made to the target's own: mean over the root and the accepted tokens that it went on "
    "from.", -1, 1,
)  # fmt: skip


class EagleDrafter(Drafter):
    """Drafts trees with a head; they follow from the text alone. Others that grow EAGLE-2's trees say what differs:
    ``route``, the ``most`` nodes that a draft keeps, and ``expansion``.
    """

    learns = False  # drafts follow from the text

    def __init__(self, run: EagleRun, params: EagleParams | DynamicParams) -> None:
        head = run.head
        self.run, self.params, self.config = run, params, head.config
        self.trees = SettledTrees(EAGLE_TREE, head.config.draft_vocab or head.config.vocab)
        self.vocab = DraftVocab.of(head.drafted, head.config.vocab)
        self._context: Context | None = None
        self._went_on: dict[int, int] = {}  # node of the last draft → the row of its state

    def prepare(self, context: Context) -> None:
        if context.root_position:
            self.run.read(context)

    def propose(self, context: Context, budget: int) -> Draft:
        self._context, self._went_on = context, {}
        if not context.root_position:
            return Draft.empty(context.root, "the head reads the target's states, and there is none before this token")
        device = context.device
        start_mark = mark(device)
        growing, read = self.run.draft(context, self.expansion(budget))
        candidate_tree = growing.tree(context.root)
        limit = min(len(candidate_tree.tokens) - 1, self.max_nodes)
        ranking = candidate_tree.best(len(candidate_tree.tokens) - 1)
        tree, order = candidate_tree.subtree(ranking[:limit])
        inner = sorted({parent for parent in tree.parents if parent >= 0})
        node_logits = candidate_tree.logits_after([order[node] for node in inner])
        sure = [np.nan, *(np.exp(candidate_tree.first[order[parent]]) for parent in tree.parents[1:])]
        self._went_on = {node: candidate_tree.rows[old] for node, old in enumerate(order) if old in candidate_tree.rows}
        score, rank, logprob = np.asarray(
            [(candidate_tree.scores[n], candidate_tree.ranks[n], candidate_tree.logprobs[n]) for n in order]
        ).T
        score[0] = rank[0] = np.nan
        chain = next((i for i, parent in enumerate(tree.parents) if parent != i - 1), len(tree))
        grown_by = ((start_mark, read), *candidate_tree.spans)
        return Draft(
            tree,
            ("root", *("drafter",) * (chain - 1), *("expansion",) * (len(tree) - chain)),
            (-1,) * len(tree),
            tuple(np.exp(logprob).tolist()),
            route=self.route,
            terms={
                "path_logprob": score,
                "draft_rank": rank,
                "confidence": np.asarray(sure),
            },
            notes={
                "forward_ms": Span(*grown_by),
                "expand_ms": Span(*_between(grown_by, mark(device))),
                "draft_forwards": float(len(candidate_tree.logits)),
                "scored": float(len(candidate_tree.tokens) - 1),
            },
            distributions=NodeDistributions(dict(zip(inner, node_logits, strict=True)), self.vocab),
            pruned=prune(candidate_tree, order, ranking[limit:][:MOST_PRUNED]),
        )

    @property
    def route(self) -> str:
        """The way that is taken."""
        return "settled tree" if isinstance(self.params, EagleParams) else "dynamic tree"

    @property
    def max_nodes(self) -> int:
        """Nodes that a draft has at most, the root left out."""
        return self.params.total_tokens - 1 if isinstance(self.params, DynamicParams) else len(EAGLE_TREE)

    def expansion(self, budget: int) -> Expansion:
        """The way in which the head's tree grows behind the root."""
        params = self.params
        if isinstance(params, EagleParams):
            tree, places = self.trees.at(depth := min(params.depth, budget), self.run.device)
            rows = sum(len(place.inner) for place in places)
            return Expansion(("settled", depth), rows, partial(expand_static, tree=tree, places=places))
        return dynamic_expansion(min(params.depth + 1, budget), params.top_k)

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> Learned | None:
        if not draft.tree.drafted:
            return None
        notes = {}
        if self.vocab is not None:
            notes["outside"] = float(verdict.bonus is not None and self.vocab.places[verdict.bonus] < 0)
        if not self.config.third:
            notes["feature_cosine"] = self._cosine(draft.proposed_nodes(verdict.path), verdict.bonus is None)
        return Learned(notes=notes)

    @torch.inference_mode()
    def _cosine(self, path: Sequence[int], at_end: bool) -> float:
        """Of the head's states to the target's, which the memory has of the committed nodes by now."""
        context = self._context
        assert context is not None
        nodes = [node for node in path if node in self._went_on]
        if at_end and nodes and nodes[-1] == path[-1]:
            nodes.pop()  # the token that ends the run is not processed
        if not nodes:
            return float("nan")
        truth = context.memory.hidden[self.config.features[0]][context.root_position :][: len(nodes)]
        features = self.run.head.stands_for(self.run.states_of([self._went_on[node] for node in nodes]))
        return float(torch.cosine_similarity(features.float(), truth.float(), -1).mean())


def dynamic_expansion(levels: int, top_k: int) -> Expansion:
    """EAGLE-2's, of so many levels."""
    expand = partial(dynamic, levels=levels, top_k=top_k)
    return Expansion(("dynamic", levels, top_k), (levels - 1) * top_k, expand)


def prune(candidate_tree: CandidateTree, order: Sequence[int], nodes: Sequence[int]) -> PrunedNodes | None:
    """The record of nodes that were scored and left out, best first: a parent is a node of the tree or, from the tree's
    size on, one that was named before.
    """
    place = {old: node for node, old in enumerate(order)}
    for node in nodes:
        place[node] = len(place)
    if not nodes:
        return None
    return PrunedNodes(
        tuple(candidate_tree.tokens[node] for node in nodes),
        tuple(place[candidate_tree.parents[node]] for node in nodes),
        tuple(float(np.exp(candidate_tree.logprobs[node])) for node in nodes),
        tuple(candidate_tree.scores[node] for node in nodes),
    )


def _between(spans: Sequence[tuple], end: object) -> list[tuple]:
    """The gaps behind these spans, each up to the next one or the end."""
    starts = [*(start for start, _ in spans[1:]), end]
    return [(stop, start) for (_, stop), start in zip(spans, starts, strict=True)]


def build(kind: str, target: Target, params: EagleParams | DynamicParams) -> EagleDrafter:
    """The drafter of a head of this kind."""
    head = load_part(target, kind, params.part)
    return EagleDrafter(EagleRun(head, head_forwards(target, head), target.engines), params)


def verifier_by_rule(params: Any, chooser: Chooser, stop_ids: Any) -> Verifier:
    """The verifier of trees of first choices, as their ``RULE`` says."""
    return TurnsVerifier(chooser) if params.rule == "in turn" else ResidualVerifier(chooser)


def heads_of(kind: Kind, make: Callable[[str, Target, Any], Drafter] = build) -> dict[str, Any]:
    """A card's facts on networks of this kind, which read states of the target: how drafters are made of them, which
    states they read, the part.
    """
    return {
        "build": partial(make, kind.name),
        "needs": lambda target, params: Needs(layers=load_part(target, kind.name, params.part).config.features),
        "part": TrainedPart(kind),
    }


def head_forwards(target: Target, head: EagleHead) -> Any:
    """A head's forwards by the target's engine; None where that runs none of draft networks."""
    if not target.engines.runs_drafts:
        return None
    from .eagle_compiled import CompiledEagle

    return CompiledEagle.of(target, head)


def lesson(third: bool) -> Any:
    """EAGLE-3's lesson, or EAGLE-1's, as a training begins."""
    from .eagle_lesson import Eagle, Eagle3

    return Eagle3() if third else Eagle()


KIND = Kind(
    "eagle", "EAGLE head", EagleConfig, EagleHead, partial(eagle_published.fit, False),
    Training(
        HEADS, "an EAGLE head for a target", "a head that imitates the target's next states, for eagle and eagle2",
        own=("mlp", "unroll", "own_states"), lesson=partial(lesson, third=False), worth=0.2,
    ),
    {"eagle": eagle_export.first}, reads=EAGLE_FORMATS, compiled=head_forwards, chain=EagleChain,
)  # fmt: skip
THIRD = Kind(
    "eagle3", "EAGLE-3 head", EagleConfig, EagleHead, partial(eagle_published.fit, True),
    Training(
        HEADS, "an EAGLE-3 head for a target", "a head that reads three of the target's states, for eagle3",
        own=("mlp", "unroll"), lesson=partial(lesson, third=True), worth=0.34,
    ),
    {form: partial(eagle_export.third, form) for form in ("speculators", "eagle")},
    reads=EAGLE3_FORMATS, compiled=head_forwards, chain=EagleChain,
)  # fmt: skip
EAGLE = Method(
    name="eagle",
    family="heads",
    title="EAGLE",
    paper="EAGLE: speculative sampling requires rethinking feature uncertainty",
    bibtex=r"""
@inproceedings{li2024eagle,
  author = {Yuhui Li and Fangyun Wei and Chao Zhang and Hongyang Zhang},
  title = {{EAGLE}: Speculative Sampling Requires Rethinking Feature Uncertainty},
  booktitle = {International Conference on Machine Learning},
  year = {2024},
}
""",
    summary="A small head imitates the target's next states from its last ones, and fills a settled tree.",
    params=EagleParams,
    **heads_of(KIND),
    origins=(DRAFTER, EXPANSION),
    node_terms=NODE_TERMS,
    step_terms=(*STEP_TERMS[1:], FORWARDS, SCORED, COSINE, OUTSIDE_VOCAB),
    verifier=verifier_by_rule,
    verifier_params=("rule",),
    order=43,
)
EAGLE2 = replace(
    EAGLE,
    name="eagle2",
    title="EAGLE-2",
    paper="EAGLE-2: faster inference of language models with dynamic draft trees",
    bibtex=r"""
@inproceedings{li2024eagle2,
  author = {Yuhui Li and Fangyun Wei and Chao Zhang and Hongyang Zhang},
  title = {{EAGLE-2}: Faster Inference of Language Models with Dynamic Draft Trees},
  booktitle = {Empirical Methods in Natural Language Processing},
  year = {2024},
}
""",
    summary="EAGLE's head grows its tree where it is sure, and the target checks the likeliest of what it guessed.",
    params=DynamicParams,
    order=44,
)
EAGLE3 = replace(
    EAGLE2,
    name="eagle3",
    title="EAGLE-3",
    paper="EAGLE-3: scaling up inference acceleration of large language models via training-time test",
    bibtex=r"""
@inproceedings{li2025eagle3,
  author = {Yuhui Li and Fangyun Wei and Chao Zhang and Hongyang Zhang},
  title = {{EAGLE-3}: Scaling up Inference Acceleration of Large Language Models via Training-Time Test},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2025},
}
""",
    summary="EAGLE-2's trees by a head that reads three of the target's states and need not imitate them.",
    **heads_of(THIRD),
    step_terms=(*STEP_TERMS[1:], FORWARDS, SCORED, OUTSIDE_VOCAB),
    order=45,
)
METHODS = (EAGLE, EAGLE2, EAGLE3)
