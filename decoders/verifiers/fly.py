"""FLy (arXiv 2511.22972; vLLM's rejection_sample_method "fly"): a rejection in doubt is deferred. Lossy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from decoders.draft.draft import Draft, Scored, Verdict
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.model.state.transfer import fetch, rows_of, send

from .match import judged
from .residual import NODE_TERMS, PointVerifier, residual
from .sampling import Chooser, drawn_token
from .verifier import VerifierCard

ENTROPY = Term("top_entropy", "top entropy", "−Σ p ln p of the target's first choices here, in nats: doubt.", 0, 0)


@dataclass(frozen=True)
class FlyParams:
    fly_window_size: int = param(
        6, "Window W", "So many tokens behind a rejected one must pass by themselves; where fewer are behind it in its "
        "draft, it is never deferred.", low=1, high=64,
    )  # fmt: skip
    fly_entropy_threshold: float = param(
        0.3, "Entropy threshold", "Only where the target is in doubt: the entropy of its first choices, in nats.", low=0
    )
    fly_entropy_top_k: int = param(3, "Entropy's top k", "How many first choices that entropy counts.", low=1)


class FlyVerifier(PointVerifier):
    """As p/q for drawn drafts, target-only for others, but a rejected token is accepted all the same if the entropy of
    the target's ``top_k`` first probabilities is at least ``entropy``, p is above 0, and the next ``window`` tokens
    pass by themselves; with fewer behind it in the draft it falls, as vLLM's window is fixed. Trees are matched.
    """

    lossless = False

    def __init__(self, chooser: Chooser, *, window: int = 6, entropy: float = 0.3, top_k: int = 3) -> None:
        super().__init__(chooser)
        self.window, self.entropy, self.top_k = window, entropy, top_k

    def draws(self, route: str, drafted: int, accepted: int) -> int:
        """One per drafted token, and one for what follows."""
        return drafted + 1

    def emits(self, p: Float[Tensor, "rows vocab"], q: Float[Tensor, "rows vocab"]) -> None:
        """It depends on the tokens behind."""

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        count, random = len(draft.tree), self.chooser.random
        if not (draft.tree.drafted and draft.tree.is_chain):
            verdict = self.match(draft, scored)
            if not self.chooser.sampling.greedy:
                random.random(count - 1 - verdict.accepted)
            return verdict
        p, q, entropy, accepts = self._read(draft, scored)
        greedy = self.chooser.sampling.greedy
        draws = np.full(count - 1, 0.5) if greedy else random.random(count - 1)
        passes = draws < accepts
        doubt = self._in_doubt(p, entropy, draft)
        window = self.window
        stands = passes | [doubt[i] and bool(passes[i + 1 : i + 1 + window].all()) for i in range(count - 1)]
        accepted = int(np.argmin(stands)) if not stands.all() else count - 1
        path = [*range(accepted + 1)]
        if q is None:  # greedy
            bonus = int(scored.logits[accepted].argmax())
        else:
            remainder = p[accepted] if accepted == count - 1 else residual(p[accepted], q[accepted])
            bonus = drawn_token(remainder, float(random.random()))
        verdict = judged(draft, path, bonus)
        reasons = [*verdict.reasons]
        for i in range(min(accepted + 1, count - 1)):
            ratio = f"{self.ratio_words} = {accepts[i]:.3g}"
            words = "the target's first choice" if greedy else f"draw {draws[i]:.3g} < {ratio}"
            if not passes[i]:
                words = "not the target's first choice" if greedy else f"draw {draws[i]:.3g} ≥ {ratio}"
                words += self._deferral(bool(stands[i]), bool(entropy[i] >= self.entropy), entropy[i], i, count, window)
            reasons[i + 1] = words
        terms = {"accept_ratio": np.append(np.nan, accepts), ENTROPY.key: np.append(np.nan, entropy)}
        if not greedy:
            terms["draw"] = np.append(np.nan, draws)
        return replace(verdict, reasons=tuple(reasons), terms=terms)

    def _deferral(self, stands: bool, doubt: bool, entropy: float, i: int, count: int, window: int) -> str:
        if stands:
            return f"; deferred: entropy {entropy:.3g} ≥ {self.entropy:g} (threshold), and the next W = {window} pass"
        if not doubt:
            return f"; entropy {entropy:.3g} < {self.entropy:g} (threshold)"
        is_short = i + window >= count - 1
        return f"; fewer than W = {window} tokens follow it" if is_short else f"; not all of the next W = {window} pass"

    def chances(self, draft: Draft, scored: Scored) -> Float[np.ndarray, " nodes"]:
        if self.chooser.sampling.greedy:
            return self._count_trials(draft, scored, 1)
        if not (draft.tree.drafted and draft.tree.is_chain):
            return self.match.chances(draft, scored)
        p, _, entropy, accepts = self._read(draft, scored)
        count = len(accepts)
        doubt, window = self._in_doubt(p, entropy, draft), min(self.window, count)  # longer ones are never whole
        return np.asarray([1.0, *(self._reach(accepts, doubt, window, last) for last in range(1, count + 1))])

    def _reach(self, accepts: np.ndarray, doubt: np.ndarray, window: int, last: int) -> float:
        """The probability that all of the first ``last`` tokens stand. Read from behind: ``runs[r]`` is that of the
        tokens so far, with r of those next in line passing by themselves (at most the window).
        """
        runs = np.zeros(window + 1)
        runs[0] = 1.0
        for i in range(len(accepts) - 1, -1, -1):
            next_runs = np.zeros_like(runs)
            next_runs[1:] += accepts[i] * runs[:-1]
            next_runs[-1] += accepts[i] * runs[-1]
            fails = (1 - accepts[i]) * runs
            next_runs[0] += fails.sum() if i >= last else fails[-1] * doubt[i]
            runs = next_runs
        return float(runs.sum())

    def _in_doubt(self, p: Tensor, entropy: np.ndarray, draft: Draft) -> Bool[np.ndarray, " drafted"]:
        tokens = torch.tensor(draft.tree.tokens[1:], device=p.device)
        (token_probs,) = fetch(p[: len(tokens)].gather(1, tokens[:, None])[:, 0])
        tail_lengths = len(tokens) - 1 - np.arange(len(tokens))
        return (entropy >= self.entropy) & (token_probs > 0) & (tail_lengths >= self.window)

    def _read(self, draft: Draft, scored: Scored) -> tuple[Tensor, Tensor | None, np.ndarray, np.ndarray]:
        """p after every node, q (None in a greedy run), the entropies, and how likely each token passes by itself."""
        (tokens,) = send(scored.logits.device, np.asarray(draft.tree.tokens[1:], dtype=np.int64))
        if self.chooser.sampling.greedy:
            p, q = rows_of(scored.logits, [*range(len(draft.tree))]).softmax(-1).double(), None
            accepts = (scored.logits[:-1].argmax(-1) == tokens).double()
        else:
            p, q = self.distributions(draft, scored)
            accepts = (p[:-1].gather(1, tokens[:, None]) / q.gather(1, tokens[:, None]))[:, 0].nan_to_num(1.0)
        first = p[:-1].topk(min(self.top_k, p.shape[-1]), dim=-1).values
        entropy, acceptances = fetch(torch.special.entr(first).sum(-1), accepts.clamp_max(1))
        return p, q, entropy, acceptances


VERIFIER = VerifierCard(
    "fly", "FLy", "arXiv 2511.22972; vLLM's rejection_sample_method \"fly\"",
    "Where the target is in doubt, a rejected token is accepted all the same if the next W tokens pass by themselves. "
    "Trees are matched.",
    lambda params, chooser, stop_ids: FlyVerifier(
        chooser, window=params.fly_window_size, entropy=params.fly_entropy_threshold,
        top_k=params.fly_entropy_top_k,
    ),
    lossless=False, params=FlyParams, node_terms=(*NODE_TERMS[1:], ENTROPY), order=65,
)  # fmt: skip
