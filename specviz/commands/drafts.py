"""``specviz drafts``: what drafted tokens were worth, by depth, rank and drafter; and drafters at every place."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from specviz.words import decimals, plural

from . import common, options

DESCRIPTION = (
    "What the drafted tokens of recorded runs were worth: acceptance by depth and rank, of second branches, and by who "
    "proposed them (composite). With --methods, of one greedy run, how far each drafter would have come at every place "
    "of its text, and the fewest steps that they allow together."
)
SHADES = " .:-=+*#%@"  # of 0, 1, … tokens
DEEPEST, RANKS, WIDTH = 12, 6, 100  # of the printed map, and columns of the printed strip
ROWS = (4, 8, 16, 32, 64)


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "traces", ".spectrace files; runs of one method are counted together", "TRACE", nargs="+")
    options.add_methods(parser, "drafters to put at every place of the (one) run", sets=False)
    options.flag(parser, "--frontier", "with --methods: tokens per step by rows, of each and of all merged")
    options.flag(parser, "--json", "print everything as one JSON object")
    options.add_model(parser)


def run(args: argparse.Namespace) -> int:
    from decoders.errors import UserError

    traces = [trace for path in args.traces for trace in common.read_traces(path)]
    if args.methods and len(traces) != 1:
        raise UserError(f"--methods replays the places of one run, and {len(traces)} were given: name one trace")
    if args.frontier and not args.methods:
        raise UserError("--frontier needs --methods, whose drafts it compares")
    report = count_drafts(traces)
    if args.methods:
        report |= _replay(args, traces[0])
    if args.json:
        return common.print_json(report, indent=1)
    for method in report["methods"]:
        _show_counts(method)
    if args.methods:
        _show_strip(report)
    return 0


def count_drafts(traces: Sequence[Any]) -> dict[str, Any]:
    """The counts of runs by method, as ``--json`` prints them."""
    from decoders.trace.branches import branch_counts

    by_method: dict[str, list[Any]] = {}
    for trace in traces:
        params = trace.run["method"].get("params", {})
        by_method.setdefault(f"{trace.run['method']['name']} {params.get('drafters', '')}".strip(), []).append(trace)
    methods = [{"method": name, "runs": len(runs), **branch_counts(runs)} for name, runs in by_method.items()]
    return {"methods": methods}


def _replay(args: argparse.Namespace, trace: Any) -> dict[str, Any]:
    """The strip of a run, and the frontier where it is asked for."""
    from decoders.study.look.places import PlaceReplay, all_drafts, frontier, strip_of

    replay = PlaceReplay(common.open_target(args), trace)
    drafts, missing = all_drafts(replay, options.split(args.methods))
    strip = strip_of(replay, drafts, missing)
    report: dict[str, Any] = {"strip": strip.to_json()}
    if args.frontier:
        report["frontier"] = {"rows": ROWS, **frontier(replay, drafts, ROWS)}
    return report


def _show_counts(counts: dict[str, Any]) -> None:
    title = f"{counts['method']}, {plural(counts['runs'], 'run')}"
    cells = {(cell["depth"], cell["rank"]): cell for cell in counts["depth_rank"]}
    if not cells:
        common.say(f"{title}: nothing was drafted")
        return
    ranks = range(min(RANKS, 1 + max(rank for _, rank in cells)))
    rows = [
        (str(depth), *(_share_words(cells.get((depth, rank))) for rank in ranks))
        for depth in range(1, 1 + min(DEEPEST, max(depth for depth, _ in cells)))
    ]
    common.show_table(("depth", *(f"rank {rank}" for rank in ranks)), rows, f"{title}: accepted after its parent")
    if counts["proposed_by"]:
        rows = [(entry["who"], _share_words(entry)) for entry in counts["proposed_by"]]
        common.show_table(("proposed by", "accepted after its parent"), rows, title)
    branch = counts["second_branch"]
    if branch["with_sibling"]:
        common.say(
            f"Second branch: where the first-ranked chain was first rejected ({branch['misses']}), another "
            f"branch stood {decimals(branch['sibling'] / branch['misses'], 2)} of the time, and a token behind "
            f"it {decimals(branch['child'] / max(branch['sibling'], 1), 2)} of those."
        )


def _share_words(cell: dict[str, Any] | None) -> str:
    return "" if cell is None else f"{decimals(cell['share'], 2)} of {cell['judged']}"


def _show_strip(report: dict[str, Any]) -> None:
    """The strip in characters: a row per drafter, a column per token of the output."""
    strip = report["strip"]
    count, width = len(next(iter(strip["reach"].values()))), max(len(name) for name in (*strip["reach"], "oracle"))
    starts, oracle = set(strip["steps"]), set(strip["oracle"])
    lines = {"run": "".join("|" if place in starts else "-" for place in range(count))}
    for name, reach in strip["reach"].items():
        lines[name] = "".join(SHADES[min(tokens, len(SHADES) - 1)] for tokens in reach)
    lines["oracle"] = "".join("|" if place in oracle else "-" for place in range(count))
    for begin in range(0, count, WIDTH):
        print()
        for name, line in lines.items():
            print(f"{name:>{width}} {line[begin : begin + WIDTH]}")
    own_steps = ", ".join(f"{name} {steps}" for name, steps in strip["alone"].items())
    common.say(
        f"\nSteps: this run {len(strip['steps'])}, alone {own_steps}, the best at every place {len(strip['oracle'])} "
        f"(regret {strip['regret']}). Shades: {SHADES!r}, tokens that would have been accepted, 0 to "
        f"{len(SHADES) - 1} or more."
    )
    for name, reason in strip["missing"].items():
        common.say(f"{name}: {reason}")
    if "frontier" in report:
        heads = ("rows", *map(str, report["frontier"]["rows"]))
        rows = [
            (name, *(decimals(value, 2) for value in values))
            for name, values in report["frontier"].items() if name != "rows"
        ]  # fmt: skip
        common.show_table(heads, rows, "tokens per step by rows verified")
