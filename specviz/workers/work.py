"""A unit of work, the part that all units of a sweep share, and the worker that does one after another.

>>> unit = Unit.of({"code": "1"}, {"prompt": "p1"})
>>> unit == Unit.of({"code": "1"}, {"prompt": "p1"}), unit.key == Unit.of({"code": "2"}, {"prompt": "p1"}).key
(True, False)
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from specviz.words import sentence

from .executors import WorkerRefused
from .folder import FolderFault, ResultFolder, Row


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of work that one worker does from beginning to end. ``key`` is the hash of all that determines what comes
    out, ``payload`` (plain JSON) what a worker needs to do it.
    """

    key: str
    payload: Mapping[str, Any] = field(compare=False, hash=False)

    @classmethod
    def of(cls, shared: Mapping[str, Any] | str, payload: Mapping[str, Any]) -> Unit:
        """``shared``: what determines all units of a sweep, or its ``digest``."""
        return cls(digest([shared if isinstance(shared, str) else digest(shared), payload]), payload)


def digest(value: Any) -> str:
    """sha256 of plain JSON in its canonical form: names in order, no blanks."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class UnitResult:
    """The result of a unit: its rows, and files to keep beside them (name → bytes)."""

    rows: list[Row]
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def error(self) -> str:
        """The first reason why something of it failed; "" where nothing did."""
        return next((str(row["error"]) for row in self.rows if row.get("error")), "")


Work: TypeAlias = Callable[[Mapping[str, Any]], UnitResult]  # does a unit, from its payload


@dataclass(frozen=True, slots=True)
class SweepJob:
    """The part that all workers of a sweep share. ``open`` is a function of a module (workers import it by its name):
    from ``about`` it makes the work, a model's loading included, or raises Refused. ``threads`` are CPU threads of each
    worker; ``gpus`` those of each that a scheduler is asked for. ``token`` is what the results folder says of itself.
    """

    open: Callable[[Mapping[str, Any]], Work]
    about: Mapping[str, Any]
    folder: str
    token: str
    threads: int = 1
    gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A worker's word on a unit that is over: its own ``error``, or ""; ``stops``: why the sweep cannot go on."""

    key: str
    seconds: float = 0.0
    error: str = ""
    stops: str = ""


class Worker:
    """Opens a job once, then does its units, and writes what comes out into the results folder.

    Nothing that it writes depends on a clock. A unit that is done twice writes the same names twice, each file whole.
    """

    def __init__(self, job: SweepJob) -> None:
        self.folder = ResultFolder(job.folder)
        if self.folder.token() != job.token:
            raise WorkerRefused(
                f"the results folder {job.folder} is another one here: workers need a folder that all of them share, "
                "or an address such as s3://…"
            )
        self.work = job.open({**job.about, "threads": job.threads})

    def do(self, unit: Unit) -> Outcome:
        """Do a unit. What goes wrong inside is told, and never raised."""
        start_s = time.perf_counter()
        try:
            result = self.work(unit.payload)
        except Exception as problem:
            result = UnitResult([{"error": sentence(problem)}])
        try:
            for name, data in result.files.items():
                self.folder.put(name, data)
            self.folder.finish(unit.key, result.rows, result.error)
        except FolderFault as fault:
            return Outcome(unit.key, time.perf_counter() - start_s, stops=str(fault))
        return Outcome(unit.key, time.perf_counter() - start_s, result.error)
