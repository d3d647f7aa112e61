"""Decoded work is kept: a disk that refuses at any write, a folder that becomes read-only, clocks that jump."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from decoders.trace import files as tracefile
from decoders.trace import journal as runjournal
from decoders.trace.journal import recover
from specviz.cli import main
from specviz.commands import MODULES
from specviz.pages.runs.runs_page import Change
from specviz.server import library
from specviz.server.forms import PromptForm
from specviz.server.library import JournaledRun, Library
from specviz.server.store import TraceStore

from . import recordings
from .disk import refusing
from .stubs import StubDesk, at_work, start_desk
from .tiers import matrix
from .waiting import WAIT_S, until

ROOT = Path(__file__).parent.parent


def run_one(folder: Path) -> tuple[StubDesk, str]:
    """A run of a server whose library is ``folder``: its desk and its id."""
    desk = start_desk(StubDesk(library=Library(folder)))
    return desk, desk.submit_text(owner="ann").id


def readable(folder: Path) -> TraceStore:
    """Runs that the next server finds; every file that it can see is whole."""
    store, library = TraceStore(), Library(folder)
    library.recover(store, shared=True)
    library.restore(store, shared=True)
    library.close()
    for path in folder.glob("*.spectrace") if folder.is_dir() else ():
        tracefile.load(path)
    return store


@pytest.mark.parametrize(
    ("error", "lasting"),
    matrix([(errno.ENOSPC, False), (errno.ENOSPC, True), (errno.EROFS, True)], 1, "every write refused once more"),
)
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
        assert trace.run["stop"] == "eos" and trace.rows("steps") == recordings.chain().rows("steps")
        assert desk.library is not None and disk.failed
        found = readable(folder)
        if key not in found or found.get(key).rows("steps") < trace.rows("steps"):
            lost += 1
            assert "not saved" in desk.library.problem, disk.failed
            assert ("(the folder is read-only)" in desk.library.problem) == (error == errno.EROFS), disk.failed
    assert lost > 5 if lasting else lost < 5


def test_a_run_that_is_not_saved_says_so_in_its_last_event(tmp_path: Path) -> None:
    with refusing(tmp_path / "full", 1), at_work(StubDesk(library=Library(tmp_path / "full"))) as desk:
        job = desk.submit_text(owner="ann")
    events, _ = job.feed.events_after(-1)
    assert events is not None and "Runs are not saved on disk" in json.loads(events[-1])["unsaved"]
    desk, key = run_one(tmp_path / "free")
    desk.end()
    assert desk.library is not None and key in desk.library


def test_a_folder_that_becomes_read_only_in_mid_run(tmp_path: Path) -> None:
    """The steps until then are in the journal, and the whole run is in memory until a later one can be saved."""
    desk = StubDesk(library=Library(tmp_path))
    desk.gate.clear()  # it waits after four steps
    start_desk(desk)
    job = desk.submit(PromptForm("text", text="abc"), "pld", {}, {}, owner="ann")
    journal = tmp_path / f"{job.id}.journal"
    until(lambda: journal.exists() and recover(journal).rows("steps") == 4, "four steps are in the journal")
    with refusing(tmp_path, 1, error=errno.EROFS):
        desk.gate.set()
        assert job.finished.wait(WAIT_S)
    assert desk.store.get(job.id).run["stop"] == "eos" and desk.library is not None
    assert desk.library.problem.startswith("Runs are not saved on disk (the folder is read-only): ")
    later = desk.submit_text(owner="ann").id
    assert later in desk.library and desk.library.problem == ""
    desk.end()
    found = readable(tmp_path)
    assert later in found and found.get(job.id).run["stop"] == "eos" and not list(tmp_path.glob("*.journal"))


@pytest.mark.parametrize("occasion", matrix(["a run", "the list", "a while", "the end"], 1, "the other occasions"))
def test_runs_of_a_full_disk_are_written_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, occasion: str
) -> None:
    """By the next run, when somebody looks at the list, by itself after a while, or when the server ends."""
    monkeypatch.setattr(library, "RETRY_S", 0.1 if occasion == "a while" else 1e6)
    desk = start_desk(StubDesk(library=Library(tmp_path)))
    assert desk.library is not None
    room, keys = desk.services["runs"].room, []
    with refusing(tmp_path, 1):
        keys = [desk.submit_text(owner="ann").id for _ in range(12)]
        desk.services["runs"].change(Change(ids=keys[:1], title="renamed", add=["full"], keep=True), "ann")
        for _ in range(2):
            assert "no space left on device" in room()["problem"] and "kept in memory" in room()["problem"]
        assert not any(key in desk.library for key in keys)
    monkeypatch.setattr(desk.library, "_try_time", 0.0)
    if occasion == "a run":
        desk.submit_text(owner="bob")
    elif occasion == "the list":
        assert room()["problem"] == ""
    elif occasion == "a while":
        until(lambda: not desk.library.unsaved, "the runs are saved")  # type: ignore[union-attr]
    desk.end()
    assert desk.library.problem == ""
    found = readable(tmp_path)
    rows = {row["id"]: row for row in found.listing("ann")}
    assert [key for key in keys if key not in rows] == []
    assert rows[keys[0]]["title"] == "renamed" and rows[keys[0]]["keep"] and rows[keys[0]]["tags"] == ["full"]


def test_memory_gives_up_what_is_on_disk_before_what_is_not(tmp_path: Path) -> None:
    desk = StubDesk(library=Library(tmp_path))
    desk.store.max_count = 4
    start_desk(desk)
    with refusing(tmp_path, 1):
        unsaved = [desk.submit_text(owner="ann").id for _ in range(2)]
        deleted = desk.submit_text(owner="ann").id
        desk.services["runs"].delete([deleted], "ann")
        opened = [desk.store.put(recordings.quote(), kind="opened") for _ in range(6)]
        assert all(key in desk.store for key in unsaved) and opened[-1] in desk.store
    desk.end()
    assert {path.stem for path in tmp_path.glob("*.spectrace")} == set(unsaved)


def test_a_file_that_goes_while_room_is_made_is_no_failing_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server (or a user) removes a run that this one has just listed."""
    kept, look = Library(tmp_path), Path.stat
    kept.finish(recordings.quote())
    gone = next(tmp_path.glob("*.spectrace"))

    def remove_after_look(path: Path, **how: Any) -> os.stat_result:
        seen = look(path, **how)
        if path == gone:
            os.unlink(path)
        return seen

    monkeypatch.setattr(Path, "stat", remove_after_look)
    kept.finish(recordings.chain())
    assert not os.path.exists(gone) and kept.problem == ""


