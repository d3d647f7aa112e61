"""Several prompts decoded side by side, step by step, each verify forward shared: throughput by batch size."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from decoders.draft.draft import emitted_tokens
from decoders.engine.batch_length import BatchLength
from decoders.engine.decoding import Decoding
from decoders.engine.row_costs import Curve, RowCosts
from decoders.method.method import Method
from decoders.model.state.transfer import wait
from decoders.model.target_model.target import Session, Target
from decoders.model.target_model.together import check_together, score_together
from decoders.names import BASELINE
from decoders.prompt.prompt import Prompt

from .load import kept_load


@dataclass(frozen=True, slots=True)
class BatchRun:
    """A batch's output, the seconds of decoding (prompts read before), and how many shared forwards it took."""

    outputs: tuple[tuple[int, ...], ...]
    seconds: float
    forwards: int

    @property
    def tokens(self) -> int:
        return sum(map(len, self.outputs))


def decode_together(
    target: Target, prompts: Sequence[Prompt], method: str | Method = BASELINE, params: Mapping[str, Any] | None = None,
    **options: Any,
) -> BatchRun:  # fmt: skip
    """Every prompt's output, as each alone would give it. Drafts are made prompt by prompt; of each step the verify
    forwards are one. What has ended leaves the batch. Options as of ``Decoding.of``: with ``length="auto"`` the drafts
    of all runs are weighed together, by the costs of their shared forward (``batch_costs``). Raises UserError for a
    method that reads more than tokens and cache.
    """
    runs = [Decoding.of(target, prompt, method, params, **options) for prompt in prompts]
    sessions = list[Session]()
    for run in runs:
        run.prefill()
        assert run.session is not None
        sessions.append(run.session)
    check_together(target, sessions)
    auto = [run.length for run in runs if run.length is not None]
    lengths = BatchLength(auto, partial(batch_costs, target)) if auto else None
    active, forwards = list(range(len(runs))), 0
    start_time = time.perf_counter()
    while active:
        if lengths is not None:
            lengths.begin(active)
        drafts, drafting, verdicts, emitted, going = [], [], [], [], []
        for n in active:
            begun = time.perf_counter()
            drafts.append(runs[n].propose(sessions[n], choose=False))
            drafting.append((time.perf_counter() - begun) * 1e3)
        if lengths is not None:
            drafts = lengths.choose(active, drafts, [sessions[n].context for n in active])
        begun, observing = time.perf_counter(), 0.0
        scored = score_together(target, [sessions[n] for n in active], drafts)
        forwards += 1
        for place, (n, draft, scores) in enumerate(zip(active, drafts, scored, strict=True)):
            run, session = runs[n], sessions[n]
            verdict = run.judge(session, draft, scores)
            run.index += 1
            session.commit(verdict)
            commit_start = time.perf_counter()
            run.drafter.observe(draft, scores, verdict)
            took = (time.perf_counter() - commit_start) * 1e3
            drafting[place] += took
            observing += took
            new_tokens = emitted_tokens(draft.tree.tokens, verdict)
            verdicts.append(verdict)
            emitted.append(len(new_tokens))
            if new_tokens[-1] not in run.stop_ids and session.length - session.prompt_length < run.room(session):
                going.append(n)
        if lengths is not None:
            target_ms = (time.perf_counter() - begun) * 1e3 - observing
            lengths.learn(active, drafts, verdicts, emitted, drafting, target_ms)
        active = going
    wait(target.device)
    seconds = time.perf_counter() - start_time
    outputs = tuple(tuple(s.buffer[s.prompt_length : s.length].tolist()) for s in sessions)
    return BatchRun(outputs, seconds, forwards)


def batch_costs(target: Target, runs: int) -> RowCosts:
    """L by all rows of a forward that ``runs`` share: of the load that was measured of this model here, for every batch
    up to the largest; else of one run with as many rows.
    """
    load = kept_load(target)
    if load is None or runs > load.batches[-1]:
        return RowCosts(RowCosts.of(target).curve)
    return RowCosts(Curve(tuple(runs * rows for rows in load.rows), tuple(load.ms(r, runs) for r in load.rows), "load"))
