"""Measures the forward latency L(n) of a target on this machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from decoders.draft.needs import Needs
from decoders.drafters.plain import EmptyDrafter
from decoders.drafters.ppd import Guesses, PpdDrafter
from decoders.engine.decoding import Decoding
from decoders.errors import UserError
from decoders.method.drafter import Drafter
from decoders.model.state.transfer import wait
from decoders.model.target_model.target import Target
from decoders.prompt.prompt import Prompt
from decoders.prompt_tokens.design import assumed_acceptance, split_trees
from decoders.prompt_tokens.latency import Latency, Setup, load_latency, save_latency
from decoders.prompt_tokens.tokens import PromptConfig, PromptTokens
from decoders.prompt_tokens.trees import MOST_ROWS, RANKS, PromptTrees
from decoders.trace.speedup import WIDEST

POINTS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, MOST_ROWS)
CONTEXT = 256  # tokens in the cache while it is measured
ROUNDS, WARM_UP, ATTEMPTS = 9, 1, 3
WARMUP_STEPS = 4  # steps of the same size before a timed one: fewer leave its weights outside the processor's cache
ROOM = 12  # positions that a step may take behind the context


def measure_latency(
    target: Target,
    max_rows: int = 64,
    *,
    context: int = CONTEXT,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[int, int], None] | None = None,
) -> Latency:
    """L(n) for 1 to at least ``max_rows`` rows: steps of all sizes in turn, ``rounds`` times after a warm-up, each
    behind ``WARMUP_STEPS`` of its own size that are not timed, as in a run.

    While a size varies too much (IQR ÷ median above ``WIDEST``), all is measured again, up to three times; the
    quietest measurement is given, and its ``note`` says what remained. ``progress(done, total)`` is called after every
    size, timed or not, and may raise to break off: a round of all sizes takes seconds on a real model.
    Raises UserError for a number of rows that no forward has, and for a context the model cannot read.
    """
    if not 1 <= max_rows <= MOST_ROWS:
        raise UserError(f"the latency of {max_rows} rows cannot be measured: a verify forward has 1 to {MOST_ROWS}")
    longest = target.context_length - ROOM
    if not 1 <= context <= longest:
        raise UserError(f"a context of {context} tokens is not allowed: 1 to {longest} for {target.name}")
    sizes = [n for n in POINTS if n < max_rows] + [min(n for n in POINTS if n >= max_rows)]
    step_of = _steps(target, context)
    steps = {n: step_of(n) for n in sizes}
    total, count = ATTEMPTS * (WARM_UP + rounds) * len(sizes), 0
    quietest: Latency | None = None
    for attempt in range(1, ATTEMPTS + 1):
        gc.collect()
        times: dict[int, list[float]] = {n: [] for n in sizes}
        for number in range(-WARM_UP, rounds):
            shift = number % len(sizes)
            for n in sizes[shift:] + sizes[:shift]:
                prepare, step = steps[n]
                for _ in range(WARMUP_STEPS):
                    prepare()
                    step()
                prepare()
                wait(target.device)
                start_time = clock()
                step()
                wait(target.device)
                if number >= 0:
                    times[n].append((clock() - start_time) * 1e3)
                count += 1
                if progress:
                    progress(count, total)
        low, median, high = (
            tuple(float(x) for x in column) for column in np.percentile([times[n] for n in sizes], [25, 50, 75], axis=1)
        )
        latency = Latency(Setup.of(target), target.name, context, tuple(sizes), median, low, high, rounds, attempt)
        if quietest is None or max(latency.spreads) < max(quietest.spreads):
            quietest = latency
        if max(latency.spreads) <= WIDEST:
            break
    assert quietest is not None
    if progress:
        progress(total, total)
    return replace(quietest, attempts=attempt)


def latency_for(
    target: Target, max_rows: int = 64, *, refresh: bool = False, progress: Callable[[int, int], None] | None = None
) -> Latency:
    """The latency kept for this machine and model, or (``again``, or where there is none up to ``max_rows`` rows)
    measured now and kept; a model with a short context is measured at half of it."""
    if not refresh and (latency := load_latency(target)) is not None and latency.largest >= max_rows:
        return latency
    measurement = measure_latency(target, max_rows, context=min(CONTEXT, target.context_length // 2), progress=progress)
    save_latency(measurement)
    return measurement


def _steps(target: Target, context: int) -> Callable[[int], tuple[Callable[[], None], Callable[[], None]]]:
    """Steps of so many rows, all behind the same ``context`` tokens: what prepares one, and the step itself.

    One row is a step of plain decoding; more are PPD's, with prompt tokens that are some tokens' embeddings, and
    guesses that the target rejects.
    """
    vocab = int(target.info["vocab"])
    prompt = Prompt.from_ids([token % vocab for token in range(context + 1)])
    session = target.session(Needs(), context + ROOM)
    session.prefill(prompt)
    text = session.buffer[: context + 1].copy()

    def run_of(drafter: Drafter) -> Decoding:
        return Decoding(target, prompt, drafter, max_new_tokens=ROOM, stop_ids=())

    bonus_token = run_of(EmptyDrafter()).attempt(session).verdict.bonus
    guess = [token for token in range(RANKS + 1) if token != bonus_token][:RANKS]

    def step_of(rows: int) -> tuple[Callable[[], None], Callable[[], None]]:
        drafter: Any = EmptyDrafter()
        guesses = None
        if rows > 1:
            trees = trees_of_rows(rows)
            drafter = PpdDrafter(_some_prompt_tokens(target, trees.m), trees, target.context_length)
            guesses = Guesses(text, [guess] * trees.m, [[1 / RANKS] * RANKS] * trees.m)
        run = run_of(drafter)

        def prepare() -> None:
            session.cut(context + 1)
            drafter.guesses = guesses

        def step() -> None:
            attempt = run.attempt(session)
            session.commit(attempt.verdict)
            drafter.observe(attempt.draft, attempt.scored, attempt.verdict)

        return prepare, step

    return step_of


def trees_of_rows(rows: int) -> PromptTrees:
    """Trees whose last state has exactly so many rows (2 or more), a third of them candidates.

    >>> [trees_of_rows(rows).size for rows in (2, 3, 4, 5, 8, 24, 512)]
    [2, 3, 4, 5, 8, 24, 512]
    """
    m = min(3, max(1, rows - 2))
    return split_trees(assumed_acceptance(m), -((m + 1 - rows) // 3), rows)


def _some_prompt_tokens(target: Target, m: int) -> PromptTokens:
    ids = torch.arange(m, device=target.device)
    embeddings = target.embeddings(ids)
    prompt_tokens = PromptTokens(PromptConfig(m, 1, embeddings.shape[-1])).requires_grad_(False)
    prompt_tokens.embeddings.data = embeddings[:, None].detach().clone()
    return prompt_tokens
