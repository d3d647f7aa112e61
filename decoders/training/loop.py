"""What every training run does alike: batches in turn, weights and loss, optimisers, pace, log, checkpoint, the loop.

A run owns what it trains and its settings, and puts these pieces together: the demo's by itself, those of a target's
parts as ``PartRun``, which ``train`` drives.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from decoders.errors import UserError, first_line
from decoders.model.calibration import fingerprint
from decoders.parts import KINDS, Part, own_place, save_part
from decoders.training.demo.muon import Muon

from .batches import PROMPT, RESPONSE, Batch, batches_of
from .data import Source

CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True)
class Progress:
    """What a progress bar needs: ``done`` runs from 0 to 1; seconds are computing time, pauses excluded. ``logged`` is
    the log line of a step with validation, ``warning`` something the user should know.
    """

    step: int
    tokens: int
    seconds: float
    done: float
    loss: float
    tokens_per_second: float
    logged: dict[str, Any] | None = None
    warning: str = ""


# --- data and loss


class Feed:
    """Batches of chunk 0, 1, 2 …, each chunk a pure function of its number.

    ``chunk`` and ``taken`` (batches of this chunk so far) are the whole place: set them to go on from there.

    >>> feed = Feed(lambda chunk: [f"{chunk}a", f"{chunk}b"])
    >>> next(feed), next(feed), next(feed), feed.chunk, feed.taken
    ('0a', '0b', '1a', 1, 1)
    """

    def __init__(self, chunk_of: Callable[[int], Iterable[Batch]]) -> None:
        self.chunk_of = chunk_of
        self.chunk = self.taken = 0
        self._left: Iterator[Batch] | None = None

    def __next__(self) -> Batch:
        while True:
            if self._left is None:
                self._left = islice(self.chunk_of(self.chunk), self.taken, None)
            batch = next(self._left, None)
            if batch is not None:
                self.taken += 1
                return batch
            self._left = None
            self.chunk, self.taken = self.chunk + 1, 0


def position_weights(batch: Batch, prompt_share: float, prompt_weight: float, seed: int, step: int) -> Tensor:
    """How much each token's prediction counts, (rows, length): 1 on answers, ``prompt_weight`` on a random
    ``prompt_share`` of the prompt's positions, else 0. The choice depends on seed and step alone.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    chosen = torch.rand(batch.ids.shape, generator=generator) < prompt_share
    prompt = (batch.kinds == PROMPT) & chosen
    return (batch.kinds == RESPONSE).float() + prompt * prompt_weight


