"""Trainings as units: parts × seeds in one command, gone on with, each told with what it reached."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from decoders.parts import find_part, read_part
from specviz import cli
from specviz.workers.folder import ResultFolder
from specviz.workers.kinds import Workers
from tests.command import refusal
from tests.drafts import needs_kinds
from tests.models import save_model
from tests.standin import Here

from .. import train_units

pytestmark = [pytest.mark.usefixtures("home"), needs_kinds("medusa")]


@pytest.fixture
def command(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command whose worker is this process; ``Here.order`` would be all that starting others adds."""
    monkeypatch.setattr(Workers, "pool", lambda workers, job: Here(job))
    small = ["--steps", "1", "--threads", "1", "--model", save_model(tmp_path / "model"), "--data", str(text)]
    return ["train", "several", "medusa", "drafter", *small, "--results", str(tmp_path / "all")]


@pytest.mark.slow("trains several parts")
def test_parts_and_seeds_are_trained_once_and_the_best_of_each_part_is_kept(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command, "--seeds", "0", "1"]) == 0
    with (tmp_path / "all" / train_units.TABLE).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["part"], row["seed"], row["step"]) for row in rows] == [
        ("medusa", "0", "1"), ("medusa", "1", "1"), ("drafter", "0", "1"), ("drafter", "1", "1"),
    ]  # fmt: skip
    for part in ("medusa", "drafter"):
        mine = [row for row in rows if row["part"] == part]
        best = min(mine, key=lambda row: float(row["held_out_loss"]))
        key = read_part(Path(best["path"])).model_key
        kept = find_part(key, part)
        assert kept is not None and read_part(kept).training["seed"] == int(best["seed"])
    logs = {path: path.stat().st_mtime_ns for path in (tmp_path / "all").rglob("log.jsonl")}
    said = capsys.readouterr()
    assert len(logs) == 4 and "medusa seed 0: step 1, loss" in said.err and "held-out loss" in said.out
    assert cli.main([*command, "--seeds", "0", "1", "2"]) == 0  # two more
    assert all(path.stat().st_mtime_ns == when for path, when in logs.items())
    assert len(ResultFolder(tmp_path / "all").list_units()[0]) == 6


def test_a_training_that_fails_is_told_and_the_others_are_done(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from .. import train_command as train

    def break_down(*_: Any) -> int:
        raise ValueError("these heads cannot be trained")

    monkeypatch.setattr(train, "_train_heads", break_down)
    assert cli.main([*command, "--seeds", "3"]) == 1
    said = capsys.readouterr().err
    assert "medusa seed 3 failed: These heads cannot be trained." in said and "1 training failed" in said
    assert [len(keys) for keys in ResultFolder(tmp_path / "all").list_units()] == [1, 1]
    monkeypatch.undo()


def test_what_makes_no_sense_for_several_is_refused(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "several have folders of their own" in refusal(capsys, *command, "--out", "x")
    assert "is no folder of a disk" in refusal(capsys, *command[:-1], f"local://{tmp_path}/all")
