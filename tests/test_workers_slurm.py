"""Units on the tasks of a SLURM array, which submitit runs on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from decoders.errors import UserError
from specviz.workers.folder import ResultFolder

from .standin import unit, units
from .test_workers import names_of, work
from .waiting import children, until_ended

pytest.importorskip("submitit")

pytestmark = [
    pytest.mark.usefixtures("home"),
    # submitit forgets a process that has told its result and is about to end
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
LOCAL = ["cluster=local"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ResultFolder]:
    before = children()
    yield ResultFolder(tmp_path / "results")
    until_ended(before, "the tasks end")


def test_tasks_of_an_array_do_their_shares(folder: ResultFolder) -> None:
    wanted = [*units(5), unit("bad", do="fail")]
    standing = work(folder, wanted, kind="slurm", slurm=LOCAL)
    assert standing.done == 6 and standing.failures == {wanted[5].key: "Bad always fails."}
    assert names_of(folder, units(5)) == [f"u{n}" for n in range(5)]


def test_a_task_of_another_version_is_refused(folder: ResultFolder) -> None:
    with pytest.raises(UserError, match="this worker has version 1 and the sweep version 2"):
        work(folder, units(2), 1, kind="slurm", slurm=LOCAL, about={"version": "2"})


@pytest.mark.cluster("tasks are lost and found to be")
def test_the_rest_of_a_lost_task_is_given_to_another(folder: ResultFolder, tmp_path: Path) -> None:
    wanted = [*units(2), unit("once", do="die once", mark=str(tmp_path / "mark")), *units(4)[2:]]
    standing = work(folder, wanted, 1, kind="slurm", slurm=LOCAL)
    assert not standing.failures and names_of(folder, wanted) == ["u0", "u1", "once", "u2", "u3"]
    assert [worker.losses for worker in standing.workers] == [1]


@pytest.mark.parametrize(("setting", "words"), [("partition", "not of the form"), ("cluster=none", "cannot be used")])
def test_a_setting_that_is_none_is_refused(folder: ResultFolder, setting: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        work(folder, units(1), 1, kind="slurm", slurm=[setting])
