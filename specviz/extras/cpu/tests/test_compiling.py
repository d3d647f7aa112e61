"""How compiled parts come to be: children that make them, packages that are kept, and machines without a compiler."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from decoders import Prompt, generate, record
from decoders.model.engines import engines
from decoders.model.engines.engines import Engines
from tests.test_static import target_of
from tests.waiting import WAIT_S, alive, until

from .. import compiled_parts, compiling
from ..compiled_layers import MAKER
from ..compiling import CompiledPart, Workshop
from .test_compiled_layers import no_kernels  # noqa: F401

PROMPT = Prompt.from_ids([5, 6, 7])


def fake(monkeypatch, code: str) -> None:
    """Let a child be this code instead."""
    monkeypatch.setattr(compiling, "_command", lambda job: [sys.executable, "-c", code, job])
    monkeypatch.setattr(compiling, "compiler", lambda: "g++")


WAITS = "import time; time.sleep(100)"
MAKES = "import json, sys; open(json.loads(sys.argv[1])['package'], 'w').write('x'); print('made')"
STARTS = """
import os, subprocess, sys, time
compiler = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
print(os.getpid(), compiler.pid, file=open(PIDS, "w"))
time.sleep(100)
"""


@pytest.fixture
def part(workshop, monkeypatch) -> CompiledPart:
    """Any part; what is made of it need not be one that can be opened."""
    monkeypatch.setattr(compiling, "OpenPart", lambda package: package.read_text())
    return CompiledPart.of(MAKER, {"any": 1})


@pytest.fixture
def workshop(home):
    made = Workshop()
    yield made
    made.cancel()


def test_a_part_is_made_once_and_kept(workshop, part, monkeypatch):
    fake(monkeypatch, MAKES)
    workshop.make([part, part])
    workshop.wait([part])
    assert part.package.read_text() == "x" and not workshop.failed
    assert json.loads(part.package.with_suffix(".json").read_text())["torch"] == torch.__version__
    monkeypatch.setattr(compiling, "_child", lambda *_: pytest.fail("it is there"))
    again = Workshop()
    again.make([part])
    assert not again._waiting and again.open(part) == "x"


def test_a_package_is_looked_for_once(workshop, part):
    """A package that another process makes meanwhile is taken by the next command: all runs of one run alike."""
    assert workshop.open(part) is None
    part.package.parent.mkdir(parents=True)
    part.package.write_text("x")
    assert workshop.open(part) is None and Workshop().open(part) == "x"
    workshop.make([part])
    assert workshop.open(part) == "x", "a server that has it made looks again"


PROBES = """
import json, os, pathlib, sys
begun = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
package = pathlib.Path(json.loads(sys.argv[1])["package"])
package.write_text(" ".join(sorted(path.name for path in begun.glob("*/*"))))
for name in ("3g/probe.so", "3g/probe.cpp", "longer/part.so"):
    (begun / name).parent.mkdir(exist_ok=True)
    (begun / name).write_text(name)
print("made")
"""


def test_what_a_child_learns_of_the_machine_the_next_one_begins_with(workshop, part, monkeypatch):
    fake(monkeypatch, PROBES)
    other = CompiledPart.of(part.maker, {"any": 2})
    workshop.make([part, other])
    assert workshop.wait([part, other]), workshop.failed
    assert part.package.read_text() == "" and other.package.read_text() == "probe.so"


def test_a_package_that_cannot_be_opened_is_made_anew(workshop, part, monkeypatch):
    monkeypatch.undo()
    part.package.parent.mkdir(parents=True, exist_ok=True)
    part.package.write_text("cut off")
    assert workshop.open(part) is None and not part.package.exists() and not workshop.failed


def test_cancelled_while_compiling(workshop, part, monkeypatch):
    fake(monkeypatch, WAITS)
    workshop.make([part])
    child = until(lambda: workshop._child, "the child has begun")
    cancel = threading.Event()
    cancel.set()
    assert not workshop.wait([part], cancel) and child.poll() is None
    workshop.cancel()
    assert child.wait(WAIT_S) is not None and not workshop.wait([part]) and not workshop.failed
    assert not list(part.package.parent.glob("*.pt2"))
    fake(monkeypatch, MAKES)
    workshop.make([part])
    workshop.wait([part])
    assert part.package.is_file()


@pytest.fixture
def pids(tmp_path, monkeypatch):
    """Has a child wait that starts a compiler; gives the processes of both, once they are there."""
    told = tmp_path / "pids"
    fake(monkeypatch, STARTS.replace("PIDS", repr(str(told))))

    def read() -> list[int]:
        return [int(pid) for pid in told.read_text().split()] if told.exists() else []

    return lambda: until(read, "the child has begun")


def all_gone(pids: list[int]) -> bool:
    return not any(map(alive, pids))


@pytest.mark.skipif(not compiling.POSIX, reason="there are no process groups here")
def test_a_child_ends_with_all_that_it_started(workshop, part, pids):
    workshop.make([part])
    child = pids()
    assert not all_gone(child)
    workshop.cancel()
    until(lambda: all_gone(child), "all of it was ended")
    assert not workshop.failed


@pytest.mark.skipif(not compiling.POSIX, reason="there are no process groups here")
def test_a_child_ends_with_whoever_started_it(monkeypatch, tmp_path):
    """Also where that is killed: the child's stdin ends."""
    told = tmp_path / "pids"
    begins = "import threading; from specviz.extras.cpu import compiling; "
    begins += "threading.Thread(target=compiling._end_with_stdin, daemon=True).start()\n"
    starts = begins + STARTS.replace("PIDS", repr(str(told)))
    asks = f"compiling._child([sys.executable, '-c', {starts!r}], {str(tmp_path)!r}); time.sleep(100)"
    begin = "from specviz.extras.cpu import compiling; import sys, time; "
    asking = subprocess.Popen([sys.executable, "-c", begin + asks])
    try:
        child = until(lambda: told.exists() and [int(pid) for pid in told.read_text().split()], "the child has begun")
    finally:
        asking.kill()
        asking.communicate()
    until(lambda: all_gone(child), "all of it was ended")


