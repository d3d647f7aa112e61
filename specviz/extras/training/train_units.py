"""Several trainings in one command, as units of workers: parts × seeds. Each is what ``specviz train PART`` does alone,
in a folder of its own with its checkpoints; what is finished is in the results folder, and a table of all is shown.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from decoders.errors import UserError
from decoders.model.files.catalog import BUNDLED, model_place
from specviz.commands import common, options, over_workers
from specviz.words import decimal, plural
from specviz.workers.folder import ResultFolder
from specviz.workers.plain import code_of
from specviz.workers.processes import worker_device
from specviz.workers.sweep import Standing, sweep
from specviz.workers.work import SweepJob, Unit, UnitResult, Work, WorkerRefused

RESULTS = Path("runs") / "trained"
PACKAGES = ("decoders", "specviz/extras/training")  # what decides a training
COMMON = ("data", "minutes", "steps", "distill", "fast", "fp32", "model", "device", "threads")  # of every part
WORKER_OPTIONS = ("seeds", "workers", "on", "results", "address", "slurm")
NOT_TOLD = {*WORKER_OPTIONS, "run", "command", "part", "parts", "seed", "out", "apart"}  # of a unit's options
LOG, MESSAGES, PART, TABLE = "log.jsonl", "said.txt", "part", "trained.csv"
COLUMNS: tuple[str, ...] = ("part", "seed", "step", "seconds", "loss", "held_out_loss", "first_choice", "path", "error")


def add(parser: argparse.ArgumentParser) -> None:
    """Options of trainings that are units."""
    folder_help = f"where all of them go, which all workers see; asked again, it goes on (default: {RESULTS})"
    workers_help = "so many trainings at a time (default: 1)"
    group = over_workers.add(parser, "several trainings (docs/scale.md)", workers_help, results=folder_help)
    group.add_argument("--seeds", nargs="+", type=options.whole(0), metavar="N", help="train with each of these seeds")


def wants_units(args: argparse.Namespace) -> bool:
    """True for a command that asks for units."""
    return any(getattr(args, name) for name in WORKER_OPTIONS)


def train_all(args: argparse.Namespace, parts: Sequence[str], opens: Callable[[Mapping[str, Any]], Work]) -> int:
    """Train ``parts`` with every seed, by workers that a function of a module ``opens`` (``work_of``). The exit code: 1
    where one failed, 130 where it was stopped. Raises UserError.
    """
    if args.out is not None:
        raise UserError("--out is for one training; several have folders of their own in --results")
    if getattr(args, "states", None) is not None and (args.workers or 1) > 1:
        raise UserError("--states is filled by one training at a time: leave it out, or train with --workers 1")
    workers, seeds = over_workers.workers_of(args), list(dict.fromkeys(args.seeds or [args.seed]))
    folder = ResultFolder(args.results or RESULTS)
    if folder.path is None:
        raise UserError(f"trainings write checkpoints, and {folder.place} is no folder of a disk: give --results one")
    from decoders.model.target_model.load import chosen_device

    kind = chosen_device(args.device).split(":")[0]
    device, gpus = worker_device(kind, args.device, is_scheduled=not workers.kind.is_here)
    shared = {"code": code_of(PACKAGES), "model": model_place(args.model or BUNDLED), "data": _contents(args.data)}
    units = [Unit.of(shared, {"part": part, "seed": seed, "options": _options(args, part)})
             for part in dict.fromkeys(parts) for seed in seeds]  # fmt: skip
    about = {"shared": shared, "device": device, "place": str(folder.path)}
    pool = workers.pool(SweepJob(opens, about, folder.place, folder.open(), workers.threads_each, gpus))
    was_stopped = False
    try:
        with over_workers.progress("trainings") as report:
            standing = sweep(units, pool, folder, on_progress=_Validations(folder.path, units, report))
    except KeyboardInterrupt:
        was_stopped, standing = True, None
    failed = _show(folder, units)
    if was_stopped:
        common.say(f"stopped: give the same command again to go on; {folder.place} holds the checkpoints", error=True)
        return 130
    _keep_best(folder, units)
    return 1 if failed or standing is None else 0


def _options(args: argparse.Namespace, part: str) -> dict[str, Any]:
    """Settings that determine a training but for its seed, as plain JSON."""
    names = [name for name in vars(args) if name not in NOT_TOLD and (args.part == part or name in COMMON)]
    values = {name: getattr(args, name) for name in names if name not in ("device", "threads", "resume")}
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def _contents(data: Sequence[str]) -> list[str]:
    """The training's text: files by a hash of what is in them."""
    files = [Path(name) for name in data]
    return [hashlib.sha256(file.read_bytes()).hexdigest()[:24] if file.is_file() else str(file) for file in files]


# --- a worker's side ---


