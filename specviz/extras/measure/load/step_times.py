"""Measures L(rows, batch, context) of a target on this machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.errors import UserError
from decoders.model.state.transfer import wait
from decoders.model.target_model.target import Session, Target
from decoders.model.target_model.together import check_together, score_together
from decoders.prompt_tokens.latency import Setup
from decoders.trace.load import Cell, Load
from decoders.verifiers.match import MatchVerifier
from decoders.verifiers.sampling import Chooser, Sampling

MEASURED, ROWS, CONTEXTS = (1, 2, 4, 8), (1, 2, 4, 8, 16), (128,)
ROUNDS = 5
MOST_BATCH, MOST_ROWS = 64, 128


@torch.inference_mode()
def measure_load(
    target: Target,
    batches: Sequence[int] = MEASURED,
    rows: Sequence[int] = ROWS,
    contexts: Sequence[int] = CONTEXTS,
    *,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[int, int], None] | None = None,
) -> Load:
    """Verify steps of every size in turn, ``rounds`` times behind one that is not timed: a shared forward of ``batch``
    runs with ``rows`` rows each, its verdicts and commits. Nothing that is drafted stands.

    Of a mixture of experts, the unique experts that a layer reads are counted. Raises UserError for sizes that a
    forward cannot have, and for a model whose runs share none.
    """
    batches, rows, contexts = (sorted({1, *batches}), sorted({1, *rows}), sorted(set(contexts)))
    check_sizes(target, batches, rows, contexts)
    cells, total = list[Cell](), (rounds + 1) * len(batches) * len(rows) * len(contexts)
    for place, context in enumerate(contexts):
        sizes = StepTimes(target, batches, rows, context, clock)
        offset = place * total // len(contexts)
        for number in range(rounds + 1):
            for count in sizes.measured_round():
                if progress:
                    progress(offset + number * len(sizes.sizes) + count, total)
        cells += sizes.cells()
    return Load(target.name, asdict(Setup.of(target)), tuple(cells), rounds)


class StepTimes:
    """Verify steps of every size behind a context, timed in turn; the first round, of which the unique experts are
    counted, is left out of the times.
    """

    def __init__(
        self, target: Target, batches: Sequence[int], rows: Sequence[int], context: int, clock: Callable[[], float]
    ) -> None:
        self.target, self.context, self.clock = target, context, clock
        self.verifier = MatchVerifier(Chooser(Sampling()))
        vocab = int(target.info["vocab"])
        self.sessions = []
        for number in range(batches[-1]):
            session = target.session(Needs(), context + rows[-1] + 1)
            session.prefill([(token * 7 + number) % vocab for token in range(context + 1)])
            self.sessions.append(session)
        check_together(target, self.sessions)
        self.sizes = [(batch, count) for batch in batches for count in rows]
        self.times: dict[tuple[int, int], list[float]] = {size: [] for size in self.sizes}
        self.experts: dict[tuple[int, int], float | None] = {}
        self.wrong, self.rounds = _refusals(self.sessions), -1
        gc.collect()

    def measured_round(self) -> Iterator[int]:
        """Take every size once; how many are done."""
        shift = max(0, self.rounds) % len(self.sizes)
        for position, size in enumerate(self.sizes[shift:] + self.sizes[:shift], 1):
            batch, count = size
            taking = self.sessions[:batch]
            drafts = [
                Draft(DraftTree.chain(session.context.root, (bad,) * (count - 1)))
                for session, bad in zip(taking, self.wrong, strict=False)
            ]
            if self.rounds < 0:
                with unique_experts(self.target) as expert_counts:
                    _step(self.target, taking, drafts, self.verifier)
                self.experts[size] = float(np.mean(expert_counts)) if expert_counts else None
            else:
                wait(self.target.device)
                start_time = self.clock()
                _step(self.target, taking, drafts, self.verifier)
                wait(self.target.device)
                self.times[size].append((self.clock() - start_time) * 1e3)
            for session in taking:
                session.cut(self.context + 1)
            yield position
        self.rounds += 1

    def cells(self) -> list[Cell]:
        """Medians and quartiles."""
        cells = []
        for (batch, count), samples in self.times.items():
            low, median, high = (float(ms) for ms in np.percentile(samples, [25, 50, 75]))
            cells.append(Cell(batch, count, self.context, median, low, high, self.experts[batch, count]))
        return cells


def check_sizes(target: Target, batches: Sequence[int], rows: Sequence[int], contexts: Sequence[int]) -> None:
    """Raise UserError for ascending sizes that a forward cannot have."""
    longest = target.context_length - rows[-1] - 2
    if batches[0] < 1 or batches[-1] > MOST_BATCH:
        raise UserError(f"batches {list(batches)} are not allowed: whole numbers from 1 to {MOST_BATCH}")
    if rows[0] < 1 or rows[-1] > MOST_ROWS:
        raise UserError(f"rows {list(rows)} are not allowed: whole numbers from 1 to {MOST_ROWS}")
    if not contexts or contexts[0] < 1 or contexts[-1] > longest:
        raise UserError(f"contexts {list(contexts)} are not allowed: 1 to {longest} tokens for {target.name}")
    switch = target.shape.rotary_switch
    across = [context for context in contexts if switch is not None and context <= switch < context + rows[-1]]
    if across:
        raise UserError(
            f"{target.name}'s rotary positions change behind {switch} tokens, and drafts of {rows[-1]} rows behind "
            f"{across[0]} would reach over that: give contexts up to {max(1, (switch or 0) - rows[-1])} or from "
            f"{(switch or 0) + 1} on"
        )


def _refusals(sessions: Sequence[Session]) -> list[int]:
    """Per session a token that the target does not write next."""
    tokens = [int(s.score(Draft.empty(s.context.root, "one row")).logits[0].argmax()) for s in sessions]
    return [1 if token == 0 else 0 for token in tokens]


def _step(target: Target, sessions: Sequence[Session], drafts: Sequence[Draft], verifier: MatchVerifier) -> None:
    for session, draft, scored in zip(sessions, drafts, score_together(target, sessions, drafts), strict=True):
        session.commit(verifier(draft, scored))


@contextmanager
def unique_experts(target: Target) -> Iterator[list[int]]:
    """Count the different experts that each router of a mixture of experts chose, forward by forward and layer by
    layer; the list stays empty where the model has none.
    """
    expert_counts: list[int] = []

    def count(module: Any, inputs: Any, output: Any) -> None:
        expert_ids = [t for t in output if isinstance(t, torch.Tensor) and not t.is_floating_point()]
        if expert_ids:
            expert_counts.append(int(expert_ids[-1].unique().numel()))

    routers = [module for module in target.model.modules() if "router" in type(module).__name__.lower()]
    hooks = [module.register_forward_hook(count) for module in routers]
    try:
        yield expert_counts
    finally:
        for hook in hooks:
            hook.remove()
