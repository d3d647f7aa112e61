"""``specviz expand``: a model's behaviour at a larger model's cost."""

from __future__ import annotations

import argparse

from . import common, options

SIZES = ("103m", "1b", "7b")


DESCRIPTION = "Grow a Llama-shaped model without changing its output, to measure cost at real sizes."


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", nargs="?", metavar="MODEL", help=options.MODEL_HELP)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--to", required=True, metavar="SIZE", help=f"one of {', '.join(SIZES)}")
    options.file(parser, "--out", "a new folder", "FOLDER", required=True)
    parser.add_argument(
        "--dtype", metavar="T", help="float32, float16 or bfloat16 (default: float32 for 103m, else float16)"
    )
    options.count(parser, "--seed", "of the weights that only cost time", 0, low=0)


def run(args: argparse.Namespace) -> int:
    if args.source and args.model:
        raise common.UserError("the model is given twice: as MODEL and as --model")
    args.model = args.source or args.model
    common.settle()

    from decoders.study.expand import expand_to_folder
    from decoders.study.shapes import shape_of

    shape = shape_of(args.to)
    with common.progress_bar(f"growing to {shape.name}") as progress:
        total = 0

        def count(done: int, everything: int) -> None:
            nonlocal total
            total = done
            progress(done // 1_000_000, everything // 1_000_000)

        out = expand_to_folder(
            common.model_source(args), shape, args.out, dtype=args.dtype, seed=args.seed, progress=count
        )
    size = sum(f.stat().st_size for f in out.iterdir()) / 1e9
    common.say(f"{out}: {total / 1e6:,.1f} M parameters, {size:.2f} GB")
    return 0
