"""The house: floors in order, no circle of imports. Imports inside functions, those for type checking and those by name
(``import_module("…")``) count, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from types import SimpleNamespace

import pytest

import conftest

ROOT = Path(__file__).resolve().parent.parent
# from the ground up; a module imports from its own floor and from those before it
DECODERS = (
    "", "trace", "importers", "prompt", "servers", "draft", "model", "verifiers", "method", "draft_models",
    "prompt_tokens", "parts", "drafters", "engine", "recorder", "study", "sweep", "__init__",
)  # fmt: skip
SPECVIZ = (
    "", "workers", "views", "server", "shell", "pages", "app",
    "commands", "cli", "__main__", "extras",
)  # fmt: skip
FLOORS = {
    "": ("decoders", "specviz"),
    "decoders": DECODERS,
    "specviz": SPECVIZ,
    "decoders.model": ("", "files", "state", "engines", "target_model"),
    "decoders.study": ("", "look", "attribute", "measure", "judge"),
}
LONGEST_FILE, LONGEST_FUNCTION = 450, 100  # lines

Graph = dict[str, dict[str, int]]


def name_of(path: str) -> str:
    """A module's name, from its path inside the repository."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def sources() -> dict[str, str]:
    """Path → text of every module of the two packages."""
    paths = sorted(path for package in ("decoders", "specviz") for path in (ROOT / package).rglob("*.py"))
    files = (path for path in paths if "tests" not in path.parts)
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in files}


@cache
def syntax_tree(text: str) -> ast.Module:
    """A module's syntax tree, parsed once for all checks."""
    return ast.parse(text)


