"""Fixtures for all tests: small, honest traces (``synthetic``), made once and copied for every test that asks."""

import atexit
import copy
import os
import shutil
import sys
import tempfile
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

from . import synthetic

# machines differ and are shared, so no test fails for its time alone; CI repeats the same examples
settings.register_profile("house", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("house")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A process more than there are cores: the one with the browser mostly waits for it."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files kept whole, and those of the browser together: one process has a Chromium whose caches stay warm, while the
    others compute. They come first, so that the run ends with short files."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "tests/browser" if nodeid.startswith("tests/browser/") else super()._split_scope(nodeid)

    return Files(config, log)


@pytest.fixture(scope="session")
def smollm2():
    """The real model, opened once; what it is converted to is kept for the whole test run. Where its wheel is not
    installed its tests are skipped, or fail (``SPECVIZ_REQUIRE_SMOLLM2``, as in CI).
    """
    from decoders import load_target
    from decoders.model.catalog import missing_smollm2

    if reason := missing_smollm2():
        if os.environ.get("SPECVIZ_REQUIRE_SMOLLM2") == "1":
            pytest.fail(f"{reason}, and SPECVIZ_REQUIRE_SMOLLM2 is set")
        pytest.skip(reason)
    return load_target("smollm2")


@pytest.fixture(scope="session")
def _made() -> dict[str, Trace]:
    return {name: getattr(synthetic, name)() for name in ("chain", "tree", "plain", "nasty")}


@pytest.fixture(params=["chain", "tree", "plain", "nasty"])
def trace(request: pytest.FixtureRequest, _made: dict[str, Trace]) -> Trace:
    """Every kind of trace in turn: one copied line, draft trees, no drafts, hostile text."""
    return copy.deepcopy(_made[request.param])


@pytest.fixture
def tree(_made: dict[str, Trace]) -> Trace:
    """A run with draft trees."""
    return copy.deepcopy(_made["tree"])
