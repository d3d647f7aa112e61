"""Numbers of a training or a sweep, sent where people look: TensorBoard, Weights & Biases or trackio, by one option.

Each is an extra of its own (``pip install -e '.[trackio]'``) and is imported when it is asked for. ``wandb`` and
``trackio`` send where their own settings say (``WANDB_MODE``, ``TRACKIO_SPACE_ID``); TensorBoard writes into a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from decoders.errors import UserError, first_line

PROJECT = "specviz"
Send = Callable[[Mapping[str, Any], int], None]


def numbers_of(line: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a log line or a row; those of a list or of an object stand one by one, counted from 1.

    >>> numbers_of({"step": 5, "loss": 2.5, "top1": [0.5, 0.25], "text": "no number", "ok": True})
    {'step': 5.0, 'loss': 2.5, 'top1/1': 0.5, 'top1/2': 0.25}
    """
    numbers: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers[f"{prefix}{name}"] = float(value)
        elif isinstance(value, list):
            numbers |= numbers_of({str(place): item for place, item in enumerate(value, 1)}, f"{prefix}{name}/")
        elif isinstance(value, Mapping):
            numbers |= numbers_of(value, f"{prefix}{name}/")
    return numbers


@contextmanager
def tracker(name: str | None, title: str, about: Mapping[str, Any], folder: Path) -> Iterator[Send]:
    """Sends ``(line, step)`` to the tracker ``name`` until the end of the block, or nowhere where it is None.

    ``about`` are the settings that stand beside the numbers, ``folder`` is where TensorBoard's files and those of
    ``wandb`` go. Raises UserError where the package is not installed, or the tracker does not begin. What it refuses
    later is its own to report: a run goes on without it.
    """
    if name is None:
        yield lambda line, step: None
        return
    try:
        module = import_module("torch.utils.tensorboard" if name == "tensorboard" else name)
    except ImportError:
        raise UserError(f"{name} is not installed: pip install -e '.[{name}]', or leave --log-to out") from None
    try:
        if name == "tensorboard":
            writer = module.SummaryWriter(str(folder / "tensorboard"))
            writer.add_text("about", "\n".join(f"    {key}: {value}" for key, value in about.items()))
        else:
            folder_option = {"dir": str(folder)} if name == "wandb" else {}
            module.init(project=PROJECT, name=title, config=dict(about), **folder_option)
    except Exception as fault:
        raise UserError(f"{name} does not begin: {first_line(fault, 160)}; leave --log-to out") from None

    def send(line: Mapping[str, Any], step: int) -> None:
        if name == "tensorboard":
            for key, value in numbers_of(line).items():
                writer.add_scalar(key, value, step)
        else:
            module.log(numbers_of(line), step=step)

    try:
        yield send
    finally:
        writer.close() if name == "tensorboard" else module.finish()
