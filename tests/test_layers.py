"""The house: who may import whom, what stays cheap to import, and what no file may hold."""

from __future__ import annotations

import ast
import datetime
import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from decoders.extra import extras

from . import tiers
from .test_house import syntax_tree, trees  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent
STDLIB = set(sys.stdlib_module_names)
FRONT = {"specviz", "gradio", "plotly", "pandas"}
HEAVY = {"torch", "transformers", "safetensors", "tokenizers", "jaxtyping"}
BY_NAME = ("import_module", "__import__", "resolve_name")  # functions that import what a string names
# decoders' modules that open, check and count traces where torch is not installed
LIGHT = {
    "errors", "extra", "folders", "importers.fields", "importers.importer", "importers.request",
    "importers.request_trace", "importers.source", "importers.values", "imports",
    "names", "draft.params", "draft.settings", "draft.tree", "method.kept", "method.part", "method.plugin_files",
    "model.files.catalog",
    "study.attribute.attribution", "study.attribute.export", "study.attribute.rarity",
    "study.attribute.text", "study.attribute.turns",
    "study.attribute.verbatim",
    "sweep.plan", "sweep.timing", "trace.check", "trace.files",
    "trace.acceptance", "trace.branches", "trace.decisions", "trace.load", "trace.metrics", "trace.oracle",
    "trace.origins", "trace.lattice", "trace.reliability", "trace.rows",
    "trace.declarations", "trace.report", "trace.run", "trace.speedup", "trace.tables", "trace.trace", "trace.baseline",
    "prompt.codec", "prompt.prompt", "prompt.templates",
}  # fmt: skip
# light to import; what else they need is imported where it is used, and done without where it is missing
LAZY = {"trace.journal", "trace.quality", "prompt.chat", "prompt.grammar"}
# what specviz may import of decoders at module level
READERS = LIGHT | LAZY | {"prompt.files", *(f"study.attribute.{name}" for name in ("absent", "evidence", "quotes"))}


def imports(source: str, package: str, everywhere: bool = True) -> Iterator[str]:
    """Absolute names of the modules (and of the names taken from them) that a file of ``package`` imports.

    ``everywhere`` counts imports inside functions, too; those for type checking alone never count.
    """

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                yield from (each for part in child.orelse for each in [part, *walk(part)])
            elif everywhere or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield child
                yield from walk(child)

    for node in walk(syntax_tree(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(BY_NAME):
            yield from (str(name.value).partition(":")[0] for name in node.args[:1] if isinstance(name, ast.Constant))


def roots(source: str, package: str, everywhere: bool = True) -> set[str]:
    return {name.split(".")[0] for name in imports(source, package, everywhere)}


def within(name: str, modules: set[str]) -> bool:
    """True for a name that is one of the modules of decoders, or stands in one."""
    return any(f"{name}.".startswith(f"decoders.{module}.") for module in modules)


def back_end_faults(source: str, package: str = "decoders") -> set[str]:
    """The front end's packages are for the front end."""
    return roots(source, package) & FRONT


def light_faults(source: str, package: str = "decoders", everywhere: bool = True) -> set[str]:
    """Opening a trace takes the standard library, numpy, and two packages that import nothing else."""
    names = imports(source, package, everywhere)
    return {
        name
        for name in names
        if name.split(".")[0] not in STDLIB | {"numpy", "platformdirs", "regex"} and not within(name, LIGHT | LAZY)
    }


def front_end_faults(source: str, package: str = "specviz") -> set[str]:
    """No torch at module level, neither by itself nor through decoders."""
    names = set(imports(source, package, everywhere=False))
    through = {name for name in names if name.split(".")[0] == "decoders" and not within(name, READERS)}
    return {name for name in names if name.split(".")[0] in HEAVY} | through


def files(folder: str) -> list[Path]:
    """Modules of a folder, without the annexes' tests."""
    top = ROOT / folder
    return sorted(path for path in top.rglob("*.py") if "tests" not in path.relative_to(top).parts)


def path_of(name: str) -> Path:
    """The file of a module of decoders."""
    return ROOT / "decoders" / f"{name.replace('.', '/')}.py"


def package_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).parent.parts)


def wrong(paths: Iterable[Path], faults: Callable[[str, str], set[str]]) -> list[str]:
    """A line for each thing that a rule refuses in these files: where it stands, and what is imported."""
    return [
        f"{path.relative_to(ROOT).as_posix()}: {name}"
        for path in paths
        for name in sorted(faults(path.read_text("utf-8"), package_of(path)))
    ]