def work_of(about: Mapping[str, Any], train: Callable[[str, dict[str, Any]], None]) -> Work:
    """The work of one worker: ``train`` a part with some options from beginning to end, or on from its checkpoint."""
    shared = about["shared"]
    if code_of(PACKAGES) != shared["code"]:
        raise WorkerRefused("a worker has another version of the code than the command: install the same everywhere")

    def work(payload: Mapping[str, Any]) -> UnitResult:
        out = _place(Path(about["place"]), payload)
        train_options = {
            **payload["options"],
            "seed": payload["seed"],
            "out": out,
            "device": about["device"],
            "apart": True,
        }
        for name in ("states", "from_part"):
            if train_options.get(name) is not None:
                train_options[name] = Path(train_options[name])
        out.mkdir(parents=True, exist_ok=True)
        file = (out / MESSAGES).open("a", encoding="utf-8")
        with file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            train(payload["part"], {**train_options, "threads": about["threads"]})
        return UnitResult(
            [{**_last_validation(out), "part": payload["part"], "seed": payload["seed"], "path": str(out / PART)}]
        )

    return work


def _place(folder: Path, payload: Mapping[str, Any]) -> Path:
    """The folder of a training: by its part, its seed and its options."""
    options = hashlib.sha256(json.dumps(payload["options"], sort_keys=True).encode()).hexdigest()[:8]
    return folder / "trainings" / f"{payload['part']}-seed{payload['seed']}-{options}"


def _last_validation(out: Path) -> dict[str, Any]:
    """A training's last validation: loss, and how often the target's first choice on held-out text is guessed."""
    try:
        line = json.loads((out / LOG).read_text("utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    first = line.get("agreement", (line.get("top1") or [None])[0])
    return {"step": line["step"], "seconds": line["seconds"], "loss": line["loss"], "error": "",
            "held_out_loss": line["held_out_loss"], "first_choice": first}  # fmt: skip


# --- what is shown ---


class _Validations:
    """Tells each validation of each training once, beside what the workers do."""

    def __init__(self, folder: Path, units: Sequence[Unit], report: Callable[[Standing], None]) -> None:
        self.places = {f"{u.payload['part']} seed {u.payload['seed']}": _place(folder, u.payload) for u in units}
        self.steps = {name: _last_validation(place).get("step") for name, place in self.places.items()}
        self.on_report = report

    def __call__(self, standing: Standing, key: str | None) -> None:
        self.on_report(standing)
        for name, place in self.places.items():
            validation = _last_validation(place)
            if validation and validation["step"] != self.steps[name]:
                self.steps[name] = validation["step"]
                common.say(
                    f"{name}: step {validation['step']:,}, loss {validation['loss']:.3f} (held-out "
                    f"{validation['held_out_loss']:.3f}), "
                    f"first choice {decimal(validation['first_choice'])}", error=True,
                )  # fmt: skip


def _rows(folder: ResultFolder, units: Sequence[Unit]) -> list[dict[str, Any]]:
    return [{**unit.payload, **row} for unit in units for row in folder.rows(unit.key) or []]


def _show(folder: ResultFolder, units: Sequence[Unit]) -> bool:
    """A table of what is over; whether one failed."""
    rows, failed = _rows(folder, units), 0
    table = []
    for row in rows:
        failed += bool(row.get("error"))
        if not row.get("error"):
            numbers = [decimal(row.get(name)) for name in ("loss", "held_out_loss", "first_choice")]
            table.append((row["part"], str(row["seed"]), f"{row['step']:,}", *numbers, row["path"]))
    if table:
        heads = ("part", "seed", "steps", "loss", "held-out loss", "first choice", "path")
        common.show_table(heads, table, "trained")
        text = io.StringIO(newline="")
        lines = csv.DictWriter(text, COLUMNS, extrasaction="ignore")
        lines.writeheader()
        lines.writerows(rows)
        folder.put(TABLE, text.getvalue().encode())
    for row in rows:
        if row.get("error"):
            common.say(f"{row['part']} seed {row['seed']} failed: {row['error']}", error=True)
    if failed:
        common.say(f"{plural(failed, 'training')} failed; given again, the command tries them once more", error=True)
    return bool(failed)


def _keep_best(folder: ResultFolder, units: Sequence[Unit]) -> None:
    """Of each part, the one with the lowest held-out loss goes where methods find it."""
    import shutil

    from decoders.folders import replacing
    from decoders.parts import own_place, read_part

    rows = [row for row in _rows(folder, units) if not row.get("error")]
    for part in dict.fromkeys(row["part"] for row in rows):
        best = min((row for row in rows if row["part"] == part), key=lambda row: row["held_out_loss"])
        held = read_part(Path(best["path"]))
        with replacing(own_place(held.kind, held.model_key)) as new:
            shutil.copytree(best["path"], new, dirs_exist_ok=True)
        common.say(f"{part}: seed {best['seed']} has the lowest held-out loss, and is kept where methods find it")
    sys.stdout.flush()
