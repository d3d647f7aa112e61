"""Cost and gain of workers (five minutes on two cores): ``python -m specviz.extras.lab.tests.scale [--only PART]``.

``pace``: units per second of one and of two workers on the bundled target, processes and Ray, one thread each, and what
Ray adds to a unit; ``equal``: the rows of one worker, two processes, Ray on one node and on two, compared; ``many``: a
stand-in of fixed latency on 1 to 64 workers; ``book``: the driver's memory and the time to resume for 10,000 units;
``behind``: runs per minute of two users with one and with two backends behind the app, and what a live event takes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import parser_of
from specviz.extras.cluster.tests.ray_cluster import ray_cluster
from specviz.workers.folder import UNITS, ResultFolder
from specviz.workers.kinds import Workers
from specviz.workers.sweep import Standing, sweep
from specviz.workers.work import SweepJob, Unit
from tests.standin import ABOUT, Here, open_standin, units

from .rows import counted_alone

LATENCY_MS = 250  # of the stand-in's unit
ROWS = 3  # of a unit of the bookkeeping, with as many columns as a run has
COLUMNS = 60


def main() -> None:
    parser = parser_of("scale", __doc__)
    parser.prog = "python -m specviz.extras.lab.tests.scale"
    parts: dict[str, Callable[[Path, argparse.Namespace], Iterator[tuple[str, str, str]]]] = {
        "pace": pace, "equal": equal, "many": many, "book": book, "behind": behind,
    }  # fmt: skip
    parser.add_argument("--only", choices=tuple(parts), action="append", help="a part; may be repeated")
    parser.add_argument("--count", type=int, default=24, help="prompts of the bundled target")
    args = parser.parse_args()
    table = Table("what", "measured", "asked")
    with tempfile.TemporaryDirectory(prefix="specviz-scale-") as folder:
        os.environ |= {"SPECVIZ_HOME": f"{folder}/home", "RAY_worker_niceness": "0"}
        for name in args.only or parts:
            before = os.getloadavg()[0]
            for row in parts[name](Path(folder) / name, args):
                table.add_row(*row)
                print(*row, sep=" | ", file=sys.stderr, flush=True)
            table.add_row(f"load when {name} began", f"{before:.1f} on {os.cpu_count()} cores", "")
    Console(width=None if sys.stdout.isatty() else 130).print(table)


def stand_in(place: Path, wanted: list[Unit], kind: str, workers: int, **more: Any) -> Standing:
    """A sweep of units that need no model."""
    folder = ResultFolder(place)
    job = SweepJob(open_standin, ABOUT, folder.place, folder.open())
    return sweep(wanted, Workers(workers, kind).pool(job), folder, **more)


def bundle(place: Path, kind: str, workers: int, count: int) -> tuple[Any, list[tuple[float, int]]]:
    """A sweep of the bundled target: its results, and how many units were done when, once all workers were ready."""
    from decoders import load_target
    from specviz.places import BUNDLED
    from specviz.views.prompts import cases, records

    from ..experiments import plan
    from ..experiments.free import free
    from ..experiments.spread import spread
    from ..experiments.units import Opening

    target = load_target(str(BUNDLED))
    swept = free(["pld"], {}, {"k": "2, 5, 10"}, ("tokens_per_step", "speedup"))
    experiment = replace(swept, prompts="demo", count=count)
    planned = plan(target, experiment, cases(target.tokenizer, records("demo", count)))
    made = spread(target, planned, Workers(workers, kind, threads=1), Opening(str(BUNDLED)), str(place))
    times: list[tuple[float, int]] = []

    def tell_standing(standing: Standing) -> None:
        if all(worker.state != "starting" for worker in standing.workers):
            times.append((time.perf_counter(), standing.done))

    return made.run(tell_standing), times


def rate_of(times: list[tuple[float, int]], units: int) -> float:
    """Units per second, up to so many: the ends of a sweep are not its pace."""
    (began, first), (ended, last) = times[0], next((at, done) for at, done in times if done == units)
    return (last - first) / (ended - began)


def pace(place: Path, args: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    rates = {}
    for kind in ("processes", "ray"):
        for workers in (1, 2):
            _, times = bundle(place / f"{kind}{workers}", kind, workers, args.count)
            rates[kind, workers] = rate_of(times, args.count - workers)
        one, two = rates[kind, 1], rates[kind, 2]
        yield f"2 workers ÷ 1, {kind}", f"{two / one:.2f} ({two:.2f} ÷ {one:.2f} units/s)", "≥ 1.8"
    with ray_cluster(1):
        ms = {}
        for kind in ("processes", "ray"):
            seen: list[float] = []
            stand_in(place / f"idle-{kind}", units(200), kind, 1, on_progress=lambda _, key, seen=seen: (
                seen.append(time.perf_counter()) if key else None))  # fmt: skip
            ms[kind] = statistics.median(1000 * (b - a) for a, b in pairwise(seen))
    yield "an empty unit, processes", f"{ms['processes']:.1f} ms", ""
    yield "an empty unit, Ray", f"{ms['ray']:.1f} ms", "≤ 30 ms more"


def equal(place: Path, args: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    count = min(args.count, 8)
    rows = {"1 process": bundle(place / "1", "processes", 1, count)[0].rows}
    rows["2 processes"] = bundle(place / "2", "processes", 2, count)[0].rows
    for number in (1, 2):
        with ray_cluster(*[3 - number] * number):
            rows[f"Ray, {number} node{'s' * (number > 1)}"] = bundle(place / f"r{number}", "ray", 2, count)[0].rows
    first = counted_alone(rows["1 process"])
    for name, those in rows.items():
        same = sum(a == b for a, b in zip(first, counted_alone(those), strict=True))
        yield f"rows as of 1 process: {name}", f"{same} of {len(first)}", "all"


def behind(place: Path, args: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    from benchmarks.standin_backends import delays
    from specviz.app import open_desk
    from specviz.server.forms import PromptForm

    form, settings = PromptForm("text", text="Say it twice: the old lamp. the old"), {"max_new_tokens": 128}
    rates = {}
    for count in (1, 2, 1, 2):
        desk = open_desk("bundled", backends=Workers(count, threads=1))
        desk.begin()
        pool = desk.runner.pool
        assert pool is not None and desk.loader.wait(300)
        while any(seat.state != "free" for seat in pool.seats.values()):
            time.sleep(0.1)

        def user(name: str, runs: int, desk: Any = desk) -> None:
            for _ in range(runs):
                assert desk.submit(form, "pld", {}, settings, owner=name).finished.wait(300)

        user("warm", 2 * count)
        began = time.perf_counter()
        with ThreadPoolExecutor(2) as users:
            list(users.map(partial(user, runs=args.count // 2), ("ann", "bob")))
        rate = 60 * 2 * (args.count // 2) / (time.perf_counter() - began)
        rates[count] = max(rate, rates.get(count, 0.0))
        desk.end()
    yield "two users, 2 backends ÷ 1", f"{rates[2] / rates[1]:.2f} ({rates[2]:.0f} ÷ {rates[1]:.0f} runs/min)", ""
    for kind in ("", "processes", "ray"):
        ms = sorted(delays(kind))
        name = {"": "no backend", "processes": "a process", "ray": "an actor of Ray's"}[kind]
        yield f"a step's event, {name}", f"{statistics.median(ms):.1f} ms (95 %: {ms[len(ms) * 95 // 100]:.1f})", ""


def many(place: Path, args: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    for workers in (1, 8, 32, 64):
        counts: list[tuple[float, int, bool]] = []
        wanted = units(workers * 12, ms=LATENCY_MS)

        def tell(standing: Standing, _: str | None, counts: list[tuple[float, int, bool]] = counts) -> None:
            busy = all(worker.state != "starting" for worker in standing.workers)
            counts.append((time.perf_counter(), standing.done, busy))

        stand_in(place / str(workers), wanted, "processes", workers, on_progress=tell)
        began, first = next((at, done) for at, done, busy in counts if busy)
        ended, last = next((at, done) for at, done, _ in counts if done >= len(wanted) - workers)
        rate = (last - first) / (ended - began)
        ideal = workers * 1000 / LATENCY_MS
        yield f"stand-in of {LATENCY_MS} ms, {workers} workers", f"{rate / ideal:.2f} ({rate:.0f} units/s)", "≥ 0.9"


def book(place: Path, args: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """A driver with 10,000 units of three rows of 60 numbers: in a process of its own memory, workers apart."""
    folder = ResultFolder(place)
    job = SweepJob(open_standin, ABOUT, folder.place, folder.open())
    wanted = units(10_000)
    row = {f"column {number}": number / 7 for number in range(COLUMNS)}
    for unit in wanted[:-1]:
        folder.finish(unit.key, [{**row, "series": "PLD", "prompt": "p", "error": ""}] * ROWS)

    def resume() -> tuple[float, float]:
        """Seconds of this process's own work: to see what is missing and do that, and to read all rows."""
        started = time.process_time()
        again, pool = units(10_000), Here(job)
        sweep(again, pool, folder)
        seen = time.process_time() - started
        rows = [row for unit in again for row in folder.rows(unit.key) or []]
        assert pool.order == ["u9999"] and len(rows) == (len(again) - 1) * ROWS + 1
        (folder.path / UNITS / f"{wanted[-1].key}.json").unlink()  # type: ignore[operator]
        return seen, time.process_time() - started

    seen, whole = resume()
    tracemalloc.start()
    resume()
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    yield "10,000 units: to see what is missing", f"{seen:.2f} s of one core", "≤ 5 s"
    yield "10,000 units: with all their rows read", f"{whole:.2f} s of one core", "≤ 5 s"
    yield "10,000 units: memory of keys, units and rows", f"{peak:.0f} MB", "≤ 200 MB"


if __name__ == "__main__":
    main()
