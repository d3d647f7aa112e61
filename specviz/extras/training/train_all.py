"""``specviz train all --budget 20m``: every part of a target, as far as the time goes.

Each training is a process of its own, so that a fault of the device ends one alone. Parts come in the order of what
they are worth; each is given its share of the time that is left, so that what one leaves over goes to the next. The
same command again goes on where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoders.errors import UserError
from decoders.folders import write_json, write_text
from decoders.method.part import DRAFT_MODELS, HEADS, PROMPT_TOKENS, kinds, training_of
from specviz.commands import common, options
from specviz.words import decimal, plural

OUT = Path("runs") / "all"
MOST_BYTES = 14_000_000  # of a part's file: above it its matrices are stored in int8
COMPUTING = 0.8  # of a part's time; the rest is for opening the target, validations and the end
GRACE_S = 20.0  # after which a training that is over its time is asked to stop, and again to end
# sizes of a step on a GPU, where no more than a fraction of it would be busy with a CPU's; a kind's own stay
ON_GPU: Mapping[str, Mapping[str, int]] = {
    HEADS: {"batch_tokens": 16384, "positions": 8192},
    DRAFT_MODELS: {"batch_tokens": 16384},
    PROMPT_TOKENS: {"batch_tokens": 8192, "rows": 16384},
}
STATE, CURVE = "all.json", "acceptance.csv"
COLUMNS: tuple[str, ...] = ("part", "tokens", "seconds", "step", "acceptance", "held_out_loss")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float:
    """An argparse type: a time with its unit, minutes where it has none.

    >>> seconds_of("20m"), seconds_of("1.5h"), seconds_of("90s"), seconds_of("3")
    (1200.0, 5400.0, 90.0, 180.0)
    """
    unit = text[-1:].lower()
    try:
        value = float(text.removesuffix(text[-1:]) if unit in UNITS else text) * UNITS.get(unit, 60.0)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: a time such as 90s, 20m or 1.5h")
    return value


def worths() -> dict[str, float]:
    """Kinds of parts that are trained here, with what each is worth of a budget; the worthiest first."""
    trained = {name: kind.training.worth for name, kind in kinds().items() if kind.training is not None}
    return dict(sorted(trained.items(), key=lambda item: -item[1]))


def add(parser: argparse.ArgumentParser) -> None:
    """The options of ``train all``."""
    names = ", ".join(worths())
    parser.add_argument(
        "--data", nargs="+", default=["demo"], metavar="FILE",
        help="text files, or JSONL with conversations; `demo` for the generator of the bundled tasks (default)",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=seconds_of, required=True, metavar="TIME", help="of the clock, for all of them: 90s, 20m, 1.5h"
    )
    parser.add_argument(
        "--parts", nargs="+", choices=tuple(worths()), metavar="PART", help=f"these alone (default: {names})"
    )
    options.file(parser, "--out", f"where checkpoints, curves and parts go (default: {OUT})", "FOLDER")
    options.count(parser, "--seed", "of data and weights", 0, low=0)
    options.count(parser, "--draft-vocab", "draft only the N commonest tokens: a smaller head; 0: all", 0, low=0)
    options.count(parser, "--kv-layer", "the target's layer that GLIDE reads, from 0 (default: the last)", low=0)
    parser.add_argument("--rate", type=options.positive, metavar="X", help="heads: learning rate of the matrices")
    options.flag(parser, "--distill", "learn the target's own greedy answers to the prompts")
    options.flag(parser, "--fast", "bf16 and compiled layers, as for `train demo`")
    options.flag(parser, "--fp32", "matrix products in fp32 also where the processor multiplies bf16")
    options.flag(parser, "--keep", "also keep each part where methods find it for this model")
    options.add_model(parser, "the target (default: the bundled one)", dtype=False, plugins=False)
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """A part's time: ``seconds`` of the clock, and the ``minutes`` of computing that its training is given."""

    part: str
    seconds: float
    minutes: float


def share(part: str, waiting: Sequence[str], left_s: float) -> BudgetShare:
    """A part's share of the seconds that are left, among those that ``waiting`` still have nothing.

    >>> round(share("glide", ["glide", "drafter"], 100.0).seconds, 1)
    55.6
    """
    seconds = left_s * worths()[part] / sum(worths()[waiting_part] for waiting_part in waiting)
    return BudgetShare(part, seconds, seconds * COMPUTING / 60)


