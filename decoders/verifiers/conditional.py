"""CASD's verifier (eq. 3 and 4): a drafted token stands where the target finds it likely enough. Not lossless."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import torch

from decoders.draft.draft import Draft, Scored, Verdict
from decoders.model.state.transfer import fetch

from .match import LossyVerifier, before_nodes, likely_path
from .sampling import Chooser

RULES = ("fixed", "mixed", "top-k only")


class ConditionalVerifier(LossyVerifier):
    """Accepts a node if its parent is accepted and p > max(δ, p(EOS)), p at temperature 1 (CASD eq. 3).

    ``rule``: "fixed" is eq. 3; "mixed" also wants the token among the target's ``top_k`` (eq. 4); "top-k only" wants
    nothing else (table 6). With ``or_argmax`` the target's first choice is accepted whatever the rule says. The longest
    accepted path wins, of equally long ones that with the highest summed log-probability; the bonus is the chooser's
    token after it. With δ = 1 nothing is accepted under "fixed" and "mixed": the output is plain decoding's.
    """

    def __init__(
        self, chooser: Chooser, stop_ids: Collection[int] = (), *, delta: float = 0.1, rule: str = "fixed",
        top_k: int = 5, or_argmax: bool = False,
    ) -> None:  # fmt: skip
        if rule not in RULES:
            raise ValueError(f"rule={rule!r} is not allowed: one of {', '.join(RULES)}")
        self.chooser, self.stop_ids = chooser, sorted(stop_ids)
        self.delta, self.rule, self.top_k, self.or_argmax = delta, rule, top_k, or_argmax

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        nan = float("nan")
        logits, rows, tokens = before_nodes(draft, scored)
        probabilities = logits.softmax(-1)
        p = probabilities[rows, tokens]
        ends = [probabilities[:, stop] for stop in self.stop_ids]  # a list of them would be sent as an index
        p_eos = torch.stack(ends).amax(0)[rows] if ends else torch.full_like(p, nan)
        rank, first = torch.full_like(tokens, -1), torch.zeros_like(tokens)  # where no rule asks
        if self.rule != "fixed":
            rank = (logits[rows] > logits[rows, tokens][:, None]).sum(-1)
        if self.or_argmax:
            first = logits.argmax(-1)[rows] == tokens
        read = fetch(p, p_eos, rank, first, scored.logits.argmax(-1))
        *columns, likeliest = (column.tolist() for column in read)
        clauses = [(True, "root"), *map(self._clause, *columns)]
        verdict = likely_path(draft, scored, self.chooser, [nan, *columns[0]], clauses, likeliest)
        return replace(verdict, terms={"p_eos": np.asarray([nan, *columns[1]])})

    def _clause(self, p: float, p_eos: float, rank: int, first: bool) -> tuple[bool, str]:
        """Judge a node on its own, and name the clause that decided: by the target's probability of it and of the
        likeliest stop token (nan without one), its rank, and whether it is the target's first choice.
        """
        bound, name = self.delta, f"δ = {self.delta:g}"
        if p_eos >= bound:  # never for nan
            bound, name = p_eos, f"p(EOS) = {p_eos:.3g}"
        if self.or_argmax and first:
            return True, "the target's first choice"
        if self.rule != "top-k only" and p <= bound:
            return False, f"p = {p:.3g} ≤ {name}"
        if self.rule != "fixed" and rank >= self.top_k:
            return False, f"not in the top {self.top_k}"
        if self.rule == "top-k only":
            return True, f"in the top {self.top_k}"
        return True, f"p = {p:.3g} > {name}"
