"""Drafts from a draft model: chains, drawn or greedy, expanded chains and beams. What SpS and GLIDE have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from .cape import Proposal, beam_search, bin_of, expanded
from .glide import common_prefix
from .memory import Context
from .protocols import Draft, Looks, Scored, Term, Verdict
from .residual import NODE_TERMS as VERIFIED_TERMS
from .sampling import Chooser, drawn_token

NODE_TERMS = (
    Term("confidence", "confidence", "The drafter's highest probability at this position.", 0, 1),
    Term("bin", "confidence bin", "The tenth its confidence falls into: how many candidates CAPE puts here.", 0, 9),
    Term("draft_rank", "draft rank", "The token's rank in the drafter's own distribution (0 = first choice).", 0, 0),
    *VERIFIED_TERMS,
)
STEP_TERMS = (
    Term("gamma", "γ", "Tokens the drafter was asked for in this step.", 0, 0),
    Term("forward_ms", "draft forwards", "Milliseconds spent in the draft model.", 0, 0),
    Term("expand_ms", "expansion", "Milliseconds spent on choosing further candidates and building the tree.", 0, 0),
)
KV_DELAY = Term(
    "kv_delay", "KV delay", "Positions from the newest key of the target that was seen to the last token read.", 0, 0
)


class Running(Protocol):
    """A draft model at work on a run; ``limit`` is the longest text it reads, ``looks_at`` what its looks are."""

    limit: int
    looks_at: dict[str, Any] | None

    def read(self, context: Context) -> Float[Tensor, "vocab"]:
        """Logits after the context's last token."""
        ...

    def extend(self, tokens: Sequence[int], parents: Sequence[int]) -> Float[Tensor, "rows vocab"]:
        """Logits after more draft tokens; ``parents`` count the draft's rows so far (-1: the root)."""
        ...

    def looks(self, rows: Sequence[int]) -> Callable[[], Float[Tensor, "layers heads rows keys"]] | None:
        """How to compute where rows of this draft (0 = the root) looked in the target's cache; None if nowhere."""
        ...


class ModelDrafter:
    """Drafts ``gamma`` tokens with a draft model.

    ``expansion`` is one of ``decoders.cape.EXPANSIONS``. Without one, a sampled run draws its tokens, for verification
    by ratio and residual; trees hold the drafter's first choices. ``heuristic`` adapts γ as transformers' assistant
    does: two more after a fully accepted draft, else one less.
    """

    def __init__(
        self, run: Running, gamma: int, expansion: str = "none", size: int = 4, *, heuristic: bool = False,
        delayed: bool = False,
    ) -> None:  # fmt: skip
        self.run, self.expansion, self.size = run, expansion, size
        self.heuristic, self.delayed, self.looks_at = heuristic, delayed, run.looks_at
        self.chooser: Chooser | None = None
        self.gammas = {0: gamma}  # γ from a context length on
        self.tokens = np.zeros(0, dtype=np.int64)
        self.most = 32  # γ's bound under the heuristic

    def sample_with(self, chooser: Chooser) -> None:
        if not chooser.sampling.greedy:
            self.chooser = chooser

    def gamma(self, context: Context) -> int:
        """γ at this point of the run, whatever was decoded after it."""
        known = common_prefix(self.tokens, context.tokens)
        if known == len(self.tokens):  # the run went on
            known = context.length
        self.gammas = {length: gamma for length, gamma in self.gammas.items() if length <= known}
        self.tokens = context.tokens.copy()
        return self.gammas[max(self.gammas)]

    def propose(self, context: Context, budget: int) -> Draft:
        gamma = self.gamma(context)
        depth = min(gamma, budget, self.run.limit - context.length)
        if depth < 1:
            return Draft.empty(context.root, f"the drafter reads at most {self.run.limit:,} tokens")
        if self.expansion.startswith("beam"):
            return self._beams(context, depth, gamma)
        drawing = self.chooser if self.expansion == "none" else None
        random = None
        if drawing is not None:  # a stream of its own per place, so that a cut run draws the same again
            random = np.random.default_rng([drawing.sampling.seed, 1, context.length])
        started = time.perf_counter()
        chain: list[int] = []
        told: list[Tensor] = []
        logits = self.run.read(context)
        for i in range(depth):
            if drawing is None or random is None:
                told.append(logits)
                chain.append(int(logits.argmax()))
            else:
                told.append(drawing.probabilities(logits[None])[0])
                chain.append(drawn_token(told[-1], float(random.random())))
            if i + 1 < depth:
                logits = self.run.extend(chain[-1:], [i - 1])[0]
        forwarded = time.perf_counter()
        distributions = torch.stack(told) if drawing is not None else torch.stack(told).softmax(-1)
        made = expanded(context.root, chain, distributions, self.expansion, self.size)
        return self._draft(made, distributions, drawing is not None, gamma, started, forwarded)

    def _beams(self, context: Context, depth: int, gamma: int) -> Draft:
        spent = 0.0

        def extend(tokens: list[int], parents: list[int]) -> Tensor:
            nonlocal spent
            before = time.perf_counter()
            logits = self.run.extend(tokens, parents)
            spent += time.perf_counter() - before
            return logits

        started = time.perf_counter()
        first = self.run.read(context)
        spent += time.perf_counter() - started
        width = int(self.expansion.split()[1])
        made, distributions = beam_search(context.root, first, extend, width, depth)
        return self._draft(made, distributions, False, gamma, started, started + spent)

    def _draft(
        self, made: Proposal, distributions: Tensor, drawn: bool, gamma: int, started: float, forwarded: float
    ) -> Draft:
        tree, rows = made.tree, made.rows
        top = distributions.amax(-1).tolist()
        confidence = [float("nan"), *(top[rows[parent]] for parent in tree.parents[1:])]
        terms = {
            "confidence": np.asarray(confidence),
            "bin": np.asarray([np.nan, *(bin_of(p) for p in confidence[1:])], dtype=float),
            "draft_rank": np.asarray([np.nan, *made.ranks[1:]], dtype=float),
        }
        if self.delayed:
            terms["kv_delay"] = np.asarray([np.nan, *tree.depths[1:]], dtype=float)
        route = "drawn" if drawn else {"none": "chain", "confidence": "cape"}.get(self.expansion, self.expansion)
        spread = tuple("expansion" if extra else "drafter" for extra in made.expanded[1:])
        given = {node: distributions[row] for node, row in rows.items()}
        finished = time.perf_counter()
        notes = {
            "gamma": float(gamma),
            "forward_ms": (forwarded - started) * 1e3,
            "expand_ms": (finished - forwarded) * 1e3,
        }
        if self.delayed:
            notes["kv_delay"] = float(max(tree.depths))
        weights = self.run.looks(list(rows.values()))
        looks = Looks(tuple(rows), tuple(self.looks_at["layers"]), weights) if weights and self.looks_at else None
        return Draft(
            tree, ("root", *spread), (-1,) * len(tree), made.probabilities, route=route, terms=terms, notes=notes,
            distributions=given, drawn=drawn, looks=looks,
        )  # fmt: skip

    def observe(self, draft: Draft, scored: Scored, verdict: Verdict) -> None:
        if self.heuristic and draft.tree.drafted:
            whole = verdict.accepted == max(draft.tree.depths)
            gamma = self.gammas[max(self.gammas)]
            length = len(self.tokens) + verdict.accepted + 1
            self.gammas[length] = min(self.most, gamma + 2) if whole else max(1, gamma - 1)