def run(args: argparse.Namespace) -> int:
    out: Path = args.out or OUT
    out.mkdir(parents=True, exist_ok=True)
    parts = [part for part in worths() if part in (args.parts or worths())]
    state = _state(out, args)
    began, past_seconds = time.monotonic(), float(state["seconds"])
    failed, attempts = list[str](), set[str]()
    try:
        for part in parts:
            waiting = [
                candidate for candidate in parts if not state["done"].get(candidate) and candidate not in attempts
            ]
            seconds_left = args.budget - past_seconds - (time.monotonic() - began)
            if part not in waiting:
                continue
            if seconds_left <= 0:
                break
            allotment = share(part, waiting, seconds_left)
            minutes = state["minutes"].setdefault(part, allotment.minutes)  # the schedule of one that goes on stays
            write_json(out / STATE, state)
            common.say(f"{part}: {minutes:.1f} min of computing", error=True)
            problem = _train(args, out, part, minutes, allotment.seconds + GRACE_S)
            state["done"][part] = problem is None  # one that failed is tried again by the next command
            if problem is not None:
                failed.append(f"{part}: {problem}")
                attempts.add(part)
            state["seconds"] = past_seconds + time.monotonic() - began
            write_json(out / STATE, state)
            _tell(out, parts)
    except KeyboardInterrupt:
        state["seconds"] = past_seconds + time.monotonic() - began
        write_json(out / STATE, state)
        _tell(out, parts)
        common.say(f"stopped: give the same command again to go on; {out} holds the checkpoints", error=True)
        return 130
    _show(out, parts)
    untrained_parts = [part for part in parts if not state["done"].get(part) and part not in attempts]
    if untrained_parts:
        common.say(
            f"no time was left for {', '.join(untrained_parts)}: give the same command with a larger --budget to go on"
        )
    common.say(*(f"failed: {words}" for words in failed), error=True)
    return 1 if failed else 0


