"""``specviz dev``: a method in a file that is being written, drafted anew on recorded runs at every save."""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from specviz.words import counted, decimals

from . import common

if TYPE_CHECKING:
    from decoders import Method
    from decoders.study.live import LiveDrafts, LiveRun, LiveStep

POLL_S = 0.1  # between looks at the file
CALL_S = 5.0  # a call of the method that takes longer hangs
MOST_STEPS = 200  # of the runs that are taken where none are named
SHOWN = 15  # steps listed, the worst first

HELP = "draft recorded runs anew at every save of a method of your own"
DESCRIPTION = (
    "Watch a file with a method of your own: at every save each step of recorded runs is drafted anew, and the steps "
    "are listed with the tokens won and lost against the save before and against another method, the worst first. "
    "Everything stays on this machine."
)


def add(parser: argparse.ArgumentParser) -> None:
    common.file(parser, "file", "a Python file (specviz methods new NAME writes one)", "FILE")
    parser.add_argument(
        "--traces", nargs="+", type=Path, default=[], metavar="TRACE",
        help="recorded runs of the model (default: the gallery's, as far as the model made them)",
    )  # fmt: skip
    parser.add_argument("--against", metavar="NAME", help="another method to compare with, drafted once")
    parser.add_argument("--method", metavar="NAME", help="which method of the file, where it has several")
    common.flag(parser, "--once", "draft once and end; exit 1 where a step raises")
    common.add_model(parser)


@dataclass(frozen=True, slots=True)
class Row:
    """One step of one run: the ``step`` now, and accepted tokens by the save ``before`` and by the method ``against``
    (None: there is none).
    """

    run: int
    step: LiveStep
    before: int | None
    against: int | None

    @property
    def change(self) -> int:
        """Tokens won (lost: below 0) against the save before; in the first one against the other method, or the
        record.
        """
        base = self.before if self.before is not None else self.against
        return self.step.accepted - (self.step.recorded if base is None else base)


def run(args: argparse.Namespace) -> int:
    from decoders import find_method
    from decoders.drafters import wait_for_plugins

    if not args.file.is_file():
        raise UserError(f"there is no file {args.file}: specviz methods new NAME writes one")
    against = find_method(args.against) if args.against else None
    wait_for_plugins(CALL_S)
    runs = _runs(args, common.open_target(args))
    other = [one.drafted(against) for one in runs] if against else None
    before: list[LiveDrafts] | None = None
    for seen in _saves(args.file, once=args.once):
        saved = time.perf_counter()
        now = _drafted(args, runs)
        if now is not None:
            _show(args, rows(now, before, other), now, before, other, (time.perf_counter() - saved) * 1e3)
            before = now
        if args.once:
            failed = now is None or any(step.error for drafts in now for step in drafts.steps)
            return 1 if failed else 0
        common.say(f"watching {args.file} ({seen[:8]}); Ctrl-C ends", error=True)
    return 0


def _runs(args: argparse.Namespace, target: Any) -> list[LiveRun]:
    """The recorded runs, read by the model."""
    from decoders import load
    from decoders.study.live import LiveRun
    from decoders.study.recorded import other_model
    from specviz.views.gallery import GALLERY

    if args.traces:
        return [LiveRun(target, load(path)) for path in args.traces]
    chosen, prompts, steps = [], set(), 0
    for path in sorted(GALLERY.glob("*.spectrace")):
        trace = load(path)
        fits = other_model(target, trace.run) is None and trace.run["method"].get("lossless")
        if fits and trace.prompt_key not in prompts and not trace.run["sampling"].get("temperature"):
            prompts.add(trace.prompt_key)
            if steps and steps + trace.rows("steps") > MOST_STEPS:
                continue
            steps += trace.rows("steps")
            chosen.append(trace)
    if not chosen:
        raise UserError(
            f"no run of the gallery was made with {target.name}: record some (specviz run --out RUN.spectrace) and "
            "name them with --traces"
        )
    return [LiveRun(target, trace) for trace in chosen]


