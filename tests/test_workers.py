"""Units on workers: each done once, whatever is lost on the way. Processes here; Ray in a file of its own.

Nothing sleeps to win a race: what has to happen first is waited for, and every wait has an end.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from decoders.errors import UserError
from decoders.extra import Extra
from specviz.workers import plain
from specviz.workers.executors import Hosting, Opener, WorkerExecutor, WorkerLost
from specviz.workers.folder import FAILED, UNITS, FolderFault, ResultFolder
from specviz.workers.kinds import Workers
from specviz.workers.processes import ProcessWorker
from specviz.workers.supervisor import Supervisor
from specviz.workers.sweep import LOSSES, Standing, sweep
from specviz.workers.work import Outcome, SweepJob, Unit, Worker, digest

from .disk import refusing
from .standin import ABOUT, Here, HereWorker, open_standin, unit, units
from .waiting import WAIT_S, alive, children, until

pytestmark = pytest.mark.usefixtures("home")


def job_of(folder: ResultFolder, about: dict[str, Any] | None = None, threads: int = 1) -> SweepJob:
    return SweepJob(open_standin, about or ABOUT, folder.place, folder.open(), threads)


def work(
    folder: ResultFolder, wanted: Sequence[Unit], workers: int = 2, kind: str = "processes", **more: Any
) -> Standing:
    """A sweep that ends, or fails, long before pytest is killed: a watch cancels it where it hangs."""
    about = more.pop("about", None)
    late = threading.Event()
    watch = threading.Timer(120, late.set)
    watch.start()
    try:
        pool = Workers(workers, kind).pool(job_of(folder, about))
        return sweep(wanted, pool, folder, cancel=more.pop("cancel", late), **more)
    finally:
        watch.cancel()
        assert not late.is_set(), "the sweep did not end by itself"


def names_of(folder: ResultFolder, wanted: Sequence[Unit]) -> list[str]:
    return [row["name"] for one in wanted for row in folder.rows(one.key) or []]


@pytest.fixture
def folder(tmp_path: Path) -> ResultFolder:
    return ResultFolder(tmp_path / "results")


# --- units and their folder ---


def test_a_key_is_of_all_that_determines_and_of_nothing_else() -> None:
    one = Unit.of({"model": "m", "code": "1"}, {"prompt": [1, 2], "seed": 0})
    assert one.key == Unit.of({"code": "1", "model": "m"}, {"seed": 0, "prompt": [1, 2]}).key
    others = [({"model": "n", "code": "1"}, {"prompt": [1, 2], "seed": 0}),
              ({"model": "m", "code": "1"}, {"prompt": [1, 3], "seed": 0}),
              ({"model": "m", "code": "1"}, {"prompt": [1, 2], "seed": 1})]  # fmt: skip
    assert len({one.key, *(Unit.of(*other).key for other in others)}) == 4
    assert one.key == Unit.of(digest({"model": "m", "code": "1"}), one.payload).key


@pytest.mark.parametrize("place", ["{}/results", "file://{}/results", "local://{}/results"])
def test_a_folder_keeps_units_on_a_disk_and_behind_an_address(tmp_path: Path, place: str) -> None:
    folder, again = ResultFolder(place.format(tmp_path)), ResultFolder(place.format(tmp_path))
    assert folder.token() is None and folder.list_units() == (set(), set())
    assert folder.open() == folder.open() == again.token()
    good, bad = unit("good").key, unit("bad").key
    folder.finish(good, [{"tokens": 3.5}])
    folder.finish(bad, [{"error": "no"}], "no")
    folder.put("traces/a.txt", b"trace")
    assert again.list_units() == ({good}, {bad}) and again.has(good) and not again.has(bad)
    assert again.rows(good) == [{"tokens": 3.5}] and again.rows(bad) == [{"error": "no"}]
    assert again.rows(unit("none").key) is None and again.read("traces/a.txt") == b"trace"
    again.finish(bad, [{"tokens": 1}])  # it succeeds when it is tried again
    assert folder.list_units() == ({good, bad}, set())
    parts = [path for path in (tmp_path / "results").rglob("*") if path.name.endswith(".part")]
    assert not parts


def test_a_folder_is_known_by_its_token_wherever_it_is_seen_from(tmp_path: Path) -> None:
    one, other = ResultFolder(tmp_path / "one"), ResultFolder(tmp_path / "other")
    assert one.open() != other.open()
    (tmp_path / "other" / "sweep.json").write_text('{"schema": "of tomorrow"}')
    with pytest.raises(FolderFault, match="another version of specviz"):
        other.open()


def test_a_file_that_is_not_a_units_own_is_no_result(folder: ResultFolder) -> None:
    folder.open()
    one, other = unit("one").key, unit("other").key
    folder.finish(one, [{"a": 1}])
    whole = (folder.path / UNITS / f"{one}.json").read_bytes()
    folder.put(f"{UNITS}/{other}.json", whole)  # another unit's, by its name
    assert folder.rows(other) is None
    folder.put(f"{UNITS}/{one}.json", whole[:20])
    assert folder.rows(one) is None


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_disk_that_refuses_stops_the_sweep_and_leaves_nothing_half(folder: ResultFolder, at: int) -> None:
    worker = Worker(job_of(folder))
    with refusing(folder.path, at, error=errno.ENOSPC) as disk:
        outcome = worker.do(unit("one"))
    assert disk.failed and "no space left" in outcome.stops and str(folder.path) in outcome.stops
    assert folder.rows(unit("one").key) is None
    assert worker.do(unit("one")) == Outcome(unit("one").key, pytest.approx(0, abs=30)) and folder.has(unit("one").key)


# --- processes ---


def test_every_unit_is_done_once_and_a_repeated_one_is_one(folder: ResultFolder) -> None:
    wanted = units(12)
    heard: list[tuple[int, str | None]] = []
    standing = work(folder, [*wanted, *wanted[:3]], on_progress=lambda now, key: heard.append((now.done, key)))
    assert (standing.done, standing.total, standing.before, standing.failures) == (12, 12, 0, {})
    assert sorted(key for _, key in heard if key) == sorted(one.key for one in wanted)
    assert names_of(folder, wanted) == [f"u{n}" for n in range(12)]
    rows = [row for one in wanted for row in folder.rows(one.key) or []]
    assert {row["threads"] for row in rows} == {1} and os.getpid() not in {row["pid"] for row in rows}
    assert sum(worker.done for worker in standing.workers) == 12 and not multiprocessing.active_children()


def test_a_restart_does_only_what_is_missing_or_failed(folder: ResultFolder) -> None:
    wanted = [*units(6), unit("bad", do="fail")]
    first = work(folder, wanted)
    assert first.failures == {wanted[6].key: "Bad always fails."} and first.done == 7
    (folder.path / UNITS / f"{wanted[2].key}.json").unlink()
    heard: list[str] = []
    second = work(folder, wanted, on_progress=lambda now, key: heard.append(key) if key else None)
    assert sorted(heard) == sorted([wanted[2].key, wanted[6].key]) and second.before == 5
    assert second.failures == first.failures  # once in each sweep, and not again and again


def test_a_worker_that_is_killed_is_replaced_and_its_unit_done_again(folder: ResultFolder, tmp_path: Path) -> None:
    wanted = [unit("once", do="die once", mark=str(tmp_path / "mark")), *units(4)]
    standing = work(folder, wanted)
    assert not standing.failures and names_of(folder, wanted) == ["once", "u0", "u1", "u2", "u3"]
    assert sum(worker.losses for worker in standing.workers) == 1


def test_a_unit_that_kills_every_worker_is_given_up_and_the_others_are_done(folder: ResultFolder) -> None:
    wanted = [unit("killer", do="die"), *units(3)]
    standing = work(folder, wanted)
    assert list(standing.failures) == [wanted[0].key]
    reason = standing.failures[wanted[0].key]
    assert reason == f"The worker was lost {LOSSES} times with this unit: its process ended (killed by SIGKILL)."
    assert len(folder.list_units()[0]) == 3 and folder.list_units()[1] == {wanted[0].key}


def test_a_worker_of_another_version_is_refused(folder: ResultFolder) -> None:
    with pytest.raises(UserError, match="this worker has version 1 and the sweep version 2"):
        work(folder, units(2), about={"version": "2"})
    assert folder.list_units() == (set(), set()) and not multiprocessing.active_children()


def test_a_worker_that_sees_another_folder_is_refused(folder: ResultFolder) -> None:
    job = job_of(folder)
    (folder.path / "sweep.json").unlink()
    folder.open()
    with pytest.raises(UserError, match="workers need a folder that all of them share"):
        sweep(units(2), Workers(1).pool(job), folder)


def test_a_full_disk_of_the_workers_stops_the_sweep_with_what_to_know(folder: ResultFolder) -> None:
    with pytest.raises(UserError, match=r"cannot be written to \(file too large\); all that is finished is kept"):
        work(folder, units(4), about={**ABOUT, "disk": 1})
    assert folder.list_units() == (set(), set()) and not multiprocessing.active_children()


def test_a_folder_that_cannot_be_written_to_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderFault, match="not a directory"):
        ResultFolder(tmp_path / "file" / "results").open()
    folder = ResultFolder(tmp_path / "results")
    with refusing(tmp_path / "results", 1, error=errno.EROFS), pytest.raises(FolderFault, match="read-only"):
        folder.open()


def test_clocks_of_workers_do_not_matter(folder: ResultFolder) -> None:
    """Each worker's clock is wrong by a day, in one direction or the other, and so are the files' times."""
    wanted = units(8)
    work(folder, wanted[:4], about={**ABOUT, "clock_s": 86400.0})
    for number, path in enumerate(sorted((folder.path / UNITS).iterdir())):
        os.utime(path, (number * 1e9, number * 1e9))
    standing = work(folder, wanted, about={**ABOUT, "clock_s": -86400.0})
    assert (standing.before, standing.done) == (4, 8) and names_of(folder, wanted) == [f"u{n}" for n in range(8)]
    times = [path for path in folder.path.rglob("*.json") if "1970" in path.read_text() or '"time' in path.read_text()]
    assert not times  # no file of the folder holds a time at all


def test_stop_ends_a_unit_that_goes_on_for_ever(folder: ResultFolder, tmp_path: Path) -> None:
    mark, cancel = tmp_path / "mark", threading.Event()
    wanted = [*units(3), unit("long", do="stay", mark=str(mark))]

    def tell(standing: Standing, _: str | None) -> None:
        if mark.exists() and standing.done == 3:
            cancel.set()

    standing = work(folder, wanted, on_progress=tell, cancel=cancel)
    assert standing.done == 3 and not multiprocessing.active_children() and len(folder.list_units()[0]) == 3


# --- two drivers, and a driver that is killed ---

DRIVER = """
import sys
from tests.standin import ABOUT, open_standin, unit, units
from specviz.workers.folder import ResultFolder
from specviz.workers.kinds import Workers
from specviz.workers.sweep import sweep
from specviz.workers.work import SweepJob
if __name__ == "__main__":
    folder = ResultFolder(sys.argv[1])
    wanted = [*units(3), unit("long", do=sys.argv[3], mark=sys.argv[2]), *units(6)[3:]]
    sweep(wanted, Workers(2).pool(SweepJob(open_standin, ABOUT, folder.place, folder.open())), folder)