def weighted_loss(
    head: Callable[[Tensor], Tensor],
    states: Float[Tensor, "rows length width"],
    batch: Batch,
    weights: Float[Tensor, "rows length"],
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Mean weighted cross-entropy, and the mean over answer tokens alone (without gradient).

    A weight belongs to the prediction *of* its token, which is read off the state before it. The head runs only where
    the weight is not zero, in fp32.
    """
    device = states.device
    weights, labels = weights[:, 1:].to(device), batch.ids[:, 1:].to(device)
    answers = (batch.kinds[:, 1:] == RESPONSE).to(device)
    wanted = weights > 0
    losses = F.cross_entropy(head(states[:, :-1][wanted].float()), labels[wanted], reduction="none")
    weights = weights[wanted]
    return (losses * weights).sum() / weights.sum(), losses.detach()[answers[wanted]].mean()


# --- learning


class Optimisers:
    """Optimisers that step together; each has its own learning rate, and all follow one schedule."""

    def __init__(self, *optimisers: torch.optim.Optimizer) -> None:
        self.optimisers = optimisers
        self.rates = [optimiser.defaults["lr"] for optimiser in optimisers]

    def step(self, factor: float) -> None:
        """One step at ``factor`` times the learning rates; the gradients are gone afterwards."""
        for optimiser, rate in zip(self.optimisers, self.rates, strict=True):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def state(self) -> list[dict[str, Any]]:
        return [optimiser.state_dict() for optimiser in self.optimisers]

    def load(self, state: list[dict[str, Any]]) -> None:
        for optimiser, kept in zip(self.optimisers, state, strict=True):
            optimiser.load_state_dict(kept)


def adamw(parameters: Iterable[nn.Parameter], rate: float) -> torch.optim.AdamW:
    """AdamW for embeddings, norms and the like."""
    return torch.optim.AdamW(parameters, rate, betas=(0.9, 0.95), weight_decay=0.0)


def muon_and_adamw(
    model: nn.Module, layers: nn.Module, matrix_rate: float, vector_rate: float, *, fast: bool
) -> Optimisers:
    """Muon for the matrices in ``layers``, AdamW for all else of ``model``; ``fast`` iterates in bf16."""
    matrices = [p for p in layers.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is m for m in matrices)]
    half = torch.bfloat16 if fast else torch.float32
    return Optimisers(Muon(matrices, matrix_rate, weight_decay=0.01, dtype=half), adamw(others, vector_rate))


def cosine_factor(step: int, done: float, warmup_steps: int) -> float:
    """Of the learning rates: linear warm-up, then a cosine to 0 over the whole budget."""
    return min(1.0, (step + 1) / warmup_steps) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


class Pace:
    """What the last 50 steps took and learnt.

    >>> pace = Pace()
    >>> [pace.add(100, 0.5, loss) for loss in (3.0, 1.0)], pace.tokens_per_second, pace.loss
    ([0.5, 0.5], 200.0, 2.0)
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[int, float, float]] = deque(maxlen=50)  # tokens, seconds, loss

    def add(self, tokens: int, took: float, loss: float) -> float:
        """The computing time of a step: ``took`` seconds, but at most 5 times the median once there are 10 steps
        (a paused process has not been computing).
        """
        if len(self._recent) >= 10:
            took = min(took, 5 * statistics.median(seconds for _, seconds, _ in self._recent))
        self._recent.append((tokens, took, loss))
        return took

    @property
    def tokens_per_second(self) -> float:
        return sum(n for n, _, _ in self._recent) / max(1e-9, sum(seconds for _, seconds, _ in self._recent))

    @property
    def loss(self) -> float:
        """The mean of the steps' losses."""
        return statistics.fmean(loss for _, _, loss in self._recent)


# --- what stays on disk


