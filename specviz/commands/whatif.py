"""``specviz whatif``: a step of a recorded run drafted again, or the steps where its ranking chose badly."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from decoders.errors import UserError

from . import common

WORST = 20  # steps listed


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "whatif",
        help="draft a step of a trace again",
        description="Draft one step of a recorded run again with another method, other parameters or another "
        "candidate, without running again what came before. Without --step: the steps by ranking regret, the worst "
        "first.",
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a .spectrace file")
    common.count(parser, "--step", "the step (from 0)", low=0)
    parser.add_argument("--method", metavar="NAME", help="see specviz methods (default: the run's own)")
    common.several(parser, "--set", "K=V", "a parameter of the method; may be repeated")
    common.count(parser, "--candidate", "copy after this candidate of the step (from 0, by rank)", low=0, metavar="K")
    common.file(parser, "--out", "write the step as a trace file of its own")
    common.flag(parser, "--json", "print the result as one JSON object")
    common.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from decoders import load

    common.check_writable(args.out)
    trace = load(args.trace)
    if args.step is None:
        if args.method or args.set or args.candidate is not None or args.out:
            raise UserError("--step is missing: which step is to be drafted again?")
        return _listed(args, trace)
    steps = trace.rows("steps")
    if args.step >= steps:
        raise UserError(f"--step {args.step} is out of range: the trace has {steps} steps (from 0)")
    if args.candidate is not None and (args.method or args.set):
        raise UserError("--candidate belongs to the run's own ranking: leave --method and --set out")
    return _drafted(args, trace)


def _listed(args: argparse.Namespace, trace: Any) -> int:
    from rich.table import Table

    from decoders.trace.metrics import ranking_regret, regrets

    found = sorted((one for one in regrets(trace) if one.tokens), key=lambda one: (-one.tokens, one.step))
    mean = ranking_regret(trace)
    if args.json:
        rows = [{"step": r.step, "chosen": r.chosen, "best": r.best, "tokens": r.tokens} for r in found]
        print(json.dumps({"ranking_regret": mean, "steps": rows}))
        return 0
    if not found:
        words = "no other place would have accepted more" if mean is not None else "no step has a ranking to judge"
        print(f"no ranking regret: {words}")
        return 0
    table = Table(title=f"ranking regret: {mean:.2f} tokens per ranked step")
    for name in ("step (from 0)", "chosen would accept", "best would accept", "tokens lost"):
        table.add_column(name, justify="right")
    for one in found[:WORST]:
        table.add_row(str(one.step), str(one.chosen), str(one.best), str(one.tokens))
    common.console().print(table)
    if len(found) > WORST:
        print(f"and {len(found) - WORST} more steps")
    return 0


def _drafted(args: argparse.Namespace, trace: Any) -> int:
    from decoders import find_method, save
    from decoders.draft.params import make_params
    from decoders.study.recorded import own_params
    from decoders.study.whatif import ReadRun, wanted

    own = str(trace.run["method"]["name"])
    method = find_method(args.method or own)
    given = {**(own_params(trace, method) if method.name == own else {}), **common.parse_sets(args.set)}
    values = make_params(method.params, given)
    target = common.open_target(args)
    read = ReadRun(target, trace, wanted(method.needs(target, values)))
    number = None if args.candidate is None else _ranked(read, args.step, args.candidate)
    found = read.redraft(args.step, method, given, candidate=number)
    again = read.redraft(args.step, method, given, candidate=number)  # the first one loads parts and kernels
    if args.out:
        save(found.trace, args.out)
    steps = found.trace.tables["steps"]
    result = {
        "step": args.step, "method": method.name, "params": found.trace.run["method"]["params"],
        "candidate": args.candidate, "recorded": found.recorded, "accepted": found.accepted, "same": found.same,
        "drafted": steps["drafted"][0], "emitted_ids": list(found.emitted),
        "text": found.trace.text(found.emitted), "read_ms": round(read.ms, 2), "first_ms": round(found.ms, 2),
        "ms": round(again.ms, 2), "notes": list(found.notes),
    }  # fmt: skip
    if args.json:
        print(json.dumps(result, ensure_ascii=False))
        return 0
    what = f"candidate {args.candidate}" if args.candidate is not None else method.title
    drafted = common.counted(steps["drafted"][0], "token")
    print(f"step {args.step} (from 0), {what}: {drafted} drafted")
    same = ": the same tree and verdict" if found.same else ""
    print(f"recorded {found.recorded} accepted → what if {found.accepted}{same}")
    if reason := steps["reason"][0]:
        print(f"no draft: {common.shown(reason)}")
    print(f"writes: {common.shown(result['text'])!r}")
    for note in found.notes:
        print(note)
    timing = f"read once in {read.ms:.0f} ms; drafted again in {found.ms:.0f} ms, then in {again.ms:.0f} ms"
    common.say(timing, error=True)
    return 0


def _ranked(read: Any, step: int, rank: int) -> int:
    """The number of the candidate with this rank among those of a step."""
    ranks = read.trace.tables["candidates"]["rank"]
    rows = read.rows("candidates", step)
    found = next((number for number, row in enumerate(rows) if ranks[row] == rank), None)
    if found is None:
        raise UserError(f"--candidate {rank} is out of range: step {step} has {len(rows)} candidates (from 0)")
    return found
