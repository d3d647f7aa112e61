"""Annexes: each is found by its object, documented, imported by nothing in the core; a plug-in is the same object."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from decoders import extra
from tests import extras_page
from tests.extras_page import ANNEXES, PAGE, ROOT
from tests.test_house import house_graph, sources, trees  # noqa: F401

FOLDERS = sorted(path.parent for path in (ROOT / "specviz" / "extras").glob("*/__init__.py"))
VARIABLE = re.compile(r"\bSPECVIZ_[A-Z_]+\b")


def own_extras() -> dict[str, extra.Extra]:
    return {name: entry for name, entry in extra.extras().items() if entry.package.startswith(ANNEXES)}


def test_every_folder_is_an_annex_with_a_page_of_its_own():
    assert extra.problems() == ()
    assert [f"{ANNEXES}{folder.name}" for folder in FOLDERS] == [entry.package for entry in own_extras().values()]
    for folder in FOLDERS:
        assert own_extras()[folder.name].folder == folder
        assert (folder / "README.md").read_text("utf-8").startswith("# ")


def test_the_page_is_made_from_the_objects():
    """``python -m tests.extras_page`` writes it. Where an annex was deleted, its section may stay."""
    written, expected = extras_page.sections(PAGE.read_text("utf-8")), extras_page.sections(extras_page.page())
    uses = "What annexes use of the core"
    assert expected.pop(uses) == written.pop(uses) or set(expected) < set(written)
    assert {name: written.get(name) for name in expected} == expected


def test_annexes_import_only_those_that_they_name():
    for module, others in house_graph().items():
        if module.startswith(ANNEXES):
            name = module.split(".")[2]
            allowed = {name, *own_extras()[name].uses, *own_extras()[name].optional}
            assert {other.split(".")[2] for other in others if other.startswith(ANNEXES)} <= allowed, module


def test_no_module_of_the_core_names_an_annex():
    """Neither in Python (tests/test_house.py has the imports) nor in the browser."""
    names = "|".join(folder.name for folder in FOLDERS) or "none"
    word = re.compile(rf"\bextras[./]({names})\b")
    files = [path for top, kind in (("decoders", "py"), ("specviz", "py"), ("assets/web", "js"))
             for path in (ROOT / top).rglob(f"*.{kind}")]  # fmt: skip
    core = [path for path in files if "extras" not in path.relative_to(ROOT).parts]
    assert [path for path in core if word.search(path.read_text("utf-8"))] == []


def test_every_environment_variable_is_documented():
    pages = [*ROOT.glob("docs/*.md"), ROOT / "README.md", *ROOT.glob("specviz/extras/*/README.md")]
    documented = {name for page in pages for name in VARIABLE.findall(page.read_text("utf-8"))}
    used = {name for text in sources().values() for name in VARIABLE.findall(text)}
    assert used - documented == set()


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package ``mine`` with an ``Extra`` that brings a method, a command and a page."""
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "extra.py").write_text(
        "from decoders import Command, Extra\n"
        "EXTRA = Extra(name='mine', about='mine', methods=('.method',), pages=('.page',), web='web',\n"
        "              commands={'hello': Command('.hello', 'use', 'say hello')})\n"
    )
    (package / "method.py").write_text(
        "import dataclasses\nfrom decoders.drafters.pld import METHOD\n"
        "METHOD = dataclasses.replace(METHOD, name='mine')\n"
    )
    (package / "hello.py").write_text(
        "DESCRIPTION = 'Say hello.'\ndef add(parser): pass\ndef run(args): print('hello'); return 0\n"
    )
    (package / "page.py").write_text(
        "from specviz.server.desk import Service\nclass Mine(Service):\n    name, title = 'mine', 'Mine'\n"
    )
    (package / "web" / "mine").mkdir(parents=True)
    (package / "web" / "mine" / "page.js").write_text('import { h } from "specviz/base/dom.js";\n')
    about = tmp_path / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{extra.GROUP}]\nmine = mine.extra:EXTRA\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield package


def python(code: str) -> str:
    """The output of a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow("a process of its own")
def test_an_installed_package_brings_what_an_annex_may(plugin: Path):
    said = python(
        "from specviz.cli import main, commands_by_group; main(['hello']); print(commands_by_group())\n"
        "from specviz.pages import pages; print([page.name for page in pages()])\n"
        "from specviz.views import web; print('specviz/mine/page.js' in web.modules())\n"
        "from decoders import methods; print('mine' in methods())\n"
    )
    assert said.startswith("hello\n") and re.search(r"^  hello +say hello$", said, re.MULTILINE)
    assert "'mine'" in said and said.endswith("True\nTrue\n")


@pytest.mark.slow("a process of its own")
def test_what_cannot_be_imported_is_left_out_with_a_sentence(plugin: Path):
    (plugin / "page.py").write_text("import nothing_of_that_name\n")
    said = python(
        "from specviz.pages import pages; print([page.name for page in pages()])\n"
        "from decoders import extra; print(extra.problems())\n"
        "from specviz.commands import MODULES; print('hello' in MODULES)\n"
    )
    assert "'inspect'" in said and "'mine'," not in said and "nothing_of_that_name" in said and said.endswith("True\n")


def test_a_command_that_is_there_already_is_refused(plugin: Path):
    text = (plugin / "extra.py").read_text()
    (plugin / "extra.py").write_text(text.replace("'hello'", "'run'"))
    said = python(
        "from specviz.commands import MODULES; print(MODULES['run'])\n"
        "from decoders import extra; print(extra.problems())\n"
    )
    assert said.startswith("specviz.commands.run\n") and "which there is already" in said
