"""Shared parts of ``specviz lab`` and ``specviz bench`` where workers do the runs: options, progress, resuming."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from decoders.errors import UserError
from specviz.words import duration, plural
from specviz.workers.kinds import KINDS, Workers

from . import common, options

if TYPE_CHECKING:
    from decoders import Target
    from specviz.experiments import Plan, Results
    from specviz.workers.sweep import Standing

MAX_LISTED = 6  # workers that a line tells of one by one; of more, how many do what
RESUME = "go on with what that folder holds: do what is missing or failed"
WORKER_OPTIONS = ("on", "results", "resume", "address", "slurm")  # options that make no sense without workers


def add(
    parser: argparse.ArgumentParser, title: str = "workers (docs/scale.md)",
    workers_help: str = "do the runs with so many workers, each with a model of its own",
    results: str = "a folder that all workers see, or an address as s3://… (default: the Lab's)",
) -> argparse._ArgumentGroup:  # fmt: skip
    """Options of workers."""
    group = parser.add_argument_group(title)
    options.count(group, "--workers", workers_help)
    kinds = "; ".join(f"{kind.name}: {kind.about}" for kind in KINDS.values())
    group.add_argument("--on", default="", metavar="KIND", help=f"{kinds} (default: processes)")
    group.add_argument("--results", metavar="FOLDER", help=results)
    add_cluster(group)
    group.add_argument("--slurm", action="append", help=argparse.SUPPRESS)  # of earlier versions: told what to take
    return group


def add_cluster(group: argparse._ActionsContainer) -> None:
    """The option that names a cluster, as each kind of workers that has clusters spells it."""
    group.set_defaults(address=None)
    for kind in (kind for kind in KINDS.values() if kind.address):
        group.add_argument(f"--{kind.name}-address", dest="address", metavar="A", help=kind.address)


def worker_count(args: argparse.Namespace) -> int:
    """The number of workers asked for; 0 where none are. Raises UserError for options that contradict each other."""
    if args.resume and not args.results:
        raise UserError("--resume needs --results and the folder to go on with")
    return workers_of(args).count if args.workers or any(getattr(args, name) for name in WORKER_OPTIONS) else 0


def workers_of(args: argparse.Namespace) -> Workers:
    """The workers asked for; a cluster's address says which kind. Raises UserError where options contradict."""
    clusters = [kind.name for kind in KINDS.values() if kind.address]
    kind = "slurm" if args.slurm else args.on or (clusters[0] if args.address else "processes")
    return Workers(args.workers or 1, kind, args.threads or 0, args.address or "")


def spread_out(args: argparse.Namespace, target: Target, plan: Plan) -> Results:
    """Do a plan with workers; told on stderr as it goes on. The results are listed in the Lab."""
    from specviz.experiments.running import begin
    from specviz.experiments.spread import list_in_lab, spread
    from specviz.experiments.units import Opening
    from specviz.places import home

    workers = workers_of(args)
    opening = Opening(common.model_source(args), args.dtype, args.device, args.engine, args.weights)
    results = begin(plan, target)
    place = args.results or str(home() / "lab" / results.id)
    ready = spread(
        target, plan, workers, opening, place, resume=args.resume, results=results, progress=training_teller()
    )
    if target.device.type == "cuda":  # its memory is the workers' from here on
        target.model.to("cpu")
    keys = {unit.key for unit in ready.units}
    try:
        with progress(plan.experiment.title) as report:
            results = ready.run(report)
    finally:
        list_in_lab(ready)
    if results.about["state"] == "cancelled":
        finished_count = len(ready.folder.list_units()[0] & keys)
        common.say(
            f"stopped: {finished_count} of {plural(len(keys), 'unit')} finished. To go on, give the same command with "
            f"--results {ready.folder.place} --resume",
            error=True,
        )
    else:
        common.say(f"kept in {ready.folder.place}, and listed in the page Lab of python app.py", error=True)
    return results


def training_teller() -> Callable[[Standing], None]:
    """Tells on stderr which part is trained, whenever that is another one."""
    trained = ""

    def tell(progress: Standing) -> None:
        nonlocal trained
        if progress.trains not in ("", trained):
            trained = progress.trains
            common.say(f"training: {trained}", error=True)

    return tell


def line_of(standing: Standing) -> str:
    """The workers' states in words: one by one where they are few.

    >>> from specviz.workers.sweep import Standing, WorkerState
    >>> line_of(Standing(4, workers=[WorkerState("worker 1", "starting", time.monotonic())]))
    'worker 1 starting, 0 s'
    """
    parts = []
    if standing.rate is not None and standing.left_s is not None:
        parts.append(f"{standing.rate:.2g} units/s, {duration(standing.left_s)} left")
    if len(standing.workers) <= MAX_LISTED:
        moment = time.monotonic()
        parts += [f"{worker.name} {worker.state}, {moment - worker.since:.0f} s" for worker in standing.workers]
        if standing.failures:
            parts.append(f"{len(standing.failures)} failed")
    else:
        parts.append(standing.text().partition("units/s · ")[2] or standing.text())
    return " · ".join(parts)


@contextmanager
def progress(title: str) -> Iterator[Callable[[Standing], None]]:
    """A bar with what the workers do below it; where stderr is no terminal, a line at times."""
    with common.progress_bar(title, told_now=True) as bar:
        yield lambda standing: bar(standing.done, standing.total, line_of(standing))
