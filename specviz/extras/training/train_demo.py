"""``specviz train demo``: the bundled target from nothing, by the code that lies beside it (``assets/demo/making``)."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from decoders.folders import ASSETS, write_text
from decoders.model.files.catalog import BUNDLED, model_place
from specviz.commands import common, options

OUT = Path("runs") / "demo"
RESUME_HELP = "Interrupted runs go on where they stopped when asked again."
DEMO_MINUTES = 240.0  # computing time by default
PACKAGE = "specviz_demo_making"  # the name under which ``assets/demo/making`` is imported


def add(parts: Any) -> None:
    """The command's options."""
    demo = parts.add_parser("demo", help="the bundled target", description="Train the bundled target, or evaluate it.")
    options.file(demo, "--out", f"where it goes, checkpoints included (default: {OUT})", "FOLDER")
    budget = demo.add_mutually_exclusive_group()
    add_minutes(budget, DEMO_MINUTES)
    options.count(budget, "--tokens", "training tokens to spend")
    options.count(demo, "--seed", "of data and weights", low=0)
    add_resume(demo)
    options.flag(
        demo,
        "--fast",
        "bf16 and compiled layers: about twice as fast where the processor has bf16 instructions and a C++ "
        "compiler is installed",
    )
    options.flag(demo, "--evaluate", "answer held-out prompts instead of training")
    options.count(demo, "--prompts", "held-out prompts", 200)
    demo.add_argument("--model", metavar="FOLDER", help="model to evaluate (default: --out's, else the bundled target)")
    options.file(demo, "--json", "write the evaluation to a file too")


def add_minutes(parser: argparse._ActionsContainer, usual: float) -> None:
    """The option for a budget of computing time."""
    text = f"computing time to spend (default: {usual:g})"
    parser.add_argument("--minutes", type=options.positive, metavar="M", help=text)


def add_resume(parser: argparse.ArgumentParser) -> None:
    """The option for going on from a checkpoint."""
    resume = argparse.BooleanOptionalAction
    parser.add_argument("--resume", action=resume, default=True, help="go on from the last checkpoint (default)")


def making(name: str) -> ModuleType:
    """A module of ``assets/demo/making``. Raises UserError where the folder is not there."""
    if PACKAGE not in sys.modules:
        folder = ASSETS / "demo" / "making"
        spec = importlib.util.spec_from_file_location(
            PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None or not (folder / "__init__.py").is_file():
            raise common.UserError(f"{folder} is not there: run this from a checkout of specviz's repository")
        sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[PACKAGE])
    return import_module(f"{PACKAGE}.{name}")


def run(args: argparse.Namespace) -> int:
    return _evaluate(args) if args.evaluate else _train(args)


def _train(args: argparse.Namespace) -> int:
    if args.json or args.model:
        raise common.UserError("--json and --model go with --evaluate")
    common.settle()
    target = making("target")

    out = args.out or OUT
    minutes = args.minutes if args.minutes or args.tokens else DEMO_MINUTES
    options: dict[str, Any] = {} if args.seed is None else {"seed": args.seed}
    if args.fast:
        options["recipe"] = target.Recipe(fast=True)
    with common.progress_bar("training") as bar:

        def show(report: Any) -> None:
            bar(round(report.done * 1000), 1000)
            if report.step % 100 == 0:
                common.say(
                    f"step {report.step:,}: {report.tokens / 1e6:.2f} M tokens, {report.seconds / 60:.1f} min, "
                    f"loss {report.loss:.3f}, {report.tokens_per_second:,.0f} tokens/s",
                    error=True,
                )

        target.train_demo(out, tokens=args.tokens, minutes=minutes, resume=args.resume, progress=show, **options)
    common.say(f"{out / 'target'} holds the model; use it with --model {out / 'target'}")
    return 0


def _evaluate(args: argparse.Namespace) -> int:
    common.check_writable(args.json)
    common.settle()
    evaluation = making("evaluation")

    folder = Path(args.model) if args.model else args.out / "target" if args.out else Path(model_place(BUNDLED))
    options = {} if args.seed is None else {"seed": args.seed}
    with common.progress_bar("answering") as progress:
        report = evaluation.evaluate_demo(folder, prompts=args.prompts, progress=progress, **options)
    print(report.table())
    if args.json:
        write_text(args.json, report.to_json() + "\n")
    return 0