def test_a_child_makes_way_for_a_run_and_its_part_is_begun_anew(workshop, part, pids, monkeypatch):
    monkeypatch.setattr(compiling, "REST_S", 0.0)
    busy = threading.Event()
    workshop.make([part], busy.is_set)
    child = pids()
    busy.set()
    until(lambda: all_gone(child), "it ended with all that it started")
    fake(monkeypatch, MAKES)
    assert not workshop.failed and not part.package.exists()
    busy.clear()
    assert workshop.wait([part]) and part.package.read_text() == "x"


@pytest.mark.parametrize("waits", [True, False])
def test_a_child_begins_while_nothing_runs_unless_somebody_waits(workshop, part, monkeypatch, waits):
    """At the lowest priority."""
    monkeypatch.setattr(compiling, "REST_S", 0.1)
    fake(monkeypatch, MAKES.replace("'x'", "str(json.loads(sys.argv[1])['nice'])"))
    looks, busy = [], threading.Event()
    busy.set()
    workshop.make([part], None if waits else lambda: looks.append(0) or busy.is_set())
    if not waits:
        until(lambda: len(looks) > 2, "it looks whether anything runs")
        assert workshop._child is None and not part.package.exists()
        busy.clear()
    assert workshop.wait([part]) and part.package.read_text() == ("0" if waits else str(compiling.LOW))


def test_two_runs_while_compiling(workshop, monkeypatch):
    fake(monkeypatch, WAITS)
    monkeypatch.setattr(compiled_parts, "WORKSHOP", workshop)
    target = target_of()
    prompts = [Prompt.from_ids([n, 6, 7, n, 6]) for n in (5, 9)]
    expected = [generate(target, prompt, "pld", max_new_tokens=20) for prompt in prompts]
    target.engines = Engines(target, "auto")
    target.engines.begin(lambda: False)
    with ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(lambda prompt: generate(target, prompt, "pld", max_new_tokens=20), prompts))
    assert outputs == expected and len(workshop._waiting) == 2


@pytest.fixture
def no_compiler(workshop, monkeypatch):
    """A machine on which nothing can be compiled, and on which nothing was said of it yet."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiled_parts, "WORKSHOP", workshop)
    monkeypatch.setattr(engines, "_messages", set())


def test_without_a_compiler_it_stays_eager_and_says_why(no_compiler, caplog):
    target = target_of()
    for _ in range(2):
        target.engines = Engines(target, "compiled")
        assert not target.engines.prepare()
    assert [r.message for r in caplog.records] == [compiling.NO_COMPILER]
    assert generate(target, Prompt.from_ids([5, 6]), max_new_tokens=2)


def test_without_a_compiler_auto_stays_eager_and_says_so_once(no_compiler, caplog):
    target = target_of()
    target.engines = Engines(target, "auto")
    for _ in range(2):
        target.engines.begin(lambda: False)
        trace = record(target, PROMPT, "plain", max_new_tokens=3)
        assert set(trace.tables["steps"]["engine"]) == {"eager"}
    assert [r.message for r in caplog.records] == [compiling.NO_COMPILER]


@pytest.mark.parametrize("code", ["import sys; sys.exit(1)", "print('CppCompileError: no space')"])
def test_a_compiler_that_fails_is_not_asked_again(workshop, part, monkeypatch, caplog, code):
    fake(monkeypatch, code)
    workshop.make([part])
    assert not workshop.wait([part])
    assert workshop.failed[part.package].startswith("compiling failed (")
    workshop.make([part])
    assert not workshop._waiting and len(caplog.records) == 1


def test_packages_of_another_torch_are_neither_opened_nor_kept(workshop, part, monkeypatch):
    fake(monkeypatch, MAKES)
    now, before = part.package, torch.__version__
    monkeypatch.setattr(torch, "__version__", "1.0")
    stale = CompiledPart(part.maker, part.shape)
    assert stale.package != now
    workshop.make([stale])
    workshop.wait([stale])
    monkeypatch.setattr(torch, "__version__", before)
    workshop.make([part])
    workshop.wait([part])
    assert {path.stem for path in now.parent.iterdir()} == {now.stem} and now.is_file()


def test_a_package_is_named_by_all_files_that_its_content_depends_on(tmp_path):
    files = {
        "own/maker.py": "import torch\nfrom .near import one\nfrom own.far import deep\nfrom . import plain",
        "own/near.py": "from .behind import x", "own/behind.py": "", "own/far/deep.py": "", "own/plain.py": "",
        "own/other.py": "from .maker import y",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")

    def texts() -> tuple[str, ...]:
        compiling._texts.cache_clear()
        return compiling._texts("own.maker", tmp_path)

    before, changes = texts(), set[str]()
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n# changed", "utf-8")
        if texts() != before:
            changes.add(name)
        (tmp_path / name).write_text(text, "utf-8")
    assert changes == {*files} - {"own/other.py"} and texts() == before
    makers = (MAKER, f"{MAKER.rpartition('.')[0]}.functional")
    names = {CompiledPart.of(maker, {}).package for maker in makers}
    assert len(names) == 2 and len(compiling._texts(f"{MAKER.rpartition('.')[0]}.functional")) > 5
