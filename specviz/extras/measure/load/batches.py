"""The gain of drafting under load, of L(rows, batch, context) as it was measured.

All of it is a model: a batch of alike runs, each with as many rows as the others. Its error is measured against batches
that really ran (``load_check``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from decoders.trace.acceptance import Acceptance
from decoders.trace.load import Load
from decoders.trace.speedup import expected_tokens
from decoders.trace.trace import Trace

MOST_BATCH, MOST_LENGTH = 4096, 64
BATCHES = (1, 2, 4, 8, 16, 32, 64)  # that tables are made for


@dataclass(frozen=True, slots=True)
class Tier:
    """Of one batch size: the draft length that is fastest, its speedup over plain decoding of the same batch, and the
    acceptance from which a draft of one token, and of that length, is no slower than none (None: none is enough).
    """

    batch: int
    length: int
    speedup: float
    break_even_one: float | None
    break_even: float | None


def speedup_at(load: Load, acceptance: float, cost: float, length: int, batch: int) -> float:
    """Expected tokens ÷ (γ·c + L(γ + 1) ÷ L(1)), both L of this batch, behind the shortest context;
    ``cost``: c, of a drafted token of one run.
    """
    plain = load.ms(1, batch)
    time = length * cost * batch * load.ms(1) / plain + load.ms(length + 1, batch) / plain
    return expected_tokens(acceptance, length) / time


def break_even(load: Load, cost: float, length: int, batch: int) -> float | None:
    """The acceptance from which drafts of this length are no slower than none; None where no acceptance is enough."""
    if length < 1 or speedup_at(load, 1.0, cost, length, batch) < 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        is_enough = speedup_at(load, middle, cost, length, batch) >= 1
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def tiers(
    load: Load, acceptance: float, cost: float = 0.0, *, max_length: int = 8, batches: Sequence[int] = BATCHES
) -> list[Tier]:
    """The best length per batch size. Raises ValueError for numbers that are none of this."""
    if not 0 <= acceptance <= 1:
        raise ValueError(f"acceptance {acceptance} is not allowed: a number from 0 to 1")
    if not 1 <= max_length <= MOST_LENGTH:
        raise ValueError(f"lengths up to {max_length} are not allowed: 1 to {MOST_LENGTH}")
    if not batches or not all(1 <= batch <= MOST_BATCH for batch in batches):
        raise ValueError(f"batches are whole numbers from 1 to {MOST_BATCH:,}")
    rows = []
    for batch in sorted(set(batches)):
        gains = [1.0] + [speedup_at(load, acceptance, cost, k, batch) for k in range(1, max_length + 1)]
        best = int(np.argmax(gains))
        even = (break_even(load, cost, length, batch) for length in (1, best))
        rows.append(Tier(batch, best, gains[best], *even))
    return rows


def break_even_curve(
    load: Load, cost: float, *, max_length: int = 8, batches: Sequence[int] = BATCHES
) -> dict[int, list[float | None]]:
    """By batch size: the acceptance from which drafts of 1, 2, … ``max_length`` tokens are no slower than none."""
    return {batch: [break_even(load, cost, length, batch) for length in range(1, max_length + 1)] for batch in batches}


def for_vllm(table: Sequence[Tier]) -> str:
    """vLLM's ``--speculative-config`` fields: [first batch, last batch, length] for each range.

    >>> for_vllm([Tier(1, 5, 2.0, .1, .2), Tier(2, 5, 2.0, .1, .2), Tier(8, 1, 1.1, .4, .4)])
    '{"num_speculative_tokens": 5, "num_speculative_tokens_per_batch_size": [[1, 7, 5], [8, 8, 1]]}'
    """
    ranges: list[list[int]] = []
    for tier in table:
        if ranges and ranges[-1][2] == tier.length:
            ranges[-1][1] = tier.batch
        else:
            if ranges:
                ranges[-1][1] = tier.batch - 1
            ranges.append([tier.batch, tier.batch, tier.length])
    longest = max(tier.length for tier in table)
    return json.dumps({"num_speculative_tokens": longest, "num_speculative_tokens_per_batch_size": ranges})


def for_sglang(table: Sequence[Tier]) -> str:
    """SGLang's ``--speculative-adaptive-config`` file: from each batch size on, lengths to choose from around the best
    one; 0 among them where the best is short.

    >>> for_sglang([Tier(1, 5, 2.0, .1, .2), Tier(8, 1, 1.1, .4, .4), Tier(32, 0, 1.0, None, None)])
    '{"1": {"candidate_steps": [3, 5, 7]}, "8": {"candidate_steps": [0, 1, 2]}, "32": {"candidate_steps": [0]}}'
    """
    entries: dict[str, Any] = {}
    previous_length = None
    for tier in table:
        if tier.length == previous_length:
            continue
        k = previous_length = tier.length
        spacing = 2 if k > 2 else 1
        entries[str(tier.batch)] = {"candidate_steps": [0] if not k else [max(0, k - spacing), k, k + spacing]}
    return json.dumps(entries)


def chain_numbers(traces: Sequence[Trace], load: Load) -> tuple[float, float]:
    """α and c of runs, as tables of chains are made of them: accepted ÷ tested, and the milliseconds of a drafted
    position ÷ those of a plain step of one run. Raises ValueError where nothing was drafted.
    """
    pooled, draft_ms, depth = Acceptance(), 0.0, 0
    for trace in traces:
        pooled += Acceptance.of(trace)
        draft_ms += sum(ms or 0.0 for ms in trace.tables["steps"]["draft_ms"])
        depth += sum(trace.tables["steps"]["depth"])
    alpha = pooled.pooled.values()["tested_acceptance"]
    if alpha is None or not depth:
        raise ValueError("these runs drafted nothing, so that there is no acceptance to make a table of")
    return alpha, draft_ms / depth / load.ms(1)


@dataclass(frozen=True, slots=True)
class AtBatch:
    """A run as it would be among ``batch`` alike runs, by the model: tokens per second of all of them with drafts and
    without, and their quotient. ``measured``: whether the load was measured up to that batch.
    """

    batch: int
    tokens_per_s: float
    plain_tokens_per_s: float
    speedup: float
    measured: bool


def at_batches(trace: Trace, load: Load, batches: Sequence[int] = BATCHES, *, in_step: bool = False) -> list[AtBatch]:
    """A run at each batch size: its recorded steps, each taken by a whole batch of runs like it. Drafting is done run
    by run, as here; a server that drafts for all at once pays less for it. Raises ValueError for a run without steps.

    Runs of a batch are at different steps, so that a forward has the mean rows of all; ``in_step``: they are all at the
    same one (a batch of one prompt), and a forward has that step's.
    """
    steps = trace.tables["steps"]
    emitted = np.array(steps["emitted"], dtype=np.float64)
    if not len(emitted) or not emitted.sum():
        raise ValueError("this run has no steps to be taken by a batch")
    probes = np.bincount(trace.tables["probes"]["step"], minlength=len(emitted)) if trace.rows("probes") else 0
    rows, context = np.array(steps["drafted"]) + 1 + probes, np.array(steps["context"])
    draft = np.array([0.0 if ms is None else ms for ms in steps["draft_ms"]])
    points = []
    for batch in batches:
        if not 1 <= batch <= MOST_BATCH:
            raise ValueError(f"batch {batch} is not allowed: a whole number from 1 to {MOST_BATCH:,}")
        if in_step:
            times = {n: load.ms(int(n), batch, float(context.mean())) for n in {*rows.tolist()}}
            forward = float(np.mean([times[n] for n in rows.tolist()]))
        else:
            forward = load.ms(float(rows.mean()), batch, float(context.mean()))
        ms = forward + batch * float(draft.mean())
        plain = load.ms(1, batch, float(context.mean()))
        speed = 1e3 * batch * float(emitted.mean()) / ms
        without = 1e3 * batch / plain
        points.append(AtBatch(batch, speed, without, speed / without, batch <= load.batches[-1]))
    return points
