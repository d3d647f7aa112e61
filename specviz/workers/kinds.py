"""The kinds of workers, and how many of which are wanted. What a kind needs is imported when it is asked for."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from decoders.errors import UserError

if TYPE_CHECKING:
    from .backends import Backend
    from .pool import WorkerPool
    from .work import SweepJob

KINDS = {
    "processes": "of this machine",
    "ray": "of this machine or a cluster, by Ray",
    "slurm": "of a SLURM cluster, by submitit",
}
BACKENDS = {"local": "processes of this machine", "ray": "Ray's actors, of this machine or a cluster"}
MODULES = {"ray": "ray", "slurm": "submitit"}
MOST_BACKENDS = 256
SPELT = re.compile(r"([a-z]+):(\d{1,4})")


@dataclass(frozen=True, slots=True)
class Workers:
    """The number of workers and their kind (``KINDS``). ``threads`` of each: 0 shares this machine's cores out among
    processes, and gives every other worker one. ``slurm`` are submitit's settings.
    """

    count: int
    on: str = "processes"
    threads: int = 0
    ray_address: str = ""
    slurm: tuple[str, ...] = ()

    @classmethod
    def behind_app(cls, text: str, *, threads: int = 0, ray_address: str = "") -> Workers:
        """The backends of an app, as ``--backends KIND:N`` names them. Raises UserError.

        >>> Workers.behind_app("local:2")
        Workers(count=2, on='processes', threads=0, ray_address='', slurm=())
        """
        parts = SPELT.fullmatch(text.strip())
        if parts is None or parts[1] not in BACKENDS or not 1 <= int(parts[2]) <= MOST_BACKENDS:
            kinds = ", ".join(f"{name}:N ({meaning})" for name, meaning in BACKENDS.items())
            raise UserError(
                f"--backends {text[:40]!r} names no backends: give {kinds}, with N from 1 to {MOST_BACKENDS}"
            )
        if ray_address and parts[1] != "ray":
            raise UserError("--ray-address is for --backends ray:N: leave one of them out")
        return cls(int(parts[2]), {"local": "processes"}.get(parts[1], parts[1]), threads, ray_address)

    @property
    def threads_each(self) -> int:
        """
        >>> Workers(4, "ray").threads_each, Workers(2, threads=3).threads_each
        (1, 3)
        """
        if self.threads:
            return self.threads
        return max(1, (os.cpu_count() or 1) // self.count) if self.on == "processes" else 1

    def pool(self, job: SweepJob) -> WorkerPool:
        """Workers of a sweep. Raises UserError where what they need is not installed."""
        if self.on not in KINDS:
            raise UserError(f"there are no workers of the kind {self.on!r}: choose one of {', '.join(KINDS)}")
        if self.on != "slurm":
            from .pool import SupervisedWorkers

            return SupervisedWorkers(job, self.backends("worker", f"--on {self.on}"))
        with self._needs("--on slurm"):
            from .slurm_array import Array

            return Array(job, self.count, self.slurm)

    def backends(self, label: str = "backend", option: str = "--backends ray:N") -> list[Backend]:
        """Backends, not open yet, called ``label`` and a number. Raises UserError where a package is missing."""
        names = [f"{label} {number}" for number in range(1, self.count + 1)]
        if self.on == "ray":
            with self._needs(option):
                from .ray_actors import Actor

                cores = self.count * self.threads_each
                return [Actor(name, number, cores, self.ray_address) for number, name in enumerate(names)]
        from .backends import Process

        return [Process(name, number) for number, name in enumerate(names)]

    @contextlib.contextmanager
    def _needs(self, option: str) -> Iterator[None]:
        """Imports of what its kind needs; UserError where it is not installed."""
        try:
            yield
        except ModuleNotFoundError as missing:
            if missing.name != MODULES[self.on]:
                raise
            raise UserError(
                f"{option} needs {missing.name}, which is not installed: pip install -e '.[{self.on}]'"
            ) from None
