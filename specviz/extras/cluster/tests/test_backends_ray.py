"""Backends that are Ray's actors, on a Ray of this machine that one fixture starts, and ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from specviz.workers.kinds import Workers
from specviz.workers.supervisor import FREE
from tests.stubs import StubDesk
from tests.test_backends import hold, over, pool_desk, pool_of, run
from tests.test_workers import alive
from tests.waiting import children, until, until_ended

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.cluster("a Ray of this machine"),
    pytest.mark.usefixtures("home"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray leaves sockets and files to the end of the process
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def desk(home: object) -> Iterator[StubDesk]:
    before = children()
    desk = pool_desk(Workers(2, "ray"))
    try:
        yield desk
    finally:
        desk.end()
    until_ended(before, "Ray leaves no process behind")


def test_actors_do_two_runs_at_once_are_stopped_and_started_again(desk: StubDesk) -> None:
    """One test, as starting Ray costs more than all that it does."""
    (first, one, pid), (second, other, _) = hold(desk, "ann"), hold(desk, "bob")
    assert {one, other} == {"backend 1", "backend 2"}
    desk.runner.cancel(second)
    stopped = over(desk, second)
    assert stopped.run["stop"] == "cancelled" and stopped.rows("steps") == 4
    os.kill(pid, signal.SIGKILL)
    lost = over(desk, first)
    assert lost.rows("steps") == 4 and lost.run["error"] == (
        f"{one.capitalize()} was lost: its process or its node is gone. The 4 steps it had finished are kept; "
        "run this again."
    )
    until(lambda: pool_of(desk).seats[one].state == FREE, "it is open once more")
    third, fourth = hold(desk, "ann"), hold(desk, "bob")
    assert {third[1], fourth[1]} == {one, other} and pid not in (third[2], fourth[2])
    for job in (third, fourth):
        desk.runner.cancel(job[0])
        over(desk, job[0])
    assert over(desk, run(desk)).run["stop"] == "eos"
    until(lambda: not alive(pid), "the one that was killed is gone")