def too_long(files: Mapping[str, str]) -> list[str]:
    """Files, and functions of Python files, of more lines than may be."""
    faults = [f"{path} has {n} lines" for path, text in files.items() if (n := text.count("\n")) > LONGEST_FILE]
    for path, text in files.items():
        if path.endswith(".py") and text.count("\n") > LONGEST_FUNCTION:
            for node in ast.walk(syntax_tree(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    lines = (node.end_lineno or 0) - node.lineno + 1
                    faults += [f"{path} {node.name} has {lines} lines"] * (lines > LONGEST_FUNCTION)
    return faults


def called_name(call: ast.Call) -> str:
    """The last name of what is called."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def modules_in_strings(text: str, module: str, package: str) -> Iterator[tuple[str, int]]:
    """Patterns of the module names in a file's strings, each with its line: a module may be imported by any of them."""
    own = {"__name__": module, "__package__": package}

    def pattern(part: ast.expr) -> str:
        value = part.value if isinstance(part, ast.Constant) else own.get(ast.unparse(part).strip("f'{}"))
        return r"[\w.]+" if value is None else re.escape(str(value))

    for node in ast.walk(syntax_tree(text)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(map(pattern, node.values)), node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.escape(node.value.partition(":")[0]), node.lineno
        elif isinstance(node, ast.Call) and called_name(node).endswith("import_module"):
            name = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
            if str(name).startswith("."):
                yield re.escape(resolve_name(str(name), package)), node.lineno


def graph(files: Mapping[str, str]) -> Graph:
    """Module → the modules of these files that it imports anywhere, each with the line that does."""
    modules = {name_of(path) for path in files}
    tops = tuple(re.escape(f"{top}.") for top in FLOORS[""])

    @cache
    def matching(pattern: str) -> list[str]:
        return [name for name in modules if re.fullmatch(pattern, name)] if pattern.startswith(tops) else []

    def imported_names(path: str, text: str) -> Iterator[tuple[str, int]]:
        parent = name_of(path) if path.endswith("/__init__.py") else name_of(path).rpartition(".")[0]
        for pattern, line in modules_in_strings(text, name_of(path), parent):
            yield from ((name, line) for name in matching(pattern))
        package = parent.split(".")
        for node in ast.walk(syntax_tree(text)):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names:
                    whole = f"{base}.{alias.name}"
                    yield whole if whole in modules else base, node.lineno

    return {
        name_of(path): {name: line for name, line in imported_names(path, text) if name in modules - {name_of(path)}}
        for path, text in files.items()
    }


def circles(imports: Graph) -> list[list[str]]:
    """Modules that import each other, directly or through others: strongly connected parts (Tarjan)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    parts: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in imports[module]:
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            part = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(part) > 1:
                parts.append(sorted(part))

    for module in imports:
        if module not in number:
            visit(module)
    return parts


def floors(module: str) -> dict[str, int]:
    """The packages that a module is in, each with the number of its floor; files beside the folders are the ground, a
    package's own module is its floor ``__init__``.
    """
    numbers = {}
    for package, names in FLOORS.items():
        if not package or module == package or module.startswith(f"{package}."):
            name = module.removeprefix(package).removeprefix(".").partition(".")[0] or "__init__"
            numbers[package] = names.index(name) if name in names else 0
    return numbers


def upward(imports: Graph) -> list[str]:
    """Imports of a higher floor, as sentences."""
    faults = []
    for module, others in imports.items():
        mine = floors(module)
        for other, line in others.items():
            if any(number > mine.get(package, number) for package, number in floors(other).items()):
                faults.append(f"{module}, line {line}, imports {other}, which stands above it")
    return faults


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """For a file that parses modules: a million nodes are not kept, through which garbage collections would look."""
    yield
    syntax_tree.cache_clear()


@cache
def house_graph() -> Graph:
    """The imports of both packages."""
    return graph(sources())


@pytest.fixture(scope="module")
def house() -> Graph:
    return house_graph()


def test_no_modules_import_each_other(house: Graph):
    assert circles(house) == []


def test_imports_go_down(house: Graph):
    assert upward(house) == []


def test_no_file_and_no_function_is_too_long():
    web = ROOT / "assets" / "web"
    browser = [path for path in web.rglob("*.js") if path.parent.name != "vendor"]
    scripts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in browser}
    assert len(browser) > 100 and too_long({**sources(), **scripts}) == []


def test_what_is_too_long_is_seen():
    """Negative control."""
    lines = "    x = 1\n"
    assert too_long({"a.py": "def f():\n" + lines * LONGEST_FUNCTION}) == ["a.py f has 101 lines"]
    assert too_long({"a.js": lines * (LONGEST_FILE + 1)}) == ["a.js has 451 lines"]
    assert too_long({"a.py": "def f():\n" + lines * (LONGEST_FUNCTION - 1), "a.js": lines * LONGEST_FILE}) == []


def test_every_folder_is_a_floor():
    for package, names in FLOORS.items():
        folders = {path.parent.name for path in ROOT.joinpath(*package.split(".")).glob("*/__init__.py")}
        assert folders - {"tests", "benchmarks"} <= set(names), f"name the floor of {folders - set(names)}"


@pytest.mark.parametrize(
    "line",
    [
        "from .b import x",
        "from decoders.study import b",
        "import decoders.study.b",
        "def late():\n    from decoders.study.b import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import b",
        "import importlib\nimportlib.import_module('decoders.study.b')",
        "__import__('decoders.study.b')",
        "def late():\n    return import_module('.b', __package__)",
        "def late(name):\n    return import_module(f'{__package__}.{name}')",
        "LESSON = 'decoders.study.b:LESSON'",
    ],
)
def test_a_circle_is_seen_however_it_is_imported(line: str):
    """Negative control."""
    files = {"decoders/study/a.py": line, "decoders/study/b.py": "def late():\n    from .c import y"}
    assert circles(graph({**files, "decoders/study/c.py": ""})) == []
    closed = graph({**files, "decoders/study/c.py": "from decoders.study import a"})
    assert circles(closed) == [["decoders.study.a", "decoders.study.b", "decoders.study.c"]]


def test_an_upward_import_is_seen():
    """Negative control."""
    files = {"decoders/trace/a.py": "def late():\n    from decoders.engine import b", "decoders/engine/b.py": ""}
    assert upward(graph(files)) == ["decoders.trace.a, line 2, imports decoders.engine.b, which stands above it"]
    assert upward(graph({"decoders/trace/a.py": "", "decoders/engine/b.py": "from decoders.trace import a"})) == []
    facade = {"decoders/__init__.py": "from .engine import b", "decoders/engine/b.py": ""}
    assert upward(graph(facade)) == []
    assert upward(graph({**facade, "decoders/trace/a.py": "from decoders import load"})) == [
        "decoders.trace.a, line 1, imports decoders, which stands above it"
    ]
    front = {"decoders/trace/a.py": "VIEW = 'specviz.views.a:show'", "specviz/views/a.py": ""}
    assert upward(graph(front)) == ["decoders.trace.a, line 1, imports specviz.views.a, which stands above it"]
    inner = {"decoders/model/state/a.py": "from ..target_model import b", "decoders/model/target_model/b.py": ""}
    assert upward(graph(inner)) == [
        "decoders.model.state.a, line 1, imports decoders.model.target_model.b, which stands above it"
    ]


@pytest.mark.parametrize(
    ("named", "processes"),
    [
        (["tests/test_tree.py"], 0), (["tests/test_tree.py::test_a", "tests/test_tree.py::test_b"], 0),
        (["tests/browser"], 0), (["tests/browser/test_app.py", "tests/browser/test_runs.py"], 0),
        (["tests/test_tree.py", "tests/browser/test_app.py"], 2), (["tests"], 4), (["tests", "decoders", "specviz"], 4),
    ],
)  # fmt: skip
def test_no_more_processes_are_started_than_files_can_keep_busy(
    monkeypatch: pytest.MonkeyPatch, named: list[str], processes: int
) -> None:
    monkeypatch.setattr(conftest.os, "cpu_count", lambda: 2)
    config = SimpleNamespace(args=named, invocation_params=SimpleNamespace(dir=conftest.BROWSER.parents[1]))
    assert conftest.pytest_xdist_auto_num_workers(config) == processes  # type: ignore[arg-type]


def test_browsers_and_long_files_come_first():
    files = ["tests/test_tree.py", "tests/test_verifiers.py", "tests/test_doctor.py", "tests/browser/test_verifiers.py"]
    files += ["tests/test_lab_browser.py", "tests/test_a.py"]
    ordered = sorted(files, key=lambda file: conftest.place_in_run(ROOT / file))
    assert ordered == [*files[3:5], files[2], files[1], files[0], files[5]]
