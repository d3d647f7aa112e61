"""The commands in shell blocks of README, docs/ and the annexes' pages run, with the bundled target and small inputs,
or are marked in the page's source as not run here and why: ``<!-- not run here (a server): specviz app -->``. A mark
names beginnings of commands, with ``|`` between them; readers do not see it.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from decoders import Prompt, load_target, record, save
from specviz.cli import COMMANDS

from .command import specviz
from .test_docs import PAGES, ROOT, annex_commands, commands_of

FENCE = re.compile(r"^```(\w*)\n.*?^```$\n?", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!-- not run here \(([^)]+)\): (.+?) -->", re.DOTALL)
PROGRAMS = "docker", "pip", "python", "python3", "specviz", "vllm"
BESIDE = re.compile(r"\s{2,}.*|\s+#\s.*")  # words that say what a command does
OPTIONAL = re.compile(r"\s\[[^\]]*\]")
INPUTS = {  # what a placeholder stands for, behind an option or by itself
    "--prompt-file F": "--prompt-file prompt.txt", "--answer F": "--answer answer.txt",
    "--prompts F.jsonl": "--prompts prompts.jsonl", "--prompts F": "--prompts prompts.jsonl",
    "--html F": "--html F.html",
    "--prompts FILE": "--prompts prompts.jsonl", "--json-schema FILE": "--json-schema schema.json",
    "--prompt T": "--prompt 'the old lamp. the old'", "--step N": "--step 2", "--node K": "--node 1",
    "--methods M": "--methods pld", "--methods NAME": "--methods pld", "TRACE…": "run.spectrace", "--model M": "",
    "TRACE TRACE": "plain.spectrace lookup.spectrace", "TRACES": "run.spectrace", "TRACE": "run.spectrace",
    "WORDS": "lamp --runs .", "DEST": "site", "DATASET": "dataset", "RUNS": ".",
    "methods new NAME": "methods new latest", "methods check FILE": "methods check latest.py",
    "lessons check FILE": "lessons check lesson.txt", "my-lesson.txt": "lesson.txt", "users add FILE NAME": "users",
    "parts add HEAD": "parts add part", "parts shrink FOLDER": "parts shrink part", "import FILE": "import server.log",
    "OUT --format F": "exported --format speculators",
}  # fmt: skip
SHORT = "--max-new-tokens 8"
SMALLER = {  # options that make a command small, by its beginning
    "run --methods": SHORT, "verify": f"--limit 1 {SHORT}", "bench": f"--limit 1 {SHORT} --repeats 1",
    "compare --methods": SHORT, "run --methods llma --forced": "--prompt 'the old lamp. the old'",
    "run --processor": f"--prompt 'the old lamp. the old' {SHORT}", "run --methods jump": "--prompt 'the old lamp'",
    "publish": "--no-lessons", "calibrate": "--limit 1",
}  # fmt: skip


def commands(text: str) -> Iterator[str]:
    """The commands of a page's shell blocks, without the words beside them."""
    blocks = "\n".join(block[0] for block in FENCE.finditer(text) if block[1] in ("bash", "text", "sh", ""))
    for command in commands_of(blocks):
        if command.partition(" ")[0] in PROGRAMS:
            yield BESIDE.sub("", command)


def marks(text: str) -> dict[str, str]:
    """Beginnings of commands that are not run here, each with the reason."""
    return {
        " ".join(beginning.split()): " ".join(reason.split())
        for reason, beginnings in MARK.findall(text)
        for beginning in beginnings.split("|")
    }


def runnable(command: str) -> list[str]:
    """A command's words with placeholders filled and its work made small; [] for one that this file cannot run."""
    for placeholder, value in INPUTS.items():
        command = re.sub(rf"(?<!\S){re.escape(placeholder)}(?!\S)", lambda _, value=value: value, command)
    try:
        words = shlex.split(OPTIONAL.sub("", command))
    except ValueError:  # a quotation that does not end
        return []
    if words[0] != "specviz" or len(words) < 2 or words[1] not in COMMANDS:
        return []
    if any(re.fullmatch(r"[A-Z]{2,}…?|[A-Z]", word) for word in words if word != "T"):
        return []  # a placeholder that nothing fills
    beginnings = [beginning for beginning in SMALLER if " ".join(words[1:]).startswith(beginning)]
    return words[1:] + (shlex.split(SMALLER[max(beginnings, key=len)]) if beginnings else [])


def command_faults(text: str, deleted: frozenset[str] = frozenset()) -> list[str]:
    """Commands of a page that are neither run nor marked, and marks that no command has; those of a deleted annex may
    be there.
    """
    marked, found = marks(text), [*commands(text)]
    open_commands = [
        command for command in found if not any(command.startswith(mark) for mark in marked) and not runnable(command)
        and not deleted.intersection(command.split()[1:2])
    ]
    return open_commands + [mark for mark in marked if not any(command.startswith(mark) for command in found)]


@cache
def to_run() -> tuple[str, ...]:
    """Every command that runs, once."""
    pages = [path.read_text("utf-8") for path in PAGES]
    return tuple(dict.fromkeys(
        shlex.join(runnable(command)) for page in pages for command in commands(page)
        if runnable(command) and not any(command.startswith(mark) for mark in marks(page))
    ))  # fmt: skip


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_runs_or_says_why_not(path: Path) -> None:
    assert command_faults(path.read_text("utf-8"), annex_commands() - COMMANDS.keys()) == []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the inputs that the commands name."""
    folder = tmp_path_factory.mktemp("docs")
    target = load_target("bundled")
    prompt = Prompt.from_text(target.tokenizer, "Say it twice: the old lamp. the old")
    for name, method in {"run": "sps", "plain": "plain", "lookup": "pld+h"}.items():
        save(record(target, prompt, method, max_new_tokens=16), folder / f"{name}.spectrace")
    (folder / "prompt.txt").write_text("Say it twice: the old lamp. the old")
    (folder / "answer.txt").write_text("the old lamp.")
    (folder / "schema.json").write_text('{"type": "boolean"}')
    shutil.copy(ROOT / "assets" / "examples" / "bundled.jsonl", folder / "prompts.jsonl")
    shutil.copytree(ROOT / "assets" / "demo" / "parts" / "glide", folder / "part")
    for log in (ROOT / "specviz" / "extras").glob("servers/tests/samples/llama_debug.log"):
        shutil.copy(log, folder / "server.log")
    shutil.copy(next((ROOT / "assets" / "lessons").glob("*.txt")), folder / "lesson.txt")
    return folder


@pytest.mark.slow("opens the bundled target for most of them")
@pytest.mark.parametrize("command", to_run())
def test_a_command_of_the_docs_runs(
    command: str, place: Path, module_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(place)
    if command == "methods check latest.py" and not (place / "latest.py").exists():
        assert specviz("methods", "new", "latest") == 0
    assert specviz(*shlex.split(command)) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert out or err


def test_what_is_neither_run_nor_marked_is_found() -> None:
    """Negative control."""
    page = """<!-- not run here (a server): specviz app | specviz mcp -->
```bash
specviz app --port 1    the app
specviz doctor --part P
specviz models          the models
```"""
    assert command_faults(page) == ["specviz doctor --part P", "specviz mcp"]
    assert runnable("specviz drafts TRACE…") == ["drafts", "run.spectrace"]
