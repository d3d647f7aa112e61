"""Says how far the model of a batch is from batches that really run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from decoders.model.target_model.target import Target
from decoders.names import BASELINE
from decoders.prompt.prompt import Prompt
from decoders.study.measure.together import decode_together
from decoders.trace.load import Load
from decoders.trace.trace import Trace

from .batches import at_batches
from .step_times import ROWS, StepTimes, check_sizes


@dataclass(frozen=True, slots=True)
class Prediction:
    """A batch as the model has it, and as it ran: tokens per second of all its runs, and model ÷ measured − 1."""

    batch: int
    method: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def check_load(
    target: Target,
    prompt: Prompt,
    runs: Mapping[str, Trace],
    params: Mapping[str, Any] | None = None,
    *,
    batches: Sequence[int] = (2, 4, 8),
    rows: Sequence[int] = ROWS,
    repeats: int = 3,
) -> list[Prediction]:
    """Batches of ``prompt``, as ``at_batches`` has them and as they run: medians of ``repeats``. ``runs``: by method,
    its recorded run of the prompt, of which the prediction is made.

    L(rows, batch) is measured anew behind as many tokens as the runs have, a round of it between two rounds of batches,
    so that both are of the same machine in the same state. A batch of one prompt is in step: all its runs have as many
    rows at a time. Raises UserError as ``measure_load``.
    """
    jobs = [(name, batch) for batch in batches for name in runs]
    speeds: dict[tuple[str, int], list[float]] = {job: [] for job in jobs}
    longest = max(run.run["max_new_tokens"] for run in runs.values())
    rows = sorted({1, *rows})
    room = target.context_length - rows[-1] - 2
    sizes = sorted({1, *batches}), rows, [min(room, max(1, len(prompt.tokens) + longest // 2))]
    check_sizes(target, *sizes)
    step_times = StepTimes(target, sizes[0], rows, sizes[2][0], time.perf_counter)
    for number in range(-1, repeats):
        for _ in step_times.measured_round():
            pass
        for name, batch in jobs if number >= 0 else ():
            run_params = None if name == BASELINE else params
            batch_run = decode_together(
                target, [prompt] * batch, name, run_params, max_new_tokens=runs[name].run["max_new_tokens"]
            )
            speeds[name, batch].append(batch_run.tokens / batch_run.seconds)
    load = Load(target.name, {}, tuple(step_times.cells()), repeats)
    predicted = {job: at_batches(runs[job[0]], load, [job[1]], in_step=True)[0].tokens_per_s for job in jobs}
    return [
        Prediction(batch, name, predicted[name, batch], float(np.median(speeds[name, batch]))) for name, batch in jobs
    ]
