"""``specviz figure``: a step of a run, or runs beside one another, as a vector figure for a paper."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from decoders.errors import UserError
from decoders.folders import write_bytes, write_text
from specviz.commands import common, options
from specviz.words import visible

if TYPE_CHECKING:
    from decoders import Trace

KINDS = ("pdf", "svg", "zip")
DESCRIPTION = (
    "Draw a step of a recorded run, or several runs of one prompt, one column wide (3.3 inches). A .pdf or .svg is the "
    "figure alone, a .zip holds both with LaTeX, BibTeX, the runs and (of a step) the interactive page. Printed are a "
    "caption, the command that makes each run again, and BibTeX. With --race the runs write their answers beside one "
    "another, as an animated picture."
)


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "traces", ".spectrace files: one for a step, several for a comparison", "TRACE", nargs="+")
    options.flag(parser, "--race", "several runs as an animated .svg of six seconds, at their recorded pace")
    options.count(parser, "--step", "the step (from 1; default: the first that accepted the most)")
    parser.add_argument(
        "-o", "--out", type=Path, metavar="F", required=True, help="the file to write: .pdf, .svg or .zip"
    )


def run(args: argparse.Namespace) -> int:
    from .figures.bundle import of_runs, of_step, write

    kind = args.out.suffix.lower().lstrip(".")
    if kind not in KINDS:
        raise UserError(f"{args.out.name} is no kind of figure: end it in .{', .'.join(KINDS)}")
    common.check_writable(args.out)
    traces = [trace for path in args.traces for trace in common.read_traces(path)]
    if args.race:
        return _race(args, traces, kind)
    if len(traces) > 1:
        if args.step is not None:
            raise UserError("--step belongs to one run: several are drawn as a comparison")
        figure = of_runs(traces)
    else:
        accepted = traces[0].tables["steps"]["accepted"]
        if not accepted:
            raise UserError(f"{args.traces[0]} has no step to draw")
        best = accepted.index(max(accepted))
        figure = of_step(traces[0], best if args.step is None else common.step_number(args.step, traces[0]))
    write_bytes(args.out, write(figure, kind)[0])
    files = [] if kind == "zip" else [str(path) for path in args.traces]
    print(visible(figure.to_text(files)))
    common.say(f"{args.out}: {figure.sheet.width / 72:.1f} × {figure.sheet.height / 72:.1f} inches", error=True)
    return 0


def _race(args: argparse.Namespace, traces: list[Trace], kind: str) -> int:
    from .figures.race import outcome, race_svg

    if kind != "svg":
        raise UserError(f"{args.out.name} cannot move: a race is written as .svg")
    if args.step is not None:
        raise UserError("--step is of no use to --race: whole runs are shown")
    picture = race_svg(traces)
    write_text(args.out, picture)
    print(visible(outcome(traces)))
    common.say(f"{args.out}: {len(picture.encode()) / 1e3:.0f} kB", error=True)
    return 0
