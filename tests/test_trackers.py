"""Numbers sent to TensorBoard, Weights & Biases or trackio: stand-ins of the three, with what they are called with."""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec

import pytest

from decoders.errors import UserError
from specviz.views.trackers import tracker

LINE = {"step": 2, "loss": 1.5, "top1": [0.25, 0.5], "name": "x"}


class Writer:
    """A SummaryWriter."""

    def __init__(self, folder: str) -> None:
        self.folder, self.scalars, self.closed = folder, [], False

    def add_text(self, name: str, text: str) -> None:
        self.text = text

    def add_scalar(self, *given: object) -> None:
        self.scalars.append(given)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def arrivals(monkeypatch: pytest.MonkeyPatch) -> list:
    """Calls of ``wandb`` and ``trackio``."""
    calls: list = []
    for name in ("wandb", "trackio"):
        module = types.ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)  # others look whether it is there
        for work in ("init", "log", "finish"):
            setattr(module, work, lambda *given, a=(name, work), **more: calls.append((*a, given, more)))
        monkeypatch.setitem(sys.modules, name, module)
    return calls


def test_wandb_and_trackio_get_settings_numbers_and_an_end(arrivals, tmp_path):
    for name in ("wandb", "trackio"):
        with tracker(name, "eagle3 for x", {"steps": 4}, tmp_path) as send:
            send(LINE, 2)
    where = {"dir": str(tmp_path)}
    begun = {"project": "specviz", "name": "eagle3 for x", "config": {"steps": 4}}
    numbers = ({"step": 2.0, "loss": 1.5, "top1/1": 0.25, "top1/2": 0.5},)
    assert arrivals == [
        ("wandb", "init", (), begun | where), ("wandb", "log", numbers, {"step": 2}), ("wandb", "finish", (), {}),
        ("trackio", "init", (), begun), ("trackio", "log", numbers, {"step": 2}), ("trackio", "finish", (), {}),
    ]  # fmt: skip


def test_tensorboard_gets_them_into_the_folder_and_is_closed_after_a_fault(monkeypatch, tmp_path):
    writers: list[Writer] = []
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = lambda folder: writers.append(Writer(folder)) or writers[-1]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    with pytest.raises(KeyboardInterrupt), tracker("tensorboard", "x", {"seed": 1}, tmp_path) as send:
        send(LINE, 2)
        raise KeyboardInterrupt
    (writer,) = writers
    assert writer.folder == str(tmp_path / "tensorboard") and writer.closed and "seed: 1" in writer.text
    assert ("top1/2", 0.5, 2) in writer.scalars and len(writer.scalars) == 4


def test_what_is_missing_or_does_not_begin_is_a_sentence(monkeypatch, arrivals, tmp_path):
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(UserError, match=r"trackio is not installed: pip install -e '\.\[trackio\]'"):
        tracker("trackio", "x", {}, tmp_path).__enter__()

    def refuse(**_: object) -> None:
        raise RuntimeError("no key\nsecond line")

    monkeypatch.setattr(sys.modules["wandb"], "init", refuse)
    with pytest.raises(UserError, match="wandb does not begin: .*no key; leave --log-to out"):
        tracker("wandb", "x", {}, tmp_path).__enter__()
    with tracker(None, "x", {}, tmp_path) as send:
        send(LINE, 1)
