"""Fixtures for all tests: small, honest traces (``synthetic``), made once and copied for every test that asks."""

import copy
import os
import sys
from typing import Any

import pytest

# what the many processes of a run import is compiled once and kept, also where the shell says otherwise
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.dont_write_bytecode = False

if "PYTEST_XDIST_WORKER" in os.environ:  # as many processes as cores: one thread each, set before torch is there
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# the bundled target is fast and needs no wheel, whatever is installed; tests of the default unset it
os.environ["SPECVIZ_MODEL"] = "bundled"

from hypothesis import settings

from decoders.trace.trace import Trace

from . import synthetic

# machines differ and are shared, so no test fails for its time alone; CI repeats the same examples
settings.register_profile("house", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("house")


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
