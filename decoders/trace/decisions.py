"""Drafted positions of a run that were decided, and those that stood (numpy only).

A drafted position is *decided* where everything before it stood: it stands too, or the target chose otherwise there.
Siblings of a tree are one position. What is drafted behind the token that ended the run is not decided.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .origins import recorded_origins
from .trace import Trace


@dataclass(frozen=True, slots=True)
class Decisions:
    """A run's decided positions in order: arrays of one shape [decided], ``stood`` of bools, the others of ints.

    ``node`` is the row of the table ``nodes``: the one that stood, else the first that was tried there.
    """

    step: np.ndarray
    depth: np.ndarray
    is_accepted: np.ndarray
    node: np.ndarray


def knows_verdicts(trace: Trace) -> bool:
    """True for a run that knows the drafts and verdicts of each step; an imported one may not."""
    return not {"steps.drafted", "steps.accepted"}.intersection(trace.run.get("unknown", ()))


def first_choices(trace: Trace) -> np.ndarray:
    """Rows of ``nodes`` that hold the drafter's first choice after their parent, wherever they hang: bools [nodes].
    Runs that did not record its ranks have them where no expansion is.
    """
    nodes = trace.tables["nodes"]
    ranks = nodes.get("term:draft_rank", ())
    if any(rank is not None for rank in ranks):
        return np.array([rank == 0 for rank in ranks], dtype=bool)
    side_origins = [origin["name"] for origin in recorded_origins(trace.run) if origin.get("beside")]
    return ~np.isin(np.array(nodes["origin"], dtype=object), ("root", *side_origins))


def draws(trace: Trace) -> np.ndarray:
    """Rows of ``nodes`` that were drawn of the drafter's distribution, so that they stand with min(1, p/q) and not
    with q (Leviathan, §2.3): bools [nodes].
    """
    routes = trace.tables["steps"]["route"]
    of_step = np.array([route == "drawn" for route in routes], dtype=bool)
    step = np.array(trace.tables["nodes"]["step"], dtype=np.int64)
    return of_step[step] if len(of_step) else np.zeros(len(step), dtype=bool)


def decisions(trace: Trace) -> Decisions:
    """The verdicts of a run's verify steps; nothing where that is not recorded."""
    nodes = trace.tables["nodes"]
    step, depth, parent = (np.array(nodes[name], dtype=np.int64) for name in ("step", "depth", "parent"))
    if not len(step) or not knows_verdicts(trace):
        empty_array = np.zeros(0, dtype=np.int64)
        return Decisions(empty_array, empty_array, empty_array.astype(bool), empty_array)
    status = np.array(nodes["status"], dtype=object)
    stands = (status == "accepted") | (status == "root")
    start = np.searchsorted(step, np.arange(step[-1] + 1))
    child = depth > 0
    trial_nodes = np.flatnonzero(child & (status != "unreached") & stands[np.where(child, start[step] + parent, 0)])
    # one path per step stands, so a step has at most one position per depth; what stood comes first there
    order = trial_nodes[np.lexsort((trial_nodes, ~stands[trial_nodes], depth[trial_nodes], step[trial_nodes]))]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (step[order][1:] != step[order][:-1]) | (depth[order][1:] != depth[order][:-1])
    first = order[new]
    return Decisions(step[first], depth[first], stands[first], first)
