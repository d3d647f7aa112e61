"""A block drafter's candidates against the text that was written: what was there, what was chosen, what was possible.

The tokens behind a step's root are known from the output, as far as the run went on. Three questions are kept apart:
did the candidates hold the token that was written (recall); did the walk take it where they did, the walk being right
up to there (accuracy); and how far would the best walk have gone (oracle length).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .trace import Trace


@dataclass(frozen=True, slots=True)
class LatticeStep:
    """A step's lattice by what followed. ``positions``: those whose token is known; ``covered``: of these, the ones
    whose candidates hold it; ``oracle``: leading ones that do; ``chosen`` and ``right``: positions that the walk came
    to without a mistake and whose candidates hold the token, and those of them where it took it.
    """

    step: int
    positions: int
    covered: int
    oracle: int
    chosen: int
    right: int


def lattice_steps(trace: Trace) -> list[LatticeStep]:
    """Every step that has a lattice and was followed by something, in order.

    >>> run = Trace.new({"prompt_length": 1})
    >>> run.extend({"tokens": {"id": [3, 5, 6, 9]}, "steps": {"context": [1]}})
    >>> rows = [(1, 5, True), (1, 4, False), (2, 8, True), (2, 6, False), (3, 1, True)]
    >>> depth, token, walked = map(list, zip(*rows))
    >>> run.extend({"lattice": {"step": [0] * 5, "depth": depth, "token": token, "walked": walked}})
    >>> lattice_steps(run)
    [LatticeStep(step=0, positions=3, covered=2, oracle=2, chosen=2, right=1)]
    """
    table, ids, context = trace.tables["lattice"], trace.tables["tokens"]["id"], trace.tables["steps"]["context"]
    places: dict[int, dict[int, list[int]]] = {}
    for row, (step, depth) in enumerate(zip(table["step"], table["depth"], strict=True)):
        places.setdefault(step, {}).setdefault(depth, []).append(row)
    steps = list[LatticeStep]()
    for step, depths in places.items():
        output_ids = ids[context[step] : context[step] + len(depths)]
        coverage = oracle = chosen_count = right = 0
        leading = on = True
        for wrote, rows in zip(output_ids, depths.values(), strict=False):
            match_row = next((row for row in rows if table["token"][row] == wrote), None)
            coverage += match_row is not None
            leading = leading and match_row is not None
            oracle += leading
            if on and match_row is not None:
                chosen_count += 1
                right += table["walked"][match_row]
            on = on and match_row is not None and table["walked"][match_row]
        if output_ids:
            steps.append(LatticeStep(step, len(output_ids), coverage, oracle, chosen_count, right))
    return steps


def lattice_sums(trace: Trace) -> dict[str, Any]:
    """The sums that the three numbers are quotients of."""
    steps = lattice_steps(trace)
    names = ("positions", "covered", "oracle", "chosen", "right")
    return {"steps": len(steps), **{name: sum(getattr(step, name) for step in steps) for name in names}}
