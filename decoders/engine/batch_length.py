"""Draft length in a batch: of the drafts of all its runs together, what is verified in their shared forward.

As for one run, with ρ and L of the batch: of the nodes of all drafts, likeliest first, as many as make
Σ survival − ρ·L(all rows) greatest. A row that is cheap for one run alone may be dear beside those of seven others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from decoders.draft.draft import Draft, Verdict
from decoders.model.state.memory import Context

from .length import RECENT, AutoLength, rows_of_nodes
from .row_costs import RowCosts


class BatchLength:
    """Decides, step by step, what of a batch's drafts is verified. ``costs`` gives L by all rows of a forward that so
    many runs share; ``lengths`` are the runs' own estimates.
    """

    def __init__(self, lengths: Sequence[AutoLength], costs: Callable[[int], RowCosts]) -> None:
        self.lengths, self._costs = lengths, costs
        self.by_runs: dict[int, RowCosts] = {}
        self.runs, self.tokens, self.ms = 0, 0.0, 0.0
        for length in lengths:
            length.shared = True

    @property
    def costs(self) -> RowCosts:
        """L of the runs that still go on."""
        return self.by_runs[self.runs]

    def begin(self, active: Sequence[int]) -> None:
        """A step of these runs begins: each weighs its own rows beside one of every other."""
        runs = len(active)
        if runs not in self.by_runs:
            self.by_runs[runs] = self._costs(runs)
        if runs != self.runs:
            self.runs, self.tokens, self.ms = runs, float(runs), self.by_runs[runs].ms(runs)
        rate = max(self.tokens / self.ms, runs / self.costs.ms(runs))
        run_costs = self.costs.other_costs(runs - 1)
        for number in active:
            self.lengths[number].costs, self.lengths[number].rate = run_costs, rate

    def choose(self, active: Sequence[int], drafts: Sequence[Draft], contexts: Sequence[Context]) -> list[Draft]:
        """The drafts, with only the nodes that pay. What was drawn is cut run by run."""
        new_drafts, rows, nodes = list(drafts), 0, list[tuple[float, int, int, int]]()
        estimates = {}
        for place, (number, draft) in enumerate(zip(active, drafts, strict=True)):
            length = self.lengths[number]
            row_counts = rows_of_nodes(draft)
            if draft.tree.drafted and draft.drawn:
                new_drafts[place] = length.choose(draft, contexts[place])
                row_counts = [len(new_drafts[place].tree)]
            elif draft.tree.drafted:
                estimate, order = estimates[place] = length.estimate(draft, contexts[place])
                nodes += [(-estimate.survival[n], place, turn, row_counts[n]) for turn, n in enumerate(order)][1:]
            rows += row_counts[0]
        nodes.sort()
        rate, costs = self.lengths[active[0]].rate, self.costs
        best_surplus, paying, worth = -rate * costs.ms(rows), 0, 0.0
        for count, (survival, _, _, node_rows) in enumerate(nodes, 1):
            worth, rows = worth - survival, rows + node_rows
            if (surplus := worth - rate * costs.ms(rows)) > best_surplus:
                best_surplus, paying = surplus, count
        stay = dict.fromkeys(estimates, 1)
        for _, place, _, _ in nodes[:paying]:
            stay[place] += 1
        for place, (estimate, order) in estimates.items():
            length, draft = self.lengths[active[place]], drafts[place]
            new_drafts[place] = length.cut(draft, estimate, order, length.or_trial(stay[place], estimate, order, draft))
        return new_drafts

    def learn(
        self, active: Sequence[int], drafts: Sequence[Draft], verdicts: Sequence[Verdict], emitted: Sequence[int],
        drafting_ms: Sequence[float], target_ms: float,
    ) -> None:  # fmt: skip
        """Take in what became of a step; ``target_ms``: the shared forward, the verdicts and the commits."""
        rows = [len(draft.tree) + len(draft.probes) for draft in drafts]
        self.costs.observe(sum(rows), target_ms)
        self.tokens += RECENT / 4 * (sum(emitted) - self.tokens)
        self.ms += RECENT / 4 * (self.costs.ms(sum(rows)) + math.fsum(drafting_ms) - self.ms)
        for place, number in enumerate(active):
            self.lengths[number].learn(
                drafts[place], verdicts[place], rows=rows[place], emitted=emitted[place],
                drafting_ms=drafting_ms[place], target_ms=0.0,
            )  # fmt: skip
