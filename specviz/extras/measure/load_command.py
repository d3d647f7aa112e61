"""``specviz load``: what drafting gains under load, and the lengths that other servers' policies would have drafted."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.draft.params import make_params
from decoders.errors import UserError
from decoders.folders import write_text
from decoders.names import BASELINE, QUICK
from specviz.commands import common, options
from specviz.words import decimals, plural

if TYPE_CHECKING:
    from decoders import Target
    from decoders.trace.load import Load

DESCRIPTION = (
    "Batches: the time of a step by rows, batch and context on this machine, from which acceptance on drafts pay, the "
    "best draft length per batch size, what a recorded run would be in a batch, and other servers' draft lengths."
)
MODEL = "a model of a batch of alike runs, drafted for one by one"


def numbers(text: str) -> list[int]:
    """An argparse type: whole numbers from 1, with commas between them.

    >>> numbers("1, 2,8")
    [1, 2, 8]
    """
    return [options.whole(1, 1_000_000)(part.strip()) for part in text.split(",")]


def add(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(dest="part_of_load", metavar="COMMAND", required=True, title="commands")
    measure = parts.add_parser("measure", help="time steps by rows, batch and context; the result is kept")
    add_list(measure, "--batches", "1,2,4,8", "runs that share a forward")
    add_list(measure, "--rows", "1,2,4,8,16", "rows of each run")
    add_list(measure, "--contexts", "128", "tokens that are cached")
    options.count(measure, "--rounds", "times each is taken", 5, high=1000)
    options.add_model(measure, plugins=False)
    measure.set_defaults(run=run)
    table = parts.add_parser("table", help="the best draft length per batch size, as servers take it")
    table.add_argument("--acceptance", type=float, default=0.7, metavar="X", help="α, from 0 to 1 (default: 0.7)")
    table.add_argument("--cost", type=float, default=0.0, metavar="X", help="c, a drafted token ÷ a plain step of one")
    options.count(table, "--most", "longest draft", 8, high=64)
    add_list(table, "--batches", "1,2,4,8,16,32,64", "batch sizes")
    options.file(table, "--vllm", "write the fields of vLLM's --speculative-config")
    options.file(table, "--sglang", "write SGLang's --speculative-adaptive-config")
    options.file(table, "--html", "draw the break-even acceptance, and the best length by batch, on a page")
    options.flag(table, "--json", "print everything as JSON")
    options.add_model(table, plugins=False)
    table.set_defaults(run=run_table)
    at = parts.add_parser("at", help="what recorded runs would be in a batch")
    options.file(at, "traces", "recorded runs", "TRACE", nargs="+")
    add_list(at, "--batches", "1,2,4,8,16,32,64", "batch sizes")
    options.flag(at, "--json", "print everything as JSON")
    options.add_model(at, plugins=False)
    at.set_defaults(run=run_at)
    check = parts.add_parser("check", help="the model of a batch against batches that really run")
    options.add_methods(check, "one that reads tokens and cache alone (default: pld)", is_single=True)
    options.add_prompt(check, required=False)
    options.add_reading(check)
    options.count(check, "--max-new-tokens", "tokens per run", 64)
    options.count(check, "--repeats", "times each batch runs", 3, high=100)
    add_list(check, "--batches", "2,4,8", "batch sizes")
    add_list(check, "--rows", "1,2,4,8,16", "rows of each run that are timed between the batches")
    options.add_model(check, plugins=False)
    check.set_defaults(run=run_check)
    policies = parts.add_parser("policies", help="draft lengths of other servers' policies on recorded runs: regret")
    options.file(policies, "traces", "recorded runs of one method", "TRACE", nargs="+")
    options.count(policies, "--batch", "runs that share a forward (with L as measured)", 1, high=4096)
    policies.add_argument("--latency", metavar="N:MS,…", help="L(n), as in 1:30,8:34 (default: the runs' own times)")
    options.flag(policies, "--json", "print everything as JSON")
    policies.set_defaults(run=run_policies)


def add_list(parser: argparse.ArgumentParser, name: str, usual: str, help: str) -> None:
    parser.add_argument(name, type=numbers, default=numbers(usual), metavar="N,…", help=f"{help} (default: {usual})")


def run(args: argparse.Namespace) -> int:
    from decoders.study.measure.load import save_load

    from .load.step_times import measure_load

    target = common.open_target(args)
    with common.progress_bar("measuring") as progress:
        load = measure_load(target, args.batches, args.rows, args.contexts, rounds=args.rounds, progress=progress)
    place = save_load(load)
    moe = any(cell.experts is not None for cell in load.cells)
    rows = [
        (str(c.context), str(c.batch), str(c.rows), decimals(c.ms, 2), f"{decimals(c.low, 2)} to {decimals(c.high, 2)}",
         decimals(c.ms / load.at(c.batch, 1, c.context).ms, 2), *([decimals(c.experts, 1)] if moe else []))
        for c in load.cells
    ]  # fmt: skip
    heads = ("context", "batch", "rows", "ms", "quartiles", "÷ one row", *(["experts per layer"] if moe else []))
    common.show_table(heads, rows, f"L(rows, batch, context) of {load.model}", right=0)
    common.say(f"kept: {place}")
    return 0


def _load_of(target: Target) -> Load:
    from decoders.study.measure.load import kept_load

    load = kept_load(target)
    if load is None:
        raise UserError(f"nothing was measured of {target.name} here yet: run specviz load measure first")
    return load


def run_table(args: argparse.Namespace) -> int:
    from .load import batches as model

    common.check_writable(args.vllm, args.sglang, args.html)
    target = common.open_target(args)
    load = _load_of(target)
    table = model.tiers(load, args.acceptance, args.cost, max_length=args.most, batches=args.batches)
    exports = {"vllm": model.for_vllm(table), "sglang": model.for_sglang(table)}
    for path, name in ((args.vllm, "vllm"), (args.sglang, "sglang")):
        if path:
            write_text(path, exports[name] + "\n")
    data = {
        "model": load.model, "acceptance": args.acceptance, "cost": args.cost, "measured_to": load.batches[-1],
        "tiers": [asdict(tier) for tier in table],
        "curve": model.break_even_curve(load, args.cost, max_length=args.most, batches=args.batches),
    }  # fmt: skip
    if args.html:
        from specviz.views.charts import write_page

        from .load.charts import load_charts

        write_page(args.html, "specviz load", load_charts(data))
    if args.json:
        return common.print_json({**data, **{k: json.loads(v) for k, v in exports.items()}})
    rows = [
        (str(t.batch), str(t.length), f"{decimals(t.speedup, 2)}×", _share(t.break_even_one), _share(t.break_even))
        for t in table
    ]
    heads = "batch", "best length", "expected speedup", "break-even α, 1 token", "break-even α, this length"
    common.show_table(heads, rows, f"{load.model}, α = {args.acceptance:g}, c = {args.cost:g}", right=0)
    common.say(
        f"{MODEL}; measured up to batch {load.batches[-1]}", f"vLLM: {exports['vllm']}", f"SGLang: {exports['sglang']}"
    )
    return 0


def _share(value: float | None) -> str:
    return "never" if value is None else f"{value:.0%}"


def run_at(args: argparse.Namespace) -> int:
    from decoders import load as opened

    from .load.batches import at_batches

    target = common.open_target(args)
    load = _load_of(target)
    entries: list[dict[str, Any]] = []
    for path in args.traces:
        trace = opened(path)
        if (name := trace.run["model"]["name"]) != load.model:
            raise UserError(f"{path} is a run of {name}, and the load was measured of {load.model}")
        try:
            table = at_batches(trace, load, args.batches)
        except ValueError as problem:
            raise UserError(f"{path}: {problem}") from None
        entries += [{"run": str(path), **asdict(point)} for point in table]
    if args.json:
        return common.print_json({"model": MODEL, "measured_to": load.batches[-1], "runs": entries})
    rows = [
        (Path(entry["run"]).name, str(entry["batch"]) + ("" if entry["measured"] else " *"),
         decimals(entry["tokens_per_s"], 1),
         decimals(entry["plain_tokens_per_s"], 1), f"{decimals(entry['speedup'], 2)}×")
        for entry in entries
    ]  # fmt: skip
    common.show_table(("run", "batch", "tokens/s", BASELINE, "expected speedup"), rows, right=1)
    common.say(f"{MODEL}; *: beyond the measured batches, on their last slope")
    return 0


def run_check(args: argparse.Namespace) -> int:
    from decoders import find_method, record

    from .load.load_check import check_load

    method = find_method(str(options.one_method(args, QUICK)))
    params = make_params(method.params, options.sets_of(args.set, [method.name])[method.name])
    target = common.open_target(args)
    if args.prompt is None and args.prompt_file is None:
        args.prompt_file = Path("examples")
    prompt = common.prompt_record(args).prompt(target.tokenizer, chat=args.chat)
    limit = args.max_new_tokens
    runs = {BASELINE: record(target, prompt, BASELINE, max_new_tokens=limit)}
    if method.name != BASELINE:
        record(target, prompt, method, params, max_new_tokens=min(8, limit))  # to warm up
        runs[method.name] = record(target, prompt, method, params, max_new_tokens=limit)
    checks = check_load(target, prompt, runs, params, batches=args.batches, rows=args.rows, repeats=args.repeats)
    rows = [
        (
            check.method,
            str(check.batch),
            decimals(check.predicted, 1),
            decimals(check.measured, 1),
            f"{check.error:+.1%}",
        )
        for check in checks
    ]
    common.show_table(("method", "batch", "model, tokens/s", "measured", "error"), rows, right=1)
    common.say(f"largest error: {max(abs(check.error) for check in checks):.1%} ({MODEL})")
    return 0


def run_policies(args: argparse.Namespace) -> int:
    from decoders import load as opened
    from decoders.trace.speedup import RowTimes

    from .load.policies import compare, costs_of, offers_of

    runs = []
    for path in args.traces:
        trace = opened(path)
        try:
            times = None if args.latency is None else RowTimes.read(args.latency).at
            costs = costs_of(trace, times)
        except ValueError as problem:
            raise UserError(f"{path}: {problem}") from None
        runs.append((offers_of(trace), costs))
    outcomes = compare(runs, args.batch)
    if args.json:
        return common.print_json([asdict(outcome) for outcome in outcomes])
    rows = [
        (outcome.policy, "–" if outcome.steps is None else str(outcome.steps), decimals(outcome.mean_length, 2),
         decimals(outcome.ms, 0), "–" if outcome.speedup is None else f"{decimals(outcome.speedup, 2)}×",
         "–" if outcome.regret is None else f"{outcome.regret:.1%}", outcome.why)
        for outcome in outcomes
    ]  # fmt: skip
    heads = "policy", "steps", "mean length", "ms", "× one-row forwards", "regret", ""
    title = f"{plural(len(runs), 'run')}, replayed: regret = cost ÷ the oracle's − 1"
    common.show_table(heads, rows, title, right=1)
    return 0