class LogFile:
    """A run's ``log.jsonl``: one JSON object with a "step" per validation."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.jsonl"

    def add(self, line: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()] if self.path.exists() else []

    def cut(self, step: int) -> None:
        """Drop what a resumed run will log again: lines after ``step``."""
        if self.path.exists():
            kept = [line for line in self.lines() if line["step"] <= step]
            self.path.write_text("".join(json.dumps(line) + "\n" for line in kept), "utf-8")

    def thinned(self, most: int = 100) -> list[dict[str, Any]]:
        """About ``most`` lines, evenly taken, and the last one."""
        lines = self.lines()
        thin = lines[:: max(1, math.ceil(len(lines) / most))]
        return thin if not lines or thin[-1] == lines[-1] else [*thin, lines[-1]]


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint whole or not at all."""
    new = folder / "checkpoint.new"
    try:
        torch.save(state, new)
        os.replace(new, folder / CHECKPOINT)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def read_checkpoint(
    folder: Path, settings: dict[str, Any], resume: bool, device: torch.device
) -> dict[str, Any] | None:
    """The checkpoint of a run in ``folder`` (made where missing), None if there is none yet.

    Raises UserError for a run that is not to be resumed, or that has other settings ("fast" may differ).
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / CHECKPOINT).exists():
        return None
    if not resume:
        raise UserError(f"{folder} holds a run: resume it, or give another folder with --out")
    state = torch.load(folder / CHECKPOINT, weights_only=True, map_location=device)
    for setting, value in settings.items():
        if setting != "fast" and state["settings"].get(setting) != value:
            raise UserError(
                f"the run in {folder} has {setting} {state['settings'].get(setting)!r}, not {value!r}: "
                "give the same again, or another folder with --out"
            )
    return state


# --- runs


class Found(Protocol):
    """What a validation finds: at least the mean loss on held-out documents."""

    @property
    def loss(self) -> float: ...


class PartRun:
    """A training run of a part for a frozen target: what it trains, its optimisers, its place in the data, its log.

    ``loss`` is the last step's, ``seconds`` computing time, ``saved_step`` that of the checkpoint, ``logged_step`` that
    of the last log line. Subclasses set ``config``, ``trained`` and ``optimisers``, and say how it learns.
    """

    held = "trained"  # what it trains, in its checkpoint
    shuffled = "batches"  # names the order of its batches
    counted: tuple[str, ...] = ("step", "tokens", "seconds")
    dtype = torch.float16  # of the part's file
    config: Any
    trained: nn.Module
    optimisers: Optimisers

    def __init__(
        self, kind: str, folder: Path, model: Any, name: str, source: Source, recipe: Any, seed: int
    ) -> None:
        self.kind, self.folder, self.name = kind, folder, name
        self.source, self.recipe, self.seed = source, recipe, seed
        self.key = fingerprint(model.config, model.base_model.parameters())
        self.device = model.device
        self.feed, self.pace, self.log_file = Feed(self._chunk), Pace(), LogFile(folder)
        self.step = self.tokens = self.saved_step = self.logged_step = 0
        self.seconds, self.loss = 0.0, math.nan
        self._held_out: list[Batch] | None = None

    # --- what a kind of run says

    @property
    def facts(self) -> dict[str, Any]:
        """What its part says of the training besides settings, steps, seconds and log."""
        raise NotImplementedError

    def factor(self, done: float) -> float:
        """Of the learning rates, where ``done`` of the budget is spent."""
        raise NotImplementedError

    def train_step(self, done: float) -> float:
        """One optimiser step, where ``done`` of the budget is spent; gives the loss."""
        raise NotImplementedError

    def validate(self) -> Found:
        """How good it is on held-out documents, the same ones each time."""
        raise NotImplementedError

    def described(self, found: Any) -> dict[str, Any]:
        """A validation's numbers for the log, the loss apart."""
        raise NotImplementedError

    # --- checkpoints

    @property
    def settings(self) -> dict[str, Any]:
        """What a resumed run must have in common with the interrupted one."""
        common = {"part": self.kind, "target": self.key, "data": self.source.label, "seed": self.seed}
        return {**common, **asdict(self.recipe)}

    def open(self, resume: bool) -> None:
        """Begin in an empty folder, or go on from the checkpoint there."""
        state = read_checkpoint(self.folder, self.settings, resume, self.device)
        if state is None:
            return
        self.trained.load_state_dict(state[self.held])
        self.optimisers.load(state["optimisers"])
        for name in self.counted:
            setattr(self, name, state[name])
        self.feed.chunk, self.feed.taken = state["chunk"], state["taken"]
        self.saved_step = self.logged_step = self.step
        self.log_file.cut(self.step)

    def save(self) -> None:
        """Write the checkpoint whole or not at all."""
        state = {
            self.held: self.trained.state_dict(), "optimisers": self.optimisers.state(), "settings": self.settings,
            "chunk": self.feed.chunk, "taken": self.feed.taken, **{name: getattr(self, name) for name in self.counted},
        }  # fmt: skip
        save_checkpoint(self.folder, state)
        self.saved_step = self.step

    def export(self, folder: Path) -> Path:
        """Write what was trained as a part that methods can load; gives the folder."""
        training = {
            **self.settings, "steps": self.step, **self.facts, "seconds": round(self.seconds),
            "log": self.log_file.thinned(),
        }  # fmt: skip
        part = Part(self.kind, self.key, self.name, self.config, training)
        return save_part(part, self.trained.state_dict(), folder, dtype=self.dtype)

    # --- data

    def _chunk(self, chunk: int) -> list[Batch]:
        shuffle = f"specviz {self.shuffled} {self.seed} {chunk}"
        return batches_of(self.source.chunk(chunk), self.recipe.batch_tokens, shuffle)

    @property
    def held_out(self) -> list[Batch]:
        """The documents for validation, batched once."""
        if self._held_out is None:
            self._held_out = batches_of(self.source.held_out(), self.recipe.batch_tokens)
        return self._held_out

    # --- learning

    def learn(self, batch: Batch, loss: Tensor, shown: Tensor, factor: float, started: float) -> float:
        """Step down the gradient of ``loss``, made of ``batch`` since ``started``; ``shown`` is the loss that is told.

        Raises UserError, which says where, if the loss or the gradient is no number any more.
        """
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.trained.parameters(), 1.0)
        if not (math.isfinite(float(loss.detach())) and math.isfinite(float(norm))):
            raise UserError(
                f"the loss is no number any more at step {self.step + 1:,} (chunk {self.feed.chunk} of "
                f"{self.source.label}, batch {self.feed.taken}, learning rate factor {factor:.3f}): training stopped; "
                + (f"{self.folder} holds the good checkpoint of step {self.saved_step:,}" if self.saved_step else
                   "nothing was saved yet")
            )  # fmt: skip
        self.loss = float(shown.detach())
        self.optimisers.step(factor)
        self.step += 1
        self.tokens += batch.tokens
        self.seconds += self.pace.add(batch.tokens, time.perf_counter() - started, self.loss)
        return self.loss

    def log(self, done: float) -> dict[str, Any]:
        """Validate, and add a line to ``log.jsonl``."""
        started = time.perf_counter()
        found = self.validate()
        self.seconds += time.perf_counter() - started
        line = {
            **{name: getattr(self, name) for name in self.counted},
            "seconds": round(self.seconds, 1),
            "loss": round(self.pace.loss, 4),
            "held_out_loss": round(found.loss, 4),
            **self.described(found),
            "lr_factor": round(self.factor(done), 4),
            "tokens_per_second": round(self.pace.tokens_per_second),
        }
        with contextlib.suppress(OSError):
            self.log_file.add(line)
        self.logged_step = self.step
        return line


