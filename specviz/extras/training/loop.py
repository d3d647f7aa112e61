"""The loop of every training run, bundled target and part alike: steps, validation, checkpoint.

``TrainingRun`` is the bundled target's and every part's; ``PartRun`` adds what parts of a frozen target have in common,
and ``train`` drives it.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from decoders.errors import UserError, first_line
from decoders.folders import replacing
from decoders.method.part import kinds
from decoders.model.files.calibration import fingerprint
from decoders.parts import Part, own_place, part_weights, read_part_for, save_part, training_facts

from .batches import Batch, batches_of
from .data import TrainingSource
from .learning import Optimisers
from .progress import BatchFeed, LogFile, Pace, Progress

CHECKPOINT = "checkpoint.pt"


class TrainingRun:
    """A training run: what it trains, its optimisers, its place in the data, its log and its checkpoints.

    ``loss`` is the last step's, ``seconds`` computing time, ``saved_step`` that of the checkpoint, ``logged_step`` that
    of the last log line. Subclasses set ``trained`` and ``optimisers``, and say how it learns and what from.
    """

    stored = "trained"  # the name of what it trains in its checkpoint
    counted: tuple[str, ...] = ("step", "tokens", "seconds")
    device = torch.device("cpu")
    data: str  # what it learns from, in words
    trained: nn.Module
    optimisers: Optimisers

    def __init__(self, folder: Path, recipe: Any, seed: int) -> None:
        self.folder, self.recipe, self.seed = folder, recipe, seed
        self.feed, self.pace, self.log_file = BatchFeed(self.batches), Pace(), LogFile(folder)
        self.step = self.tokens = self.saved_step = self.logged_step = 0
        self.seconds, self.loss = 0.0, math.nan

    # --- what a kind of run says

    @property
    def log_steps(self) -> int:
        """Steps between two validations."""
        return self.recipe.validate_steps

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a resumed run must have in common with the interrupted one."""
        raise NotImplementedError

    def batches(self, number: int) -> Iterable[Batch]:
        """The batches of one chunk of the data, of seed and number alone."""
        raise NotImplementedError

    def factor(self, share: float) -> float:
        """Of the learning rates, where ``share`` of the budget is spent."""
        raise NotImplementedError

    def forward(self, share: float) -> tuple[Batch, Tensor, Tensor]:
        """The next batch, where ``share`` of the budget is spent; its loss to step down, and the one that is told."""
        raise NotImplementedError

    def validate(self) -> dict[str, Any]:
        """Numbers of the log on held-out documents, the same ones each time, "held_out_loss" first."""
        raise NotImplementedError

    # --- checkpoints

    def open(self, resume: bool) -> None:
        """Begin in an empty folder (made where missing), or go on from the checkpoint there.

        Raises UserError for a run that is not to be resumed, or that has other settings (its precision may differ).
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / CHECKPOINT).exists():
            return
        if not resume:
            raise UserError(f"{self.folder} holds a run: resume it, or give another folder with --out")
        state = torch.load(self.folder / CHECKPOINT, weights_only=True, map_location=self.device)
        earlier_settings = state.get(
            "settings", state
        )  # the bundled target's checkpoints had their seed beside the rest
        usual = {field.name: field.default for field in fields(self.recipe)}  # of settings that it does not know yet
        for setting, value in self.settings.items():
            if setting not in ("bf16", "fast") and earlier_settings.get(setting, usual.get(setting)) != value:
                raise UserError(
                    f"the run in {self.folder} has {setting} {earlier_settings.get(setting)!r}, not {value!r}: "
                    "give the same again, or another folder with --out"
                )
        self.trained.load_state_dict(state[self.stored])
        self.optimisers.load(state["optimisers"])
        for name in self.counted:
            setattr(self, name, state[name])
        self.feed.chunk, self.feed.taken = state["chunk"], state["taken"]
        self.saved_step = self.logged_step = self.step
        self.log_file.cut(self.step)

    def save(self) -> None:
        """Write the checkpoint whole or not at all."""
        state = {
            self.stored: self.trained.state_dict(), "optimisers": self.optimisers.state(), "settings": self.settings,
            "chunk": self.feed.chunk, "taken": self.feed.taken, **{name: getattr(self, name) for name in self.counted},
        }  # fmt: skip
        new = self.folder / "checkpoint.new"
        try:
            torch.save(state, new)
            os.replace(new, self.folder / CHECKPOINT)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            raise
        self.saved_step = self.step

    # --- learning

    def train_step(self, share: float) -> float:
        """One optimiser step, where ``share`` of the budget is spent; gives the loss that is told.

        Raises UserError, which says where, if the loss or the gradient is no number any more.
        """
        start_s = time.perf_counter()
        batch, loss, shown_loss = self.forward(share)
        factor = self.factor(share)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.trained.parameters(), 1.0)
        if not (math.isfinite(float(loss.detach())) and math.isfinite(float(norm))):
            raise UserError(
                f"the loss is no number any more at step {self.step + 1:,} (chunk {self.feed.chunk} of "
                f"{self.data}, batch {self.feed.taken}, learning rate factor {factor:.3f}): training stopped; "
                + (f"{self.folder} holds the good checkpoint of step {self.saved_step:,}" if self.saved_step else
                   "nothing was saved yet")
            )  # fmt: skip
        self.loss = float(shown_loss.detach())
        self.optimisers.step(factor)
        self.step += 1
        self.tokens += batch.tokens
        self.seconds += self.pace.add(batch.tokens, time.perf_counter() - start_s, self.loss)
        return self.loss

    def log(self, share: float) -> dict[str, Any]:
        """Validate, and add a line to ``log.jsonl``."""
        start_s = time.perf_counter()
        numbers = self.validate()
        self.seconds += time.perf_counter() - start_s
        line = {
            **{name: getattr(self, name) for name in self.counted},
            "seconds": round(self.seconds, 1),
            "loss": round(self.pace.loss, 4),
            **numbers,
            "lr_factor": round(self.factor(share), 4),
            "tokens_per_second": round(self.pace.tokens_per_second),
        }
        with contextlib.suppress(OSError):
            self.log_file.add(line)
        self.logged_step = self.step
        return line

    def progress(self, share: float, logged: dict[str, Any] | None = None, warning: str = "") -> Progress:
        """The state for a progress bar."""
        rate = self.pace.tokens_per_second
        return Progress(self.step, self.tokens, self.seconds, share, self.loss, rate, logged, warning)

    def advance(
        self, spent_share: Callable[[], float], save: Callable[[], str | None], save_minutes: float,
        progress: Callable[[Progress], None] | None,
    ) -> None:  # fmt: skip
        """Learn until all of the budget is ``spent_share``; every so many minutes ``save``, which gives what to warn
        of.
        """
        save_time = time.monotonic()
        while (share := spent_share()) < 1:
            self.train_step(share)
            logged = self.log(share) if self.step % self.log_steps == 0 else None
            warning = None
            if time.monotonic() - save_time > save_minutes * 60:
                warning = save()
                save_time = time.monotonic()
            if progress is not None:
                progress(self.progress(share, logged, warning or ""))


class PartRun(TrainingRun):
    """A training run of a part for a frozen target. Subclasses set its ``config`` too, and say what it learns."""

    shuffled = "batches"  # names the order of its batches
    dtype = torch.float16  # of the part's file
    origin: Path | None = None  # folder of the part whose weights it begins with; else they are new
    config: Any

    def __init__(
        self, kind: str, folder: Path, model: Any, name: str, source: TrainingSource, recipe: Any, seed: int
    ) -> None:
        super().__init__(folder, recipe, seed)
        self.kind, self.name, self.source, self.data = kind, name, source, source.label
        self.key = fingerprint(model.config, model.base_model.parameters())
        self.device = model.device

    @property
    def facts(self) -> dict[str, Any]:
        """Facts on the training that its part carries besides settings, steps, seconds and log."""
        raise NotImplementedError

    @property
    def settings(self) -> dict[str, Any]:
        common = {"part": self.kind, "target": self.key, "data": self.data, "seed": self.seed}
        origin = {} if self.origin is None else {"origin": self.origin.name}
        return {**common, **asdict(self.recipe), **origin}

    def open(self, resume: bool) -> None:
        """As every run, or begin with the weights of ``origin``, whose tokens count as seen. Raises UserError for one
        of another kind, target or shape, too.
        """
        super().open(resume)
        if self.origin is None or self.step:
            return
        part = read_part_for(self.origin, self.kind, self.key, self.name)
        part_config, run_config = part.config.to_json(), self.config.to_json()
        if differences := [
            f"{name} {part_config[name]!r}, not {run_config[name]!r}"
            for name in run_config
            if part_config[name] != run_config[name]
        ]:
            raise UserError(
                f"the part in {self.origin} has {'; '.join(differences)}: give the options it was made with"
            )
        self.trained.load_state_dict(part_weights(self.origin))
        self.tokens = training_facts(part.training).get("tokens", 0)

    def batches(self, number: int) -> list[Batch]:
        shuffle = f"specviz {self.shuffled} {self.seed} {number}"
        return batches_of(self.source.chunk(number), self.recipe.batch_tokens, shuffle)

    @cached_property
    def held_out(self) -> list[Batch]:
        """The documents for validation."""
        return batches_of(self.source.held_out(), self.recipe.batch_tokens)

    def export(self, folder: Path) -> Path:
        """Write what was trained as a part that methods can load; gives the folder."""
        training = {
            **self.settings, "steps": self.step, **self.facts, "seconds": round(self.seconds),
            "log": self.log_file.sample(),
        }  # fmt: skip
        part = Part(self.kind, self.key, self.name, self.config, training)
        return save_part(part, self.trained.state_dict(), folder, dtype=self.dtype)


# --- the loop


def budget(**maxima: float | None) -> Callable[[TrainingRun], float]:
    """The share of a budget that a run has spent; the one of these that is a number counts: ``minutes`` (computing
    time), ``steps`` or ``tokens``. Raises ValueError where it is not exactly one.
    """
    limits = {name: value for name, value in maxima.items() if value is not None}
    if len(limits) != 1:
        arguments = ", ".join(f"{name}={value}" for name, value in maxima.items())
        raise ValueError(f"give either {' or '.join(maxima)}, not both or none: got {arguments}")
    [(unit, limit)] = limits.items()
    counter, unit_size = {"minutes": ("seconds", 60), "steps": ("step", 1), "tokens": ("tokens", 1)}[unit]
    return lambda run: getattr(run, counter) / (unit_size * limit)


def train(
    run: PartRun,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    resume: bool = True,
    progress: Callable[[Progress], None] | None = None,
    checkpoint_minutes: float = 3.0,
    keep: bool = True,
    best: bool = False,
) -> Path:
    """Train a run until the budget of ``minutes`` (computing time) or ``steps`` is spent.

    Checkpoints, ``log.jsonl`` and the part itself go to the run's folder; the finished part is also kept where methods
    look for it, unless it is not to ``keep``; its folder is returned. Every so often the checkpoint is written and
    exported, and again where the user interrupts; a run that was stopped goes on from its checkpoint and gives the part
    that it would have given. ``best``: where the last validation's loss is not the lowest, the part is the one of the
    lowest, which is in the run's folder until then. Raises UserError for settings other than the checkpoint's, for an
    end that cannot be written, and where the loss is no number any more.
    """
    spent_share = budget(minutes=minutes, steps=steps)
    run.open(resume)
    lowest = BestPart(run) if best else None

    def tell(report: Progress) -> None:
        if lowest is not None and report.logged is not None:
            lowest.see(report.logged)
        if progress is not None:
            progress(report)

    try:
        run.advance(lambda: spent_share(run), lambda: try_to_save(run), checkpoint_minutes, tell)
    except KeyboardInterrupt:
        if not try_to_save(run) and lowest is not None:
            lowest.put_in_place(run.folder / "part")
        raise
    if run.logged_step != run.step:
        tell(run.progress(1.0, run.log(1.0)))
    try:
        run.save()
        place = run.export(run.folder / "part")
        if keep:
            place = run.export(own_place(run.kind, run.key))
        if lowest is not None:
            for folder in {run.folder / "part", place}:
                lowest.put_in_place(folder)
        return place
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"the {kinds()[run.kind].title} could not be written ({first_line(error, 160)}): make room and give the "
            f"same command again; {run.folder} holds the last good checkpoint"
        ) from None


class BestPart:
    """The part of a run's lowest held-out loss so far, in its folder; one that goes on knows it from its log."""

    def __init__(self, run: PartRun) -> None:
        self.run, self.folder = run, run.folder / "best"
        losses = [line["held_out_loss"] for line in run.log_file.lines()] if self.folder.is_dir() else []
        self.lowest, self.last = min(losses, default=math.inf), losses[-1] if losses else math.inf

    def see(self, line: dict[str, Any]) -> None:
        """Keep the part if this validation is the best so far; a full disk costs the best part, not the run."""
        self.last = line["held_out_loss"]
        if self.last < self.lowest:
            with contextlib.suppress(OSError, RuntimeError):
                self.run.export(self.folder)
                self.lowest = self.last

    def put_in_place(self, folder: Path) -> None:
        """Have the best part in a folder, where the last one is worse."""
        if self.lowest < self.last:
            with replacing(folder) as new:
                shutil.copytree(self.folder, new, dirs_exist_ok=True)


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
