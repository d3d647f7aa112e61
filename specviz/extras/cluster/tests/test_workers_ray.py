"""Units on Ray's actors, on a cluster of three nodes that one fixture starts on this machine, and ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decoders.errors import UserError
from specviz.workers.folder import ResultFolder
from specviz.workers.sweep import Standing
from tests.standin import unit, units
from tests.test_workers import names_of, work
from tests.waiting import children, until_ended

from .ray_cluster import ray_cluster

pytest.importorskip("ray")

pytestmark = [
    pytest.mark.cluster("a Ray of three nodes"),
    pytest.mark.usefixtures("home"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray leaves sockets and files to the end of the process
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without room for actors, and two nodes with room for one each."""
    before = children()
    with ray_cluster(0, 1, 1) as cluster:
        yield cluster
    until_ended(before, "Ray leaves no process behind")


@pytest.fixture
def folder(tmp_path: Path) -> ResultFolder:
    return ResultFolder(tmp_path / "results")


def test_a_killed_actor_is_started_again_and_a_units_own_error_is_not_tried_again(
    cluster: Any, folder: ResultFolder, tmp_path: Path
) -> None:
    once = unit("once", do="die once", mark=str(tmp_path / "mark"))
    wanted = [once, unit("bad", do="fail"), *units(6)]
    standing = work(folder, wanted, kind="ray")
    assert standing.failures == {wanted[1].key: "Bad always fails."} and standing.done == 8
    assert names_of(folder, [once, *units(6)]) == ["once", *(f"u{n}" for n in range(6))]
    assert sum(worker.losses for worker in standing.workers) == 1


def test_an_actor_of_another_version_is_refused(cluster: Any, folder: ResultFolder) -> None:
    with pytest.raises(UserError, match="this worker has version 1 and the sweep version 2"):
        work(folder, units(2), kind="ray", about={"version": "2"})
    assert folder.list_units() == (set(), set())


def test_a_node_that_is_removed_gives_its_unit_to_another(cluster: Any, folder: ResultFolder, tmp_path: Path) -> None:
    """The last test: the node does not come back."""
    mark, removed = tmp_path / "mark", threading.Event()
    wanted = [unit("long", do="stay once", mark=str(mark)), *units(4)]

    def tell(standing: Standing, _: str | None) -> None:
        if mark.exists() and standing.done == 4 and not removed.is_set():
            removed.set()
            (node,) = [node for node in cluster.list_all_nodes() if node.node_id == mark.read_text()]
            cluster.remove_node(node, allow_graceful=False)

    standing = work(folder, wanted, kind="ray", on_progress=tell)
    assert removed.is_set() and not standing.failures and standing.done == 5
    assert names_of(folder, wanted) == ["long", *(f"u{n}" for n in range(4))]