def test_the_back_end_knows_no_front_end():
    assert wrong(files("decoders"), back_end_faults) == []


def test_traces_open_with_the_standard_library_and_numpy():
    assert wrong(map(path_of, sorted(LIGHT)), light_faults) == []


def test_scores_are_imported_without_their_packages():
    assert wrong(map(path_of, sorted(LAZY)), partial(light_faults, everywhere=False)) == []


def test_the_front_end_imports_no_torch_at_module_level():
    """Of an annex: what is imported to know what it brings, or to say a command's help."""
    core = [path for path in files("specviz") if "extras" not in path.relative_to(ROOT / "specviz").parts]
    at_start = [extra.folder / "extra.py" for extra in extras().values()]
    for extra in extras().values():
        names = [*extra.pages, *(command.module for command in extra.commands.values())]
        at_start += [extra.folder.joinpath(*name.strip(".").split(".")).with_suffix(".py") for name in names]
    assert wrong([*core, *at_start, ROOT / "app.py"], front_end_faults) == []


def test_everything_that_is_wrong_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Negative control: a tree with faults in two files, each of which a rule refuses."""
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    for path in ("decoders/a.py", "decoders/trace/b.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("import gradio, json, torch\ndef late():\n    from specviz.app import x\n")
    places = [f"{path}: " for path in ("decoders/a.py", "decoders/trace/b.py")]
    back = [place + name for place in places for name in ("gradio", "specviz")]
    assert wrong(files("decoders"), back_end_faults) == back
    light = [place + name for place in places for name in ("gradio", "specviz.app.x", "torch")]
    assert wrong(files("decoders"), light_faults) == light
    at_once = [place + name for place in places for name in ("gradio", "torch")]
    assert wrong(files("decoders"), partial(light_faults, everywhere=False)) == at_once
    assert wrong(files("decoders"), front_end_faults) == [f"{place}torch" for place in places]


def test_the_composition_root_is_short():
    assert len((ROOT / "app.py").read_text("utf-8").splitlines()) <= 40


@pytest.mark.parametrize(
    ("source", "back", "light", "front"),
    [
        ("import numpy as np\nfrom .trace.trace import Trace", 0, 0, 0),
        ("import pandas", 1, 1, 0),
        ("def f():\n    import gradio.themes", 1, 1, 0),
        ("from specviz.server.store import Store", 1, 1, 0),
        ("import importlib\nimportlib.import_module('specviz.views.notebook')", 1, 1, 0),
        ("import pkgutil\npkgutil.resolve_name('specviz.views.notebook:show')", 1, 1, 0),
        ("import torch", 0, 1, 1),
        ("from torch import Tensor", 0, 1, 1),
        ("class A:\n    import transformers", 0, 1, 1),
        ("try:\n    import torch.nn\nexcept ImportError:\n    pass", 0, 1, 1),
        ("def f():\n    import torch", 0, 1, 0),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch import Tensor", 0, 0, 0),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import torch", 0, 1, 1),
        ("from decoders import record", 0, 1, 1),
        ("from decoders.engine.decoding import decode", 0, 1, 1),
        ("import decoders.model.target_model.target", 0, 1, 1),
        ("from decoders.trace.trace import Trace\nfrom decoders.trace import files", 0, 0, 0),
    ],
)
def test_the_checks_catch_what_they_forbid(source: str, back: int, light: int, front: int):
    """Negative control: made-up files, and whether each of the three rules objects."""
    assert bool(back_end_faults(source)) == back
    assert bool(light_faults(source)) == light
    assert bool(front_end_faults(source)) == front


def test_relative_imports_are_resolved():
    assert set(imports("from ..errors import UserError\nfrom . import trace", "decoders.drafters")) == {
        "decoders.errors.UserError",
        "decoders.drafters.trace",
    }
    assert light_faults("from .engine import decode") == {"decoders.engine.decode"}


PROBE = "import sys; {imports}; print(sorted({{*sys.modules, *(m.split('.')[0] for m in sys.modules)}} & {banned}))"


def loads(statement: str, banned: set[str], **environment: str) -> list[str]:
    """The banned packages that a fresh interpreter has loaded after a statement."""
    code = PROBE.format(imports=statement, banned=banned)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout.strip().splitlines()[-1])


def test_a_trace_opens_without_torch_and_pandas():
    names = ", ".join(f"decoders.{name}" for name in sorted(LIGHT))
    assert loads(f"import {names}", HEAVY | FRONT) == []


def test_the_app_starts_without_torch():
    front = (
        "cli", "app", "server.routes", "server.runner", "server.store", "views.export", "views.frames",
        "views.notebook",
    )  # fmt: skip
    # Gradio parses none of its components: to write about them takes half of its import
    gradio = "import ast; f = ast.get_source_segment; del ast.get_source_segment; import specviz.shell.toolkit"
    names = ", ".join(f"specviz.{name}" for name in front)
    assert loads(f"{gradio}; ast.get_source_segment = f; import app, {names}", HEAVY) == []


def test_gradio_is_imported_by_one_module():
    """It saves half of what that takes."""
    named = {path: text for path in files("specviz") if "gradio" in (text := path.read_text("utf-8"))}
    importers = [path for path, text in named.items() if "gradio" in roots(text, package_of(path))]
    assert importers == [ROOT / "specviz" / "shell" / "toolkit.py"]


@pytest.mark.slow("a fresh interpreter imports torch")
def test_parts_are_told_apart_without_a_model_family_of_transformers():
    assert loads("import decoders.parts", {"transformers.models.llama.modeling_llama"}) == []


def test_the_import_probe_catches_a_leak(tmp_path: Path):
    """Negative control: a made-up module that loads a made-up torch."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "leaky.py").write_text("def _now():\n    import torch\n_now()\n")
    assert loads("import leaky", HEAVY, PYTHONPATH=str(tmp_path)) == ["torch"]


