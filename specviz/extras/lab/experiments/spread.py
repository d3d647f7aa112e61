"""An experiment spread over workers: what ``run_experiment`` does in one place, done unit by unit in many.

Everything that came out is in a results folder, from which the results are put together at any time: whoever starts
the same experiment on it again does what is missing, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from decoders.errors import UserError
from decoders.folders import write_text
from specviz.places import SUFFIX, TRACES, home
from specviz.words import plural
from specviz.workers.folder import ResultFolder
from specviz.workers.kinds import Workers
from specviz.workers.processes import worker_device
from specviz.workers.sweep import Standing, sweep
from specviz.workers.work import SweepJob, Unit

from .experiment import Row
from .plan import Plan
from .results import ABOUT, Results
from .running import begin, train_parts
from .units import UNIT_RUN, Opening, about_of, failed_rows, open_experiment, units_of

if TYPE_CHECKING:
    from decoders import Target

MOST_WORKERS = 1024
PLACE = "place"  # of results that a lab lists and that lie elsewhere: the file that says where
IDENTITY = ("id", "created")  # of an experiment that is gone on with


@dataclass
class Spread:
    """An experiment ready to be done by workers: it needs the model no longer, which its workers open themselves."""

    planned: Plan
    results: Results
    folder: ResultFolder
    units: Sequence[Unit]
    job: SweepJob
    workers: Workers

    def run(self, progress: Callable[[Standing], None] | None = None, cancel: threading.Event | None = None) -> Results:
        """Do what is missing. When ``cancel`` is set, or on Ctrl+C, what is done so far is the result.

        Raises UserError where the sweep cannot go on; what is finished is in the folder, and in the results.
        """
        about, start_s = self.results.about, time.perf_counter()
        earlier_seconds = float(about["seconds"])
        book = _Book(self.planned, self.units, self.folder)
        self.results.rows = book.rows()
        pool = self.workers.pool(self.job)

        def over(standing: Standing, key: str | None) -> None:
            if key is not None:
                self.results.rows += book.read(key)
            if progress is not None:
                progress(standing)

        state = "error"
        try:
            standing = sweep(self.units, pool, self.folder, on_progress=over, cancel=cancel)
            state = "complete" if standing.done == standing.total else "cancelled"
        except KeyboardInterrupt:
            state = "cancelled"
        finally:
            about["state"] = state
            about["seconds"] = round(earlier_seconds + time.perf_counter() - start_s, 1)
            self.results.rows = book.rows()
            arrange = self.planned.experiment.arrange
            if arrange is not None and self.results.rows:
                self.results.rows = arrange(self.results.rows)
            with contextlib.suppress(UserError):  # a folder that refuses has stopped the sweep already
                self.save()
        return self.results

    def save(self) -> None:
        """Keep the results as a whole beside the units, as the Lab opens them."""
        for name, text in self.results.files().items():
            self.folder.put(name, text.encode())


def spread(
    target: Target, plan: Plan, workers: Workers, opening: Opening, place: str, *, resume: bool = False,
    results: Results | None = None, progress: Callable[[Standing], None] | None = None,
    cancel: threading.Event | None = None,
) -> Spread:  # fmt: skip
    """Make an experiment ready for workers; parts that it compares are trained first, here.

    Raises UserError for a folder that holds results already (unless they are of the same experiment and it is to
    ``resume``), or that cannot be written to.
    """
    if not 1 <= workers.count <= MOST_WORKERS:
        raise UserError(f"{workers.count} workers are asked for: a whole number from 1 to {MOST_WORKERS:,} is needed")
    folder = ResultFolder(place)
    results = results or begin(plan, target)
    _continue(results, folder, resume)
    token = folder.open()
    if plan.experiment.trains:
        results.about["trained_s"] = train_parts(target, plan, progress, cancel)
    device, gpus = worker_device(target.device.type, opening.device, is_scheduled=not workers.kind.is_here)
    threads = workers.threads_each
    worker_opening = replace(opening, dtype=str(target.info["dtype"]), device=device)
    about = about_of(target, plan, worker_opening)
    job = SweepJob(open_experiment, about, folder.place, token, threads, gpus)
    units = units_of(plan, about)
    results.about["workers"] = {"count": workers.count, "on": workers.on, "threads": threads, "units": len(units)}
    if workers.kind.is_here and workers.count > 1:
        results.about["notes"].append(
            f"{workers.count} workers of {plural(threads, 'thread')} each shared this machine: speedups are formed on "
            "one worker, and tokens per second are lower than with the machine to oneself"
        )
    new_spread = Spread(plan, results, folder, units, job, workers)
    new_spread.save()
    return new_spread


def list_in_lab(new_spread: Spread) -> None:
    """Have the Lab list results that lie elsewhere: their description and rows, and where their runs are."""
    lab_folder = home() / "lab" / new_spread.results.id
    if new_spread.folder.path == lab_folder.absolute():
        return
    new_spread.results.save(lab_folder)
    write_text(lab_folder / PLACE, new_spread.folder.place)


def run_file(lab: Path, trace: str) -> bytes | None:
    """The file of a run whose results a lab lists and that lies elsewhere; None where there is none."""
    if not UNIT_RUN.fullmatch(trace):
        return None
    for place_file in lab.glob(f"*/{PLACE}"):
        with contextlib.suppress(OSError, UserError, UnicodeDecodeError):
            return ResultFolder(place_file.read_text(encoding="utf-8")).read(f"{TRACES}/{trace}{SUFFIX}")
    return None


def _continue(results: Results, folder: ResultFolder, resume: bool) -> None:
    """Go on with what a folder holds, if it may be."""
    finished_keys, failed = folder.list_units()
    if not finished_keys and not failed:
        return
    unit_counts = f"{plural(len(finished_keys), 'finished unit')}" + (f" and {len(failed)} failed" if failed else "")
    if not resume:
        raise UserError(
            f"the folder {folder.place} holds results ({unit_counts}): add --resume to go on with them, or name another"
        )
    try:
        about = json.loads(folder.read(ABOUT))
        name = str(about["name"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return
    if name != results.about["name"]:
        raise UserError(
            f"the folder {folder.place} holds results of {name}, and this is {results.about['name']}: name another"
        )
    results.about |= {key: about[key] for key in IDENTITY if key in about}
    results.about["seconds"] = float(about.get("seconds") or 0.0)


class _Book:
    """The rows of the units, read from their files, in the order of the plan."""

    def __init__(self, plan: Plan, units: Sequence[Unit], folder: ResultFolder) -> None:
        self.planned, self.folder = plan, folder
        self.places = {unit.key: place for place, unit in reversed([*enumerate(units)])}  # the first of equal ones
        self._rows: dict[int, list[Row]] = {}

    def read(self, key: str) -> list[Row]:
        """A unit's rows, whatever became of it."""
        place = self.places[key]
        unit_rows: list[Row] = []
        for row in self.folder.rows(key) or ():
            unit_rows += [row] if "series" in row else failed_rows(self.planned, place, str(row["error"]))
        if self.planned.experiment.repeats:
            unit_rows = [{**row, "place": place} for row in unit_rows]
        self._rows[place] = unit_rows
        return unit_rows

    def rows(self) -> list[Row]:
        """The rows of all units that are over."""
        finished_keys, failed = self.folder.list_units()
        for key in finished_keys | failed:
            if key in self.places and self.places[key] not in self._rows:
                self.read(key)
        return [row for _, rows in sorted(self._rows.items()) for row in rows]
