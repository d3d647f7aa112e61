"""Tasks of a page: in their order, stopped while they wait, kept or not when they are over."""

from __future__ import annotations

import threading

import pytest

from decoders.errors import UserError
from specviz.server.forms import Missing
from specviz.server.tasks import Task, Tasks

from .waiting import WAIT_S, until


def test_tasks_are_done_in_their_order_and_one_that_waits_is_stopped_at_once() -> None:
    tasks, gate, begun = Tasks[Task]("test", "it is gone", limit=2), threading.Event(), list[str]()

    def work(task: Task) -> bool:
        begun.append(task.id)
        return gate.wait(WAIT_S) and not task.cancel.is_set()

    first, second, third, last = (Task(id=name, owner="ann") for name in "abcd")
    for task in (first, second, third):
        tasks.begin(task, work, lambda going: None)
    until(lambda: begun, "the first is done")
    tasks.stop(second)
    assert second.state == "stopped" and third.state == "queued" and tasks.all() == [first, third]
    gate.set()
    until(lambda: not third.goes_on, "the third is over")
    assert begun == ["a", "c"] and (first.state, third.state) == ("done", "done")
    assert tasks.find("c", "ann") is third
    with pytest.raises(Missing, match="it is gone"):
        tasks.find("c", "bo")
    tasks.close()
    with pytest.raises(UserError, match="going down"):
        tasks.begin(last, work, lambda going: None)


def test_tasks_that_are_not_kept_are_gone_when_they_are_over() -> None:
    tasks = Tasks[Task]("test", "it is gone", limit=0)
    task = Task(id="a", owner="ann")
    tasks.begin(task, lambda task: True, lambda going: None)
    until(lambda: tasks.get("a") is None, "it is over")
    assert task.state == "done"
