"""``specviz whatif``: a step of a recorded run drafted again, or the steps where its ranking chose badly."""

from __future__ import annotations

import argparse
from typing import Any

from decoders.errors import UserError
from decoders.names import POSITION_BIAS
from specviz.words import plural, visible

from . import common, options

WORST = 20  # steps listed


DESCRIPTION = (
    "Draft one step of a recorded run again with another method, other parameters or another candidate, without "
    "running again what came before. Without --step: the steps by ranking regret, the worst first."
)


def add(parser: argparse.ArgumentParser) -> None:
    options.file(parser, "trace", "a .spectrace file", "TRACE")
    options.count(parser, "--step", "the step (from 1)")
    options.add_methods(parser, "see specviz methods (default: the run's own)", is_single=True)
    options.count(parser, "--candidate", "copy after the candidate of this rank (from 1)", metavar="K")
    options.file(parser, "--out", "write the step as a trace file of its own")
    options.flag(parser, "--json", "print the result as one JSON object")
    options.add_model(parser)


def run(args: argparse.Namespace) -> int:
    from decoders import load

    common.check_writable(args.out)
    trace = load(args.trace)
    if args.step is None:
        if args.methods or args.set or args.candidate is not None or args.out:
            raise UserError("--step is missing: which step is to be drafted again?")
        return _list(args, trace)
    step = common.step_number(args.step, trace)
    if args.candidate is not None and (args.methods or args.set):
        raise UserError("--candidate belongs to the run's own ranking: leave --methods and --set out")
    return _draft(args, trace, step)


def _list(args: argparse.Namespace, trace: Any) -> int:
    from decoders.trace.metrics import ranking_regret, regrets
    from decoders.trace.oracle import oracle
    from decoders.trace.report import oracle_of

    worst = sorted((regret for regret in regrets(trace) if regret.tokens), key=lambda item: (-item.tokens, item.step))
    rows = [
        {"step": entry.step + 1, "chosen": entry.chosen, "best": entry.best, "tokens": entry.tokens} for entry in worst
    ]
    mean = ranking_regret(trace)
    if args.json:
        return common.print_json({"ranking_regret": mean, "steps": rows, "oracle": oracle_of(trace)})
    if replay := oracle(trace):
        print(f"oracle: {replay.needs} steps, so the {replay.words}")
        print("An estimate at the places that this run visited, not a run with a better ranking.")
    if not worst:
        words = "no other place would have accepted more" if mean is not None else "no step has a ranking to judge"
        print(f"no ranking regret: {words}")
        return 0
    heads = ("step", "chosen would accept", "best would accept", "tokens lost")
    title = f"ranking regret: {mean:.2f} tokens per ranked step"
    common.show_table(heads, [[*row.values()] for row in rows[:WORST]], title, right=0)
    if len(rows) > WORST:
        print(f"and {len(rows) - WORST} more steps")
    return 0


def _draft(args: argparse.Namespace, trace: Any, step: int) -> int:
    from decoders import find_method, save
    from decoders.draft.params import make_params
    from decoders.study.look.run_settings import own_params
    from decoders.study.look.whatif import ReadRun, bounded_needs

    recorded_name = str(trace.run["method"]["name"])
    method = find_method(str(options.one_method(args, recorded_name)))
    overrides = options.sets_of(args.set, [method.name])[method.name]
    params = {**(own_params(trace, method) if method.name == recorded_name else {}), **overrides}
    target = common.open_target(args)
    read = ReadRun(target, trace, bounded_needs(method.needs(target, make_params(method.params, params))))
    number = None if args.candidate is None else _candidate_at(read, step, args.candidate)
    redraft = read.redraft(step, method, params, candidate=number)
    repeat = read.redraft(step, method, params, candidate=number)  # the first one loads parts and kernels
    if args.out:
        save(redraft.trace, args.out)
    steps = redraft.trace.tables["steps"]
    result = {
        "step": args.step, "method": method.name, "params": redraft.trace.run["method"].get("params", {}),
        "candidate": args.candidate, "recorded": redraft.recorded, "accepted": redraft.accepted,
        "same": redraft.same, "drafted": steps["drafted"][0], "emitted_ids": list(redraft.emitted),
        "text": redraft.trace.text(redraft.emitted), "read_ms": round(read.ms, 2),
        "first_ms": round(redraft.ms, 2), "ms": round(repeat.ms, 2), "notes": list(redraft.notes),
    }  # fmt: skip
    if args.json:
        return common.print_json(result)
    subject = f"candidate {args.candidate}" if args.candidate is not None else method.title
    drafted = plural(steps["drafted"][0], "token")
    print(f"step {args.step}, {subject}: {drafted} drafted")
    same_note = ": the same tree and verdict" if redraft.same else ""
    print(f"recorded {redraft.recorded} accepted → what if {redraft.accepted}{same_note}")
    if reason := steps["reason"][0]:
        print(f"no draft: {visible(reason)}")
    print(f"writes: {visible(result['text'])!r}")
    for note in redraft.notes:
        print(note)
    if not redraft.same:
        print(f"{POSITION_BIAS} (specviz compare --methods {recorded_name},{method.name})")
    timing = f"read once in {read.ms:.0f} ms; drafted again in {redraft.ms:.0f} ms, then in {repeat.ms:.0f} ms"
    common.say(timing, error=True)
    return 0


def _candidate_at(read: Any, step: int, rank: int) -> int:
    """The number of the candidate with this rank (from 1) among those of a step (from 0)."""
    ranks = read.trace.tables["candidates"]["rank"]
    rows = read.rows("candidates", step)
    for number, row in enumerate(rows):
        if ranks[row] == rank - 1:
            return number
    raise UserError(f"--candidate {rank} is out of range: step {step + 1} has {len(rows)} candidates")
