"""Relaxed acceptance (TensorRT-LLM, for the thinking of reasoning models): a token among the target's first. Lossy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from decoders.draft.draft import Draft, Scored, Verdict
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.model.state.transfer import fetch

from .match import LossyVerifier, before_nodes, likely_path
from .sampling import Chooser
from .verifier import VerifierCard

BOUND = Term("relaxed", "least p", "The target's highest probability here, less δ: a token below it is rejected.", 0, 1)


@dataclass(frozen=True)
class RelaxedParams:
    relaxed_topk: int = param(10, "Top k", "A drafted token must be among so many first choices of the target.", low=1)
    relaxed_delta: float = param(
        0.6, "δ", "Its probability may lie so far below the target's highest; 0 takes the first choice alone.", low=0,
        high=1,
    )  # fmt: skip


class RelaxedVerifier(LossyVerifier):
    """Accepts a node if its parent is accepted and the target has it among its ``top_k`` first choices, with a
    probability of at least the highest one - ``delta`` (``relaxed_topk``, ``relaxed_delta``).

    Probabilities are at the run's temperature, in greedy runs at 1. The longest accepted path wins (``likely_path``);
    the bonus is the chooser's token after it. TensorRT-LLM does so only between the marks of a model's thinking; here
    it holds everywhere. With ``top_k`` = 1 or ``delta`` = 0 a greedy run is matched.
    """

    def __init__(self, chooser: Chooser, *, top_k: int = 10, delta: float = 0.6) -> None:
        self.chooser, self.top_k, self.delta = chooser, top_k, delta

    def passes(self, p: Float[Tensor, "rows vocab"]) -> Bool[Tensor, "rows vocab"]:
        threshold = p.topk(min(self.top_k, p.shape[-1]), dim=-1).values[:, -1:]
        return (p >= threshold) & (p >= p.amax(-1, keepdim=True) - self.delta)

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        logits, rows, tokens = before_nodes(draft, scored)
        logits = logits / (self.chooser.sampling.temperature or 1.0)
        p, token_logits = logits.softmax(-1), logits[rows, tokens]
        rank = (logits[rows] > token_logits[:, None]).sum(-1)
        read = fetch(p[rows, tokens], rank, p.amax(-1)[rows], scored.logits.argmax(-1))
        token_probs, ranks, highest, likeliest = (column.tolist() for column in read)
        clauses = [(True, "root")]
        for chance, place, top_prob in zip(token_probs, ranks, highest, strict=True):
            near = chance >= top_prob - self.delta
            words = f"p = {chance:.3g} {'≥' if near else '<'} highest p − margin δ = {top_prob:.3g} − {self.delta:g}"
            within = place < self.top_k
            clauses.append((near and within, words if within else f"rank {place + 1}, not in the top {self.top_k}"))
        verdict = likely_path(draft, scored, self.chooser, [float("nan"), *token_probs], clauses, likeliest)
        bounds = [float("nan"), *(max(0.0, peak - self.delta) for peak in highest)]
        return replace(verdict, terms={BOUND.key: np.asarray(bounds)})


VERIFIER = VerifierCard(
    "relaxed", "Relaxed acceptance", "TensorRT-LLM: use_relaxed_acceptance_for_thinking, relaxed_topk, relaxed_delta",
    "A drafted token is accepted if it is among the target's first k choices and at most δ less likely than the first.",
    lambda params, chooser, stop_ids: RelaxedVerifier(chooser, top_k=params.relaxed_topk, delta=params.relaxed_delta),
    lossless=False, params=RelaxedParams, node_terms=(BOUND,), order=70,
)  # fmt: skip