def _saves(file: Path, *, once: bool) -> Iterator[str]:
    """The file's content by its digest, at once and whenever it changes."""
    seen = ""
    while True:
        try:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
        except OSError:  # an editor puts the new file in the old one's place
            digest = seen
        if digest != seen:
            seen = digest
            yield digest
            if once:
                return
        time.sleep(POLL_S)


def _drafted(args: argparse.Namespace, runs: Sequence[LiveRun]) -> list[LiveDrafts] | None:
    """Every run drafted by the file as it is now; None, and why, where it cannot be used."""
    from decoders.method.plugins import Unusable

    try:
        method = _method(args)
        return [run.drafted(method) for run in runs]
    except Unusable as problem:
        common.say(str(problem))
    except UserError as problem:
        common.say(f"{args.file}: {problem}")
    return None


def _method(args: argparse.Namespace) -> Method:
    from decoders import find_method
    from decoders.drafters import add_plugin

    names = [method.name for method in add_plugin(args.file).methods]
    if args.method is None and len(names) > 1:
        raise UserError(f"it has several methods: name one with --method ({', '.join(names)})")
    if args.method is not None and args.method not in names:
        raise UserError(f"it has no method {args.method!r}: {', '.join(names)}")
    return find_method(args.method or names[0])


def rows(
    now: Sequence[LiveDrafts], before: Sequence[LiveDrafts] | None, other: Sequence[LiveDrafts] | None
) -> list[Row]:
    """All steps, those that raise first, then by tokens lost."""
    found = [
        Row(number, step, _accepted(before, number, step.step), _accepted(other, number, step.step))
        for number, drafts in enumerate(now)
        for step in drafts.steps
    ]
    return sorted(found, key=lambda row: (not row.step.error, row.change, row.run, row.step.step))


def _accepted(drafts: Sequence[LiveDrafts] | None, run: int, step: int) -> int | None:
    if drafts is None or step >= len(drafts[run].steps) or drafts[run].steps[step].error:
        return None
    return drafts[run].steps[step].accepted


def _show(
    args: argparse.Namespace, all_rows: list[Row], now: Sequence[LiveDrafts], before: Sequence[LiveDrafts] | None,
    other: Sequence[LiveDrafts] | None, ms: float,
) -> None:  # fmt: skip
    """The worst steps, and all of them in one line."""
    listed = [row for row in all_rows if row.step.error or row.change][:SHOWN]
    if listed:
        heads = ("run", "step", "recorded", args.against or "–", "last save", "now", "±", "why")
        cells = [
            (
                row.run + 1, row.step.step + 1, row.step.recorded, _cell(row.against), _cell(row.before),
                "error" if row.step.error else row.step.accepted, "" if row.step.error else f"{row.change:+d}",
                common.shown(row.step.error.partition(" failed in ")[2] or row.step.error or row.step.reason),
            )
            for row in listed
        ]  # fmt: skip
        common.show_table(heads, cells)
    won, lost = (
        sum(abs(row.change) for row in all_rows if not row.step.error and row.change * sign > 0) for sign in (1, -1)
    )
    base = "the last save" if before is not None else args.against or "the record"
    parts = [
        f"{decimals(_mean(now), 2)} tokens per step",
        *([f"last save {decimals(_mean(before), 2)}"] if before is not None else []),
        *([f"{args.against} {decimals(_mean(other), 2)}"] if other is not None else []),
        f"{won} won and {lost} lost against {base}",
        f"{counted(len(all_rows), 'step')} in {ms:.0f} ms",
    ]
    common.say(" · ".join(parts))
    if any(drafts.scored for drafts in now):
        common.say("It learns or accepts in its own way, so the model scored every draft: that takes its time.")
    common.say(*(drafts.stopped for drafts in now))
    for details in list(dict.fromkeys(row.step.details for row in all_rows if row.step.details))[:2]:
        common.say("", details.rstrip())


def _mean(drafts: Sequence[LiveDrafts]) -> float:
    """Tokens per step over all runs' steps."""
    steps = [step.accepted for one in drafts for step in one.steps if not step.error]
    return sum(steps) / len(steps) + 1 if steps else float("nan")


def _cell(value: int | None) -> str:
    return "–" if value is None else str(value)
