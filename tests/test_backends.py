"""The backends behind the app: runs spread over them, lost ones, state that stays with one, and how they end.

The stand-ins need no model (``hosting``): a run that is to be met in its middle waits there. One test has a model.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from decoders.errors import UserError
from specviz.server.forms import PromptForm, Refusal
from specviz.server.job import Job
from specviz.server.library import Library
from specviz.server.limits import Rules
from specviz.server.pool import SeatPool
from specviz.workers.executors import Hosting
from specviz.workers.kinds import Workers
from specviz.workers.processes import worker_device
from specviz.workers.supervisor import BUSY, FAILED, FREE

from . import recordings
from .hosting import VERSION, count_calls, open_stub
from .stubs import METHODS, StubDesk, app_of, start_desk
from .test_runner import body, events, four_steps
from .waiting import WAIT_S, alive, children, until

pytestmark = pytest.mark.usefixtures("home")

Make = Callable[..., StubDesk]


def pool_desk(workers: Workers, library: Library | None = None, **about: Any) -> StubDesk:
    """A desk with stand-ins as its backends, all of them open."""
    desk = StubDesk(pool=SeatPool(workers.opener("--backends"), workers.names("backend")), library=library)
    pool = pool_of(desk)
    desk.begin()
    pool.begin(Hosting(open_stub, {"version": VERSION, **about}))
    assert desk.loader.wait(WAIT_S)
    until(lambda: all(seat.state in (FREE, FAILED) for seat in pool.seats.values()), "all backends are open")
    return desk


def pool_of(desk: StubDesk) -> SeatPool:
    assert desk.runner.pool is not None
    return desk.runner.pool


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[StubDesk] = []

    def one(count: int, **more: Any) -> StubDesk:
        made.append(pool_desk(Workers(count, threads=1), **more))
        return made[-1]

    yield one
    for desk in made:
        desk.end()
    until(lambda: not multiprocessing.active_children(), "the end of all processes, those that were starting too")


def run(desk: StubDesk, text: str = "abc", method: str = "pld", owner: str = "ann", **more: Any) -> Job:
    return desk.submit(PromptForm("text", text=text), method, {}, {}, owner=owner, **more)


def over(desk: StubDesk, job: Job) -> Any:
    """The run's trace, once it is over."""
    assert job.finished.wait(WAIT_S)
    return desk.store.get(job.id)


def hold(desk: StubDesk, owner: str = "ann", *, text: str = "hold", **more: Any) -> tuple[Job, str, int]:
    """A run that waits after its fourth step; its backend and that one's process."""
    job = run(desk, text, owner=owner, **more)
    four_steps(job)
    about = body(job)["run"]
    return job, about["backend"], about["pid"]


def test_two_users_runs_go_on_at_once_and_a_third_waits_for_either(make: Make) -> None:
    desk = make(2)
    (first, one, _), (second, other, _) = hold(desk, "ann"), hold(desk, "bob")  # both are in their middle
    assert {one, other} == {"backend 1", "backend 2"} and desk.runner.load() == {"running": 2, "waiting": 0}
    third, fourth = run(desk, owner="eve"), run(desk, owner="eve")
    assert [events(job)[0]["ahead"] for job in (third, fourth)] == [1, 2]
    desk.runner.cancel(second)
    assert over(desk, third).run["backend"] == other and over(desk, fourth).run["backend"] == other
    assert not first.finished.is_set()
    desk.runner.cancel(first)


def test_one_backend_does_one_run_at_a_time(make: Make) -> None:
    """The control of the test before."""
    desk = make(1)
    first, _, _ = hold(desk, "ann")
    second = run(desk, owner="bob")
    assert second.state == "queued" and desk.runner.load() == {"running": 1, "waiting": 1}
    desk.runner.cancel(first)
    over(desk, second)


