"""Shared parts of ``specviz lab`` and ``specviz bench`` where workers do the runs: options, progress, resuming."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from decoders.errors import UserError
from specviz.commands import common, options, over_workers
from specviz.words import plural

if TYPE_CHECKING:
    from decoders import Target
    from specviz.workers.sweep import Standing

    from .experiments import Plan, Results

RESULTS = "a folder that all workers see, or an address as s3://… (default: the Lab's)"
WORKER_OPTIONS = ("on", "results", "resume", "address", "slurm")  # options that make no sense without workers


def add(parser: argparse.ArgumentParser) -> None:
    """Options of workers, and of going on with what some have done."""
    group = over_workers.add(parser, results=RESULTS)
    options.flag(group, "--resume", "go on with what that folder holds: do what is missing or failed")


def worker_count(args: argparse.Namespace) -> int:
    """The number of workers asked for; 0 where none are. Raises UserError for options that contradict each other."""
    if args.resume and not args.results:
        raise UserError("--resume needs --results and the folder to go on with")
    wants_workers = args.workers or any(getattr(args, name) for name in WORKER_OPTIONS)
    return over_workers.workers_of(args).count if wants_workers else 0


def spread_out(args: argparse.Namespace, target: Target, plan: Plan) -> Results:
    """Do a plan with workers; told on stderr as it goes on. The results are listed in the Lab."""
    from specviz.places import home

    from .experiments.running import begin
    from .experiments.spread import list_in_lab, spread
    from .experiments.units import Opening

    workers = over_workers.workers_of(args)
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
        with over_workers.progress(plan.experiment.title) as report:
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
