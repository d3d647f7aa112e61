"""Fixtures for all tests, the core's (``tests``) and the annexes' (``specviz/extras/*/tests``): small recorded
traces (``recordings``), read once and copied for every test that asks.
"""

import atexit
import copy
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# what the many processes of a run import is compiled once and kept, also where the shell says otherwise
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.dont_write_bytecode = False

if "PYTEST_XDIST_WORKER" in os.environ:  # as many processes as cores: one thread each, set before torch is there
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# the bundled target is fast and needs no wheel, whatever is installed; tests of the default unset it
os.environ["SPECVIZ_MODEL"] = "bundled"
os.environ["SPECVIZ_ENGINE"] = "eager"  # nothing is compiled, but by the tests of that

if "SPECVIZ_HOME" not in os.environ:  # what tests leave behind is not the user's
    os.environ["SPECVIZ_HOME"] = tempfile.mkdtemp(prefix="specviz-tests-")
    atexit.register(shutil.rmtree, os.environ["SPECVIZ_HOME"], ignore_errors=True)

from hypothesis import settings

from decoders.trace.trace import Trace
from tests import recordings, tiers

gc.disable()  # until all tests are collected (below): what is imported now stays

# machines differ and are shared, so no test fails for its time alone; CI repeats the same examples
settings.register_profile("house", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("house")


def pytest_configure(config: pytest.Config) -> None:
    """Files and tests that are named run whole, in both tiers; the folder of an annex runs its first."""
    if config.option.markexpr != tiers.FIRST or any(arg.startswith("-m") for arg in config.invocation_params.args):
        return
    places = [config.invocation_params.dir / arg.partition("::")[0] for arg in config.args]
    if all(place.is_file() for place in places):
        config.option.markexpr = ""
    elif any(ANNEXES in place.resolve().parents for place in places):
        config.option.markexpr = tiers.FIRST_OF_AN_ANNEX


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test of the second tier says why it is not in the first. Browsers' tests come first, then long files."""
    items.sort(key=lambda item: place_in_run(item.path))
    if "annex" in config.option.markexpr:
        names = annex_names()
        for item in items:
            cases = item.callspec.params.values() if hasattr(item, "callspec") else ()
            if ANNEXES in item.path.parents or any(isinstance(case, str) and case in names for case in cases):
                item.add_marker(pytest.mark.annex("of an annex, without which the core works"))
    silent = {
        item.nodeid.partition("[")[0]
        for item in items
        for mark in item.iter_markers()
        if mark.name in tiers.SECOND and not (mark.args and isinstance(mark.args[0], str))
    }
    if silent:
        raise pytest.UsageError(f"tests of the second tier that do not say why (tests/tiers.py): {sorted(silent)}")
    browsing = (item for item in items if "chromium" in getattr(item, "fixturenames", ()))
    strays = {item.path.name for item in browsing if place_in_run(item.path)}
    if strays:  # few processes have a Chromium, and its event loop
        raise pytest.UsageError(f"tests with a browser stand in files named test_…_browser.py: {sorted(strays)}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Modules and tests stay to the end: no garbage collection looks through them, which takes 0.3 s of a process with
    two files of tests (a third of what they cost) and more in one with all.
    """
    gc.freeze()
    gc.enable()


def pytest_runtest_teardown() -> None:
    """A test that sets the threads of this process does so for itself alone: more of them than cores, in all processes
    of a run, wait for each other and are many times slower.
    """
    torch = sys.modules.get("torch")
    if torch is not None and "PYTEST_XDIST_WORKER" in os.environ and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


collect_ignore = ["tests/untyped"]  # what stands in for libraries that a machine lacks
ROOT = Path(__file__).parent
BROWSER = ROOT / "tests" / "browser"
ANNEXES = ROOT / "specviz" / "extras"
BROWSERS = 2  # so many processes have one
DEALT = "test_every_view_can_be_read_by_all"  # minutes of tests that stand alone: half of them in each
# what takes minutes behind the browsers' tests begins first, so that nothing long is left to one process at the end
LONG = (
    "test_doctor.py", "test_verifiers.py", "test_compiled_layers.py", "test_graphs.py", "test_hybrid.py",
    "test_smollm2.py", "test_spread.py",
)  # fmt: skip
# of these each kind of case, as its name says before a colon, may run in another process than the rest of the file
SPLIT = ("test_a_planted_fault_is_found", "test_text_of_the_bundled_target_under_each_lossless_verifier")


def place_in_run(path: Path) -> int:
    """The place of a file of tests among the others: those with a browser, then those that take long."""
    if BROWSER in path.parents or path.name.endswith("_browser.py"):
        return 0
    return 1 + LONG.index(path.name) if path.name in LONG else 1 + len(LONG)


def annex_names() -> set[str]:
    """The methods that annexes bring, whose parts have the same names: the core's tests with these are the annexes'."""
    from decoders.drafters import methods

    return {card.name for card in methods().values() if card.params.__module__.startswith("specviz.extras.")}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes more than there are cores, as the two with browsers mostly wait for them; but no more than the
    files that were named can keep busy. For one file none is started: each would import everything first.
    """
    most = (os.cpu_count() or 1) + BROWSERS
    places = {(config.invocation_params.dir / arg.partition("::")[0]).resolve() for arg in config.args}
    units = {BROWSER if BROWSER in (place, *place.parents) else place for place in places}
    if any(unit.is_dir() and unit != BROWSER for unit in units):
        return most
    return 0 if len(units) == 1 else min(most, len(units))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files kept whole, and those of the browser together: few processes have a Chromium whose caches stay warm, while
    the others compute. They come first, so that the run ends with short files (``pytest_collection_modifyitems``)."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    files = [*sorted(BROWSER.glob("test_*.py")), *sorted(ANNEXES.glob("*/tests/test_*_browser.py"))]
    browser = [path.relative_to(ROOT).as_posix() for path in files]

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            if file not in browser:
                name, _, case = nodeid.partition("::")[2].partition("[")
                return f"{file} {case.partition(':')[0]}" if name in SPLIT else file
            number = len(nodeid) if DEALT in nodeid else browser.index(file)
            return f"tests/browser {number % BROWSERS}"

    return Files(config, log)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's folder, with specviz's own folder in it: nothing that other tests made is found."""
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods and verifiers as they are before any plug-in is read; what a test adds is gone behind it."""
    from decoders import drafters
    from decoders.verifiers import registry as rules

    methods = {name: card for name, card in drafters._methods.items() if name not in drafters._places}
    verifiers = {name: card for name, card in rules._added.items() if name not in drafters._verifier_places}
    for module, name, value in (
        (drafters, "_methods", methods), (drafters, "_places", {}), (drafters, "_verifier_places", {}),
        (drafters, "_plugins", drafters._Plugins()), (rules, "_added", verifiers),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


@pytest.fixture(scope="module")
def module_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of specviz's own for all tests of a file."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("SPECVIZ_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def client(desk: Any) -> Iterator[Any]:
    """A client of the application of a file's ``desk`` (a fixture of its own)."""
    from tests.stubs import client_of

    with client_of(desk) as made:
        yield made


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest) -> Any:
    """A tiny model of random weights, a Llama or of the file's ``FAMILY``; what tests add to it stays in that file."""
    from tests.models import tiny_target

    return tiny_target(getattr(request.module, "FAMILY", "llama"))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny Llama with its tokenizer, as a folder that commands load."""
    from tests.models import save_model

    return save_model(tmp_path_factory.mktemp("models") / "toy")


@pytest.fixture(scope="session")
def prompt() -> Any:
    """A prompt that every method drafts for: two passages and a question, with markup and an emoji."""
    from decoders import Prompt
    from tests.models import tiny_tokenizer

    words = "the old lamp at the station was sold to the city museum and the old lamp at the"
    return Prompt.from_segments(
        tiny_tokenizer(), instruction="Copy.", context=[words, words[::-1]], question="the old <b>lamp</b> 🤖?"
    )


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that is learnt in a few steps of training."""
    from tests.models import write_text

    return write_text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="session")
def smollm2():
    """The real model, opened once; what it is converted to is kept for the whole test run. Where its wheel is not
    installed its tests are skipped, or fail (``SPECVIZ_REQUIRE_SMOLLM2``, as in CI).
    """
    from decoders import load_target
    from decoders.model.files.catalog import missing_smollm2

    if reason := missing_smollm2():
        if os.environ.get("SPECVIZ_REQUIRE_SMOLLM2") == "1":
            pytest.fail(f"{reason}, and SPECVIZ_REQUIRE_SMOLLM2 is set")
        pytest.skip(reason)
    return load_target("smollm2")


@pytest.fixture(scope="session")
def _make() -> dict[str, Trace]:
    return {name: getattr(recordings, name)() for name in ("chain", "tree", "plain", "nasty")}


@pytest.fixture(params=["chain", "tree", "plain", "nasty"])
def trace(request: pytest.FixtureRequest, _make: dict[str, Trace]) -> Trace:
    """Every kind of trace in turn: one copied line, draft trees, no drafts, hostile text."""
    return copy.deepcopy(_make[request.param])


@pytest.fixture
def chain(_make: dict[str, Trace]) -> Trace:
    """A run with one copied line a step."""
    return copy.deepcopy(_make["chain"])


@pytest.fixture
def tree(_make: dict[str, Trace]) -> Trace:
    """A run with draft trees."""
    return copy.deepcopy(_make["tree"])
