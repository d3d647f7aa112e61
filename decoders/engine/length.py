"""Draft length: how much of a draft is verified, and whether one is made at all (``--length auto``).

A step with a draft is worth what it is expected to emit less what it costs. With ρ, the tokens per millisecond that
the run has reached so far (never less than plain decoding's), leaving out node i saves ρ·ΔL and loses its survival. The
nodes that stay are those that make Σ survival − ρ·L(rows) greatest: taken greedily by survival, which keeps a tree
whole, as a node never survives its parent. Drafting has a price, too: where drafts bring less than they cost, the
method rests for some steps, twice as many each time, and is tried again.

Nothing here sees the target's distribution of what is judged, so the output is the same as with whole drafts. Of drawn
drafts nothing behind a position may decide whether that position is verified: they are cut by a rule that goes from
the root on and looks at the drafter's distributions alone.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from decoders.draft.draft import Draft, Verdict
from decoders.draft.pruning import pruned_draft
from decoders.draft.settings import AUTO, FIXED, LENGTHS
from decoders.draft.survival import Estimate, Survival, shape_of
from decoders.draft.terms import Term
from decoders.errors import UserError
from decoders.method.drafter import Drafter
from decoders.method.kept import kept_with
from decoders.model.memory import Context
from decoders.model.target import Target
from decoders.names import BASELINE

from .row_costs import RowCosts

ROUTE = "rests"
TRIAL = 4  # steps that a method drafts before it is judged, at first and after each rest
REST, LONGEST_REST = 8, 64  # steps
RECENT = 0.15  # weight of the last step in running means
FREE = 0.01  # of a plain step: drafting that takes less is never worth leaving out
WHOLE = 4  # drafts of which nothing was verified until one is verified whole; twice as many each time nothing stands
LOOK_DEEPER = 16  # every so many steps a draft model may go deeper than has paid

NODE_TERMS = (
    Term(
        "survival", "survival", "Estimated before the target saw it: the probability that it and all above stand.", 0, 1
    ),
)
STEP_TERMS = (
    Term("expected", "expected tokens", "Σ of the verified nodes' survival: drafted tokens expected to stand.", 0, 0),
    Term("left_out", "left out", "Drafted tokens that were not verified: their row costs more than they bring.", 0, 0),
    Term("left_out_expected", "expected of those left out", "Σ of their survival.", 0, 0),
    Term("row_price", "price of a row", "Tokens that one more row has to bring: ρ·(L(rows + 1) − L(rows)).", 0, 0),
    Term("length_ms", "length decision ms", "Deciding what to verify, and refitting what that is decided by.", 0, 0),
)  # fmt: skip
TERMS = {"node_terms": NODE_TERMS, "step_terms": STEP_TERMS}


def auto_length(length: str, target: Target, method: str) -> AutoLength | None:
    """What decides the length of a method's drafts; None where all of them are verified.

    Raises UserError for a word that is none of ``LENGTHS``.
    """
    if length not in LENGTHS:
        raise UserError(f"length={length!r} is not allowed: {FIXED} (all that is drafted) or {AUTO} (what pays)")
    return None if length == FIXED or method == BASELINE else AutoLength.of(target, method)


class AutoLength:
    """Decides, step by step, what of a method's drafts is verified. ``fitted`` goes on from run to run."""

    def __init__(self, costs: RowCosts, fitted: Survival | None = None) -> None:
        self.costs, self.fitted = costs, fitted or Survival()
        self.fitted.begin()
        self.tokens, self.ms = 1.0, costs.ms(1)  # running means of a step's: their quotient is ρ
        self.drafting_ms = self.depth = 0.0  # of a draft
        self.gain = 0.0  # running mean of tokens that drafting brought more than it cost
        self.judged = 0  # steps of the trial
        self.rest, self.resting = REST, 0
        self.unseen, self.patience = 0, WHOLE  # drafts in a row of which nothing was verified
        self.deep = np.zeros(0)  # running mean of the best survival by depth, from 1
        self.state = 0
        self.steps = 0
        self._estimate: Estimate | None = None
        self._decided_ms = 0.0

    @classmethod
    def of(cls, target: Target, method: str) -> AutoLength:
        """For a run of a method: with the costs of this machine, and what earlier runs of it fitted."""
        return cls(RowCosts.of(target), kept_with(target).of(f"length of {method}", Survival))

    @property
    def rate(self) -> float:
        """ρ: tokens per millisecond."""
        return max(self.tokens / self.ms, 1 / self.costs.ms(1))

    def propose(self, drafter: Drafter, context: Context, budget: int) -> Draft:
        """What is to be verified after the context's last token."""
        self._estimate = None
        self.steps += 1
        if self.resting:
            self.resting -= 1
            after = f"tried again after {self.resting} more steps" if self.resting else "tried again in the next step"
            draft = Draft.empty(context.root, f"drafts cost more than they bring here; {after}", route=ROUTE)
            return replace(draft, notes={"expected": 0.0, "left_out": 0.0, "left_out_expected": 0.0})
        draft = drafter.propose(context, self.depth_that_pays(budget))
        started = time.perf_counter()
        if draft.tree.drafted:
            draft = self.chosen(draft, context)
        self._decided_ms = (time.perf_counter() - started) * 1e3
        return draft

    def depth_that_pays(self, budget: int) -> int:
        """How deep the drafter may go: a draft model's forwards cost, whatever is verified of them."""
        each = self.drafting_ms / self.depth if self.depth >= 1 else 0.0
        if each * self.rate < FREE or not len(self.deep):
            return budget
        longest = min(budget, len(self.deep) + 4)
        ratio = min(0.98, self.deep[-1] / self.deep[-2]) if len(self.deep) > 1 and self.deep[-2] > 0 else 0.9
        beyond = self.deep[-1] * ratio ** np.arange(1, longest - len(self.deep) + 1)
        worth = np.concatenate([self.deep, beyond])[:longest]
        depths = np.arange(1, longest + 1)
        gain = np.cumsum(worth) - self.rate * (depths * each + self.costs.table[depths + 1] - self.costs.table[1])
        best = int(gain.argmax()) + 1
        return min(budget, best + 2 if self.steps % LOOK_DEEPER == 0 else best)

    def chosen(self, draft: Draft, context: Context) -> Draft:
        """The draft, with only the nodes that pay."""
        made = self._estimate = self.fitted.estimate(draft, context.tokens, self.state)
        survival, count = made.survival, len(draft.tree)
        chain = draft.tree.is_chain
        if draft.drawn and not chain:
            nodes = list(range(count))
        elif draft.drawn:
            nodes = list(range(self._stop(made.conditional, draft) + 1))
        else:
            order = np.arange(count) if chain else np.argsort(-survival, kind="stable")
            nodes = order[: self._paying(survival[order], self._rows(draft, order))]
            self.unseen = self.unseen + 1 if len(nodes) == 1 else 0
            if self.unseen >= self.patience:  # an estimate that is never put to the test is never corrected
                self.unseen, self.patience = 0, min(2 * self.patience, LONGEST_REST)
                nodes = order
        expected, all_expected = float(survival[nodes].sum()) - 1, float(survival.sum()) - 1
        costs = self.costs.table
        rows = min(count + len(draft.probes), len(costs) - 2)
        notes = {
            **draft.notes, "expected": expected, "left_out": float(count - len(nodes)),
            "left_out_expected": all_expected - expected,
            "row_price": self.rate * float(costs[-1] - costs[rows]) / (len(costs) - 1 - rows),
        }  # fmt: skip
        self._seen(survival, draft)
        shown = survival.copy()
        shown[0] = np.nan
        draft = replace(draft, terms={**draft.terms, "survival": shown}, notes=notes, proposal=draft)
        if len(nodes) == count:
            return draft
        kept = pruned_draft(draft, sorted(int(node) for node in nodes), survival)
        if kept.tree.drafted:
            return kept
        return replace(kept, reason="no drafted token is likely enough to pay for its row")

    @staticmethod
    def _rows(draft: Draft, order: np.ndarray) -> np.ndarray:
        """Rows of a forward with the first 1, 2, … nodes of an order."""
        if not draft.probes:
            return np.arange(1, len(order) + 1)
        own = np.bincount([probe.parent for probe in draft.probes], minlength=len(order)) + 1
        return np.cumsum(own[order])

    def _paying(self, survival: np.ndarray, rows: np.ndarray) -> int:
        """How many of the nodes, likeliest first, make Σ survival − ρ·L(rows) greatest; the root is always one."""
        rows = np.minimum(rows, len(self.costs.table) - 1)
        return int((np.cumsum(survival) - self.rate * self.costs.table[rows]).argmax()) + 1

    def _stop(self, conditional: np.ndarray, draft: Draft) -> int:
        """How deep a drawn chain is verified: up to the first position from which on no length pays if the others stand
        as often as that one, which is all that may be known before it is drawn.
        """
        table, above, rate = self.costs.table, 1.0, self.rate
        for depth in range(1, len(draft.tree)):
            more = np.arange(1, len(draft.tree) - depth + 1)
            a = float(conditional[depth])
            worth = above * np.cumsum(a**more) - rate * (table[depth + more] - table[depth])
            if worth.max() <= 0:
                return depth - 1
            above *= a
        return len(draft.tree) - 1

    def _seen(self, survival: np.ndarray, draft: Draft) -> None:
        """Running means of the best survival by depth."""
        depths = shape_of(draft.tree.parents)[0]
        best = np.zeros(int(depths.max()))
        np.maximum.at(best, depths[1:] - 1, survival[1:])
        if len(best) > len(self.deep):
            self.deep = np.concatenate([self.deep, best[len(self.deep) :]])
        self.deep[: len(best)] += RECENT * (best - self.deep[: len(best)])

    def learn(
        self, draft: Draft, verdict: Verdict, *, rows: int, emitted: int, drafting_ms: float, target_ms: float
    ) -> float:
        """Take in what became of a step; milliseconds of this and of the decision. ``target_ms``: the verify forward
        and the commit.
        """
        started = time.perf_counter()
        self.costs.observe(rows, target_ms)
        cost = self.costs.ms(rows) + drafting_ms
        self.tokens += RECENT / 4 * (emitted - self.tokens)
        self.ms += RECENT / 4 * (cost - self.ms)
        if draft.route != ROUTE:
            self._judge(draft, verdict, rows, drafting_ms)
        if verdict.accepted:
            self.patience = WHOLE
        if self._estimate is not None:
            self.fitted.fit(self._estimate, draft, verdict)
        drafted = draft.tree.drafted
        self.state = 0 if not drafted else 1 if not verdict.accepted else 3 if verdict.bonus is not None and (
            verdict.accepted == max(draft.tree.depths)
        ) else 2  # fmt: skip
        taken = self._decided_ms + (time.perf_counter() - started) * 1e3
        self._decided_ms = 0.0
        return taken

    def _judge(self, draft: Draft, verdict: Verdict, rows: int, drafting_ms: float) -> None:
        """What drafting brought, in tokens; a method that costs more begins to rest."""
        deepest = len(self.deep) if not draft.tree.drafted else max(draft.tree.depths)
        self.drafting_ms += (RECENT if self.judged else 1.0) * (drafting_ms - self.drafting_ms)
        self.depth += (RECENT if self.judged else 1.0) * (deepest - self.depth)
        # the running mean of its time, as one step's may be disturbed
        cost = self.costs.ms(rows) - self.costs.ms(1) + self.drafting_ms
        brought = verdict.accepted - self.rate * cost
        self.judged += 1
        self.gain += max(RECENT, 1 / self.judged) * (brought - self.gain)
        if self.judged < TRIAL:
            return
        if self.gain >= 0:
            self.rest = REST
        elif self.rate * cost > FREE:
            self.resting, self.rest = self.rest, min(2 * self.rest, LONGEST_REST)
            self.judged, self.gain = 0, 0.0

    def to_json(self) -> dict[str, Any]:
        """What the run's record says: the costs that were counted with, and the fitted model."""
        curve = self.costs.curve
        return {
            "policy": AUTO, "rows": list(curve.rows), "ms": [round(ms, 4) for ms in curve.ms], "source": curve.source,
            "scale": round(self.costs.scale, 4), "drafting_ms": round(self.drafting_ms, 4),
            "tokens_per_ms": round(self.rate, 6), "fitted": self.fitted.to_json(),
        }  # fmt: skip
