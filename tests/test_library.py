"""Saved runs: what their owner may do with them, and that no fault of the disk or the process loses them."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import recordings
from fastapi.testclient import TestClient

from decoders.errors import UserError
from decoders.trace import files as tracefile
from decoders.trace.journal import recover
from decoders.trace.trace import Trace
from specviz.pages.runs.runs_page import Change
from specviz.server.forms import PromptForm
from specviz.server.http import COOKIE, refusal
from specviz.server.library import Library
from specviz.server.limits import rules_for
from specviz.server.store import TraceStore, surplus

from .stubs import StubDesk, at_work, client_of, start_desk
from .waiting import WAIT_S, until

ROOT = Path(__file__).parent.parent


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[StubDesk]:
    with at_work(StubDesk(gallery=(recordings.chain(),), library=Library(tmp_path / "runs"))) as made:
        yield made


def restart(desk: StubDesk, *, shared: bool = False) -> TraceStore:
    """The library that the next server finds."""
    assert desk.library is not None
    store, library = TraceStore(), Library(desk.library.folder)
    library.recover(store, shared=shared)
    library.restore(store, shared=shared)
    library.close()
    return store


def test_a_run_is_renamed_tagged_and_kept_across_restarts(desk: StubDesk) -> None:
    runs = desk.services["runs"]
    job = desk.submit_text(owner="ann", title="before")
    assert runs.change(Change(ids=[job.id], title="  after\n all ", add=["Good", "class-4"], keep=True), "ann") == [
        job.id
    ]
    runs.change(Change(ids=[job.id], drop=["good"]), "ann")
    row = runs.listing("ann")[0]
    assert (row["title"], row["tags"], row["keep"], row["mine"]) == ("after all", ["class-4"], True, True)
    assert row["bytes"] == len(desk.store.blob(job.id)) and desk.store.get(job.id).run["title"] == "after all"
    for shared, owner in ((False, "*"), (True, "ann")):
        store = restart(desk, shared=shared)
        entry = store.entry(job.id)
        assert entry is not None and (entry.owner, entry.tags, entry.keep) == (owner, ("class-4",), True)
        assert entry.summary["title"] == "after all"


def test_only_ones_own_runs_are_changed_or_deleted(desk: StubDesk, tmp_path: Path) -> None:
    runs = desk.services["runs"]
    mine, other = (desk.submit_text(owner=name).id for name in ("ann", "bob"))
    everything = [mine, other, "gallery-0", "nothing", "../../etc"]
    for owner in ("", "*", "eve"):
        assert runs.change(Change(ids=everything, keep=True), owner) == [] == runs.delete(everything, owner)
    assert runs.delete(everything, "ann") == [mine] and mine not in desk.store
    assert [path.stem for path in (tmp_path / "runs").glob("*.spectrace")] == [other]
    assert not runs.may_change("gallery-0", "*")


def test_runs_of_earlier_servers_are_everybodys_on_ones_own_computer_only(desk: StubDesk) -> None:
    key = desk.submit_text(owner="ann").id
    for shared, listed in ((False, ["anybody", "ann", ""]), (True, ["ann"])):
        again = StubDesk(library=desk.library)
        again.keep_to(rules_for(public=shared, accounts=False))
        assert desk.library is not None
        desk.library.recover(again.store, shared=shared)
        desk.library.restore(again.store, shared=shared)
        runs = again.services["runs"]
        seen = [who for who in ("anybody", "ann", "") if key in [run["id"] for run in runs.listing(who)]]
        assert seen == listed
        assert [who for who in ("anybody", "ann", "") if runs.may_change(key, who)] == listed


def test_an_opened_file_that_is_tagged_is_kept_on_disk(desk: StubDesk) -> None:
    key = desk.open_file(recordings.save_trace(recordings.quote()), owner="ann")
    assert key not in restart(desk)
    desk.services["runs"].change(Change(ids=[key], add=["teach"]), "ann")
    entry = restart(desk, shared=True).entry(key)
    assert entry is not None and entry.tags == ("teach",) and entry.owner == "ann"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"add": ["two words"]}, "cannot be a tag"),
        ({"add": ["x" * 31]}, "at most 30 characters"),
        ({"add": [f"t{k}" for k in range(11)]}, "at most 10 tags, and this would make 11"),
        ({"title": "  "}, "The title has 0 characters: 1 to 200 are needed"),
        ({"title": "x" * 201}, "1 to 200"),
    ],
)
def test_bad_changes_are_one_sentence(desk: StubDesk, changes: dict[str, Any], said: str) -> None:
    job = desk.submit_text(owner="ann")
    with pytest.raises(UserError, match=said) as caught:
        desk.services["runs"].change(Change(ids=[job.id], **changes), "ann")
    answer = refusal(caught.value)
    assert answer.status_code == 422 and json.loads(bytes(answer.body))["error"].endswith(".")
    assert desk.services["runs"].listing("ann")[0]["tags"] == []


def test_kept_runs_stay_and_nobody_pushes_out_the_others() -> None:
    store, chain = TraceStore(max_count=6), recordings.chain()

    def put(name: str, owner: str) -> None:
        store.put(Trace({**chain.run, "id": name}, chain.tables), owner=owner)

    for k in range(3):
        put(f"bob{k}", "bob")
    store.change("bob0", keep=True)
    for k in range(9):
        put(f"ann{k}", "ann")
    assert all(f"bob{k}" in store for k in range(3))
    assert [f"ann{k}" in store for k in range(9)] == [False] * 6 + [True] * 3
    store.change("bob1", keep=True)
    store.change("bob2", keep=True)
    with pytest.raises(ValueError, match="3 runs are kept already, and no more than 50 %"):
        store.change("ann8", keep=True)
    store.change("bob2", keep=False)
    store.own_share = 0.2
    with pytest.raises(ValueError, match="2 runs of yours are kept already, and no more than 20 %"):
        store.change("bob2", keep=True)
    store.change("ann8", keep=True)
    assert store.usage()["count"] == 6
    assert surplus([("a", "x", 5), ("b", "y", 1), ("c", "y", 1)], 9, 3) == ["a"]


def test_files_of_kept_runs_are_not_trimmed(tmp_path: Path) -> None:
    library, chain = Library(tmp_path, max_count=2), recordings.chain()
    for k, name in enumerate("abcd"):
        library.finish(Trace({**chain.run, "id": name}, chain.tables))
        if os.path.exists(tmp_path / f"{name}.spectrace"):
            os.utime(tmp_path / f"{name}.spectrace", (k, k))
        library.describe(name, owner="ann", keep=name == "a")
    library.trim()
    assert sorted(path.stem for path in tmp_path.glob("*.spectrace")) == ["a", "d"]
    assert sorted(path.stem for path in tmp_path.glob("*.json")) == ["a", "d"]
    assert oct((tmp_path / "a.json").stat().st_mode)[-3:] == "600"


def test_nobody_reads_a_run_but_its_owner(desk: StubDesk, tmp_path: Path) -> None:
    desk.gate.clear()
    job = desk.submit(PromptForm("text", text="abc"), "pld", {}, {}, owner="ann")
    written = {"runs", ".journal", ".json"}
    until(lambda: written <= {path.suffix or path.name for path in tmp_path.rglob("*")}, "the run is journaled")
    modes = {path.suffix or path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {"runs": 0o700, ".journal": 0o600, ".json": 0o600}
    desk.gate.set()
    assert job.finished.wait(WAIT_S)
    file = tmp_path / "runs" / f"{job.id}.spectrace"
    assert file.stat().st_mode & 0o777 == 0o600
    for path in (file, file.parent):  # as earlier versions left them
        path.chmod(path.stat().st_mode | 0o055)
    restart(desk)
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow("four hundred visitors")
def test_a_comparison_of_the_400th_visitor_is_whole(tmp_path: Path) -> None:
    """Five runs each, two visitors at a time, and one who looks at an old comparison all the while: none of these is
    removed, in memory or on disk; who came first and left goes.
    """
    stores = [TraceStore(), TraceStore(max_count=20)]
    library, chain = Library(tmp_path, max_count=20), recordings.chain()
    library.belongs_to(stores[1])
    entry = stores[0].entry(stores[0].put(chain, owner="nobody"))
    assert entry is not None
    for store, visitors in zip(stores, (400, 20), strict=True):
        for first in range(0, visitors, 2):
            pair = [f"visitor{number}-{lane}" for lane in range(5) for number in (first, first + 1)]
            watched = [f"visitor0-{lane}" for lane in range(5)]
            for key in pair:
                owner = key.split("-")[0]
                for lane in watched if first else ():
                    store.blob(lane)
                if store is stores[0]:
                    store.keep(dataclasses.replace(entry, id=key, owner=owner))
                else:
                    store.put(Trace({**chain.run, "id": key}, chain.tables), owner=owner)
                    library.describe(key, owner=owner)
                    library.finish(store.get(key))
            for key in (*watched, *pair):
                assert key in store and (store is stores[0] or key in library), (key, first)
        assert "visitor1-0" not in store and len(store) == store.max_count
    assert len(list(tmp_path.glob("*.spectrace"))) == 20


def test_the_routes_take_json_of_the_right_form(desk: StubDesk) -> None:
    with client_of(desk, cookies={COOKIE: "ann"}) as client:
        job = desk.submit_text(owner="ann")
        assert client.post("/api/runs/delete", data={"ids": job.id}).status_code == 422
        ids = [job.id]
        for body in ({}, {"ids": job.id}, {"ids": [1]}, {"ids": ids, "keep": "yes"}, {"ids": ids, "add": "x"}, []):
            assert client.post("/api/runs/change", json=body).status_code == 422
        assert client.post("/api/runs/explode", json={"ids": []}).status_code == 404
        assert client.post("/api/runs/change", json={"ids": [job.id], "add": ["x"]}).json() == {"done": [job.id]}
        listed = client.get("/api/runs").json()
        desk.store.remove(job.id)  # it left memory, and is brought back from disk
        assert client.get(f"/api/traces/{job.id}").json()["run"]["id"] == job.id
        assert listed["runs"][0]["tags"] == ["x"] and listed["room"]["count"] == 1 and listed["room"]["problem"] == ""


def test_runs_that_no_list_shows_are_counted_apart(tmp_path: Path) -> None:
    desk = StubDesk()
    desk.store.put(recordings.chain(), kind="run", owner="me")
    hidden = recordings.chain()
    hidden.run["id"] = "behind-a-result"
    desk.store.put(hidden, kind="opened", owner="")
    shown = desk.services["runs"].show("me")
    assert len(shown["runs"]) == 1 and (shown["room"]["count"], shown["room"]["others"]) == (2, 1)


# --- faults ---


def test_a_folder_that_cannot_be_made_costs_files_never_a_run(
    desk: StubDesk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that refuses files later: see test_durability.py."""
    assert desk.library is not None
    (tmp_path / "file").write_text("")
    desk.library.folder = tmp_path / "file" / "runs"
    jobs = [desk.submit_text(owner="ann") for _ in range(2)]
    for job in jobs:
        assert job.error == "" and desk.store.get(job.id).run["stop"] == "eos"
    said = desk.services["runs"].room()["problem"]
    assert said.startswith("Runs are not saved on disk (") and said.endswith("saved as soon as the disk takes them.")
    assert sum("runs are not saved" in record.message for record in caplog.records) == 1  # once
    desk.library.folder = tmp_path / "again"
    key = desk.submit_text(owner="ann").id
    assert desk.services["runs"].room()["problem"] == "" and key in desk.library
    assert all(job.id in desk.library for job in jobs)  # what the disk refused is written now


