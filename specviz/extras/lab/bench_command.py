"""``specviz bench``: speed side by side, in one run, in alternation, with the same tokens."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.draft.settings import Lengths, Sampling
from decoders.extra import extras
from decoders.folders import write_json, write_text
from specviz.commands import common, options, turns
from specviz.words import column, column_texts, decimals, plural

from . import worker_runs

if TYPE_CHECKING:
    from decoders import Prompt, Target
    from decoders.study.measure.peers import Peer
    from decoders.sweep.bench import BenchReport, SpeedSpread
    from decoders.sweep.ledger import Ledger
    from decoders.sweep.plan import Case
    from decoders.trace.trace import Trace

    from .experiments import Experiment, Results


MIN_QUARTILES = 4  # numbers, of which fewer have no quartiles
FIELD, TASKS = "field", "tasks"  # forms of the tables
TABLE_SUFFIXES = {"latex": "tex", "markdown": "md", "csv": "csv"}
COST = ": tracing on ÷ off"  # how the ratios of recording's cost are called
DESCRIPTION = "Time methods against plain decoding on the same engine, in alternation; medians with quartiles."


def add(parser: argparse.ArgumentParser) -> None:
    options.add_methods(parser)
    options.add_verifier(parser)
    options.add_prompts(parser, 8)
    options.count(parser, "--repeats", "rounds over all prompts", 3, high=1000, metavar="R")
    drawing_note = "above 0 tokens are drawn, from the same seed in all methods"
    options.add_settings(parser, Sampling, "temperature", temperature=drawing_note)
    options.add_settings(parser, Lengths)
    options.count(parser, "--context", "make every prompt N tokens long, with the others in front", low=2)
    programs = ["transformers' generate()", *(words for extra in extras().values() for words in extra.peers.values())]
    options.flag(parser, "--peers", f"also what you could use instead: {', '.join(programs)}")
    options.flag(parser, "--no-trace", "do not measure what recording costs")
    table = parser.add_argument_group("tables, as in the papers")
    table.add_argument(
        "--table", choices=(FIELD, TASKS), metavar="T",
        help="field: a row per method, a column per category, as Spec-Bench and EAGLE print them; tasks: a row per "
        "category, with quartiles (default: field where the prompts have several categories; of a .csv: tasks)",
    )  # fmt: skip
    table.add_argument(
        "--format",
        choices=tuple(TABLE_SUFFIXES),
        metavar="F",
        help=f"print them as {', '.join(TABLE_SUFFIXES)} instead",
    )
    options.several(table, "--out", "F", "write them to a .csv, .tex or .md file; may be repeated", type=Path)
    options.several(
        table, "--metric", "KEY", "what their cells show; may be repeated (default: tokens_per_step and speedup)"
    )
    table.add_argument("--save", metavar="NAME", help="keep them with their runs among the results of the page Lab")
    worker_runs.add(parser)
    options.file(parser, "--json", "write everything measured to a file")
    options.file(parser, "--html", "write a chart to a file")
    options.add_model(parser, weights=True)


def run(args: argparse.Namespace) -> int:
    common.check_writable(args.json, args.html, *args.out)
    _check(args)
    records = common.prompt_records(args)
    target = common.open_target(args)

    from decoders.sweep.bench import bench, lengthen

    sampling, turns_note = options.settings_of(args, Sampling), ""
    from .experiments.tables import describe

    if args.context:
        if args.context + args.max_new_tokens > target.context_length:
            raise common.UserError(
                f"--context {args.context} and --max-new-tokens {args.max_new_tokens} do not fit the "
                f"{target.context_length} tokens {target.name} can read"
            )
        first = [record.prompt(target.tokenizer) for record in records]
        prompts, kept_records, note = lengthen(first, args.context), records, turns.first_turns(first)
    else:
        prompts, kept_records, note = common.fitting(target, records, args.max_new_tokens)
        if not worker_runs.worker_count(args):  # which decode them unit by unit
            settings = {"max_new_tokens": args.max_new_tokens, "sampling": sampling}
            prompts, kept_records, turns_note = turns.every_turn(target, prompts, kept_records, **settings)
            note = "; ".join(filter(None, (note, turns_note)))
    methods, missing = common.chosen_methods(target, args.methods, args.set, prompts, verifier=args.verifier)
    prompts = [replace(p, reference=p.reference or r.reference) for p, r in zip(prompts, kept_records, strict=True)]
    if worker_runs.worker_count(args):
        return _over_workers(args, target, methods, prompts, kept_records, [note, *missing.values()])
    peers, no_peer = _peers(args, target, methods, prompts) if args.peers else ([], [])
    ledger, results, folder = _ledger(args, target, methods, prompts, kept_records, [peer.name for peer in peers])
    start_s = time.perf_counter()
    with common.progress_bar("measuring") as progress:
        report = bench(
            target, prompts, methods, max_new_tokens=args.max_new_tokens, repeats=args.repeats,
            with_traces=not args.no_trace, peers=peers, sampling=sampling, progress=progress,
            ledger=ledger, length=args.length,
        )  # fmt: skip
    _show(report)
    lost_notes = [f"{name}: {reason}" for name, reason in report.settings["lost"].items()]
    common.say(note, *missing.values(), *no_peer, *lost_notes)
    results.about |= {
        "state": "complete", "seconds": round(time.perf_counter() - start_s, 1), "notes": [note] if note else [],
        "runs": len(ledger.samples),
    }  # fmt: skip
    if folder:
        results.save(folder)
    several = len({record.category for record in kept_records}) > 1
    if several or args.out or args.save or args.table or args.format:
        _show_tables(results, args)
    data = report.to_json()
    data["settings"] |= {
        "prompt_file": args.prompts.name, "context": args.context, "note": note,
        "prompt_ids": [record.id for record in kept_records], "turn_numbers": [prompt.turn for prompt in prompts],
    }  # fmt: skip
    data["tables"] = describe(results)["tables"]
    if args.json:
        write_json(args.json, data)
    for path in args.out:
        write_text(path, _file_text(results, path.suffix.lower()[1:], args))
    if args.html:
        from specviz.views.charts import bench_chart, write_page

        write_page(args.html, "specviz bench", [bench_chart(data)])
    if args.save:
        common.say(f"kept as “{results.about['title']}”: open the page Lab of python app.py")
    differing = [row.name for row in report.rows if row.differing and row.lossless]
    if differing:
        common.say(f"not the same tokens as plain decoding: {', '.join(differing)} (specviz verify says where)")
    return 0 if report.samples else 1


def _check(args: argparse.Namespace) -> None:
    """Refuse what cannot be written or tabled, before anything is measured."""
    from .experiments.quantities import QUANTITIES, Quantity
    from .experiments.result_table import FORMATS
    from .experiments.tables import TIMING_COLUMNS

    if args.temperature and args.peers:
        raise common.UserError("--peers is for greedy runs, as generate() draws otherwise: leave --temperature out")
    for path in args.out:
        if path.suffix.lower()[1:] not in FORMATS:
            suffixes = ", ".join(f".{form}" for form in FORMATS)
            raise common.UserError(
                f"--out {path} does not say what to write: the file's name ends in one of {suffixes}"
            )
    if worker_runs.worker_count(args) and (args.peers or args.no_trace or args.html):
        raise common.UserError("--peers, --no-trace and --html are for runs in one process: leave --workers out")
    columns = [key for key, quantity in QUANTITIES.items() if isinstance(quantity, Quantity)]
    for key in args.metric:
        if key not in columns:
            raise common.UserError(f"there is no metric {key!r} for a table: choose one of {', '.join(columns)}")
        if args.no_trace and key not in TIMING_COLUMNS:
            raise common.UserError(f"{key} is told by recorded runs alone: leave --no-trace out")
    if args.save is not None and not args.save.strip():
        raise common.UserError("--save needs a name to list the results under")


def _peers(
    args: argparse.Namespace, target: Target, methods: dict[str, Any], prompts: Sequence[Prompt]
) -> tuple[list[Peer], list[str]]:
    """The peers measured beside these methods, and a sentence for each that cannot be."""
    from decoders.study.measure.peers import PeerSetup, peers_of

    longest = max(len(prompt.tokens) for prompt in prompts) + args.max_new_tokens
    stock, source = common.stock_model(args, target), Path(common.model_source(args))
    return peers_of(PeerSetup(target, stock, source, methods, longest))


def batch_of(
    args: argparse.Namespace, methods: dict[str, Any], prompts: Sequence[Prompt], ids: Sequence[Any]
) -> tuple[Experiment, tuple[Case, ...]]:
    """A benchmark as an experiment of the Lab, and its prompts."""
    from decoders.sweep.plan import PLAIN, Case

    from .experiments import Line, batch

    cases = tuple(Case(r.id, r.category, prompt) for r, prompt in zip(ids, prompts, strict=True))
    lines = (Line(name, name, asdict(params)) for name, params in methods.items() if name != PLAIN)
    experiment = replace(
        batch.of_lines((Line(PLAIN, PLAIN), *lines), args.repeats, args.metric or batch.METRICS, args.save or ""),
        prompts=args.prompts.name, count=len(cases), max_new_tokens=args.max_new_tokens, temperature=args.temperature,
        length=args.length,
    )  # fmt: skip
    return experiment, cases


def _over_workers(
    args: argparse.Namespace, target: Target, methods: dict[str, Any], prompts: Sequence[Prompt], ids: Sequence[Any],
    peer_notes: Sequence[str],
) -> int:  # fmt: skip
    """The same with workers: every method on a prompt is timed by the same one, beside plain decoding."""
    from .experiments import plan
    from .experiments.tables import describe

    experiment, cases = batch_of(args, methods, prompts, ids)
    results = worker_runs.spread_out(args, target, plan(target, experiment, cases))
    common.say(*peer_notes)
    _show_tables(results, args)
    if args.json:
        write_json(args.json, describe(results))
    for path in args.out:
        write_text(path, _file_text(results, path.suffix.lower()[1:], args))
    if results.about["state"] == "cancelled":
        return 130
    common.say(*(f"failed: {error}" for error in results.reasons))
    return int(results.all_failed)


def _ledger(
    args: argparse.Namespace, target: Target, methods: dict[str, Any], prompts: list[Prompt], ids: list[Any],
    peer_names: Sequence[str],
) -> tuple[Ledger, Results, Path | None]:
    """The rows of a benchmark as results of the Lab: one per method, prompt and round; with ``--save`` the folder where
    they are kept, with the trace of every method's first run of a prompt.
    """
    from decoders import find_method, save
    from decoders.sweep.ledger import Ledger
    from decoders.sweep.plan import PLAIN
    from specviz.places import SUFFIX, TRACES, home

    from .experiments import batch
    from .experiments.plan import Plan
    from .experiments.running import begin

    experiment, cases = batch_of(args, methods, prompts, ids)
    lossy = tuple(name for name in methods if not find_method(name).lossless)
    results = begin(Plan(experiment, (), cases, lossy=lossy), target)
    folder = home() / "lab" / results.id if args.save else None
    if folder:
        (folder / TRACES).mkdir(parents=True)

    def keep(trace: Trace) -> None:
        if folder:
            save(trace, folder / TRACES / f"{trace.run['id']}{SUFFIX}")

    names = {name: name for name in (PLAIN, *methods, *peer_names)}
    recorder, sampling = batch.filed_with(keep), Sampling(args.temperature)
    return Ledger(target, cases, names, lossy, recorder, sampling=sampling, rows=results.rows), results, folder


def spread(value: SpeedSpread | None, form: Callable[[float], str]) -> str:
    """Median with quartiles, as in ``2.03 (1.98–2.11)``, in one form; of fewer than four numbers the median alone."""
    if value is None:
        return "–"
    return form(value.median) + (f" ({form(value.low)}–{form(value.high)})" if value.count >= MIN_QUARTILES else "")


def spreads(unit: str, values: Sequence[SpeedSpread | None]) -> list[str]:
    """A column of them, all with the same number of decimals."""
    form = column(unit, [value and value.median for value in values])
    return [spread(value, form) for value in values]


def _show(report: BenchReport) -> None:
    from decoders.sweep.bench import COLUMNS, SpeedSpread

    model, machine, settings = report.model, report.machine, report.settings
    processor = (
        machine.get("gpu") if model["device"] != "cpu" else f"{machine['cores']} cores, {machine['torch_threads']} used"
    )
    common.say(
        f"{model['name']} · {model['parameters'] / 1e6:,.1f} M parameters · {model['dtype']} · {processor} · "
        f"torch {machine['torch']}"
    )
    length = settings["prompt_tokens"]
    several = f" in {plural(settings['turns'], 'turn')}" if settings["turns"] > settings["prompts"] else ""
    common.say(
        f"{plural(settings['prompts'], 'prompt')}{several} of {length['low']:.0f}–{length['high']:.0f} tokens "
        f"(quartiles), {settings['max_new_tokens']} new tokens, "
        f"{plural(settings['repeats'], 'round')}; median (quartiles)"
    )
    rows = [row for row in report.rows if row.kind != "traced"]
    columns = {"": [row.name for row in rows]}
    for key, column_spec in COLUMNS.items():
        values = [row.values[key] for row in rows]
        if column_spec.head and any(isinstance(value, SpeedSpread) for value in values):
            columns[column_spec.head] = spreads(column_spec.unit, values)
        elif column_spec.head:
            columns[column_spec.head] = (
                column_texts(column_spec.unit, values) if column_spec.unit else [value or "" for value in values]
            )
    common.show_table([*columns], zip(*columns.values(), strict=True))
    common.say(
        "tokens/s and speedup are of decoding: reading the prompt and preparing to draft are in neither (end to end "
        "below counts both); verify ms is the forward and the decision."
    )
    if settings["repeated"]:
        quiet = f"{settings['disturbed']} still are" if settings["disturbed"] else "none is any more"
        common.say(f"Some measurements were disturbed and made again ({settings['repeated']} runs more): {quiet}.")
    exact = partial(decimals, digits=3)  # what recording costs is a small difference from 1
    cost_ratios = {name.removesuffix(COST): ratio for ratio in report.ratios if (name := ratio.name).endswith(COST)}
    other_ratios = [ratio for ratio in report.ratios if COST not in ratio.name]
    common.say(*(f"{ratio.name}: {spread(ratio.value, exact)}  [{ratio.help}]" for ratio in other_ratios))
    if cost_ratios:  # --json has each with its quartiles, and end to end
        costs = ", ".join(f"{name} {exact(ratio.value.median)}" for name, ratio in cost_ratios.items())
        common.say(f"{COST.strip(': ')}: {costs}  [{next(iter(cost_ratios.values())).help}]")


def _in_field_form(results: Results, args: argparse.Namespace) -> bool:
    several = len({row["category"] for row in results.rows}) > 1
    return args.table == FIELD or (args.table is None and several)


def _file_text(results: Results, form: str, args: argparse.Namespace) -> str:
    """The tables as a file; CSV, for programs, has all digits and quartiles unless the field's form is asked for."""
    from .experiments.grids import to_file_text

    field = args.table == FIELD if form == "csv" else _in_field_form(results, args)
    return to_file_text(results, form, field=field)


def _show_tables(results: Results, args: argparse.Namespace) -> None:
    from .experiments.field import field_notes
    from .experiments.grids import grids
    from .experiments.result_table import TERMINAL
    from .experiments.tables import notes, warnings

    field = _in_field_form(results, args)
    if args.format:
        print(_file_text(results, TABLE_SUFFIXES[args.format], args), end="")
        return
    for table in grids(results, field=field):
        heads, *rows = table.lines(TERMINAL)
        common.show_table(heads, rows, table.title, right=1 if field else 2, last_apart=True)
    extra_notes = field_notes(results) if field else ()
    best = f"* is the best of its {'column' if field else 'row'}."
    common.say(*warnings(results), best, *notes(results), *extra_notes)
