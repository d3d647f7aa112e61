"""``train all``: the budget over the parts, a process each, gone on with, the best weights in place."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from decoders.parts import WEIGHTS, read_part
from specviz import cli
from tests.command import refusal
from tests.drafts import needs_kinds, save_tiny_part
from tests.models import tiny_target

from .. import train_all
from ..loop import BestPart
from .training import run_of, source_for

pytestmark = [pytest.mark.usefixtures("home"), needs_kinds("medusa", "dflash")]

CHILD = """
import json, pathlib, shutil, sys
part, out, made, code = sys.argv[1:]
out = pathlib.Path(out)
with (out / "log.jsonl").open("a") as log:
    log.write(json.dumps({"step": 1, "tokens": 40, "seconds": 1.0, "held_out_loss": 2.0, "top1": [0.25, 0.1]}) + "\\n")
if code == "0":
    shutil.copytree(made, out / "part", dirs_exist_ok=True)
else:
    print("the loss is no number any more")
sys.exit(int(code))
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Trainings that a command begins: part and minutes; the processes are small ones that write what trainings do."""
    made, begun = save_tiny_part(tiny_target(), "medusa", tmp_path / "made"), []

    def command(args: argparse.Namespace, out: Path, part: str, minutes: float) -> list[str]:
        begun.append((part, minutes))
        code = "1" if part == "hydra" and len(begun) < 4 else "0"
        return [sys.executable, "-c", CHILD, part, str(out / part), str(made), code]

    monkeypatch.setattr(train_all, "command", command)
    return begun


def test_parts_are_trained_in_the_order_of_their_worth_and_gone_on_with(
    jobs: list[tuple[str, float]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "all"
    words = ["train", "all", "--out", str(out), "--parts", "medusa", "eagle3", "hydra"]
    assert cli.main([*words, "--budget", "100m"]) == 1
    assert [part for part, _ in jobs] == ["eagle3", "hydra", "medusa"]
    first, second, third = (minutes for _, minutes in jobs)
    shares = [80 * 0.34 / 0.54, 80 * 0.12 / 0.2, 80]  # each took next to nothing, and left the rest to the next
    assert [first, second, third] == pytest.approx(shares, rel=0.02)
    said = capsys.readouterr()
    assert "failed: hydra: the loss is no number any more" in said.err and "2 parts in" in said.out
    with (out / train_all.CURVE).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["part"] for row in rows] == ["eagle3", "hydra", "medusa"] and rows[0]["acceptance"] == "0.25"
    assert (out / "acceptance.html").is_file() and (out / "parts" / "medusa" / WEIGHTS).is_file()
    assert cli.main([*words, "--budget", "100m"]) == 0  # what is done is done
    assert len(jobs) == 4 and jobs[-1][0] == "hydra"
    assert "have rate None, not 0.5" in refusal(capsys, *words, "--budget", "100m", "--rate", "0.5")
    state = json.loads((out / train_all.STATE).read_text("utf-8"))
    (out / train_all.STATE).write_text(json.dumps({**state, "seconds": 6001.0}), "utf-8")
    assert "are spent" in refusal(capsys, *words, "--budget", "100m")


def test_a_large_part_is_stored_in_int8(
    jobs: list[tuple[str, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train_all, "MOST_BYTES", 100)
    out = tmp_path / "all"
    assert cli.main(["train", "all", "--out", str(out), "--parts", "medusa", "--budget", "9s"]) == 0
    small, large = ((place / WEIGHTS).stat().st_size for place in (out / "parts" / "medusa", out / "medusa" / "part"))
    assert small < 0.6 * large and "stored in int8" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_command_of_a_training_names_what_its_kind_takes(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoders.model.target_model.load.chosen_device", lambda given: device)
    parser = argparse.ArgumentParser()
    train_all.add(parser)
    given = "--budget 2m --kv-layer 3 --rate 0.02 --draft-vocab 99 --fast --fp32"
    args = parser.parse_args(given.split(), argparse.Namespace(program=["specviz"]))
    made = {part: train_all.command(args, Path("o"), part, 1.5) for part in train_all.worths()}
    sizes = dict[str, tuple[int, int]]()
    for part, words in made.items():
        cli_parser = argparse.ArgumentParser()
        from .. import train_command as train

        train.add(cli_parser)
        read = cli_parser.parse_args(words[words.index("train") + 1 :])
        assert read.part == part and read.minutes == 1.5 and read.best and read.apart and read.fast and read.fp32
        sizes[part] = read.batch_tokens, getattr(read, "positions", read.batch_tokens)
    assert "--kv-layer" in made["glide"] and "--kv-layer" not in made["drafter"]
    assert "--rate" in made["eagle"] and "--states" not in made["ppd"]
    large = device == "cuda"  # a step of so many tokens, from so many positions
    assert sizes["eagle3"] == ((16384, 8192) if large else (2048, 1024)) and sizes["dflash"][1] == 256
    assert sizes["glide"][0] == (16384 if large else 5120) and sizes["ppd"][0] == (8192 if large else 2048)


def test_the_best_part_is_put_in_place(text: Path, tmp_path: Path) -> None:
    run: Any = run_of("medusa", tmp_path / "run", source_for("medusa", text))
    best = BestPart(run)
    for step, loss in ((1, 2.0), (2, 1.0), (3, 1.5)):
        run.step = step
        best.see({"held_out_loss": loss})
    last = run.export(tmp_path / "run" / "part")
    best.put_in_place(last)
    assert read_part(last).training["steps"] == 2
    best.see({"held_out_loss": 0.5})
    run.export(last)
    best.put_in_place(last)
    assert read_part(last).training["steps"] == 3
    run.log_file.add({"step": 3, "held_out_loss": 0.5})
    again = BestPart(run)
    assert (again.lowest, again.last) == (0.5, 0.5)


@pytest.mark.parametrize("text", ["0m", "-3", "soon", "", "infh"])
def test_a_budget_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="90s, 20m or 1.5h"):
        train_all.seconds_of(text)