def test_a_journal_that_cannot_be_replaced_is_opened_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening, parts = recordings.deltas(recordings.chain())
    opening.run["id"] = "crashed"
    journal = Library(tmp_path).start(opening, "ann")
    journal.append(parts[0])
    journal.close()

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(tracefile, "save", refuse)
        store, library = TraceStore(), Library(tmp_path)
        library.recover(store, shared=True)
        library.restore(store, shared=True)
        entry = store.entry("crashed")
        assert entry is not None and (entry.kind, entry.owner) == ("recovered", "ann") and library.problem
        library.close()
    assert (tmp_path / "crashed.journal").exists()


def steps_in(journal: Path) -> int:
    try:
        return recover(journal).rows("steps")
    except tracefile.TraceError:  # it is not there yet
        return 0


SERVER = """
import sys
import threading
sys.path[:0] = [{root!r}, {tests!r}]
from pathlib import Path
import uvicorn
from specviz.server.library import Library
from tests import recordings
from tests.stubs import StubDesk, app_of
desk = StubDesk(library=Library(Path({folder!r})), pause_s=0.1)
desk.gate.clear()  # it waits after four steps
desk.begin(); desk.loader.wait(90)
from specviz.server.forms import PromptForm
job = desk.submit(PromptForm("text", text="abc"), "pld", {{}}, {{}}, owner="ann", title="cut off")
print(job.id, flush=True)
uvicorn.run(app_of(desk), port=0, log_level="error")
"""


