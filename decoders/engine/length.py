"""Draft length: how much of a draft is verified, and whether one is made at all (``--length auto``).

A step with a draft is worth what it is expected to emit less what it costs. With ρ, the tokens per millisecond that
the run has reached so far (never less than plain decoding's), leaving out node i saves ρ·ΔL and loses its survival. The
nodes that stay are those that make Σ survival − ρ·L(rows) greatest: taken greedily by survival, which keeps a tree
whole, as a node never survives its parent. Drafting has a price, too: where drafts bring less than they cost, and
making them costs something, the method rests for some steps, twice as many each time, and is tried again.

Nothing here sees the target's distribution of what is judged, so the output is the same as with whole drafts. Of drawn
drafts neither a token nor anything that follows of it may decide whether that token is verified: they are cut by a rule
that goes from the root on and is given positions alone as they are before they are drawn (``draft.undrawn``).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, SupportsFloat

import numpy as np

from decoders.draft.draft import Draft, Later, Verdict
from decoders.draft.pruning import pruned_draft
from decoders.draft.settings import AUTO, FIXED, LENGTHS
from decoders.draft.survival import Estimate, Survival
from decoders.draft.terms import Term
from decoders.draft.undrawn import Undrawn, without_draws
from decoders.errors import UserError
from decoders.method.drafter import Drafter, StagedDrafter
from decoders.method.kept import kept_with
from decoders.model.state.memory import Context
from decoders.model.target_model.target import Target
from decoders.names import BASELINE

from .row_costs import RowCosts
from .stages import RECENT, Asking, DraftingTime, StageHistory

ROUTE = "rests"
TRIAL = 4  # steps that a method drafts before it is judged, at first and after each rest
LOSS = 1.0  # tokens that its drafts may then cost more than they bring: what is copied stands in bursts
REST_STEPS, LONGEST_REST = 8, 64  # steps
FREE = 0.02  # of a plain step: drafting that takes less is never worth leaving out, whatever is verified of it
PATIENCE = 4  # drafts of which nothing was verified until a part of one is; twice as many each time nothing stands
PLAIN_STEPS = 4  # that ρ begins with, as if the run had taken them
LAST = 32  # estimates: earlier ones weigh nothing in the running means
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


def auto_length(length: str, target: Target, method: str, part_names: Sequence[str] = ()) -> AutoLength | None:
    """The rule for the length of a method's drafts; None where all of them are verified. ``part_names``: methods whose
    drafts it merges.

    Raises UserError for a word that is none of ``LENGTHS``.
    """
    if length not in LENGTHS:
        raise UserError(f"length={length!r} is not allowed: {FIXED} (all that is drafted) or {AUTO} (what pays)")
    return None if length == FIXED or method == BASELINE else AutoLength.of(target, " ".join((method, *part_names)))


def rows_of_nodes(draft: Draft) -> list[int]:
    """The rows of each node: its own, and its probes'."""
    rows = [1] * len(draft.tree)
    for probe in draft.probes:
        rows[probe.parent] += 1
    return rows