"""


def test_a_killed_driver_leaves_whole_units_and_no_workers(folder: ResultFolder, tmp_path: Path) -> None:
    mark, script = tmp_path / "mark", tmp_path / "driver.py"
    script.write_text(DRIVER)
    root = Path(__file__).resolve().parent.parent
    driver = subprocess.Popen(
        [sys.executable, str(script), folder.place, str(mark), "stay"], env={**os.environ, "PYTHONPATH": str(root)}
    )
    try:
        until(lambda: mark.exists() and len(folder.list_units()[0]) == 6, "all but one unit are done, and it is begun")
        workers = children(driver.pid)
        assert len(workers) >= 2
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait(60)
    until(lambda: not any(map(alive, workers)), "the workers end with their driver")
    wanted = [*units(6), unit("long", do="stay", mark=str(mark))]
    assert len(folder.list_units()[0]) == 6
    done = work(folder, [*wanted[:6], unit("long")])
    assert (done.before, done.done) == (6, 7)


def test_what_another_driver_has_begun_is_left_to_the_last(folder: ResultFolder) -> None:
    """It is done all the same: that driver may be gone."""
    pool, wanted = Here(job_of(folder)), units(5)
    assert all(folder.begin(wanted[number].key, "another") for number in (0, 2, 0))
    sweep(wanted, pool, folder)
    assert pool.order == ["u1", "u3", "u4", "u0", "u2"] and not [*(folder.path / "begun").iterdir()]


def test_drivers_that_begin_together_do_few_units_twice(folder: ResultFolder) -> None:
    """At most the last ones: as many as other drivers are at work."""
    wanted, pools = units(40, ms=10), [Here(job_of(folder)) for _ in range(4)]
    with ThreadPoolExecutor(4) as drivers:
        list(drivers.map(lambda pool: sweep(wanted, pool, folder), pools))
    assert names_of(folder, wanted) == [f"u{n}" for n in range(40)]
    assert sum(len(pool.order) for pool in pools) <= 40 + 3 * 4


def test_what_another_driver_finished_meanwhile_is_skipped(folder: ResultFolder) -> None:
    wanted = units(4)
    pool = Here(job_of(folder))

    def tell_standing(standing: Standing, key: str | None) -> None:
        if key == wanted[0].key:
            Worker(pool.job).do(wanted[1])  # the other driver's worker

    standing = sweep(wanted, pool, folder, on_progress=tell_standing)
    assert pool.order == ["u0", "u2", "u3"] and standing.done == 4


def test_a_worker_that_is_lost_while_idle_costs_its_unit_nothing(
    folder: ResultFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is lost after each unit, and any loss with a unit would be the end of that unit."""
    monkeypatch.setattr("specviz.workers.sweep.LOSSES", 1)
    wanted, pool = units(3), Here(job_of(folder))

    def kill(standing: Standing, key: str | None) -> None:
        if key is not None:
            pool.workers[-1].kill("its process ended")

    standing = sweep(wanted, pool, folder, on_progress=kill)
    assert not standing.failures and pool.order == ["u0", "u1", "u2"]
    assert standing.workers[0].losses == 2 and len(pool.workers) == 3