def test_a_killed_server_leaves_its_run_readable_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    code = SERVER.format(root=str(ROOT), tests=str(ROOT / "tests"), folder=str(folder))
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            key = server.stdout.readline().strip()
            journal = folder / f"{key}.journal"
            until(lambda: steps_in(journal), "the journal has a step")
            os.utime(journal, (1, 1))  # a slow step: it has rested for long
            second, store = Library(folder), TraceStore()
            second.recover(store)
            second.restore(store)
            second.close()
            assert len(store) == 0 and server.poll() is None and journal.exists()  # the living server's
        finally:
            server.send_signal(signal.SIGKILL)
            server.wait(10)
    desk = StubDesk(library=Library(folder))
    desk.keep_to(rules_for(public=True, accounts=False))
    with client_of(desk, cookies={COOKIE: "ann"}) as client:
        assert client.get(f"/api/traces/{key}").status_code == 200  # at once: the page that shows it asks first
        until(lambda: key in desk.store, "the run is recovered")
        listed = client.get("/api/runs").json()["runs"]
        assert [(run["kind"], run["title"], run["mine"]) for run in listed] == [("recovered", "cut off", True)]
        run = client.get(f"/api/traces/{key}").json()
        steps = len(run["steps"]["context"])
        assert run["run"]["stop"] == "interrupted" and 0 < steps < recordings.chain().rows("steps")
        assert client.get(f"/api/traces/{key}/download?format=html").status_code == 200
    assert not list(folder.glob("*.journal")) and json.loads((folder / f"{key}.json").read_text())["owner"] == "ann"


