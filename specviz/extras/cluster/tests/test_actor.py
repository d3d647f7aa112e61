"""A worker's own side in an actor, without Ray."""

from __future__ import annotations

from specviz.extras.cluster.ray_actors import _Actor
from specviz.server.backend_host import RemoteRun, decode
from specviz.workers.executors import OVER, STREAM, Call, Hosting
from tests import recordings
from tests.hosting import VERSION, open_stub
from tests.waiting import until


def test_a_run_that_went_on_before_its_beginning_was_taken_has_every_step_once() -> None:
    """Ray takes messages when it can: what the first one names has grown by then."""
    actor = _Actor()
    messages = actor.serve(Hosting(open_stub, {"version": VERSION}))
    assert next(messages)[1] == OVER
    actor.take(Call(1, decode, ({"prompt": {"tokens": [*map(ord, "abc")]}}, "ann"), STREAM))
    whole = recordings.chain()
    until(lambda: actor._messages.qsize() == whole.rows("steps") + 3, "the run is over, and nothing of it taken")
    parts = iter([message[2] for message in (next(messages) for _ in range(whole.rows("steps") + 2))])
    run = RemoteRun(parts)
    assert sum(1 for _ in run) == whole.rows("steps") == run.trace.rows("steps")
    assert run.trace.rows("tokens") == whole.rows("tokens") and next(messages)[1] == OVER
    actor.take(None)