class EndingOpener(Opener):
    """Its workers end before they are ready."""

    def open(self, name: str, number: int, hosting: Hosting) -> HereWorker:
        worker = HereWorker(name, Hosting(lambda about: None, None), [])
        worker.ready = Future()
        worker.ready.set_exception(WorkerLost("its process ended (exit code 3)"))
        return worker


def test_a_worker_that_never_begins_stops_the_sweep(folder: ResultFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specviz.workers.supervisor.PAUSE_S", 0.01)
    pool = Supervisor(EndingOpener(), ["worker 1"])
    pool.begin(Hosting(Worker, job_of(folder)))
    why = r"no worker can begin: worker 1 ended 3 times before its first unit, its process ended \(exit code 3\)"
    with pytest.raises(UserError, match=why):
        sweep(units(1), pool, folder)


# --- a worker as an executor ---


def pid_of(opened: object, *_: Any) -> int:
    return os.getpid()


def leave(opened: object, code: int) -> None:
    os._exit(code)


def unreadable(opened: object) -> Any:
    return threading.Lock()


def count_up(opened: int, cancel: threading.Event) -> Iterator[int]:
    """Counts from what was opened until it is stopped."""
    while not cancel.is_set():
        yield (opened := opened + 1)


@pytest.fixture
def worker() -> Iterator[WorkerExecutor]:
    with ProcessWorker("worker 1", 0, Hosting(int, "40")) as worker:
        assert worker.ready.result(WAIT_S) is None
        yield worker
    assert not multiprocessing.active_children()


def test_a_worker_is_an_executor_that_answers_fails_and_streams(worker: WorkerExecutor) -> None:
    assert isinstance(worker, Executor) and worker.submit(int.__add__, 2).result(WAIT_S) == 42
    for wrong in (worker.submit(int.__truediv__, 0), worker.submit(unreadable)):
        with pytest.raises(UserError):
            wrong.result(WAIT_S)
    cancel, numbers = threading.Event(), list[int]()
    for number in worker.stream(count_up, cancel=cancel):
        numbers.append(number)
        if number == 43:
            cancel.set()
    assert numbers == [*range(41, 41 + len(numbers))] and len(numbers) >= 3
    assert next(worker.stream(count_up, cancel=threading.Event())) == 41  # nobody takes the rest, and it ends
    assert worker.submit(pid_of).result(WAIT_S) != os.getpid()


def test_a_lost_worker_breaks_its_own_executor_with_the_reason(worker: WorkerExecutor) -> None:
    with ProcessWorker("worker 2", 1, Hosting(int, "0")) as other:
        lost, after = worker.submit(leave, 3), worker.submit(pid_of)
        for future in (lost, after):
            with pytest.raises(BrokenExecutor, match=r"^its process ended \(exit code 3\)$"):
                future.result(WAIT_S)
        with pytest.raises(WorkerLost, match="exit code 3"):
            worker.submit(pid_of)
        assert other.submit(pid_of).result(WAIT_S) and not other.loss.done()


# --- what is shown ---


def test_kinds_that_are_none_are_refused_with_what_to_take() -> None:
    with pytest.raises(UserError, match="choose one of processes"):
        Workers(1, "threads")
    with pytest.raises(UserError, match="several tasks on one results folder"):
        Workers(1, "slurm")
    with pytest.raises(UserError, match="and the workers are processes: leave one out"):
        Workers(1, address="auto")


def test_rate_and_time_left_are_of_this_sweep() -> None:
    standing = Standing(total=100, before=60, done=80)
    standing.started -= 10.0
    assert standing.rate == pytest.approx(2.0, rel=0.01) and standing.left_s == pytest.approx(10.0, rel=0.01)
    assert Standing(total=100, before=60, done=60).left_s is None


def test_a_units_file_is_plain_json(folder: ResultFolder) -> None:
    work(folder, units(1), 1)
    (path,) = (folder.path / UNITS).iterdir()
    assert json.loads(path.read_text())["rows"][0]["name"] == "u0" and not (folder.path / FAILED).exists()


# --- code ---


def test_workers_code_is_that_of_annexes_with_methods_and_none_of_tests(tmp_path: Path, monkeypatch):
    (tmp_path / "mine" / "tests").mkdir(parents=True)
    for name in ("__init__.py", "method.py", "tests/test_mine.py"):
        (tmp_path / "mine" / name).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    extra = Extra(name="mine", about="", methods=(".method",), package="mine")
    monkeypatch.setattr(plain, "extras", lambda: {"mine": extra})
    seen = []
    for name in ("__init__.py", "tests/test_mine.py", "method.py"):
        (tmp_path / "mine" / name).write_text("changed = True")
        seen.append(plain.code_of.__wrapped__(("decoders/names.py",)))
    assert seen[0] == seen[1] != seen[2]