# --- repository hygiene -----------------------------------------------------------------------------------------------

SKIPPED = {".git", ".venv", "__pycache__", ".pytest_cache", ".hypothesis", ".ruff_cache", "build", "dist"}
# written in pieces, so that this file does not hold what it looks for
HOSTS = ("pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "npmjs" + ".com", "deb.debian" + ".org")
PATHS = re.compile(r"(?<![\w.~-])/(?:root|work|home/\w+|Users/\w+|opt)/\w")


def hygiene_faults(text: str) -> list[str]:
    """Absolute paths of somebody's machine, and hosts of package registries."""
    return [match[0] for match in PATHS.finditer(text)] + [host for host in HOSTS if host in text]


def repository() -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in SKIPPED and not f.endswith(".egg-info")]
        yield from (Path(folder) / name for name in names if name not in SKIPPED)  # .git is a file in a worktree


def test_no_file_names_a_machine_or_a_registry():
    found: dict[str, list[str]] = {}
    for path in repository():
        data = path.read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                data = b"\n".join(archive.read(name) for name in archive.namelist())
        if b"\0" not in data[:4096] and (faults := hygiene_faults(data.decode("utf-8", "replace"))):
            found[str(path.relative_to(ROOT))] = faults
    assert found == {}


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("see /ro" + "ot/model", 1),
        ("path = '/wo" + "rk/main/x'", 1),
        ("/ho" + "me/ada/specviz", 1),
        ("https://" + HOSTS[0] + "/simple", 1),
        ("a/work/b, network/work/x, ../work/x and api/traces/{id}", 0),
        ("/tmp/x is anybody's", 0),
    ],
)
def test_the_hygiene_check_catches_what_it_forbids(text: str, faults: int):
    assert len(hygiene_faults(text)) == faults


