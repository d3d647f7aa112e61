"""``specviz acceptance``: how much of the drafts was accepted, by every definition; what confidences were worth."""

from __future__ import annotations

import argparse

from specviz.words import decimals, plural

from . import common, options

DESCRIPTION = (
    "How much of the drafts of recorded runs was accepted, pooled by method, by every definition that papers and "
    "servers use; and what each confidence that a method gave was worth. The app shows the same of "
    "runs that are selected on its page Runs."
)


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "traces", ".spectrace files, or logs and answers of servers", "TRACE", nargs="+")
    parser.add_argument(
        "--by", choices=("cached",), help="split each set by the server's cached tokens of the prompt: none, or some"
    )
    options.flag(parser, "--json", "everything, by position, context, class, segment and origin too")


def run(args: argparse.Namespace) -> int:
    from decoders.errors import UserError
    from decoders.importers.importer import ImportResult
    from decoders.trace.acceptance import DEFINITIONS
    from specviz.pages.acceptance.sets import SetCounts, counts_of_log, pooled_by_method

    runs, rates = list[SetCounts](), list[tuple[ImportResult, UserError]]()
    for path in args.traces:
        traces, log = common.read_runs(path)
        if log is None:
            runs += [SetCounts.of(trace, args.by) for trace in traces]
            continue
        try:
            runs += counts_of_log(log, args.by)
        except UserError as problem:
            rates.append((log, problem))
    sets = pooled_by_method(runs)
    if args.json:
        return common.print_json(sets, indent=1)
    for log, problem in rates:
        common.say(f"{problem}:")
        common.show_numbers(log)
    for summary in sets:
        rows = [
            (
                d.label,
                d.formula,
                *(_text_of(summary[pooling][d.key], d.unit) for pooling in ("pooled", "means")),
                d.used,
            )
            for d in DEFINITIONS
        ]
        heads = "definition", "formula", "pooled", "mean of runs", "who uses it"
        common.show_table(heads, rows, f"{summary['title']}, {plural(summary['runs'], 'run')}")
        if summary["calibration"]:
            calibration_rows = [
                (c["label"], str(c["count"]), *(decimals(c[key], 3) for key in ("rate", "ece", "brier", "auroc")))
                for c in summary["calibration"]
            ]
            common.show_table(
                ("confidence", "predicted", "correct", "ECE", "Brier", "AUROC"), calibration_rows, right=1
            )
    return 0


def _text_of(value: float | None, unit: str) -> str:
    return f"{value:.1%}" if value is not None and unit == "share" else decimals(value, 2)
