"""The kinds of workers there are. What a kind needs is imported when it is asked for, and never required."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from decoders.errors import UserError

from .pool import Pool
from .work import Job

if TYPE_CHECKING:
    from .backends import Backend

KINDS = {
    "processes": "of this machine",
    "ray": "of this machine or a cluster, by Ray",
    "slurm": "of a SLURM cluster, by submitit",
}
BACKENDS = {"local": "processes of this machine", "ray": "Ray's actors, of this machine or a cluster"}


@contextlib.contextmanager
def _needs(kind: str, option: str) -> Iterator[None]:
    """Imports of what a kind needs; UserError where it is not installed."""
    try:
        yield
    except ModuleNotFoundError as missing:
        module = {"ray": "ray", "slurm": "submitit"}.get(kind)
        if missing.name != module:
            raise
        raise UserError(f"{option} needs {module}, which is not installed: pip install -e '.[{kind}]'") from None


def pool_of(kind: str, job: Job, count: int, *, ray_address: str = "", slurm: Sequence[str] = ()) -> Pool:
    """Workers of a kind (``KINDS``). Raises UserError where what it needs is not installed."""
    if kind not in KINDS:
        raise UserError(f"there are no workers of the kind {kind!r}: choose one of {', '.join(KINDS)}")
    with _needs(kind, f"--on {kind}"):
        if kind == "slurm":
            from .slurm_array import Array

            return Array(job, count, slurm)
        from .kept import Kept

        return Kept(job, _backends(kind, "worker", count, job.threads, ray_address))


def backends_of(kind: str, count: int, threads: int, ray_address: str = "") -> list[Backend]:
    """Backends of a kind (``BACKENDS``), not open yet. Raises UserError where what it needs is not installed."""
    with _needs(kind, f"--backends {kind}:N"):
        return _backends(kind, "backend", count, threads, ray_address)


def _backends(kind: str, what: str, count: int, threads: int, ray_address: str) -> list[Backend]:
    names = [f"{what} {number}" for number in range(1, count + 1)]
    if kind == "ray":
        from .ray_actors import Actor

        return [Actor(name, number, count * threads, ray_address) for number, name in enumerate(names)]
    from .backends import Process

    return [Process(name, number) for number, name in enumerate(names)]
