"""Places where runs of one prompt differ most: stretches of their shared output in which one needs fewer forwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any

import numpy as np

from decoders.trace.metrics import first_difference
from decoders.trace.trace import Trace

MAX_STRETCHES = 6  # stretches shown
OVERLAP = 0.4  # of the shorter of two stretches: sharing more, they are one place


def stretches(traces: Mapping[str, Trace], baseline: str) -> list[dict[str, Any]]:
    """Stretches in which one run needs fewer forwards than every other one, the largest gain first.

    ``traces``: id → run, all of one prompt. Each stretch is ``{"run", "from", "to", "forwards", "gain"}``: the run that
    wins, output tokens [from, to), id → forwards of the compared runs there, and how many fewer than the next best.
    Compared are runs whose outputs begin alike, without the method ``baseline`` where two others are left, as far as
    all of them agree.
    """
    agreements = {key: length for key, length in _agreement(traces, baseline).items() if length > 1}
    methods = {key: n for key, n in agreements.items() if traces[key].run["method"]["name"] != baseline}
    lengths = methods if len(methods) > 1 else agreements
    if len(lengths) < 2:
        return []
    upto = min(lengths.values())
    ends = {key: np.cumsum(traces[key].tables["steps"]["emitted"]) for key in lengths}  # step → tokens by its end
    wins = []
    for winner, rival in permutations(lengths, 2):
        step_ends = ends[winner]
        for first, last in _excursions(step_ends, ends[rival], upto):
            begin = int(np.searchsorted(step_ends, first, "right"))  # whole forwards of the winner
            start = int(step_ends[begin - 1]) if begin else 0
            stop = min(upto, int(step_ends[np.searchsorted(step_ends, last - 1, "right")]))
            forwards = {
                key: int(np.subtract(*np.searchsorted(run_ends, (stop, start), "right")))
                for key, run_ends in ends.items()
            }
            gain = min(n for key, n in forwards.items() if key != winner) - forwards[winner]
            if gain >= 1:
                wins.append({"run": winner, "from": start, "to": stop, "forwards": forwards, "gain": gain})
    wins.sort(key=lambda stretch: (-stretch["gain"], stretch["to"] - stretch["from"]))
    selection: list[dict[str, Any]] = []
    for stretch in wins:
        if len(selection) < MAX_STRETCHES and not any(
            _overlap(stretch, earlier_stretch) for earlier_stretch in selection
        ):
            selection.append(stretch)
    return selection


def _agreement(traces: Mapping[str, Trace], baseline: str) -> dict[str, int]:
    """Count each run's output tokens that agree with the reference: plain decoding, else the longest lossless run."""
    outputs = {key: trace.output_ids for key, trace in traces.items() if trace.output_ids}
    if not outputs:
        return {}
    lossless = [key for key in outputs if traces[key].run["method"].get("lossless") is not False]
    longest = max(lossless or outputs, key=lambda key: len(outputs[key]))
    plain = next((key for key in outputs if traces[key].run["method"]["name"] == baseline), None)
    if plain and all(len(outputs[key]) <= len(outputs[plain]) for key in lossless):
        longest = plain
    reference = outputs[longest]
    return {key: first_difference(reference, output) for key, output in outputs.items()}


def _excursions(run_ends: np.ndarray, rival_ends: np.ndarray, upto: int) -> Iterator[tuple[int, int]]:
    """Stretches of [0, upto) in which ``others`` has more ends of forwards than ``run_ends``, beyond the mean
    difference: it looks for where a run does better than on the whole.
    """
    surplus = np.zeros(upto)
    np.add.at(surplus, rival_ends[rival_ends <= upto] - 1, 1)
    np.subtract.at(surplus, run_ends[run_ends <= upto] - 1, 1)
    toll = max(0.0, surplus.mean()) + 0.01
    total = best = 0.0
    start = stop = 0
    for at, value in enumerate([*(surplus - toll), -np.inf]):
        total += value
        if total < 0:
            if best > 1:
                yield start, stop
            total = best = 0.0
            start = at + 1
        elif total > best:
            best, stop = total, at + 1


def _overlap(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    shared = min(first["to"], second["to"]) - max(first["from"], second["from"])
    return shared > OVERLAP * min(first["to"] - first["from"], second["to"] - second["from"])
