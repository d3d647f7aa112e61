"""What is decoded is kept: a disk that refuses at any write, a folder that becomes read-only, clocks that jump."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from decoders.trace import files as tracefile
from specviz.server.library import Library
from specviz.server.store import TraceStore

from . import synthetic
from .disk import refusing
from .stubs import StubDesk
from .waiting import WAIT_S


@pytest.fixture(scope="module")
def traces() -> list[Any]:
    return [synthetic.chain(), synthetic.tree()]


def run_one(folder: Path) -> tuple[StubDesk, str]:
    """A run of a server whose library is ``folder``: its desk and its id."""
    desk = StubDesk(library=Library(folder))
    desk.begin()
    assert desk.loader.wait(WAIT_S)
    key = desk.submit_text(owner="ann").id
    return desk, key


def readable(folder: Path) -> TraceStore:
    """What the next server finds; every file that it can see is whole."""
    store, library = TraceStore(), Library(folder)
    library.restore(store, shared=True)
    library.close()
    for path in folder.glob("*.spectrace") if folder.is_dir() else ():
        tracefile.load(path)
    return store


@pytest.mark.parametrize(("error", "lasting"), [(errno.ENOSPC, True), (errno.ENOSPC, False), (errno.EROFS, True)])
def test_a_disk_that_refuses_at_any_write_costs_files_never_a_run(tmp_path: Path, error: int, lasting: bool) -> None:
    """At every place: the run is whole in memory, the page is told, and the next server finds only what is whole."""
    with refusing(tmp_path / "counted", 10**9) as disk:
        run_one(tmp_path / "counted")[0].end()
    assert disk.count > 30
    lost = 0
    for at in (*range(1, 8), *range(disk.count - 8, disk.count + 1)):
        folder = tmp_path / str(at)
        with refusing(folder, at, lasting=lasting, error=error) as disk:
            desk, key = run_one(folder)
            desk.end()
        trace = desk.store.get(key)
        assert trace.run["stop"] == "eos" and trace.rows("steps") == synthetic.chain().rows("steps")
        assert desk.library is not None and disk.failed
        found = readable(folder)
        if key not in found or found.get(key).rows("steps") < trace.rows("steps"):
            lost += 1
            assert "not saved" in desk.library.problem, disk.failed
    assert lost > 5 if lasting else lost < 5
