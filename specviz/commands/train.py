"""``specviz train demo``: make the bundled target from nothing, or say how good it is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from . import common

OUT = Path("runs") / "demo"


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "train", help="train the parts specviz brings along", description="Train the bundled parts."
    )
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True, title="parts")
    demo = parts.add_parser("demo", help="the bundled target", description="Train the bundled target, or evaluate it.")
    demo.add_argument(
        "--out", type=Path, metavar="FOLDER", help=f"where it goes, checkpoints included (default: {OUT})"
    )
    budget = demo.add_mutually_exclusive_group()
    budget.add_argument("--minutes", type=common.positive, metavar="M", help="computing time to spend (default: 240)")
    budget.add_argument("--tokens", type=common.whole(1), metavar="N", help="training tokens to spend")
    demo.add_argument("--seed", type=common.whole(0), default=None, metavar="N", help="of data and weights")
    resume = argparse.BooleanOptionalAction
    demo.add_argument("--resume", action=resume, default=True, help="go on from the last checkpoint (default)")
    demo.add_argument(
        "--fast",
        action="store_true",
        help="bf16 and compiled layers: about twice as fast where the processor has bf16 instructions and a C++ "
        "compiler is installed",
    )
    demo.add_argument("--evaluate", action="store_true", help="answer held-out prompts instead of training")
    demo.add_argument(
        "--prompts", type=common.whole(1), default=200, metavar="N", help="held-out prompts (default: 200)"
    )
    demo.add_argument("--model", metavar="FOLDER", help="model to evaluate (default: --out's, else the bundled target)")
    demo.add_argument("--json", type=Path, metavar="F", help="write the evaluation to a file too")
    demo.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return _evaluate(args) if args.evaluate else _train(args)


def _train(args: argparse.Namespace) -> int:
    if args.json or args.model:
        raise common.UserError("--json and --model go with --evaluate")
    common.quiet()

    from decoders.training.demo import Recipe, train_demo

    out = args.out or OUT
    minutes = args.minutes if args.minutes or args.tokens else 240.0
    options: dict[str, Any] = {} if args.seed is None else {"seed": args.seed}
    if args.fast:
        options["recipe"] = Recipe(fast=True)
    with common.progress_bar("training") as bar:

        def show(now: Any) -> None:
            bar(round(now.done * 1000), 1000)
            if now.step % 100 == 0:
                common.console(error=True).print(
                    f"step {now.step:,}: {now.tokens / 1e6:.2f} M tokens, {now.seconds / 60:.1f} min, "
                    f"loss {now.loss:.3f}, {now.tokens_per_second:,.0f} tokens/s",
                    markup=False,
                )

        train_demo(out, tokens=args.tokens, minutes=minutes, resume=args.resume, progress=show, **options)
    common.console().print(
        f"{out / 'target'} holds the model; use it with --model {out / 'target'}", markup=False, soft_wrap=True
    )
    return 0


def _evaluate(args: argparse.Namespace) -> int:
    common.check_writable(args.json)
    common.quiet()

    from decoders.training.evaluation import evaluate_demo

    folder = Path(args.model) if args.model else args.out / "target" if args.out else Path(common.model_source(args))
    options = {} if args.seed is None else {"seed": args.seed}
    with common.progress_bar("answering") as progress:
        report = evaluate_demo(folder, prompts=args.prompts, progress=progress, **options)
    print(report.table())
    if args.json:
        args.json.write_text(report.to_json() + "\n", encoding="utf-8")
    return 0