def test_a_run_outlives_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file and its folder are written through before its journal goes."""
    synced: list[tuple[str, bool]] = []

    def sync(number: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file"
        synced.append((kind, any(tmp_path.glob("*.journal"))))

    monkeypatch.setattr(os, "fsync", sync)
    trace = recordings.chain()
    kept = Library(tmp_path)
    kept.finish(trace, kept.start(trace, "ann"))
    assert synced == [("file", True), ("folder", True)] * 2 and not list(tmp_path.glob("*.journal"))


def test_a_clock_that_was_set_back_removes_no_new_run(tmp_path: Path) -> None:
    """Runs of this server count as the newest, and a journal from the future is recovered."""
    library = Library(tmp_path, max_count=3)
    for number in range(6):
        trace = recordings.chain()
        trace.run["id"] = f"run{number}"
        library.finish(trace)
        os.utime(tmp_path / f"run{number}.spectrace", (1e9 - number, 1e9 - number))  # each seems older than the last
    library.finish(trace)
    assert sorted(path.stem for path in tmp_path.glob("*.spectrace")) == ["run3", "run4", "run5"]
    opening, parts = recordings.deltas(recordings.chain())
    opening.run["id"] = "future"
    journal = library.start(opening)
    journal.append(parts[0])
    journal.close()
    os.utime(tmp_path / "future.journal", (4e9, 4e9))
    assert readable(tmp_path).get("future").rows("steps") == 1


def test_a_journal_that_cannot_be_recovered_is_set_aside_with_its_reason_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bad.journal").write_text("nothing")
    for _ in range(2):
        readable(tmp_path)
    assert sum("bad.journal" in record.message for record in caplog.records) == 1
    assert "cannot be recovered" in (tmp_path / "bad.unreadable.txt").read_text()


def test_a_journal_appears_with_its_whole_header_and_what_a_kill_cut_off_before_is_removed(tmp_path: Path) -> None:
    """Nobody ever reads half a header: the file gets its name once its prompt is in it."""
    opening, _ = recordings.deltas(recordings.chain())
    written: list[bool] = []

    class Looking(runjournal.Journal):
        def _write(self, data: bytes) -> None:
            for half in (data[: len(data) // 2], data[len(data) // 2 :]):
                written.append(self.path.exists())
                super()._write(half)

    journal = Looking(tmp_path / "a.journal")
    journal.start(opening)
    journal.close()
    assert written == [False, False] and recover(tmp_path / "a.journal").rows("steps") == 0
    for name, age in ((".b.journal.17", 100), (".c.journal.18", 0)):
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (time.time() - age, time.time() - age))
    readable(tmp_path)
    assert [path.name for path in tmp_path.glob(".*.journal.*")] == [".c.journal.18"]


def test_a_guarded_run_that_is_cut_off_is_recovered_and_one_that_ends_leaves_nothing(tmp_path: Path) -> None:
    opening, parts = recordings.deltas(recordings.chain())

    class Cut:
        trace = opening

        def __iter__(self) -> Iterator[Any]:
            yield from parts[:2]

    library = Library(tmp_path)
    steps = iter(JournaledRun(Cut(), library, "ann"))
    next(steps)
    next(steps)
    (journal,) = tmp_path.glob("*.journal")
    assert recover(journal).rows("steps") == 2
    assert next(steps, None) is None and not list(tmp_path.glob("*.journal"))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["export", "RUN", "--html", "OUT"], "page.html"),
        (["export", "RUN", "--perfetto", "OUT"], "times.json"),
        (["attribute", "--trace", "RUN", "--markdown", "OUT"], "answer.md"),
    ],
)
def test_a_full_disk_leaves_the_file_that_a_command_would_have_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], name: str
) -> None:
    run, out = tmp_path / "run.spectrace", tmp_path / "out" / name
    tracefile.save(recordings.chain(), run)
    out.parent.mkdir()
    out.write_text("of before")
    words = [{"RUN": str(run), "OUT": str(out)}.get(word, word) for word in command]
    with refusing(out.parent, 2) as disk:  # the file is opened, and its first bytes are refused
        assert main(words) == 2
    assert disk.failed and "No space left on device" in capsys.readouterr().err
    assert out.read_text() == "of before" and list(out.parent.iterdir()) == [out]
    assert main(words) == 0 and len(out.read_text()) > 100


DIRECT = re.compile(r"\.write_(?:text|bytes)\(|\.open\(\s*\"[wx]|\bopen\([^)]*\"[wx]")


def test_no_command_writes_a_file_in_place() -> None:
    """Every file that a user named is written whole or not at all, which ``decoders.folders`` does."""
    named = {Path(str(spec.origin)) for name in MODULES.values() if (spec := find_spec(name))}
    files = {*(ROOT / "specviz" / "commands").glob("*.py")} | named
    assert len(named) == len(MODULES)
    assert [path.name for path in sorted(files) if DIRECT.search(path.read_text("utf-8"))] == []
