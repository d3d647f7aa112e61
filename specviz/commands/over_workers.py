"""Shared parts of commands whose work workers do: options, and a line on what each does."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from specviz.words import duration
from specviz.workers.kinds import KINDS, Workers, cluster_kinds

from . import common, options

if TYPE_CHECKING:
    from specviz.workers.sweep import Standing

MAX_LISTED = 6  # workers that a line tells of one by one; of more, how many do what


def add(
    parser: argparse.ArgumentParser, title: str = "workers (docs/scale.md)",
    workers_help: str = "do the runs with so many workers, each with a model of its own",
    *, results: str,
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
    for kind in cluster_kinds().values():
        group.add_argument(f"--{kind.name}-address", dest="address", metavar="A", help=kind.address)


def workers_of(args: argparse.Namespace) -> Workers:
    """The workers asked for; a cluster's address says which kind. Raises UserError where options contradict."""
    kind = "slurm" if args.slurm else args.on or (next(iter(cluster_kinds())) if args.address else "processes")
    return Workers(args.workers or 1, kind, args.threads or 0, args.address or "")


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