def test_a_run_comes_out_as_without_backends_and_its_events_add_up_to_it(make: Make) -> None:
    desk, alone = make(1), start_desk(StubDesk())
    job, local = run(desk), run(alone)
    mine, theirs = over(desk, job), over(alone, local)
    assert mine.tables == theirs.tables and mine.output_ids == recordings.chain().output_ids
    own, kinds = {"id", "created", "backend", "pid"}, {"state", "delta", "done", "reload"}
    records = [{name: value for name, value in one.run.items() if name not in own} for one in (mine, theirs)]
    assert records[0] == records[1]
    told = [[sorted(set(event) & kinds) for event in events(one)] for one in (job, local)]
    assert told[0] == told[1]
    followed, _ = recordings.deltas(theirs)
    for event in events(job):
        followed.extend(event.get("delta", {}))
    assert followed.tables["tokens"] == theirs.tables["tokens"]
    alone.end()


def test_a_lost_backends_run_is_told_its_steps_are_kept_and_the_next_run_works(make: Make, tmp_path: Path) -> None:
    desk = make(1, library=Library(tmp_path / "runs"))
    job, name, pid = hold(desk)
    os.kill(pid, signal.SIGKILL)
    trace = over(desk, job)
    said = "Backend 1 was lost: its process ended (killed by SIGKILL). The 4 steps it had finished are kept; run this"
    assert job.error == trace.run["error"] == f"{said} again."
    assert trace.run["stop"] == "error" and trace.run["complete"] and trace.rows("steps") == 4
    assert trace.run["metrics"]["steps"] == 4 and events(job)[-1]["started"]
    assert (tmp_path / "runs" / f"{job.id}.spectrace").is_file()
    again = over(desk, run(desk))
    assert again.run["backend"] == name and again.run["pid"] != pid and again.run["stop"] == "eos"
    assert not alive(pid)


