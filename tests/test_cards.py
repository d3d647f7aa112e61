"""A method carries all its facts: nothing else names one to treat it specially, and a part's kind is its method's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from decoders import methods

ROOT = Path(__file__).resolve().parent.parent
NAMES = frozenset(name for name, method in methods().items() if not method.null)
OWN = (  # where methods are made, or named as defaults; annexes
    "decoders/drafters/", "decoders/names.py", "assets/web/base/methods.js",
    "specviz/extras/",
)  # fmt: skip
OTHER = {  # the same word for another thing, by file
    "decoders/engine/rows.py": {"plain"}, "decoders/importers/request_trace.py": {"plain"},  # table, kind, outcome
    "decoders/study/judge/judge.py": {"rest"},  # of the mass that a trace does not hold
    "specviz/views/frames.py": {"plain"},  # the table
    "specviz/pages/compare/outcome.py": {"plain"}, "specviz/pages/acceptance/acceptance_page.py": {"plain", "rest"},
    "specviz/pages/acceptance/judging.py": {"rest"},
    "specviz/commands/run.py": {"plain"},
    "assets/web/compare/outputs.js": {"plain"},
}  # fmt: skip


def python_names(source: str) -> Iterator[tuple[int, str]]:
    """Strings that are a method's name, with their lines; docstrings and annotations left out."""
    tree = ast.parse(source)
    notes = {id(n) for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) for n in ast.walk(node.annotation)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in NAMES and id(node) not in notes:
            yield node.lineno, node.value


def script_names(source: str) -> Iterator[tuple[int, str]]:
    """The same of a script; comments left out."""
    source = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), source, flags=re.DOTALL)
    for number, line in enumerate(source.split("\n"), 1):
        for found in re.finditer(r"""(["'`])([\w+]+)\1""", line.partition(" // ")[0]):
            if found[2] in NAMES:
                yield number, found[2]


def faults() -> list[str]:
    files = [path for top in ("decoders", "specviz", "assets/web") for path in ROOT.glob(f"{top}/**/*.*")]
    found = []
    for file in files:
        path = file.relative_to(ROOT).as_posix()
        if file.suffix not in (".py", ".js") or "/tests/" in path or "/recipes/" in path:
            continue
        if not path.startswith(OWN) and ".min." not in path and "vendor" not in path:
            names = python_names if file.suffix == ".py" else script_names
            allowed = OTHER.get(path, set())
            found += [f"{path}:{n} names {name}" for n, name in names(file.read_text("utf-8")) if name not in allowed]
    return sorted(found)


def test_no_other_module_names_a_method_to_treat_it_specially():
    assert faults() == []


@pytest.mark.parametrize(
    ("names", "source"),
    [
        (python_names, 'def f(m):\n    return m.name == "glide+cape"'),
        (python_names, 'PARTS = {"sps": 1}'),
        (script_names, 'const wide = run.method.name === "sps";'),
        (script_names, "/* a comment */ const FIRST = ['pld'];"),
    ],
)
def test_a_special_treatment_is_seen(names, source):
    """Negative control."""
    assert len([*names(source)]) == 1


def test_words_and_comments_are_none():
    """Negative control of the other kind."""
    assert not [*script_names("/* the method 'pld' */ const words = 'pld of old'; // 'sps'")]
    assert not [*python_names('"""pld"""\nx: "list[int]" = []  # "pld"'.replace('"""pld"""', '"""The pld."""'))]


def test_what_is_excepted_is_there():
    """An exception whose file or word is gone goes, too."""
    for path, words in OTHER.items():
        names = python_names if path.endswith(".py") else script_names
        assert words & {name for _, name in names((ROOT / path).read_text("utf-8"))}, path