def _state(out: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The state of an earlier command of this folder. Raises UserError for other settings than its own."""
    names = ("model", "data", "seed", "draft_vocab", "kv_layer", "rate", "distill")
    settings = {name: getattr(args, name) for name in names}
    try:
        state = json.loads((out / STATE).read_text("utf-8"))
    except OSError:
        return {"settings": settings, "seconds": 0.0, "minutes": {}, "done": {}}
    except ValueError:
        raise UserError(f"{out / STATE} is damaged: give another folder with --out") from None
    if state["settings"] != settings:
        setting = next(name for name in names if state["settings"].get(name) != settings[name])
        raise UserError(
            f"the trainings in {out} have {setting} {state['settings'].get(setting)!r}, not {settings[setting]!r}: "
            "give the "
            "same again, or another folder with --out"
        )
    if state["seconds"] >= args.budget:
        raise UserError(f"the {state['seconds']:.0f} s of this budget are spent in {out}: give a larger --budget")
    return state


def command(args: argparse.Namespace, out: Path, part: str, minutes: float) -> list[str]:
    """The command of one training."""
    from decoders.model.target_model.load import chosen_device

    training = training_of(part)
    family = training.family
    arguments = [*args.program, "train", part, "--out", str(out / part), "--best"]
    arguments += ["--minutes", f"{minutes:.6g}", "--seed", str(args.seed), "--data", *args.data]
    arguments += [] if args.model is None else ["--model", args.model]
    arguments += [] if args.device is None else ["--device", args.device]
    arguments += [] if args.threads is None else ["--threads", str(args.threads)]
    flags = {"--distill": args.distill, "--fast": args.fast, "--fp32": args.fp32, "--apart": not args.keep}
    arguments += [flag for flag, is_given in flags.items() if is_given]
    if family in (DRAFT_MODELS, HEADS):
        arguments += ["--states", str(out / "states")]
        arguments += ["--draft-vocab", str(args.draft_vocab)] if args.draft_vocab else []
    if family == DRAFT_MODELS:
        arguments += ["--soft-labels"]
    if "kv_layer" in training.own and args.kv_layer is not None:
        arguments += ["--kv-layer", str(args.kv_layer)]
    if family == HEADS and args.rate is not None:
        arguments += ["--rate", f"{args.rate:g}"]
    if chosen_device(args.device).startswith("cuda"):
        sizes = {name: size for name, size in ON_GPU[family].items() if name not in training.defaults}
        arguments += [word for name, size in sizes.items() for word in (f"--{name.replace('_', '-')}", str(size))]
    return arguments


def _train(args: argparse.Namespace, out: Path, part: str, minutes: float, most_s: float) -> str | None:
    """Train one part in a process of its own for at most so many seconds; why it failed, or None. What it reached is in
    its folder even where it was stopped.
    """
    (out / part).mkdir(parents=True, exist_ok=True)
    with (out / part / "said.txt").open("a", encoding="utf-8") as log:
        child = subprocess.Popen(command(args, out, part, minutes), stdout=log, stderr=log, env={**os.environ})
        try:
            code = child.wait(most_s)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)  # it saves its checkpoint and its part
            try:
                child.wait(GRACE_S * 3)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if not (out / part / "part").is_dir():
                return f"its {most_s - GRACE_S:.0f} s were over before its first step"
            code = 0
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            child.wait()
            raise
    if not code:
        _gather(out, part)
        return None
    lines = (out / part / "said.txt").read_text("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {code}"


def _gather(out: Path, part: str) -> None:
    """The part's files in ``out/parts``, in int8 where they would be too large."""
    from decoders.folders import replacing
    from decoders.parts import WEIGHTS, shrink_part

    place = out / "parts" / part
    place.parent.mkdir(exist_ok=True)
    with replacing(place) as new:
        shutil.copytree(out / part / "part", new, dirs_exist_ok=True)
    if (place / WEIGHTS).stat().st_size > MOST_BYTES:
        old_size, new_size = shrink_part(place)
        larger = "" if new_size <= MOST_BYTES else f", more than {MOST_BYTES / 1e6:.0f} MB"
        common.say(f"{part}: {old_size / 1e6:.1f} MB stored in int8 are {new_size / 1e6:.1f} MB{larger}", error=True)


def curve(out: Path, parts: Sequence[str]) -> list[dict[str, Any]]:
    """Every validation of the trainings: part, tokens seen, seconds, step, acceptance of the first drafted token (of
    draft models β, of heads and prompt tokens the share of first guesses that are the target's own) and held-out loss.
    """
    rows = []
    for part in parts:
        file = out / part / "log.jsonl"
        for text in file.read_text("utf-8").splitlines() if file.is_file() else ():
            rows.append({"part": part, **log_point(json.loads(text))})
    return rows


def log_point(line: Mapping[str, Any]) -> dict[str, Any]:
    """The curve's numbers of a line of a training's log.

    >>> log_point({"step": 3, "tokens": 90, "seconds": 1.5, "held_out_loss": 2.0, "top1": [0.25, 0.1]})["acceptance"]
    0.25
    """
    from decoders.study.measure.learning_curve import first_acceptance

    numbers = {name: line.get(name) for name in ("tokens", "seconds", "step", "held_out_loss")}
    return {**numbers, "acceptance": first_acceptance(line)}


def _tell(out: Path, parts: Sequence[str]) -> None:
    """Write the curve, as a table and, where plotly is installed, as a page."""
    import pandas as pd

    rows = curve(out, parts)
    table = pd.DataFrame(rows, columns=pd.Index(COLUMNS), dtype=object)
    write_text(out / CURVE, table.to_csv(index=False, lineterminator="\r\n"))
    with contextlib.suppress(ModuleNotFoundError):
        from specviz.views.charts import write_page

        from .curves import seen_chart

        write_page(out / "acceptance.html", "Acceptance by tokens seen", [seen_chart(rows)])


def _show(out: Path, parts: Sequence[str]) -> None:
    from decoders.parts import WEIGHTS

    rows, table = curve(out, parts), []
    for part in parts:
        part_rows, file = [row for row in rows if row["part"] == part], out / "parts" / part / WEIGHTS
        if part_rows and file.is_file():
            best = min(part_rows, key=lambda row: row["held_out_loss"])
            numbers = (f"{best['tokens'] or 0:,}", decimal(best["acceptance"]), decimal(best["held_out_loss"]))
            table.append((part, *numbers, f"{file.stat().st_size / 1e6:.1f}"))
    if table:
        heads = ("part", "tokens seen", "acceptance", "held-out loss", "MB")
        common.show_table(heads, table, f"{plural(len(table), 'part')} in {out / 'parts'}", right=1)
