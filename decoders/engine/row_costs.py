"""Row costs: milliseconds of a target's step by its rows, L(n), as a run's decisions need them."""

from __future__ import annotations

import copy
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.model.files.shape import ROTARIES
from decoders.model.target_model.target import SPARE_ROWS, Session, Target
from decoders.prompt_tokens.latency import load_latency
from decoders.trace.speedup import row_line

SIZES = (1, 16, 4, 64, 8, 32, 128)  # rows that are timed where nothing was measured, the most useful first
REPEATS, CONTEXT = 3, 64
SECONDS = 4.0  # no further size is begun after so long
FOLLOW = 0.1  # how fast the curve follows a run's own steps, which have other contexts and other company


@dataclass(frozen=True, slots=True)
class Curve:
    """L(n) as measured: ``ms`` at some ``rows``, straight lines between them, and where the numbers are from."""

    rows: tuple[int, ...]
    ms: tuple[float, ...]
    source: str

    def table(self, sizes: tuple[int, ...] = ()) -> np.ndarray:
        """Milliseconds of 0 to ``SPARE_ROWS`` rows. ``sizes``: row buckets that a static engine pads to."""
        rows = np.arange(SPARE_ROWS + 1)
        if sizes:
            padded = np.asarray(sizes)[np.minimum(np.searchsorted(sizes, rows), len(sizes) - 1)]
            rows = np.maximum(rows, padded)
        return np.maximum.accumulate(row_line(self.rows, self.ms, rows))


class RowCosts:
    """L(n) of one run: a measured curve, scaled as the run's own steps take.

    ``base`` are the curve's milliseconds of 0, 1, … rows, and ``scale`` the run's own over them.

    >>> costs = RowCosts(Curve((1, 8), (10.0, 17.0), "measured"))
    >>> costs.ms(4), costs.base[4] - costs.base[3]
    (13.0, 1.0)
    """

    def __init__(self, curve: Curve, sizes: tuple[int, ...] = (), *, follows: bool = True) -> None:
        self.curve, self.follows = curve, follows
        self.base: list[float] = curve.table(sizes).tolist()
        self.scale, self.steps = 1.0, 0

    def ms(self, rows: int) -> float:
        return self.scale * self.base[min(rows, len(self.base) - 1)]

    def observe(self, rows: int, ms: float) -> None:
        """A step of so many rows took so long; one that was disturbed moves the scale little."""
        if not self.follows or not ms > 0:
            return
        ratio = ms / self.base[min(rows, SPARE_ROWS)]
        self.steps += 1
        share = max(FOLLOW, 1 / self.steps)
        self.scale += share * (max(0.67 * self.scale, min(1.5 * self.scale, ratio)) - self.scale)

    def other_costs(self, rows: int) -> RowCosts:
        """Of one run whose forward has so many rows of others: L(rows + n), which this run's steps do not change."""
        costs = copy.copy(self)
        costs.base, costs.follows = self.base[rows:], False
        return costs

    @classmethod
    def of(cls, target: Target) -> RowCosts:
        """Of a target as its engine runs now: what was measured and kept of this machine,
        else a short measurement, kept with the target.
        """
        sizes = static_sizes(target)
        curves: dict[Any, Curve] = target.companions.setdefault("row costs", {})
        state = target.engines.state
        if state not in curves:
            latency = load_latency(target)
            curves[state] = (
                measure(target) if latency is None else Curve(latency.rows, latency.median, "kept for this machine")
            )
        return cls(curves[state], sizes)


def static_sizes(target: Target) -> tuple[int, ...]:
    """The row buckets that the engine pads to; () where it runs each number of rows as it is."""
    static = target.engines.static
    return tuple(static.sizes) if static is not None and target.engines.state[1] else ()


def forward_times(session: Session, draft: Draft, count: int) -> list[float]:
    """Milliseconds of verify forwards, one after another, behind one that is not timed."""
    times = []
    for _ in range(1 + count):
        start_time = time.perf_counter()
        int(session.score(draft).logits[0].argmax())  # waits for the device
        times.append((time.perf_counter() - start_time) * 1e3)
    return times[1:]


@torch.inference_mode()
def measure(target: Target) -> Curve:
    """Verify forwards of some sizes behind a short context, timed now: medians of a few. Where rotary positions change
    with the text's length, no draft reaches over the change (``Session.reach``), so its rows stand side by side.
    """
    switch = target.shape.rotary_switch
    room = min(CONTEXT, target.context_length - max(SIZES) - 1, *([] if switch is None else [switch // 2]))
    context = max(1, room)
    vocab = int(target.info["vocab"])
    session = target.session(Needs(), context + 1)
    session.prefill([token % vocab for token in range(context)])
    times: dict[int, float] = {}
    start_time = time.perf_counter()
    for size in SIZES:
        late = len(times) > 1 and time.perf_counter() - start_time > SECONDS
        reach = size if target.shape.rotary in ROTARIES else min(session.reach, size)
        lines = -(-size // reach) if reach > 0 else size
        if size > 1 and (late or context + size > target.context_length or reach < 1 or lines > vocab):
            continue
        tokens = tuple((n // reach if n % reach == 0 else 7 * n + 1) % vocab for n in range(size - 1))
        draft = Draft(DraftTree.chains(session.context.root, tokens, reach))
        times[size] = statistics.median(forward_times(session, draft, REPEATS))
    rows = tuple(sorted(times))
    return Curve(rows, tuple(np.maximum.accumulate([times[n] for n in rows]).tolist()), "measured before the run")