def test_a_backend_that_dies_with_nothing_to_do_is_started_again(make: Make) -> None:
    desk = make(1)
    pid = over(desk, run(desk)).run["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: pool_of(desk).seats["backend 1"].times == 2, "it is open once more")
    assert over(desk, run(desk)).run["pid"] != pid


def test_a_run_that_kills_backends_before_it_begins_is_given_up(make: Make) -> None:
    desk = make(2)
    job = run(desk, "die")
    assert job.finished.wait(WAIT_S)
    assert job.error.startswith("3 backends were lost before this run began") and job.id not in desk.store
    over(desk, run(desk))


def test_a_methods_own_fault_ends_the_run_and_not_the_backend(make: Make) -> None:
    desk = make(1)
    job = run(desk, "fail")
    trace = over(desk, job)
    assert "internal error (RuntimeError: the stub broke)" in job.error and trace.rows("steps") == 2
    assert over(desk, run(desk)).run["pid"] == trace.run["pid"]


def test_stop_ends_a_run_in_its_middle_and_keeps_it(make: Make) -> None:
    desk = make(1)
    job, _, pid = hold(desk)
    desk.runner.cancel(job)
    trace = over(desk, job)
    assert trace.run["stop"] == "cancelled" and trace.rows("steps") == 4 and not job.error
    assert over(desk, run(desk)).run["pid"] == pid


def test_a_backend_that_does_not_stop_is_ended_and_its_run_keeps_its_steps(make: Make) -> None:
    desk = make(1)
    job, name, pid = hold(desk, text="hold deaf")
    worker = pool_of(desk).seats[name].worker
    assert worker is not None
    worker.stop_s = 1.0
    desk.runner.cancel(job)
    trace = over(desk, job)
    assert trace.rows("steps") == 4 and trace.run["complete"] and trace.run["stop"] == "error"
    said = "it did not stop within 1 s. The 4 steps it had finished are kept; run this again."
    assert job.error == f"{name.capitalize()} was lost: {said}"
    until(lambda: not alive(pid), "its process is ended")
    assert over(desk, run(desk)).run["pid"] != pid


def test_what_is_remembered_stays_with_its_backend_and_begins_anew_when_that_is_lost(make: Make) -> None:
    desk = make(2)
    target = desk.target()

    def ask(key: str) -> dict[str, Any]:
        return desk.work_on(target, count_calls, {"name": key}, key)

    first, other = ask("a"), ask("b")
    assert first["pid"] != other["pid"]  # spread over both
    assert ask("a") == {**first, "count": 2} and ask("b") == {**other, "count": 2}
    os.kill(first["pid"], signal.SIGKILL)
    until(lambda: not pool_of(desk).home("a"), "its backend is known to be lost")
    assert ask("a")["count"] == 1 and ask("b")["count"] == 3


def test_runs_of_a_method_that_keeps_something_go_where_it_is_kept(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = make(2)
    monkeypatch.setitem(METHODS, "keeper", type(METHODS["pld"])("keeper", "Keeper", keeps="matrix"))
    names = {owner: {over(desk, run(desk, method="keeper", owner=owner)).run["backend"] for _ in range(2)}
             for owner in ("ann", "bob")}  # fmt: skip
    assert {len(those) for those in names.values()} == {1} and names["ann"] != names["bob"]


def test_lanes_that_are_compared_share_a_backend(make: Make) -> None:
    from specviz.pages.compare.compare_page import ComparisonRequest

    desk = make(2)
    asked = {"prompt": {"mode": "text", "text": "abc"}, "lanes": [{"method": "pld"}, {"method": "pld+h"}]}
    lanes = desk.services["compare"].start(ComparisonRequest(**asked), "ann")["lanes"]
    jobs = [desk.runner.job(lane["id"]) for lane in lanes]
    traces = [over(desk, job) if job is not None else desk.store.get(lane["id"])
              for job, lane in zip(jobs, lanes, strict=True)]  # fmt: skip
    assert len(traces) == 3 and len({trace.run["backend"] for trace in traces}) == 1


def test_limits_count_over_all_backends(make: Make) -> None:
    desk = make(2)
    desk.keep_to(Rules(public=True, waiting=1))
    job, _, _ = hold(desk, "ann")
    with pytest.raises(Refusal, match="1 of your runs wait or go on, and 1 may at a time"):
        run(desk, owner="ann")
    hold(desk, "bob")
    desk.runner.cancel(job)


def test_backends_of_another_version_are_given_up_and_that_is_told(make: Make) -> None:
    desk = make(2, version="2")
    sentence = "No backend could be started: a backend has version 1 and the app 2."
    assert desk.reason() == sentence
    with pytest.raises(Refusal, match=sentence):
        run(desk)


def test_the_page_hears_of_every_backend_and_the_model_stays(make: Make) -> None:
    desk = make(2)
    job, name, _ = hold(desk)
    with TestClient(app_of(desk)) as client:
        told = client.get("/api/status").json()
        assert {one["name"]: one["state"] for one in told["backends"]}[name] == BUSY and not told["picks"]
        assert {one["state"] for one in told["backends"]} == {BUSY, FREE}
        refusal = client.post("/api/models/choose", json={"model": "bundled"})
        assert refusal.status_code == 403 and "start it anew, with --model" in refusal.json()["error"]
    desk.runner.cancel(job)


APP = """
import sys, time
from tests.test_backends import pool_desk
from specviz.workers.kinds import Workers
if __name__ == "__main__":
    desk = pool_desk(Workers(2, threads=1))
    print("open", flush=True)
    sys.stdin.read()
    desk.end()
    print("over", flush=True)
"""


@pytest.mark.cluster("an app in a process of its own starts two more")
@pytest.mark.parametrize("killed", [False, True])
def test_no_backend_outlives_the_app(tmp_path: Path, killed: bool) -> None:
    script = tmp_path / "pooled.py"
    script.write_text(APP)
    root = Path(__file__).resolve().parent.parent
    paths = os.pathsep.join((str(root), str(root / "tests")))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    app = subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": paths}, **pipes)
    assert app.stdin is not None and app.stdout is not None
    with app:
        try:
            assert app.stdout.readline() == b"open\n"
            backends = children(app.pid)
            assert len(backends) >= 2
            if killed:
                app.kill()
            app.stdin.close()
            assert app.stdout.read() == (b"" if killed else b"over\n")
        finally:
            app.kill()
    until(lambda: not any(map(alive, backends)), "the backends end with the app")


def test_backends_are_spelt_in_one_way() -> None:
    assert Workers.behind_app("local:2", threads=3).threads_each == 3
    for text in ("local", "local:0", "2", "slurm:2", "ray://host:10001", "local:9999"):
        with pytest.raises(UserError, match="names no backends: give local:N"):
            Workers.behind_app(text)
    with pytest.raises(UserError, match="and the workers are processes: leave one out"):
        Workers.behind_app("local:2", address="auto")


def test_gpus_are_dealt_out_unless_one_is_named() -> None:
    assert worker_device("cpu", "cpu") == ("cpu", 0.0)
    assert worker_device("cuda", "cuda") == worker_device("cuda", None) == ("cuda", 1.0)
    assert worker_device("cuda", "cuda:1") == ("cuda:1", 0.0)
    with pytest.raises(UserError, match="a scheduler deals them out"):
        worker_device("cuda", "cuda:1", is_scheduled=True)


TIMES = {"draft_ms", "verify_ms", "commit_ms", "elapsed_ms"}


def numbers(trace: Any) -> dict[str, Any]:
    """All tables of a trace, but for what a clock told, and the texts of tokens, which come in any order."""
    return {
        table: {name: values for name, values in columns.items() if name not in TIMES and not name.endswith("_ms")}
        for table, columns in trace.tables.items()
        if table != "pieces"
    }


@pytest.mark.cluster("two processes open a model, and one of them is killed")
def test_a_models_runs_are_the_same_and_what_if_is_built_again_when_its_backend_is_lost() -> None:
    """The bundled target in two processes, on weights of fewer bits where there are any: every row as without them; the
    model is opened once, for all of this.
    """
    from decoders import Prompt, record
    from decoders.names import weight_names
    from specviz.app import open_desk
    from specviz.pages.whatif.whatif_page import Continuation, Redraft

    weights = (None, *weight_names()[1:2])[-1]
    desk = open_desk("bundled", weights=weights, backends=Workers(2, threads=1))
    desk.begin()
    pool = desk.runner.pool
    assert pool is not None
    try:
        assert desk.loader.wait(WAIT_S) and desk.loader.state == "ready"
        until(lambda: all(seat.state == FREE for seat in pool.seats.values()), "both backends are open")
        text = "Say it twice: the old lamp. the old"
        jobs = [desk.submit(PromptForm("text", text=text), "pld+h", {}, {"max_new_tokens": 24}, owner=owner)
                for owner in ("ann", "bob")]  # fmt: skip
        for job in jobs:
            assert job.finished.wait(WAIT_S) and not job.error
        traces = [desk.store.get(job.id) for job in jobs]
        assert {trace.run["backend"] for trace in traces} == {"backend 1", "backend 2"}
        assert {trace.run["model"].get("weights") for trace in traces} == {weights}
        target = desk.target()
        prompt = Prompt.from_text(target.tokenizer, text)  # on the app's worker: as many threads as a backend has
        alone = desk.on_worker(lambda: record(target, prompt, "pld+h", max_new_tokens=24))
        for trace in traces:
            mine, theirs = numbers(trace), numbers(alone)
            assert [f"{t}.{c}" for t in mine for c in mine[t] if mine[t][c] != theirs[t][c]] == []
        assert traces[0].run["metrics"]["tokens_per_step"] == alone.run["metrics"]["tokens_per_step"]

        whatif, key = desk.services["whatif"], jobs[0].id
        first = whatif.redraft(key, Redraft(step=0, method="pld"))
        again = whatif.redraft(key, Redraft(step=0, method="pld"))
        assert first["read_ms"] > 0 == again["read_ms"]
        name = pool.home(key)
        worker: Any = pool.seats[name].worker
        os.kill(worker._process.pid, signal.SIGKILL)
        until(lambda: not pool.home(key), "its backend is known to be lost")
        anew = whatif.redraft(key, Redraft(step=0, method="pld"))
        assert anew["read_ms"] > 0 and anew["accepted"] == first["accepted"] and not desk.memory
        went_on = desk.runner.job(whatif.go_on(key, Continuation(step=1, method="plain"), "ann")["id"])
        assert went_on is None or went_on.finished.wait(WAIT_S)
    finally:
        desk.end()
    until(lambda: not multiprocessing.active_children(), "the end of all processes, those that were starting too")
