"""L(n): how long a decode step of n rows takes on this machine with this model, measured once and kept (PPD §4.2.2).

A step is all of it, as a run takes it: drafting, the verify forward, the decision, keeping what was accepted.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .errors import UserError
from .params import NoParams
from .ppd import PromptConfig, PromptTokens
from .prompt import Prompt
from .prompt_trees import MOST_ROWS, RANKS, PromptTrees, assumed_acceptance, split_trees
from .protocols import Method, Needs
from .target import Target

SCHEMA = "speclatency/2"  # 1 timed the forward alone
POINTS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, MOST_ROWS)
CONTEXT = 256  # tokens in the cache while it is measured
ROUNDS, WARM_UP, ATTEMPTS = 9, 1, 3
BEFORE = 4  # steps of the same size before a timed one: fewer leave its weights outside the processor's cache
ROOM = 12  # positions that a step may take behind the context
WIDEST = 0.25  # IQR ÷ median from which a point counts as disturbed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Setup:
    """What a latency belongs to; measured again when any of it differs."""

    device: str
    model_key: str
    dtype: str
    threads: int
    torch: str
    packed: bool

    @classmethod
    def of(cls, target: Target) -> Setup:
        """This machine with this model, as it was loaded."""
        threads = torch.get_num_threads() if target.device.type == "cpu" else 0
        return cls(
            device_name(target.device), target.key, str(target.info["dtype"]), threads, torch.__version__,
            bool(target.info["packed"]),
        )  # fmt: skip

    @property
    def name(self) -> str:
        """The name its file is kept under."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds of a decode step by its rows: median and quartiles of ``rounds`` steps each, taken in
    alternation behind ``context`` cached tokens. ``attempts`` counts the measurements until they were quiet.
    """

    setup: Setup
    model: str
    context: int
    rows: tuple[int, ...]
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    rounds: int
    attempts: int = 1

    @property
    def largest(self) -> int:
        """Rows up to which it was measured."""
        return self.rows[-1]

    def ms(self, rows: int) -> float:
        """L(n), straight lines between the measured points. Raises ValueError beyond the largest."""
        if not 1 <= rows <= self.largest:
            raise ValueError(f"the latency of {rows} rows is not known: 1 to {self.largest} were measured")
        return float(np.interp(rows, self.rows, self.median))

    @property
    def spreads(self) -> tuple[float, ...]:
        """IQR ÷ median of each point."""
        return tuple((b - a) / m for a, m, b in zip(self.low, self.median, self.high, strict=True))

    @property
    def note(self) -> str:
        """One sentence where the measurement was disturbed; "" where it was quiet."""
        wide = [n for n, spread in zip(self.rows, self.spreads, strict=True) if spread > WIDEST]
        if not wide:
            return ""
        return (
            f"the latency of {', '.join(map(str, wide))} rows varies by up to {max(self.spreads):.0%} (IQR ÷ median) "
            f"even after {self.attempts} measurements: something else was running; measure it again when the machine "
            "is idle (specviz tree latency --again)"
        )

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any) -> Latency:
        """Back from ``to_json``. Raises ValueError in one sentence for anything else."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(f"not a latency of this version ({SCHEMA})")
        try:
            rows = tuple(int(n) for n in data["rows"])
            times = {key: tuple(float(x) for x in data[key]) for key in ("median", "low", "high")}
            made = cls(
                Setup(**data["setup"]), str(data["model"]), int(data["context"]), rows, times["median"], times["low"],
                times["high"], int(data["rounds"]), int(data["attempts"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"a damaged latency ({error})") from None
        increasing = len(rows) > 0 and rows[0] == 1 and all(a < b for a, b in pairwise(rows))
        sane = all(len(t) == len(rows) and all(0 < x < math.inf for x in t) for t in times.values())
        if not increasing or not sane:
            raise ValueError("a damaged latency (its rows and times do not fit together)")
        return made


def measure_latency(
    target: Target,
    most: int = 64,
    *,
    context: int = CONTEXT,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[int, int], None] | None = None,
) -> Latency:
    """L(n) for 1 to at least ``most`` rows: steps of all sizes in turn, ``rounds`` times after a warm-up, each behind
    ``BEFORE`` of its own size that are not timed, as in a run.

    While a size varies too much (IQR ÷ median above ``WIDEST``), all is measured again, up to three times; the
    quietest measurement is given, and its ``note`` says what remained. ``progress(done, total)`` counts rounds.
    Raises UserError for a number of rows that no forward has, and for a context the model cannot read.
    """
    if not 1 <= most <= MOST_ROWS:
        raise UserError(f"the latency of {most} rows cannot be measured: a verify forward has 1 to {MOST_ROWS}")
    longest = target.context_length - ROOM
    if not 1 <= context <= longest:
        raise UserError(f"a context of {context} tokens is not allowed: 1 to {longest} for {target.name}")
    sizes = [n for n in POINTS if n < most] + [min(n for n in POINTS if n >= most)]
    step_of = _steps(target, context)
    steps = {n: step_of(n) for n in sizes}
    total = ATTEMPTS * (WARM_UP + rounds)
    quietest: Latency | None = None
    for attempt in range(1, ATTEMPTS + 1):
        gc.collect()
        times: dict[int, list[float]] = {n: [] for n in sizes}
        for number in range(-WARM_UP, rounds):
            shift = number % len(sizes)
            for n in sizes[shift:] + sizes[:shift]:
                prepare, step = steps[n]
                for _ in range(BEFORE):
                    prepare()
                    step()
                prepare()
                _wait(target)
                started = clock()
                step()
                _wait(target)
                if number >= 0:
                    times[n].append((clock() - started) * 1e3)
            if progress:
                progress((attempt - 1) * (WARM_UP + rounds) + WARM_UP + number + 1, total)
        low, median, high = (
            tuple(float(x) for x in column)
            for column in np.percentile([times[n] for n in sizes], [25, 50, 75], axis=1)
        )
        found = Latency(
            Setup.of(target), target.name, context, tuple(sizes), median, low, high, rounds, attempt
        )
        if quietest is None or max(found.spreads) < max(quietest.spreads):
            quietest = found
        if max(found.spreads) <= WIDEST:
            break
    assert quietest is not None
    if progress:
        progress(total, total)
    return replace(quietest, attempts=attempt)


def latency_for(
    target: Target, most: int = 64, *, again: bool = False, progress: Callable[[int, int], None] | None = None
) -> Latency:
    """The latency kept for this machine and model, or (``again``, or where there is none up to ``most`` rows) measured
    now and kept; a model with a short context is measured at half of it."""
    kept = None if again else load_latency(target)
    if kept is not None and kept.largest >= most:
        return kept
    measured = measure_latency(target, most, context=min(CONTEXT, target.context_length // 2), progress=progress)
    save_latency(measured)
    return measured


def load_latency(target: Target) -> Latency | None:
    """What was measured of this model on this machine, in this dtype and with as many threads; None if nothing was."""
    setup = Setup.of(target)
    path = latency_folder() / f"{setup.name}.json"
    if not path.is_file():
        return None
    try:
        found = Latency.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, OSError) as error:
        log.warning("%s is left out: %s", path, error)
        return None
    return found if found.setup == setup else None


def save_latency(latency: Latency) -> Path:
    """Keep it where ``load_latency`` finds it, whole or not at all."""
    path = latency_folder() / f"{latency.setup.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(latency.to_json(), indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def latency_folder() -> Path:
    """Where latencies are kept: ``SPECVIZ_HOME``/latency, or beside the user's settings."""
    from .calibrate import calibration_folder  # it needs the registry of methods, which needs this file

    return calibration_folder().parent / "latency"


def device_name(device: torch.device) -> str:
    """The processor or accelerator by its maker's name, with its cores; no name of a host."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass  # not on every system
    return f"{name}, {os.cpu_count() or 1} cores"


def _steps(target: Target, context: int) -> Callable[[int], tuple[Callable[[], None], Callable[[], None]]]:
    """Steps of so many rows, all behind the same ``context`` tokens: what prepares one, and the step itself.

    One row is a step of plain decoding; more are PPD's, with prompt tokens that are some tokens' embeddings, and
    guesses that the target rejects.
    """
    from .drafters.plain import EmptyDrafter  # they need this file
    from .drafters.ppd import Guesses, PpdDrafter
    from .engine import Decoding

    vocab = int(target.info["vocab"])
    prompt = Prompt.from_ids([token % vocab for token in range(context + 1)])
    session = target.session(Needs(), context + ROOM)
    session.prefill(prompt)
    text = session.buffer[: context + 1].copy()

    def run_of(drafter: Any) -> Decoding:
        method = Method("latency", "", "", "", NoParams, build=lambda target, params: drafter)
        return Decoding(target, prompt, method, max_new_tokens=ROOM, stop_ids=())

    refused = run_of(EmptyDrafter()).attempt(session).verdict.bonus
    guess = [token for token in range(RANKS + 1) if token != refused][:RANKS]

    def step_of(rows: int) -> tuple[Callable[[], None], Callable[[], None]]:
        drafter: Any = EmptyDrafter()
        guesses = None
        if rows > 1:
            trees = trees_of_rows(rows)
            drafter = PpdDrafter(_some_prompt_tokens(target, trees.m), trees, target.context_length)
            guesses = Guesses(text, [guess] * trees.m, [[1 / RANKS] * RANKS] * trees.m)
        run = run_of(drafter)

        def prepare() -> None:
            session.length, session.cache.length = context + 1, context
            drafter.guesses = guesses

        def step() -> None:
            tried = run.attempt(session)
            session.commit(tried.verdict)
            drafter.observe(tried.draft, tried.scored, tried.verdict)

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
    made = PromptTokens(PromptConfig(m, 1, embeddings.shape[-1])).requires_grad_(False)
    made.embeddings.data = embeddings[:, None].detach().clone()
    return made


def _wait(target: Target) -> None:
    """Until the device has finished what was asked of it."""
    if target.device.type == "cuda":
        torch.cuda.synchronize(target.device)
