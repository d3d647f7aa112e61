"""What commands and sentences say of Ray, whether it is installed or not."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from decoders.errors import UserError
from specviz.workers.folder import ResultFolder
from specviz.workers.kinds import Workers
from tests.command import refusal
from tests.test_workers import folder, job_of  # noqa: F401


def test_missing_packages_are_named_with_what_installs_them(
    folder: ResultFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"--on ray needs ray, which is not installed: pip install -e '.\[ray\]'"):
        Workers(1, "ray").pool(job_of(folder))


def test_ray_is_a_kind_that_is_offered_where_slurm_was() -> None:
    assert Workers.behind_app("ray:4").threads_each == 1
    with pytest.raises(UserError, match="choose one of processes, ray$"):
        Workers(1, "threads")
    with pytest.raises(UserError, match="take ray on a SLURM allocation, or several tasks on one results folder"):
        Workers(1, "slurm")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["app", "--ray-address", "auto"], "goes with --backends KIND:N"),
        (["bench", "--workers", "2", "--on", "processes", "--ray-address", "auto"], "processes: leave one out"),
    ],
)
def test_an_address_without_ray_is_refused(command: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refusal(capsys, *command)


def test_no_module_of_the_core_names_ray() -> None:
    root = Path(__file__).resolve().parents[4]
    texts = {path: path.read_text("utf-8") for top in ("decoders", "specviz") for path in (root / top).rglob("*.py")}
    core = {path: text for path, text in texts.items() if "extras" not in path.relative_to(root).parts}
    assert [path for path, text in core.items() if re.search(r"\bray\b", text, re.IGNORECASE)] == []
