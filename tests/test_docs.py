"""The commands in README, docs/ and the annexes' pages exist, with all options that are named beside them.

They are read by the commands' own parsers; that they do what the pages say is held by the commands' tests.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from decoders import load
from specviz.cli import COMMANDS, main, parser
from specviz.places import GALLERY

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "assets" / "lessons" / "README.md",
    *sorted((ROOT / "specviz" / "extras").glob("*/README.md")), *sorted((ROOT / ".agents").rglob("*.md")),
]  # fmt: skip
BASH = re.compile(r"^```(?:bash|text|sh|)\n(.*?)^```", re.DOTALL | re.MULTILINE)
OWN_PACKAGES = "benchmarks", "decoders", "specviz", "tests"
INLINE = re.compile(r"`((?:specviz|python -m) [^`]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
OF_ANOTHER = re.compile(r"\((\w+) (--[^)]*)\)")  # beside a command: (app --public …)


def commands_of(text: str) -> Iterator[str]:
    """The commands that a page names: lines of its shell blocks with what stands beside them, and inline code."""
    for block in BASH.findall(text):
        command = ""
        for line in block.splitlines():
            if line.startswith(" ") and command:
                command += f" {line.strip()}"  # the words beside a command go on
                continue
            if command:
                yield command
            command = line.strip()
        if command:
            yield command
    yield from INLINE.findall(text)


@cache
def options_of(name: str) -> frozenset[str]:
    """All options of a command and of its own subcommands."""
    sub = next(action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    with contextlib.suppress(SystemExit):
        sub.choices[name].parse_args(["--help"])  # the options are added when a command is asked for
    return frozenset(_options(sub.choices[name]))


def _options(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in command._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _options(sub)


def _has_module(name: str) -> bool:
    """True for a module that is there, or whose annex was deleted."""
    annex = re.match(r"specviz\.extras\.(\w+)", name)
    if annex is not None and not (ROOT / "specviz" / "extras" / annex[1]).exists():
        return True
    return importlib.util.find_spec(name) is not None


def _of_others(part: str) -> list[tuple[str, str]]:
    """Other commands that are named beside one, with their options."""
    return [(name, options) for name, options in OF_ANOTHER.findall(part) if name in COMMANDS]


def faults(text: str, deleted: frozenset[str] = frozenset()) -> list[str]:
    """Commands and options of a page that are not there."""
    wrong = []
    for command in commands_of(text):
        for part in re.split(r"\s+(?:&&|\|\||\|)\s+", command):
            words = part.split()
            if words[:2] == ["python", "-m"] and len(words) > 2 and words[2].partition(".")[0] in OWN_PACKAGES:
                wrong += [] if _has_module(words[2].rstrip(".,")) else [part]
            if words[:1] != ["specviz"] or len(words) < 2 or not re.fullmatch(r"[a-z]+", words[1]):
                continue
            if words[1] not in COMMANDS:
                wrong += [] if words[1] in deleted else [part]
                continue
            for name, beside in [(words[1], OF_ANOTHER.sub("", part)), *_of_others(part)]:
                known_options = options_of(name) | {"--help"}
                wrong += [f"{name} {option}" for option in OPTION.findall(beside) if option not in known_options]
    return wrong


def annex_commands() -> frozenset[str]:
    """Commands that annexes bring, which may have been deleted."""
    text = (ROOT / "docs" / "extras.md").read_text("utf-8")
    return frozenset(re.findall(r"^- `specviz (\w+)`", text, re.MULTILINE))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_and_options_exist(path: Path) -> None:
    assert faults(path.read_text("utf-8"), annex_commands()) == []


def test_the_readmes_race_is_the_gallerys() -> None:
    """Its numbers are those that recording the gallery wrote (``python -m specviz.views.gallery``)."""
    plain, copied = (
        load(GALLERY / f"{name}.spectrace") for name in ("5-class-docstring-plain", "2-class-docstring-pld-h")
    )
    assert plain.output_ids == copied.output_ids  # not one token differs
    seconds = [trace.tables["steps"]["elapsed_ms"][-1] / 1000 for trace in (copied, plain)]
    words = (
        f"**{len(copied.output_ids)} tokens in {copied.rows('steps')} forwards of the model instead of "
        f"{plain.rows('steps')}, {seconds[0]:.2f} s instead of {seconds[1]:.2f} s, and not one token differs**"
    )
    assert words in (ROOT / "README.md").read_text("utf-8")


RUN = "compare assets/gallery/{2,5}-*.spectrace", "methods", "methods pld+h", "models"


@pytest.mark.parametrize("command", RUN)
def test_commands_of_the_readme_run(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert f"`specviz {command}`" in text or f"`specviz {command.split()[0]} NAME`" in text
    monkeypatch.chdir(ROOT)
    words = [str(path) for word in command.split() for path in (_expand_word(word) or [word])]
    assert main(words) == 0 and len(capsys.readouterr().out) > 100


def _expand_word(word: str) -> list[Path]:
    """Files that a shell makes of a word with {a,b} and *."""
    braces = re.search(r"\{([^}]*)\}", word)
    parts = [word.replace(braces[0], part) for part in braces[1].split(",")] if braces else [word]
    return [path.relative_to(ROOT) for part in parts if "*" in part for path in sorted(ROOT.glob(part))]


def test_what_is_not_there_is_found() -> None:
    """Negative control."""
    page = """```bash
specviz runs F
specviz run --promt F   # (judge --prompts F)
specviz run --prompt F
python -m benchmarks.none
```
`specviz site`"""
    wrong = ["specviz runs F", "run --promt", "judge --prompts", "python -m benchmarks.none", "specviz site"]
    assert faults(page) == wrong
    assert len([*commands_of((ROOT / "docs" / "commands.md").read_text("utf-8"))]) > 60
