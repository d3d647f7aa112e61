"""Shared by training tests: a text that is learnt in a few steps, and runs of every kind of part on tiny models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from decoders.method.part import HEADS, kinds
from tests.models import network, tiny_tokenizer

from .. import drafter, heads, prompt_tokens
from ..data import FileSource
from ..heads import lesson_of
from ..loop import train

HEAD_KINDS: dict[str, Any] = {
    name: lesson_of(name)
    for name, kind in kinds().items()
    if kind.training is not None and kind.training.family == HEADS
}
TINY: dict[str, Any] = {
    **dict.fromkeys(("glide", "drafter"), drafter.Recipe(batch_tokens=1500, warmup_steps=3, validate_steps=12)),
    "ppd": prompt_tokens.Recipe(batch_tokens=600, rows=600, validate_steps=12),
    **dict.fromkeys(
        HEAD_KINDS, heads.Recipe(heads=2, batch_tokens=600, positions=300, warmup_steps=3, validate_steps=12)
    ),
}
LENGTH = {"glide": 96, "drafter": 96, "ppd": 48, **dict.fromkeys(HEAD_KINDS, 48)}  # tokens of a document


def source_for(kind: str, text: Path) -> FileSource:
    return FileSource(tiny_tokenizer(), [text], 0, length=LENGTH[kind], documents=12)


def begun(kind: str, folder: Path, model: Any, source: Any, recipe: Any = None, seed: int = 0, **options: Any) -> Any:
    """A run by the tiny recipe or another one, not opened yet."""
    made: Any = prompt_tokens.PromptTokenTraining if kind == "ppd" else drafter.DrafterTraining
    if kind in HEAD_KINDS:
        made = heads.run_of(HEAD_KINDS[kind], folder.parent / "states")
    return made(kind, folder, model, "tiny", source, recipe or TINY[kind], seed, **options)


def run_of(kind: str, folder: Path, source: Any, family: str = "llama", seed: int = 0, **changes: Any) -> Any:
    """An opened run; ``changes`` are of the tiny recipe."""
    run = begun(kind, folder, network(family), source, replace(TINY[kind], **changes), seed)
    run.open(True)
    return run


def train_kind(
    kind: str, out: Path, model: Any, source: Any, recipe: Any = None, seed: int = 0, **options: Any
) -> Path:
    """Train a part as its command does, by the tiny recipe."""
    return train(begun(kind, out, model, source, recipe, seed), **options)


def train_and_log(
    kind: str, out: Path, model: Any, source: Any, recipe: Any = None, steps: int = 40
) -> tuple[Path, list[float], list[dict[str, Any]]]:
    """The place of a part that so many steps train, the loss of each, and the lines that were logged."""
    losses, logged = [], []

    def see(now: Any) -> None:
        losses.append(now.loss)
        logged.extend([now.logged] if now.logged else [])

    return train_kind(kind, out, model, source, recipe, steps=steps, progress=see), losses, logged