class AutoLength:
    """Decides, step by step, what of a method's drafts is verified. ``survival`` and ``history`` outlive a run."""

    def __init__(self, costs: RowCosts, survival: Survival | None = None, history: StageHistory | None = None) -> None:
        self.costs, self.survival = costs, Survival() if survival is None else survival
        self.survival.begin()
        self.tokens, self.ms = 1.0, costs.ms(1)  # running means of a step's: ρ is their quotient
        self.rate = 1 / self.ms  # ρ: tokens per millisecond
        self.shared = False  # whether ρ and the costs are a batch's
        self.drafting = DraftingTime()
        self.asking = Asking(self.stage_gain, self.depth_of_stage, history)
        self.stage_drafter: StagedDrafter | None = None  # whose estimates are its own
        self.gain = 0.0  # running mean of tokens that drafting brought more than it cost
        self.balance = 0.0  # the sum since it was last positive
        self.trial_steps = 0  # steps of the trial
        self.rest_steps, self.resting = REST_STEPS, 0
        self.unseen, self.patience = 0, PATIENCE  # drafts in a row of which nothing was verified
        self.deep: list[float] = []  # running mean of the best survival by depth, from 1
        self.longest = 0  # draft: the depth of its deepest node
        self.limit = len(costs.base) - 2  # depth of the next draft at most, from what was known before it
        self.estimates: deque[Estimate] = deque(maxlen=LAST)  # that are not among those means yet
        self.state = 0
        self.steps = 0
        self._estimate: Estimate | None = None
        self._decided_ms = 0.0

    @classmethod
    def of(cls, target: Target, method: str) -> AutoLength:
        """For a run of a method: with the costs of this machine, and what earlier runs of it fitted."""
        kept = kept_with(target)
        survival, history = kept.of(f"length of {method}", Survival), kept.of(f"asking of {method}", StageHistory)
        return cls(RowCosts.of(target), survival, history)

    def propose(self, drafter: Drafter, context: Context, budget: int, choose: bool = True) -> Draft:
        """The draft to verify after the context's last token; the whole one where the length is not chosen here."""
        self._estimate = None
        self.steps += 1
        if self.resting:
            self.resting -= 1
            retry_note = (
                f"tried again after {self.resting} more steps" if self.resting else "tried again in the next step"
            )
            draft = Draft.empty(context.root, f"drafts cost more than they bring here; {retry_note}", route=ROUTE)
            return replace(draft, notes={"expected": 0.0, "left_out": 0.0, "left_out_expected": 0.0})
        start_time = time.perf_counter()
        if isinstance(drafter, StagedDrafter):
            self.stage_drafter, drafter.survival = drafter, self.survival
            began = time.perf_counter()
            draft = self.asking.draft(drafter, context, budget, self.rate, self.costs.ms(1))
        else:
            budget = self.depth_that_pays(budget)
            self.limit = min(budget, self.longest or budget)
            began = time.perf_counter()
            draft = drafter.propose(context, budget)
        end_time = time.perf_counter()
        if draft.tree.drafted and choose:
            draft = self.choose(draft, context)
        self._decided_ms = (time.perf_counter() - end_time + began - start_time) * 1e3
        return draft

    def depth_that_pays(self, budget: int) -> int:
        """Most depth for the drafter: a draft model's forwards cost, whatever is verified of them."""
        level_cost = self.drafting.level_ms
        if level_cost * self.rate < FREE or not self.longest:
            return budget
        self._update_survival()
        return self.depth_of_stage(budget, self.deep, level_cost)

    def depth_of_stage(self, budget: int, deep: Sequence[float], level_cost: float) -> int:
        """Most depth for drafts whose best nodes survive as ``deep`` says by depth, where a level costs so much."""
        if level_cost * self.rate < FREE or not deep:
            return budget
        base = self.costs.base
        ratio = min(0.98, deep[-1] / deep[-2]) if len(deep) > 1 and deep[-2] > 0 else 0.9
        price, gain, best_gain, best, worth = self.rate * self.costs.scale, 0.0, -math.inf, 1, 0.0
        for depth in range(1, min(budget, len(deep) + 4) + 1):
            worth = deep[depth - 1] if depth <= len(deep) else worth * ratio
            gain += worth
            if (net_gain := gain - self.rate * depth * level_cost - price * base[depth + 1]) > best_gain:
                best_gain, best = net_gain, depth
        return min(budget, best + 2 if self.steps % LOOK_DEEPER == 0 else best)

    def choose(self, draft: Draft, context: Context) -> Draft:
        """The draft, with only the nodes that pay."""
        estimate, order = self.estimate(draft, context)
        if draft.drawn:  # of a tree all of it is verified
            stay = self.drawn_depth(estimate.conditional) + 1 if estimate.shape.chain else len(draft.tree)
        else:
            stay = self.or_trial(self._paying(estimate.survival, order, draft), estimate, order, draft)
        return self.cut(draft, estimate, order, stay)

    def estimate(self, draft: Draft, context: Context) -> tuple[Estimate, Sequence[int]]:
        """The nodes' survival, and the order in which they stay: likeliest first, each behind its parent."""
        plain_draft = without_draws(draft) if draft.drawn else draft
        if self.stage_drafter is not None:
            estimate = self.stage_drafter.estimate
        else:
            estimate = self.survival.estimate(plain_draft, context.tokens, self.state)
        self._estimate = estimate
        self.estimates.append(estimate)
        self.longest = max(self.longest, estimate.shape.deepest)
        order = range(len(estimate.survival))
        if estimate.shape.chain or draft.drawn:
            return estimate, order
        return estimate, sorted(order, key=estimate.survival.__getitem__, reverse=True)

    def or_trial(self, stay: int, estimate: Estimate, order: Sequence[int], draft: Draft) -> int:
        """The number of nodes verified where ``stay`` pay: of many drafts of which none does, a part of one is, as an
        estimate that is never put to the test is never corrected.
        """
        self.unseen = self.unseen + 1 if stay == 1 else 0
        if self.unseen < self.patience:
            return stay
        self.unseen, self.patience = 0, min(2 * self.patience, LONGEST_REST)
        return self._paying(estimate.survival, order, draft, minimum=2)

    def cut(self, draft: Draft, estimate: Estimate, order: Sequence[int], stay: int) -> Draft:
        """The draft with the first ``stay`` nodes of an order, and what is expected of them."""
        survival, count = estimate.survival, len(draft.tree)
        nodes = order if stay == count else order[:stay] if isinstance(order, range) else sorted(order[:stay])
        base, price = self.costs.base, self.rate * self.costs.scale

        def numbers() -> dict[str, SupportsFloat]:
            expected = sum([survival[node] for node in nodes]) - 1
            rows = min(count + len(draft.probes), len(base) - 2)
            return {
                **draft.notes, "expected": expected, "left_out": float(count - stay),
                "left_out_expected": sum(survival) - 1 - expected,
                "row_price": price * (base[-1] - base[rows]) / (len(base) - 1 - rows),
            }  # fmt: skip

        notes = Later(numbers)
        terms = Later(lambda: {**draft.terms, "survival": np.array([math.nan, *survival[1:]])})
        if stay == count:
            return replace(draft, terms=terms, notes=notes, proposal=draft)
        reason = draft.reason if stay > 1 else "no drafted token is likely enough to pay for its row"
        return pruned_draft(draft, nodes, survival, terms, notes=notes, reason=reason, proposal=draft)

    def _paying(self, survival: Sequence[float], order: Sequence[int], draft: Draft, minimum: int = 1) -> int:
        """Number of nodes, likeliest first, of the greatest Σ survival − ρ·L(rows): the root, and ``minimum``."""
        row_counts = rows_of_nodes(draft)
        return self._best_count([survival[node] for node in order], [row_counts[node] for node in order], minimum)

    def _best_count(self, values: Sequence[float], row_counts: Iterable[int], minimum: int = 1) -> int:
        """Number of the first of ``values``, a node's survival each, of the greatest Σ survival − ρ·L(rows); at least
        ``minimum``.
        """
        base, price, last = self.costs.base, self.rate * self.costs.scale, len(self.costs.base) - 1
        best_surplus, best, worth, rows = -math.inf, minimum, 0.0, 0
        for count, (value, node_rows) in enumerate(zip(values, row_counts, strict=False), 1):
            worth += value
            rows += node_rows
            surplus = worth - price * base[rows if rows < last else last]
            if surplus > best_surplus and count >= minimum:
                best_surplus, best = surplus, count
        return best

    def stage_gain(self, first_survival: Sequence[float], survival: Sequence[float]) -> float:
        """The surplus Σ survival − ρ·L(rows) that a stage adds: of the best nodes once it has drafted, over that of the
        nodes that would have been verified without it, both by the ``survival`` known then. ``first_survival`` is that
        of the first nodes before; the root is one.
        """
        base, price = self.costs.base, self.rate * self.costs.scale
        row_each = [1] * (len(base) - 1)  # no more rows than these can be verified
        order = sorted(range(len(first_survival)), key=first_survival.__getitem__, reverse=True)
        count = self._best_count([first_survival[node] for node in order], row_each)
        values = sorted(survival, reverse=True)
        best = values[: self._best_count(values, row_each)]
        return sum(best) - price * base[len(best)] - sum([survival[n] for n in order[:count]]) + price * base[count]

    def drawn_depth(self, conditional: Sequence[float]) -> int:
        """Depth to which a drawn chain is verified: up to the first position that does not pay (``pays``)."""
        path_survival = 1.0
        for depth in range(1, len(conditional)):
            if not self.pays(Undrawn(depth, path_survival, conditional[depth], self.limit)):
                return depth - 1
            path_survival *= conditional[depth]
        return len(conditional) - 1

    def pays(self, position: Undrawn) -> bool:
        """True where verifying from a position on, to some depth, pays if all of these stand as often as it does."""
        depth, worth, path_survival = position.depth, 0.0, position.above
        base, price = self.costs.base, self.rate * self.costs.scale
        for rows in range(depth + 1, min(max(position.limit, depth) + 1, len(base) - 1) + 1):
            path_survival *= position.conditional
            worth += path_survival
            if worth > price * (base[rows] - base[depth]):
                return True
        return False

    def _update_survival(self) -> None:
        """Take the last estimates into the running means of the best survival by depth."""
        for estimate in self.estimates:
            best = [0.0] * estimate.shape.deepest
            for depth, survival in zip(estimate.shape.depth[1:], estimate.survival[1:], strict=True):
                if survival > best[depth - 1]:
                    best[depth - 1] = survival
            self.deep += best[len(self.deep) :]
            for place, survival in enumerate(best):
                self.deep[place] += RECENT * (survival - self.deep[place])
        self.estimates.clear()

    def learn(
        self, draft: Draft, verdict: Verdict, *, rows: int, emitted: int, drafting_ms: float, target_ms: float
    ) -> float:
        """Take in what became of a step; milliseconds of this and of the decision. ``target_ms``: the verify forward
        and the commit.
        """
        start_time = time.perf_counter()
        self.costs.observe(rows, target_ms)
        cost = self.costs.ms(rows) + drafting_ms
        share = max(RECENT / 4, 1 / (PLAIN_STEPS + self.steps))
        self.tokens += share * (emitted - self.tokens)
        self.ms += share * (cost - self.ms)
        if not self.shared:
            self.rate = max(self.tokens / self.ms, 1 / self.costs.ms(1))
        parents, estimate = draft.tree.parents, self._estimate
        chain = len(parents) == 1 or (estimate is not None and estimate.shape.chain)
        deepest = len(parents) - 1 if chain else max(draft.tree.depths)
        if self.stage_drafter is not None:
            self.asking.learn(draft)
        elif draft.route != ROUTE:
            proposed = deepest if estimate is None else estimate.shape.deepest
            self._judge(verdict.accepted, rows, proposed, drafting_ms)
        if verdict.accepted:
            self.patience = PATIENCE
        if estimate is not None and self.stage_drafter is None:  # which fits by itself
            self.survival.fit(estimate, draft, verdict)
        whole = verdict.bonus is not None and verdict.accepted == deepest
        self.state = 0 if not deepest else 1 if not verdict.accepted else 3 if whole else 2
        elapsed_ms = self._decided_ms + (time.perf_counter() - start_time) * 1e3
        self._decided_ms = 0.0
        return elapsed_ms

    def _judge(self, accepted: int, rows: int, proposed: int, drafting_ms: float) -> None:
        """Count the tokens that a draft of this depth brought; a method that costs more begins to rest."""
        self.drafting.observe(proposed, drafting_ms)
        # the running mean of its time, as one step's may be disturbed
        cost = self.costs.ms(rows) - self.costs.ms(1) + self.drafting.ms
        profit = accepted - self.rate * cost
        self.trial_steps += 1
        self.gain += max(RECENT, 1 / self.trial_steps) * (profit - self.gain)
        self.balance = min(0.0, self.balance + profit)
        if self.trial_steps < TRIAL:
            return
        if self.gain >= 0:
            self.rest_steps = REST_STEPS
        elif self.balance < -LOSS and self.rate * self.drafting.ms > FREE:
            self.resting, self.rest_steps = self.rest_steps, min(2 * self.rest_steps, LONGEST_REST)
            self.trial_steps, self.gain, self.balance = 0, 0.0, 0.0

    def to_json(self) -> dict[str, Any]:
        """The run's record: the costs that were counted with, and the fitted model."""
        curve = self.costs.curve
        return {
            "policy": AUTO, "rows": list(curve.rows), "ms": [round(ms, 4) for ms in curve.ms], "source": curve.source,
            "scale": round(self.costs.scale, 4), "drafting_ms": round(self.drafting.ms, 4),
            "tokens_per_ms": round(self.rate, 6), "fitted": self.survival.to_json(),
        }  # fmt: skip