def test_a_second_server_on_the_same_folder_loses_nothing(tmp_path: Path) -> None:
    """Both write; each keeps its own journal, and the third finds all runs."""
    desks = [start_desk(StubDesk(library=Library(tmp_path))) for _ in range(2)]
    keys = {desks[k % 2].submit_text(owner="ann").id for k in range(6)}
    for one in desks:
        one.end()
    store = TraceStore()
    Library(tmp_path).restore(store)
    assert {run["id"] for run in store.listing("")} == keys


def test_a_run_is_stopped_by_its_owner_only(desk: StubDesk) -> None:
    desk.gate.clear()
    with client_of(desk, cookies={COOKIE: "ann"}) as client:
        going, waiting, bobs = (
            desk.submit(PromptForm("text", text="abc"), "pld", {}, {}, owner=owner) for owner in ("ann", "ann", "bob")
        )
        ids = [going.id, waiting.id, bobs.id, "no-run"]
        until(going.so_far, "the first run has begun")  # stopped before, it would leave nothing
        other = TestClient(client.app)
        assert other.post("/api/runs/stop", json={"ids": ids}).json() == {"done": []}
        assert client.post("/api/runs/stop", json={"ids": ids}).json() == {"done": [going.id, waiting.id]}
        assert going.finished.wait(WAIT_S) and waiting.finished.wait(WAIT_S) and not bobs.cancel.is_set()
        assert client.post("/api/runs/stop", json={"ids": ids}).json() == {"done": []}
        desk.gate.set()
        assert bobs.finished.wait(WAIT_S)
    assert desk.store.get(going.id).run["stop"] == "cancelled" and waiting.id not in desk.store


def test_closing_one_page_stops_its_runs_only(desk: StubDesk) -> None:
    desk.gate.clear()
    form = PromptForm("text", text="abc")
    jobs = [desk.submit(form, "pld", {}, {}, owner="ann", session=tab) for tab in ("one", "two", "one", "")]
    desk.runner.leave("one", after_s=0.01)
    desk.runner.leave("", after_s=0.01)  # what no page started, no page stops
    assert jobs[0].finished.wait(WAIT_S) and jobs[2].finished.wait(WAIT_S) and not jobs[1].cancel.is_set()
    desk.gate.set()
    assert jobs[1].finished.wait(WAIT_S) and jobs[3].finished.wait(WAIT_S)
    stops = [desk.store.get(job.id).run["stop"] if job.id in desk.store else None for job in jobs]
    assert stops == ["cancelled", "eos", None, "eos"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
def test_what_is_no_file_in_the_folder_is_passed_over(desk: StubDesk) -> None:
    """Opening a pipe waits until somebody writes into it, so the app would never start."""
    assert desk.library is not None
    job = desk.submit_text(owner="ann", title="before")
    folder = desk.library.folder
    for name in ("a1.spectrace", "a1.json", "b2.spectrace", "c3.journal", "d4.json", ".e5", f"{job.id}.x"):
        os.mkfifo(folder / name)
    (folder / "f6.spectrace").mkdir()
    found: list[TraceStore] = []
    start = threading.Thread(target=lambda: found.append(restart(desk)), daemon=True)
    start.start()
    start.join(WAIT_S)
    assert found and job.id in found[0] and "a1" not in found[0]
    assert not found[0].entry("b2")
    library = Library(folder)
    assert library.about("d4") == {} and "a1" not in library