def test_the_wheel_has_every_file_of_the_packages():
    """``.ci/run`` installs it, and ``.ci/installed.py`` tries it."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    patterns = ["*.py", *setuptools["package-data"]["*"]]
    for name in ("decoders", "specviz"):
        for path in (ROOT / name).rglob("*"):
            if path.is_file() and not {"__pycache__", "tests"} & {*path.relative_to(ROOT).parts}:
                assert any(path.match(pattern) for pattern in patterns), path
                assert path.suffix != ".py" or (path.parent / "__init__.py").is_file()


def test_the_default_command_runs_the_first_tier():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    assert shlex.split(options["addopts"])[-2:] == ["-m", tiers.FIRST]
    assert {marker.partition("(")[0] for marker in options["markers"] if "(why)" in marker} == {*tiers.SECOND}


def test_tests_that_failed_once_are_few_and_soon_mended():
    """``.ci/run`` lists what failed and then passed alone: a date and a test per line."""
    lines = (ROOT / "tests" / "flaky.txt").read_text("utf-8").splitlines()
    assert len(lines) <= 5, "mend these at their root and take their lines out:\n" + "\n".join(lines)
    week_ago = datetime.date.today() - datetime.timedelta(days=7)
    late = [line for line in lines if datetime.date.fromisoformat(line.partition(" ")[0]) < week_ago]
    assert not late, "listed for more than a week; mend their root:\n" + "\n".join(late)


def test_the_constraints_pin_every_dependency_exactly():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]  # but llmlingua, which brings hundreds of megabytes
    asked = project["dependencies"] + extras["test"][1:]
    asked += extras["ray"] + extras["mcp"] + extras["grammar"] + extras["widget"]
    assert extras["test"][0] == "specviz-drafts[grammar,ray,llama-cpp,mcp,widget]"
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)

    def plain(name: str) -> str:
        return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~ ]", name)[0]).lower()

    pinned = [plain(line) for line in lines]
    assert len(set(pinned)) == len(pinned)
    assert {plain(name) for name in asked} <= set(pinned)


def test_a_space_gets_what_the_constraints_pin_and_the_gradio_of_the_readme():
    """``.ci/requirements`` makes the file anew, after a change of dependencies."""
    pins = set((ROOT / "constraints.txt").read_text("utf-8").splitlines())
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()[1:]
    assert lines and set(lines) <= pins
    there = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines}
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert {re.split(r"[\[<>=!~ ]", need)[0].lower() for need in asked} <= there
    (version,) = (line.split("==")[1] for line in lines if line.startswith("gradio=="))
    assert f"sdk: gradio\nsdk_version: {version}\n" in (ROOT / "README.md").read_text("utf-8")


def test_every_third_party_import_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = project["dependencies"] + extras["llmlingua"] + extras["ray"] + extras["mcp"] + extras["grammar"]
    asked += extras["widget"]
    names = {re.split(r"[\[<>=!~ ]", r)[0].replace("-", "_") for r in asked}
    names |= {"fontTools", "fpdf", "yaml", "quickjs"}  # as fonttools, fpdf2, pyyaml and quickjs-ng are imported
    names |= {"vllm", "xllamacpp"}  # in the servers themselves, and in a process of its own
    # by fastapi, pydantic (two), transformers, pandas, gradio (three), uvicorn and anywidget
    brought = {"starlette", "pydantic_core", "annotated_types", "huggingface_hub", "pyarrow", "httpx"}
    brought |= {"python_multipart", "gradio_client", "h11", "traitlets", "IPython"}
    used = set()
    for path in [*files("decoders"), *files("specviz"), ROOT / "app.py"]:
        used |= roots(path.read_text("utf-8"), package_of(path))
    assert used - STDLIB - {"decoders", "specviz"} <= names | brought


def tree_of(page: str) -> list[str]:
    """Paths in the package list of a page: a folder per line, two spaces per level, each with a description."""
    block = re.search(r"<!-- tree -->\n```\w*\n(.*?)```", page, re.DOTALL)
    assert block, "docs/structure.md has no package list after <!-- tree -->"
    above: list[str] = []
    paths = []
    for line in block[1].splitlines():
        level, name = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        above[level:] = [name.rstrip("/")]
        assert len(line.split()) > 1, f"{name} has no description"
        paths.append("/".join(above))
    return paths


def packages(root: Path) -> set[str]:
    """The folders that a newcomer meets first: benchmarks, docs, tests, and those directly in ``parents``."""
    parents = [root / name for name in ("decoders", "decoders/model", "decoders/study", "specviz", "specviz/extras")]
    children = [child for parent in parents if parent.is_dir() for child in parent.iterdir()]
    folders = [root / "assets", root / "benchmarks", root / "docs", root / "tests", *parents, *children]
    return {
        folder.relative_to(root).as_posix()
        for folder in folders
        if any(path.is_file() and "__pycache__" not in path.parts for path in folder.rglob("*"))
    }


def test_the_file_tree_names_every_package():
    page = (ROOT / "docs" / "structure.md").read_text("utf-8")
    named = tree_of(page)
    assert len(set(named)) == len(named)
    there = packages(ROOT)
    deleted = {name for name in named if name.startswith("specviz/extras/")} - there
    assert set(named) - deleted == there
    assert page.count("\n") <= 60, "one sentence per room: who reads it knows every room"


def test_the_package_check_catches_a_stale_list(tmp_path: Path):
    """Negative control."""
    readme = "<!-- tree -->\n```\ndecoders/  the back end\n  gone/    was here\n```"
    assert tree_of(readme) == ["decoders", "decoders/gone"]
    for path in ("decoders/trace/file.py", "decoders/left/__pycache__/old.pyc", "decoders/names.py", "specviz/cli.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "assets").mkdir()
    assert packages(tmp_path) == {"decoders", "decoders/trace", "specviz"}  # nothing lies in assets
    with pytest.raises(AssertionError):
        tree_of("no list")