# --- the loop


def train(
    run: PartRun,
    *,
    minutes: float | None,
    steps: int | None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint_minutes: float = 3.0,
) -> Path:
    """Train an opened run until the budget is spent; gives the folder where methods look for its part, exported there
    (and to ``part`` in its own folder). Every so often the checkpoint is written and exported, and again where the user
    interrupts. Raises UserError where the end cannot be written.
    """
    if (minutes is None) == (steps is None):
        raise ValueError(f"give either minutes or steps, not both or none: got minutes={minutes}, steps={steps}")

    def tell(done: float, logged: dict[str, Any] | None, warning: str = "") -> None:
        if progress is not None:
            rate = run.pace.tokens_per_second
            progress(Progress(run.step, run.tokens, run.seconds, done, run.loss, rate, logged, warning))

    saved = time.monotonic()
    try:
        while (done := run.step / steps if steps is not None else run.seconds / (60 * float(minutes or 1))) < 1:
            run.train_step(done)
            logged = run.log(done) if run.step % run.recipe.validate_steps == 0 else None
            warning = ""
            if time.monotonic() - saved > checkpoint_minutes * 60:
                warning = try_to_save(run)
                saved = time.monotonic()
            tell(done, logged, warning)
    except KeyboardInterrupt:
        try_to_save(run)
        raise
    if run.logged_step != run.step:
        tell(1.0, run.log(1.0))
    try:
        run.save()
        run.export(run.folder / "part")
        return run.export(own_place(run.kind, run.key))
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"the {KINDS[run.kind]} could not be written ({first_line(error, 160)}): make room and give the same "
            f"command again; {run.folder} holds the last good checkpoint"
        ) from None


def try_to_save(run: PartRun) -> str:
    """Checkpoint and usable part; where the disk is full, what to tell the user (the last good ones stay)."""
    try:
        run.save()
        run.export(run.folder / "part")
    except (OSError, RuntimeError) as error:
        return (
            f"the checkpoint of step {run.step:,} could not be written ({first_line(error, 160)}): make room; "
            f"that of step {run.saved_step:,} stays"
        )
    return ""
