"""Measures L(rows, batch, context) of a target on this machine, and how far the model of a batch is from real ones."""

from __future__ import annotations

import gc
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.errors import UserError
from decoders.folders import settings_folder, write_json
from decoders.model.target import Session, Target
from decoders.model.together import check_together, score_together
from decoders.model.transfer import wait
from decoders.names import BASELINE
from decoders.prompt.prompt import Prompt
from decoders.prompt_tokens.latency import Setup
from decoders.trace.load import Cell, Load, at_batches
from decoders.trace.trace import Trace
from decoders.verifiers.match import MatchVerifier
from decoders.verifiers.sampling import Chooser, Sampling

from .together import decode_together

MEASURED, ROWS, CONTEXTS = (1, 2, 4, 8), (1, 2, 4, 8, 16), (128,)
ROUNDS = 5
MOST_BATCH, MOST_ROWS = 64, 128

log = logging.getLogger(__name__)


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
    _check(target, batches, rows, contexts)
    verifier = MatchVerifier(Chooser(Sampling()))
    vocab, cells = int(target.info["vocab"]), list[Cell]()
    total, done = (rounds + 1) * len(batches) * len(rows) * len(contexts), 0
    for context in contexts:
        sessions = []
        for number in range(batches[-1]):
            session = target.session(Needs(), context + 2)
            session.prefill([(token * 7 + number) % vocab for token in range(context + 1)])
            sessions.append(session)
        check_together(target, sessions)
        sizes = [(batch, count) for batch in batches for count in rows]
        times: dict[tuple[int, int], list[float]] = {size: [] for size in sizes}
        experts: dict[tuple[int, int], float | None] = {}
        wrong = _refused(sessions)
        gc.collect()
        for number in range(-1, rounds):
            shift = max(0, number) % len(sizes)
            for size in sizes[shift:] + sizes[:shift]:
                batch, count = size
                taking = sessions[:batch]
                drafts = [
                    Draft(DraftTree.chain(session.context.root, (bad,) * (count - 1)))
                    for session, bad in zip(taking, wrong, strict=False)
                ]
                if number < 0:
                    with unique_experts(target) as counted:
                        _step(target, taking, drafts, verifier)
                    experts[size] = float(np.mean(counted)) if counted else None
                else:
                    wait(target.device)
                    started = clock()
                    _step(target, taking, drafts, verifier)
                    wait(target.device)
                    times[size].append((clock() - started) * 1e3)
                for session in taking:
                    session.cut(context + 1)
                done += 1
                if progress:
                    progress(done, total)
        for (batch, count), taken in times.items():
            low, median, high = (float(ms) for ms in np.percentile(taken, [25, 50, 75]))
            cells.append(Cell(batch, count, context, median, low, high, experts[batch, count]))
    return Load(target.name, asdict(Setup.of(target)), tuple(cells), rounds)


def _check(target: Target, batches: Sequence[int], rows: Sequence[int], contexts: Sequence[int]) -> None:
    longest = target.context_length - rows[-1] - 2
    if batches[0] < 1 or batches[-1] > MOST_BATCH:
        raise UserError(f"batches {list(batches)} are not allowed: whole numbers from 1 to {MOST_BATCH}")
    if rows[0] < 1 or rows[-1] > MOST_ROWS:
        raise UserError(f"rows {list(rows)} are not allowed: whole numbers from 1 to {MOST_ROWS}")
    if not contexts or contexts[0] < 1 or contexts[-1] > longest:
        raise UserError(f"contexts {list(contexts)} are not allowed: 1 to {longest} tokens for {target.name}")


def _refused(sessions: Sequence[Session]) -> list[int]:
    """Per session a token that the target does not write next."""
    written = [int(s.score(Draft.empty(s.context.root, "one row")).logits[0].argmax()) for s in sessions]
    return [1 if token == 0 else 0 for token in written]


def _step(target: Target, sessions: Sequence[Session], drafts: Sequence[Draft], verifier: MatchVerifier) -> None:
    for session, draft, scored in zip(sessions, drafts, score_together(target, sessions, drafts), strict=True):
        session.commit(verifier(draft, scored))


@contextmanager
def unique_experts(target: Target) -> Iterator[list[int]]:
    """How many different experts each router of a mixture of experts chose, forward by forward and layer by layer; the
    list stays empty where the model has none.
    """
    counted: list[int] = []

    def count(module: Any, given: Any, output: Any) -> None:
        chosen = [t for t in output if isinstance(t, torch.Tensor) and not t.is_floating_point()]
        if chosen:
            counted.append(int(chosen[-1].unique().numel()))

    routers = [module for module in target.model.modules() if "router" in type(module).__name__.lower()]
    hooks = [module.register_forward_hook(count) for module in routers]
    try:
        yield counted
    finally:
        for hook in hooks:
            hook.remove()


def load_folder() -> Path:
    """Where measured loads are kept: ``SPECVIZ_HOME``/load, or beside the user's settings."""
    return settings_folder() / "load"


def save_load(load: Load) -> Path:
    """Keep it where ``kept_load`` finds it, whole or not at all."""
    return write_json(load_folder() / f"{Setup(**load.setup).name}.json", load.to_json())


def kept_load(target: Target) -> Load | None:
    """What was measured of this model on this machine, with this engine and as many threads; None if nothing was."""
    path = load_folder() / f"{Setup.of(target).name}.json"
    if not path.is_file():
        return None
    try:
        return Load.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, OSError) as error:
        log.warning("%s is left out: %s", path, error)
        return None


@dataclass(frozen=True, slots=True)
class Checked:
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
    load: Load,
    prompt: Prompt,
    runs: Mapping[str, Trace],
    params: Mapping[str, Any] | None = None,
    *,
    batches: Sequence[int] = (2, 4, 8),
    repeats: int = 3,
) -> list[Checked]:
    """Batches of ``prompt``, alone and side by side, as ``at_batches`` has them and as they run (the median of
    ``repeats``, in alternation). ``runs``: by method, its recorded run of the prompt, of which the prediction is made.
    """
    jobs = [(name, batch) for batch in batches for name in runs]
    speeds: dict[tuple[str, int], list[float]] = {job: [] for job in jobs}
    for _ in range(repeats):
        for name, batch in jobs:
            most = runs[name].run["max_new_tokens"]
            own = None if name == BASELINE else params
            made = decode_together(target, [prompt] * batch, name, own, max_new_tokens=most)
            speeds[name, batch].append(made.tokens / made.seconds)
    predicted = {job: at_batches(runs[job[0]], load, [job[1]])[0].tokens_per_s for job in jobs}
    return [Checked(batch, name, predicted[name, batch], float(np.median(speeds[name, batch]))) for name, batch in jobs]
