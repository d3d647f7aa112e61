"""The commands of ``benchmarks`` start, say what they take, and stand in docs/commands.md."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import benchmarks

FOLDER = Path(benchmarks.__file__).parent


def commands() -> dict[str, str]:
    """Name → text of each benchmark that is a command."""
    texts = {path.stem: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.py"))}
    return {name: text for name, text in texts.items() if "\nif __name__ ==" in text and not lacks_annex(text)}


def lacks_annex(text: str) -> bool:
    """True for a module that imports an annex which was deleted."""
    return any(find_spec(".".join(annex)) is None for annex in re.findall(r"from (specviz)\.(extras)\.(\w+)", text))


def help_of(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The text that a command's ``--help`` prints, or what it did instead."""
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as end:
        import_module(f"benchmarks.{name}").main()
    return capsys.readouterr().out if end.value.code == 0 else f"ended with {end.value.code}"


def test_every_command_tells_how_it_is_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    page = (FOLDER.parent / "docs" / "commands.md").read_text("utf-8")
    faults = []
    for name, text in commands().items():
        shown = help_of(name, monkeypatch, capsys)
        if not shown.startswith(f"usage: python -m benchmarks.{name} [-h]"):
            faults.append(f"{name} --help: {shown[:100]}")
        if f"\npython -m benchmarks.{name} " not in page:
            faults.append(f"docs/commands.md does not name python -m benchmarks.{name}")
        if f"``python -m benchmarks.{name}" not in text.partition('"""\n')[0]:
            faults.append(f"the docstring of benchmarks.{name} does not say how it is called")
    texts = {path.stem for path in FOLDER.glob("*.py")}
    gone = set(re.findall(r"^python -m benchmarks\.(\w+)", page, re.M)) - texts
    assert faults == [] and gone == set() and len(commands()) >= 10


def test_no_helper_of_the_tests_needs_a_benchmark() -> None:
    """Benchmarks are built on the tests' helpers, and never the other way round."""
    helpers = [path for path in Path(__file__).parent.rglob("*.py") if not path.name.startswith("test_")]
    wrong = [path.name for path in helpers if re.search(r"^\s*(from|import) benchmarks", path.read_text("utf-8"), re.M)]
    assert wrong == [] and len(helpers) > 20
