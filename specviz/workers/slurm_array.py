"""Workers that are the tasks of a SLURM array, by submitit, whose only importer this file is.

Each task opens the job once and does a share of the units. It tells nothing: what is done is seen in the results
folder, which the nodes share. A task that SLURM puts back into its queue skips what is finished.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, UncompletedJobError

from decoders.errors import UserError
from specviz.places import home

from .folder import ResultFolder
from .pool import Answer, Cannot, Ready, WorkDone, WorkerLost, WorkerPool
from .work import Outcome, SweepJob, Unit, UnitResult, Worker, WorkerRefused

LOOK_S = 0.5  # between looks at the folder and the tasks
SETTING = re.compile(r"[a-z][a-z0-9_]*")


class Share:
    """Units for one task."""

    def __call__(self, job: SweepJob, units: Sequence[Unit]) -> str:
        """Do those that are not finished; "" or why the sweep has to stop."""
        try:
            worker = Worker(job)
        except WorkerRefused as refusal:
            return str(refusal)
        for unit in units:
            if not worker.folder.has(unit.key) and (stops := worker.do(unit).stops):
                return stops
        return ""

    def checkpoint(self, job: SweepJob, units: Sequence[Unit]) -> Any:
        """SLURM takes the node back: the same share once more."""
        return submitit.helpers.DelayedSubmission(self, job, units)


@dataclass(slots=True)
class _Task:
    job: Any
    open_units: dict[str, Unit]


class Array(WorkerPool):
    """An array of as many tasks at a time as there are workers. ``settings`` are submitit's (``partition=gpu``,
    ``timeout_min=240``); ``cluster=local`` runs the tasks on this machine.
    """

    def __init__(self, job: SweepJob, count: int, settings: Sequence[str] = ()) -> None:
        super().__init__(job, count)
        self._settings = dict(_setting(text) for text in settings)
        self._new: dict[str, list[Unit]] = {}
        self._tasks: dict[str, _Task] = {}
        self._first = True
        self._folder = ResultFolder(job.folder)

    def concurrency(self, unit_count: int) -> int:
        """A task's share: each opens the model once."""
        return -(-unit_count // len(self.names))

    def start(self) -> None:
        cluster = str(self._settings.pop("cluster", "slurm"))
        try:
            self._executor: Any = submitit.AutoExecutor(folder=home() / "slurm" / "%j", cluster=cluster)
            plain = {"name": "specviz", "cpus_per_task": self.job.threads}
            if self.job.gpus:
                plain |= {"gpus_per_node": round(self.job.gpus)}
            if cluster == "slurm":
                plain |= {"slurm_array_parallelism": len(self.names)}
            self._executor.update_parameters(**{**plain, **self._settings})
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as problem:
            raise UserError(f"SLURM cannot be used here: {problem}") from None

    def give(self, worker: str, units: Sequence[Unit]) -> None:
        self._new[worker] = list(units)

    def wait(self, seconds: float) -> list[Answer]:
        if self._first:
            self._first = False
            return [Ready(name) for name in self.names]
        self._submit()
        end = time.monotonic() + seconds
        while not (answers := self._look()) and (remaining_s := end - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, remaining_s))
        return answers

    def _submit(self) -> None:
        new, self._new = self._new, {}
        if not new:
            return
        with self._executor.batch():
            jobs = {name: self._executor.submit(Share(), self.job, units) for name, units in new.items()}
        for name, units in new.items():
            self._tasks[name] = _Task(jobs[name], {unit.key: unit for unit in units})

    def _look(self) -> list[Answer]:
        """Messages on changes in the folder, then among the tasks."""
        ended_tasks = {name for name, task in self._tasks.items() if task.job.done()}  # before the folder is read
        finished_keys, failed = self._folder.list_units()
        answers: list[Answer] = []
        for name, task in list(self._tasks.items()):
            for key in [key for key in task.open_units if key in finished_keys or key in failed]:
                del task.open_units[key]
                rows = self._folder.rows(key) if key in failed else None
                answers.append(WorkDone(name, Outcome(key, error=UnitResult(rows or []).error)))
            if name not in ended_tasks:
                continue
            del self._tasks[name]
            reason, stops = _end(task.job)
            if stops:
                answers.append(Cannot(name, stops))
            elif task.open_units:
                answers += [WorkerLost(name, reason), Ready(name)]
            else:
                answers.append(Ready(name))
        return answers

    def close(self) -> None:
        for task in self._tasks.values():
            if task.open_units:  # else it is about to end by itself
                with contextlib.suppress(Exception):  # it may be over by now
                    task.job.cancel()
        self._tasks.clear()


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not SETTING.fullmatch(name):
        raise UserError(f"--slurm {text!r} is not of the form name=value, as in partition=gpu or timeout_min=240")
    return name, int(value) if value.isdecimal() else value


def _end(job: Any) -> tuple[str, str]:
    """Why a task ended before its units were done, and why the sweep has to stop; "" each where there is no reason."""
    try:
        return "its task ended", str(job.result())
    except FailedJobError as problem:
        trace = str(problem).partition("-----\n")[2].partition("\n-----")[0].strip()
        return f"its task failed: {trace.splitlines()[-1][:160] if trace else problem}", ""
    except UncompletedJobError:
        return f"its task was lost ({job.state})", ""
