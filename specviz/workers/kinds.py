"""The kinds of workers, which register themselves, and how many workers of which kind are wanted."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from decoders.errors import UserError

from .executors import Hosting, Opener
from .supervisor import Supervisor
from .work import SweepJob, Worker

MOST_BACKENDS = 256
SPELT = re.compile(r"([a-z]+):(\d{1,4})")


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """A kind of workers, in words ``about``, and what opens so many of them. ``package`` is what it needs, which an
    extra of the same name installs; ``address`` is the help for the option that names its cluster, where it has one;
    ``backends`` is its name in ``--backends`` where that is another. Workers that are ``is_here`` share out the cores
    and GPUs of this machine; others are dealt them by a scheduler.
    """

    name: str
    about: str
    opener: Callable[[Workers], Opener]
    package: str = ""
    address: str = ""
    backends: str = ""
    is_here: bool = False

    @property
    def is_installed(self) -> bool:
        return not self.package or find_spec(self.package) is not None


KINDS: dict[str, WorkerKind] = {}


def register(kind: WorkerKind) -> None:
    """Have a kind of workers offered by every command and form."""
    KINDS[kind.name] = kind


def cluster_kinds() -> dict[str, WorkerKind]:
    """The kinds whose workers are a cluster's, by name."""
    return {name: kind for name, kind in KINDS.items() if kind.address}


def backend_kinds() -> dict[str, WorkerKind]:
    """The kinds by their names in ``--backends``."""
    return {kind.backends or kind.name: kind for kind in KINDS.values()}


@dataclass(frozen=True, slots=True)
class Workers:
    """The number of workers and their kind. ``threads`` of each: 0 shares this machine's cores out among its processes,
    and gives every other worker one. ``address`` is a cluster's. Raises UserError for a kind that is none, and for an
    address where the kind has no cluster.
    """

    count: int
    on: str = "processes"
    threads: int = 0
    address: str = ""

    def __post_init__(self) -> None:
        clusters = cluster_kinds()
        if self.on == "slurm":  # of earlier versions
            choices = [f"{name} on a SLURM allocation" for name in clusters] + ["several tasks on one results folder"]
            raise UserError(f"SLURM arrays are no longer offered: take {', or '.join(choices)} (docs/scale.md)")
        if self.on not in KINDS:
            raise UserError(f"there are no workers of the kind {self.on[:20]!r}: choose one of {', '.join(KINDS)}")
        if self.address and self.on not in clusters:
            places = ", ".join(clusters)
            raise UserError(f"an address is for a cluster ({places}), and the workers are {self.on}: leave one out")

    @classmethod
    def behind_app(cls, text: str, *, threads: int = 0, address: str = "") -> Workers:
        """The backends of an app, as ``--backends KIND:N`` names them. Raises UserError.

        >>> Workers.behind_app("local:2")
        Workers(count=2, on='processes', threads=0, address='')
        """
        kinds = backend_kinds()
        parts = SPELT.fullmatch(text.strip())
        if parts is None or parts[1] not in kinds or not 1 <= int(parts[2]) <= MOST_BACKENDS:
            choices = ", ".join(f"{name}:N ({kind.about})" for name, kind in kinds.items())
            raise UserError(
                f"--backends {text[:40]!r} names no backends: give {choices}, with N from 1 to {MOST_BACKENDS}"
            )
        return cls(int(parts[2]), kinds[parts[1]].name, threads, address)

    @property
    def kind(self) -> WorkerKind:
        return KINDS[self.on]

    @property
    def threads_each(self) -> int:
        """
        >>> Workers(2, threads=3).threads_each
        3
        """
        if self.threads:
            return self.threads
        return max(1, (os.cpu_count() or 1) // self.count) if self.kind.is_here else 1

    def opener(self, option: str) -> Opener:
        """The opener of these workers. Raises UserError where the ``option`` needs a package that is not installed."""
        if not self.kind.is_installed:
            package = self.kind.package
            raise UserError(f"{option} needs {package}, which is not installed: pip install -e '.[{package}]'")
        return self.kind.opener(self)

    def names(self, label: str) -> list[str]:
        return [f"{label} {number}" for number in range(1, self.count + 1)]

    def pool(self, job: SweepJob) -> Supervisor:
        """Workers of a sweep, which it opens. Raises UserError where what they need is not installed."""
        pool = Supervisor(self.opener(f"--on {self.on}"), self.names("worker"))
        pool.begin(Hosting(Worker, job, job.threads, job.gpus, "a worker"))
        return pool
