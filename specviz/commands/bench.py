"""``specviz bench``: speed side by side, in one run, in alternation, with the same tokens."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import common

if TYPE_CHECKING:
    from decoders.bench import Report, Spread


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure speed side by side",
        description="Time methods against plain decoding on the same engine, in alternation; medians with quartiles.",
    )
    parser.add_argument("--methods", nargs="+", default=["all"], metavar="NAME", help="names, or all (default)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="METHOD.K=V", help="a parameter of a method; may be repeated"
    )
    common.add_prompts(parser, 8)
    parser.add_argument(
        "--repeats", type=common.whole(1, 1000), default=3, metavar="R", help="rounds over all prompts (default: 3)"
    )
    parser.add_argument(
        "--context", type=common.whole(2), metavar="N", help="make every prompt N tokens long, with the others in front"
    )
    parser.add_argument(
        "--peers", action="store_true", help="also transformers' generate(), plain and with prompt lookup"
    )
    parser.add_argument("--no-trace", action="store_true", help="do not measure what recording costs")
    parser.add_argument("--json", type=Path, metavar="F", help="write everything measured to a file")
    parser.add_argument("--html", type=Path, metavar="F", help="write a chart to a file")
    common.add_model(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from decoders.prompts import read_prompts

    common.check_writable(args.json)
    common.check_writable(args.html)
    records = read_prompts(args.prompts, args.limit)
    target = common.open_target(args)
    methods, missing = common.chosen_methods(target, args.methods, args.set)

    from decoders.bench import bench, lengthened

    if args.context:
        if args.context + args.max_new_tokens > target.context_length:
            raise common.UserError(
                f"--context {args.context} and --max-new-tokens {args.max_new_tokens} do not fit the "
                f"{target.context_length} tokens {target.name} can read"
            )
        prompts, note = lengthened([r.prompt(target.tokenizer) for r in records], args.context), ""
    else:
        prompts, _, note = common.fitting(target, records, args.max_new_tokens)
    methods, missing = common.applicable(methods, missing, prompts, args.methods)
    stock = None
    if args.peers:
        from decoders.stock import StockModel

        stock = StockModel.load(common.model_source(args), target.dtype, target.device)
    with common.progress_bar("measuring") as progress:
        report = bench(
            target,
            prompts,
            methods,
            max_new_tokens=args.max_new_tokens,
            repeats=args.repeats,
            traced=not args.no_trace,
            stock=stock,
            progress=progress,
        )
    _show(report)
    out = common.console()
    for line in (note, *(f"{name} was left out: {reason}" for name, reason in missing.items())):
        if line:
            out.print(line, markup=False)
    data = report.to_json()
    data["settings"] |= {"prompt_file": args.prompts.name, "context": args.context, "note": note}
    if args.json:
        common.write_json(args.json, data)
    if args.html:
        from ..charts import bench_chart, write_page

        write_page(args.html, "specviz bench", [bench_chart(data)])
    differing = [row.name for row in report.rows if row.differing and row.lossless]
    if differing:
        out.print(
            f"not the same tokens as plain decoding: {', '.join(differing)} (specviz verify says where)", markup=False
        )
    return 0


def spread(value: Spread | None, digits: int = 2) -> str:
    """Median with quartiles, e.g. ``2.03 (1.98–2.11)``."""
    if value is None:
        return "–"
    return f"{value.median:,.{digits}f} ({value.low:,.{digits}f}–{value.high:,.{digits}f})"


def _show(report: Report) -> None:
    from rich.table import Table

    model, machine, settings = report.model, report.machine, report.settings
    where = (
        machine.get("gpu") if model["device"] != "cpu" else f"{machine['cores']} cores, {machine['torch_threads']} used"
    )
    out = common.console()
    out.print(
        f"{model['name']} · {model['parameters'] / 1e6:,.1f} M parameters · {model['dtype']} · {where} · "
        f"torch {machine['torch']}",
        markup=False,
    )
    length = settings["prompt_tokens"]
    out.print(
        f"{common.counted(settings['prompts'], 'prompt')} of {length['low']:.0f}–{length['high']:.0f} tokens "
        f"(quartiles), {settings['max_new_tokens']} new tokens, "
        f"{common.counted(settings['repeats'], 'round')}; median (quartiles)",
        markup=False,
    )
    table = Table("", "tokens/s", "speedup", "tokens per step", "draft ms", "verify ms", "drafting", "differs")
    for row in report.rows:
        if row.kind == "traced":
            continue
        share = "–" if row.draft_share is None else f"{row.draft_share:.2%}"
        table.add_row(
            row.name, spread(row.tokens_per_s, 1), spread(row.speedup), common.number(row.tokens_per_step),
            common.number(row.draft_ms, 3), common.number(row.verify_ms, 2), share, str(row.differing or ""),
        )  # fmt: skip
    out.print(table)
    for ratio in report.ratios:
        out.print(f"{ratio.name}: {spread(ratio.value, 3)}  [{ratio.help}]", markup=False)
