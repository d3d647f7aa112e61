"""The protocol of verifiers, and a verifier's card in the registry."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.draft import Draft, Scored, Verdict
from decoders.draft.params import NoParams
from decoders.draft.terms import Term
from decoders.model.state.transfer import fetch, rows_of

if TYPE_CHECKING:
    from .sampling import Chooser

TRIALS = 200  # of a verifier that does not say its chances
DISTANCE = Term("tv", "TV from p", "½ Σ |p′ − p| at this position: p′ is what the lossy verifier writes from.", 0, 1)


class Verifier(ABC):
    """Decides which drafted tokens stand. One decision per visited node (methods with a chain rule: per token)."""

    lossless: bool = True
    exact_chances: bool = False  # whether ``chances`` is computed; else it is counted over ``TRIALS``
    chooser: Chooser

    @abstractmethod
    def __call__(self, draft: Draft, scored: Scored) -> Verdict: ...

    def draws(self, route: str, drafted: int, accepted: int) -> int:
        """Random numbers of the chooser that a sampled step took: one per emitted token."""
        return accepted + 1

    def chances(self, draft: Draft, scored: Scored) -> Float[np.ndarray, " nodes"]:
        """The chance of each node to be accepted, over the verifier's own random numbers; the root has 1. Their sum but
        for the root is the expected number of accepted tokens.

        A greedy verdict has no chance in it. Of a verifier that does not compute them, they are counted over 200 seeds.
        """
        if self.chooser.sampling.greedy:
            return self._count_trials(draft, scored, 1)
        return self._count_trials(draft, scored, TRIALS)

    def _count_trials(self, draft: Draft, scored: Scored, trials: int) -> Float[np.ndarray, " nodes"]:
        held, counts = self.chooser.random, np.zeros(len(draft.tree))
        try:
            for seed in range(trials):
                self.chooser.random = copy.deepcopy(held) if trials == 1 else np.random.default_rng(seed)
                counts[list(self(draft, scored).path)] += 1
        finally:
            self.chooser.random = held
        return counts / trials

    def emits(
        self, p: Float[Tensor, "rows vocab"], q: Float[Tensor, "rows vocab"]
    ) -> Float[Tensor, "rows vocab"] | None:
        """The distribution of the next token in a sampled run, where one token was drafted from ``q`` and the target's
        distribution is ``p``: p itself of a lossless verifier. None where it depends on the tokens behind it, or is
        not known.
        """
        return p if self.lossless else None

    def emits_after(
        self, logits: Float[Tensor, "rows vocab"], p: Float[Tensor, "rows vocab"], q: Float[Tensor, "rows vocab"]
    ) -> Float[Tensor, "rows vocab"] | None:
        """``emits``, where the rule reads more of the target than ``p``, which top-k and top-p have cut."""
        return self.emits(p, q)

    def distances(
        self, draft: Draft, scored: Scored, decided_count: int | None = None
    ) -> Float[np.ndarray, " nodes"] | None:
        """TV of the next token's distribution (``emits``) from the target's own at each drafted node's position, of the
        first ``decided_count`` ones (None: all): nan behind them and for the root. None in a greedy run, of a tree, and
        where ``emits`` does not say.
        """
        if self.chooser.sampling.greedy or not draft.tree.is_chain or not draft.tree.drafted:
            return None
        count = draft.tree.drafted if decided_count is None else min(decided_count, draft.tree.drafted)
        logits = rows_of(scored.logits, [*range(count)])
        p = self.chooser.probabilities(logits).double()
        if draft.drawn and draft.distributions:
            q = torch.stack([draft.distributions[node].to(p) for node in range(count)])
        else:
            tokens = torch.tensor(draft.tree.tokens[1 : count + 1], device=p.device)
            q = torch.zeros_like(p).scatter_(1, tokens[:, None], 1.0)
        if (emitted := self.emits_after(logits, p, q)) is None:
            return None
        distances = np.full(len(draft.tree), np.nan)
        (distances[1 : count + 1],) = fetch((emitted - p).abs().sum(-1) / 2)
        return distances


@dataclass(frozen=True)
class VerifierCard:
    """A verifier's entry in the registry: one verifier, one file, as of methods.

    ``build`` makes it from the parameters (a frozen dataclass made with ``decoders.draft.params.param``), the run's
    chooser and the stop tokens. ``lossless``: its output has the target's own distribution, whatever was drafted.
    ``greedy_match``: where the run is greedy, a token stands if it is the target's first choice, and by no other rule.
    ``node_terms`` declare the numbers that it records per node. ``source`` is the paper or the server it is taken from.
    """

    name: str
    title: str
    source: str
    summary: str
    build: Callable[[Any, Chooser, frozenset[int]], Verifier]
    lossless: bool = True
    greedy_match: bool = False
    params: type = NoParams
    node_terms: tuple[Term, ...] = ()
    order: int = 50


def pass_or_fail(
    p: Float[Tensor, "rows vocab"], q: Float[Tensor, "rows vocab"], passes: Tensor
) -> Float[Tensor, "rows vocab"]:
    """The next token's distribution where a drafted one stands if it ``passes`` (a boolean per token), and else the
    target's own draw is taken: q there, and p for the share of drafts that do not pass.
    """
    stands = q * passes
    return stands + p * (1 - stands.sum(-1, keepdim=True))
