"""PPD: parallel prompt decoding (Chen et al. 2024).

Trained prompt tokens hang on the nodes of a draft tree; those of the accepted node guess the tokens of the next step's
tree (§3.1). How many there were is the state, and each state has a tree of its own (§4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from decoders.draft.draft import (
    Draft,
    JointGuess,
    Layout,
    Learned,
    Looks,
    Past,
    Probe,
    Scored,
    Verdict,
    emitted_tokens,
    layout_of,
)
from decoders.draft.needs import Needs
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.draft.tree import DraftTree
from decoders.errors import UserError
from decoders.folders import typed_path
from decoders.method.drafter import Drafter
from decoders.method.method import Method
from decoders.method.part import PROMPT_TOKENS, Kind, Training
from decoders.model.state.memory import Context
from decoders.model.state.transfer import fetch
from decoders.model.target_model.target import SPARE_ROWS, Target
from decoders.names import DESIGNED, TREE_KINDS
from decoders.parts import TrainedPart, find_part
from decoders.prompt_tokens.design import assumed_acceptance, naive_trees, random_trees, trees_for, wide_trees
from decoders.prompt_tokens.latency import load_latency
from decoders.prompt_tokens.tokens import PromptConfig, PromptTokens
from decoders.prompt_tokens.trees import RANKS, PromptTree, PromptTrees, load_trees
from decoders.trace.origins import PROMPT
from decoders.verifiers.typical import ALPHA, EPSILON, TypicalVerifier
from decoders.verifiers.typical import NODE_TERMS as TYPICAL_TERMS

PAPER = "Hardware-aware parallel prompt decoding for memory-efficient acceleration of LLM inference"
BIBTEX = r"""
@misc{ppd,
  author = {Anonymous},
  title = {Hardware-Aware Parallel Prompt Decoding for Memory-Efficient Acceleration of {LLM} Inference},
  note = {Under double-blind review},
}
"""
NO_GUESSES = "no guesses yet: the prompt tokens on this step's root make those of the next step"


@dataclass(frozen=True)
class PpdParams:
    part: str | None = param(
        None, "Prompt tokens", "Folder of trained prompt tokens. Off: those trained for this target."
    )
    trees: str | None = param(
        None, "Trees", "File of designed trees (`specviz tree design`). Off: trees for the prompt tokens' own accuracy."
    )
    size: int | None = param(
        None, "Size",
        "Rows of the verify forward at most: root, guesses and prompt tokens. Off: the best for this machine where its "
        "latency was measured (`specviz tree latency`), else that of the designed trees.", low=3, high=SPARE_ROWS,
    )  # fmt: skip
    top_k: int = param(RANKS, "Top k", "Guesses per distance that may enter the tree.", low=1, high=RANKS)
    tree: bool = param(True, "Tree", "Off: one chain of first guesses, with all prompt tokens on every node.")
    kind: str = param(
        DESIGNED,
        "Kind of trees",
        "designed: as in the paper, a guess keeps at least one prompt token. wide: it may lose all of them. For "
        "comparison, trees of the same size whose prompt tokens are not pruned (naive), or placed at random.",
        choices=TREE_KINDS,
    )
    watch: int | None = param(
        None, "Watched layer",
        "Layer of the target, from 0, whose attention is recorded for the prompt tokens that are read: where they look "
        "in the text. Off: none, as recording it takes time in every step.", low=0, high=999,
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.trees is not None and (self.size is not None or not self.tree or self.kind != DESIGNED):
            raise ValueError("trees= names a file of trees, which have a size: leave size, tree and kind as they are")
        if not self.tree and self.kind != DESIGNED:
            raise ValueError(f"kind={self.kind!r} is a kind of trees, and tree is off: leave one of them as it is")


@dataclass(frozen=True)
class TypicalParams(PpdParams):
    epsilon: float = EPSILON
    alpha: float = ALPHA


@dataclass(frozen=True)
class StatePlan:
    """A tree without its tokens: per node its parent, its distance from the root and its guess's rank (root: 0, -1),
    its prompt tokens and the first of their probes.
    """

    parents: tuple[int, ...]
    distances: tuple[int, ...]
    ranks: tuple[int, ...]
    prompts: tuple[int, ...]
    first: tuple[int, ...]
    probes: tuple[Probe, ...]

    @cached_property
    def layout(self) -> Layout:
        """That of its drafts."""
        return layout_of(Draft(DraftTree(tuple(range(len(self.parents))), self.parents), probes=self.probes))

    @cached_property
    def terms(self) -> dict[str, np.ndarray]:
        """The recorded numbers of its nodes that are alike in every draft."""
        return {
            "distance": np.asarray([np.nan, *self.distances[1:]]),
            "guess_rank": np.asarray([np.nan, *self.ranks[1:]]),
            "next_state": np.asarray(self.prompts, dtype=float),
        }


@dataclass(frozen=True)
class Guesses:
    """Tokens and probabilities per distance and rank, and the text (root last) that they follow."""

    text: np.ndarray
    tokens: list[list[int]]
    probabilities: list[list[float]]


class PpdDrafter(Drafter):
    """Drafts the tree of the last accepted node's state from that node's guesses.

    Guesses belong to the text they were made for: after any other (a run cut back, the first step), the state is 0.
    """

    def __init__(
        self, prompts: PromptTokens, trees: PromptTrees, limit: int, top_k: int = RANKS, watch: int | None = None,
        heads: int = 0,
    ) -> None:  # fmt: skip
        self.prompts, self.trees, self.limit, self.top_k, self.watch = prompts, trees, limit, top_k, watch
        if watch is not None:
            self.looks_at = {"label": "the prompt tokens' attention", "layers": [watch], "heads": heads, "probes": True}
        self.context: Context | None = None
        self.guesses: Guesses | None = None
        self.proposed: tuple[Draft, StatePlan, np.ndarray] | None = None
        self._plans: dict[tuple[int, int, int], StatePlan] = {}

    def plan(self, state: int, depth: int, room: int) -> StatePlan:
        """The tree of a state, cut below ``depth``; no row stands more than ``room`` positions behind the root."""
        cut = state, min(depth, state), min(room, 2 * self.trees.m)
        if cut not in self._plans:
            tree = self.trees.states[state]
            path_prompts = dict(zip([(), *tree.paths], tree.prompts, strict=True))
            kept_paths = [path for path in tree.paths if len(path) <= cut[1] and max(path) < self.top_k]
            paths: list[tuple[int, ...]] = [(), *sorted(kept_paths)]  # depth first, likeliest first
            number = {path: node for node, path in enumerate(paths)}
            counts = [max(0, min(path_prompts[path], cut[2] - len(path))) for path in paths]
            parents = (-1, *(number[path[:-1]] for path in paths[1:]))
            self._plans[cut] = self._attach(parents, tuple(map(len, paths)), (-1, *(p[-1] for p in paths[1:])), counts)
        return self._plans[cut]

    def _attach(
        self, parents: tuple[int, ...], distances: tuple[int, ...], ranks: tuple[int, ...], counts: Sequence[int]
    ) -> StatePlan:
        """The plan of a tree with so many prompt tokens on each node."""
        first, probes = [], []
        for node, count in enumerate(counts):
            first.append(len(probes))
            probes += self.prompts.probes(node, count, len(probes))
        return StatePlan(parents, distances, ranks, tuple(counts), tuple(first), tuple(probes))

    def resume(self, context: Context, past: Sequence[Past]) -> None:
        """Have the last step scored once more, with its prompt tokens: what they guessed is not recorded. After a step
        of another method it is as if all prompt tokens had hung on that step's last token but one.
        """
        if not past:
            return
        step = past[-1]
        tree = step.draft.tree
        plan = self.plan(0, 0, self.limit - step.length)
        if step.probes is not None:
            probe_counts, n = Counter(step.probes), self.prompts.config.vectors
            counts = [min(probe_counts[node] // n, self.trees.m) for node in range(len(tree))]
            plan = self._attach(tree.parents, tree.depths, (-1,) * len(tree), counts)
        self.proposed = step.draft, plan, context.tokens[: step.length].copy()
        self.observe(step.draft, step.scored(plan.probes), step.verdict)

    def propose(self, context: Context, budget: int) -> Draft:
        guesses = self.guesses
        if guesses is not None and not np.array_equal(guesses.text, context.tokens):
            guesses = None
        state = 0 if guesses is None else len(guesses.tokens)
        plan = self.plan(state, budget, self.limit - context.length)
        tokens, node_probs, path = [context.root], [1.0], [1.0]
        if guesses is not None:
            for parent, distance, rank in zip(plan.parents[1:], plan.distances[1:], plan.ranks[1:], strict=True):
                tokens.append(guesses.tokens[distance - 1][rank])
                node_probs.append(guesses.probabilities[distance - 1][rank])
                path.append(path[parent] * node_probs[-1])
        nodes = len(tokens)
        draft = Draft(
            DraftTree(tuple(tokens), plan.parents),
            ("root",) + ("prompt",) * (nodes - 1),
            (-1,) * nodes,
            tuple(node_probs),
            probes=plan.probes,
            route="guesses" if nodes > 1 else "none",
            reason="" if nodes > 1 else NO_GUESSES,
            terms={**plan.terms, "path_prob": np.asarray(path)},
            notes={"state": float(state)},
            layout=plan.layout,
        )
        self.proposed, self.context = (draft, plan, context.tokens.copy()), context
        return draft

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> Learned | None:
        self.guesses = None
        if self.proposed is None or self.proposed[0] is not draft.proposed:
            return None
        _, plan, text = self.proposed
        last = verdict.path[-1]
        (node,), n = draft.proposed_nodes([last]), self.prompts.config.vectors
        count = plan.prompts[node]
        notes = {"next_state": float(count)}
        if not count or scored.probe_logits is None:
            return Learned(notes=notes)
        first, looks, joint = plan.first[node], None, ()
        if draft.nodes:
            first = next(row for row, probe in enumerate(draft.probes) if probe.parent == last)
        if self.watch is not None and scored.queries:
            looks = self._looks(draft, first, count, scored.queries[self.watch])
        rows = scored.probe_logits[first : first + count * n]
        best, tokens = fetch(*self.prompts.guesses(rows).softmax(-1).topk(min(self.top_k, rows.shape[-1])))
        emitted = emitted_tokens(draft.tree.tokens, verdict)
        self.guesses = Guesses(np.append(text, emitted), tokens.tolist(), best.tolist())
        if n > 1:
            joint = tuple(
                JointGuess(last, offset, row[0], p[0])
                for offset, (row, p) in enumerate(zip(self.guesses.tokens, self.guesses.probabilities, strict=True), 1)
            )
        return Learned(looks, joint, notes)

    def _looks(self, draft: Draft, first: int, count: int, queries: Tensor) -> Looks | None:
        """The looks of the ``count`` prompt tokens from probe ``first`` on, each as the mean of its vectors; the keys
        are those of the committed text and of the probes themselves, which the next forward writes over.
        """
        context, layer, n, nodes = self.context, self.watch, self.prompts.config.vectors, len(draft.tree)
        if context is None or layer is None or self.prompts.config.prefix:
            return None
        cache, rows, start = context.cache, count * n, context.length - 1 + nodes + first
        text = cache.length
        draft_keys = cache.keys(layer)[:, start : start + rows].clone()
        prompt_rows = slice(nodes + first, nodes + first + rows)
        layout = draft.layout or layout_of(draft)
        queries, positions, sees = queries[:, prompt_rows], layout.offsets[prompt_rows], layout.sees
        assert sees is not None
        own_seen, window = sees[prompt_rows, prompt_rows], context.shape.layer_windows[layer]

        def weights() -> Tensor:
            keys = torch.cat([cache.keys(layer)[:, :text], draft_keys], 1).float()
            folded_queries = queries.float().unflatten(0, (len(keys), -1)).flatten(1, 2)
            scores = (folded_queries @ keys.mT).unflatten(1, (-1, rows)).flatten(0, 1)
            if softcap := context.shape.attention_softcap:
                scores = softcap * torch.tanh(scores / softcap)
            attention_mask = np.concatenate([np.ones((rows, text), dtype=bool), own_seen], 1)
            if window is not None:
                row_positions = context.length - 1 + positions
                attention_mask &= np.concatenate([np.arange(text), row_positions]) > row_positions[:, None] - window
            scores = scores.masked_fill(torch.from_numpy(~attention_mask).to(scores.device), -torch.inf)
            return scores.softmax(-1)[..., :text].unflatten(1, (count, n)).mean(2)[None]

        return Looks(tuple(range(prompt_rows.start, prompt_rows.stop, n)), (layer,), weights)


def chain(m: int, ensemble: int) -> PromptTrees:
    """No tree: in state k a chain of k first guesses, with all prompt tokens on every node."""
    states = tuple(PromptTree(tuple((0,) * (d + 1) for d in range(k)), (m,) * (k + 1)) for k in range(m + 1))
    return PromptTrees(states, assumed_acceptance(m), ensemble, "chain")


def trees_of(target: Target, prompts: PromptTokens, params: PpdParams) -> PromptTrees:
    """The trees that the parameters ask for. Raises UserError for a file that is no good and trees that do not fit."""
    m, n = prompts.config.tokens, prompts.config.vectors
    if params.trees is not None:
        trees = load_trees(params.trees, SPARE_ROWS)
    elif not params.tree:
        trees = chain(m, n)
    else:
        place = find_part(target.key, PART.kind.name) if params.part is None else typed_path(params.part)
        latency = load_latency(target) if params.size is None else None
        trees = trees_for(place, m, params.size, latency, n)
        if params.kind != DESIGNED:
            builder = {"naive": naive_trees, "random": random_trees, "wide": wide_trees}[params.kind]
            trees = builder(trees.acceptance, params.size or trees.size, n)
    if trees.m > m:
        raise UserError(f"the trees in {params.trees} want {trees.m} prompt tokens per node; there are {m}")
    max_rows = max(tree.rows(n) for tree in trees.states)
    if max_rows > (row_limit := params.size or SPARE_ROWS):
        kind, vectors = "the trees" if params.tree else "the chain", f"{n} vector{'s' * (n > 1)}"
        raise UserError(
            f"{kind} of {trees.m} prompt tokens with {vectors} each take {max_rows} rows; at most {row_limit} are "
            "allowed"
        )
    return trees


def build(target: Target, params: PpdParams) -> PpdDrafter:
    layers = target.info["layers"]
    if params.watch is not None and params.watch >= layers:
        raise UserError(f"watch={params.watch} is not allowed: {target.name} has the layers 0 to {layers - 1}")
    prompts = PART.load(target, params)
    trees = trees_of(target, prompts, params)
    return PpdDrafter(prompts, trees, target.context_length, params.top_k, params.watch, target.shape.heads)


def needs(target: Target, params: PpdParams) -> Needs:
    """The queries of the watched layer."""
    return Needs() if params.watch is None else Needs(heads=tuple((params.watch, h) for h in range(target.shape.heads)))


NODE_TERMS = (
    Term("distance", "distance", "Places behind the root: the number of the prompt token that guessed it.", 1, 3),
    Term("guess_rank", "guess rank", "The token's rank among the guesses at its distance (0 = first).", 0, 0),
    Term("path_prob", "path probability", "The guesses' probabilities from the root to this node, multiplied.", 0, 1),
    Term("next_state", "next state", "Prompt tokens on this node: the next state if acceptance ends here.", 0, 3),
)
STEP_TERMS = (
    Term("state", "state", "Prompt tokens that the last accepted node had: how deep this tree can be.", 0, 3),
    Term("next_state", "next state", "Prompt tokens on the node where acceptance ended.", 0, 3),
)
PART = TrainedPart(
    Kind(
        "ppd", "set of prompt tokens", PromptConfig, PromptTokens,
        training=Training(
            PROMPT_TOKENS, "PPD's prompt tokens for a target", "prompt tokens for a target, for ppd",
            varies=(
                "tokens", "vectors", "mask", "learned", "prefix", "exits", "head", "hard_labels", "epochs", "batch",
            ),
        ),
    )
)  # fmt: skip
PPD = Method(
    name="ppd",
    family="heads",
    title="PPD: prompt tokens",
    paper=PAPER,
    bibtex=BIBTEX,
    summary="Trained prompt tokens behind each node make the target guess the next tokens in the same forward.",
    params=PpdParams,
    build=build,
    needs=needs,
    origins=(PROMPT,),
    node_terms=NODE_TERMS,
    step_terms=STEP_TERMS,
    part=PART,
    order=30,
)
TYPICAL = replace(
    PPD,
    name="ppd+typical",
    title="PPD with typical acceptance",
    summary="PPD's guesses, accepted where the target finds them likely enough: not lossless.",
    params=TypicalParams,
    lossless=False,
    node_terms=(*NODE_TERMS, *TYPICAL_TERMS),
    verifier_params=("epsilon", "alpha"),
    verifier=lambda params, chooser, stops: TypicalVerifier(chooser, epsilon=params.epsilon, alpha=params.alpha),
    order=31,
)
METHODS = (PPD, TYPICAL)
