"""The oracle: how many steps a run would have needed, had every step followed its best candidate (numpy only).

A run is replayed over the text that it wrote. At a place where it stood, a step reaches as far as the draft that was
verified, or the candidate that would have been accepted furthest, then one token of the target's own. A perfect ranking
stops at other places than the run did, and what was ranked there nobody recorded; but a copy that goes on may be begun
later too, so that a step from further on never ends earlier. So between two places where the run stood

- no step reaches further than the next place's: taking that gives the fewest steps, ``Oracle.steps``, a lower bound;
- every step reaches as far as the last place's: taking that gives ``Oracle.most``, never exceeded.

Where drafts branch, the branches of places that lost were not recorded: then ``steps`` is an estimate of that bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .trace import Trace

UNRANKED_NOTE = "This method ranks no candidates, so there is nothing that another ranking could have saved."
UNDECIDED_NOTE = "Known when the run is over: candidates are judged by the text that was written."


@dataclass(frozen=True, slots=True)
class Oracle:
    """A perfect ranking's steps on a run: ``steps`` at least, ``most`` at most, where the run itself needed
    ``recorded``. ``ends``: output tokens written by the end of each of the ``steps``. ``branches``: branches of places
    that lost are not counted.
    """

    steps: int
    most: int
    recorded: int
    ends: tuple[int, ...]
    branches: bool

    @property
    def cost(self) -> int:
        """Steps that the ranking cost, at most."""
        return self.recorded - self.steps

    @property
    def least(self) -> int:
        """Steps that the ranking cost, at least."""
        return self.recorded - self.most

    @property
    def needs(self) -> str:
        """The steps in words: "11 to 12"."""
        return f"{self.steps} to {self.most}" if self.most > self.steps else str(self.steps)

    @property
    def words(self) -> str:
        """The ranking's cost in words: "ranking costs 1 to 2 of 13 steps"."""
        if not self.cost:
            return f"ranking costs none of {self.recorded} steps"
        cost = f"{self.least} to {self.cost}" if self.least < self.cost else str(self.cost)
        return f"ranking costs {'about ' if self.branches else ''}{cost} of {self.recorded} steps"

    def to_json(self) -> dict[str, Any]:
        names = ("steps", "most", "recorded", "cost", "least", "branches", "needs", "words")
        return {"ends": list(self.ends), **{name: getattr(self, name) for name in names}}


def best_acceptance(trace: Trace) -> np.ndarray:
    """Per step, the tokens that the best of its candidates would have had accepted ``[steps]``; -1 where there is none,
    or nothing followed to judge it by.
    """
    step, would = (np.array(trace.tables["candidates"][name], dtype=np.int64) for name in ("step", "would_accept"))
    best = np.full(max(trace.rows("steps"), int(step.max(initial=-1)) + 1), -1, dtype=np.int64)
    np.maximum.at(best, step, would)
    return best


def oracle(trace: Trace) -> Oracle | None:
    """A run's replay under a perfect ranking; None where ``unknown`` says why.

    >>> run = Trace.new({"prompt_length": 4, "complete": True})
    >>> steps = {"context": [4, 5], "accepted": [0, 0], "emitted": [1, 1], "drafted": [1, 0]}
    >>> ranked = {"step": [0, 0], "would_accept": [0, 1], "chosen": [True, False]}
    >>> run.extend({"steps": {**steps, "depth": [1, 0]}, "candidates": ranked})
    >>> oracle(run)
    Oracle(steps=1, most=1, recorded=2, ends=(2,), branches=False)
    """
    if unknown(trace):
        return None
    steps = trace.tables["steps"]
    emitted, accepted = (np.array(steps[name], dtype=np.int64) for name in ("emitted", "accepted"))
    starts = np.cumsum(emitted) - emitted  # tokens written before each step
    end = int(emitted.sum())
    reach = starts + np.maximum(emitted, 1 + np.maximum(accepted, best_acceptance(trace)))
    reach[-1] = end
    reach = np.minimum(np.maximum.accumulate(reach), end)

    def replay(step_at: Callable[[int], int]) -> list[int]:
        """Places that the steps end at, where one from a place reaches as far as the run's step ``step_at`` it."""
        places = [0]
        while places[-1] < end:
            places.append(max(int(reach[step_at(places[-1])]), places[-1] + 1))
        return places[1:]

    ends = replay(lambda place: min(int(np.searchsorted(starts, place, "left")), len(starts) - 1))
    surely = replay(lambda place: int(np.searchsorted(starts, place, "right")) - 1)
    return Oracle(len(ends), len(surely), len(starts), tuple(ends), _branches(trace))


def unknown(trace: Trace) -> str:
    """The reason why a run has no oracle, in a sentence; "" where it has one."""
    if not trace.tables["candidates"]["step"] and trace.run.get("complete"):
        return UNRANKED_NOTE
    return "" if trace.tables["steps"]["emitted"] and best_acceptance(trace).max() >= 0 else UNDECIDED_NOTE


def _branches(trace: Trace) -> bool:
    """True where one candidate was chosen at a step and its draft branched all the same."""
    candidates, steps = trace.tables["candidates"], trace.tables["steps"]
    chosen_counts = np.bincount(
        [step for step, is_chosen in zip(candidates["step"], candidates["chosen"], strict=True) if is_chosen],
        minlength=len(steps["drafted"]),
    )
    return bool(((chosen_counts == 1) & (np.array(steps["drafted"]) > np.array(steps["depth"]))).any())
