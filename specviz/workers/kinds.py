"""The kinds of workers there are. What a kind needs is imported when it is asked for, and never required."""

from __future__ import annotations

from collections.abc import Sequence

from decoders.errors import UserError

from .pool import Pool
from .work import Job

KINDS = {
    "processes": "of this machine",
    "ray": "of this machine or a cluster, by Ray",
    "slurm": "of a SLURM cluster, by submitit",
}


def pool_of(kind: str, job: Job, count: int, *, ray_address: str = "", slurm: Sequence[str] = ()) -> Pool:
    """Workers of a kind (``KINDS``). Raises UserError where what it needs is not installed."""
    if kind == "processes":
        from .processes import Processes

        return Processes(job, count)
    module = {"ray": "ray", "slurm": "submitit"}.get(kind)
    if module is None:
        raise UserError(f"there are no workers of the kind {kind!r}: choose one of {', '.join(KINDS)}")
    try:
        if kind == "ray":
            from .ray_actors import Actors

            return Actors(job, count, ray_address)
        from .slurm_array import Array

        return Array(job, count, slurm)
    except ModuleNotFoundError as missing:
        if missing.name != module:
            raise
        raise UserError(f"--on {kind} needs {module}, which is not installed: pip install -e '.[{kind}]'") from None
