"""``specviz train``: the bundled target from nothing, and draft models and prompt tokens for any target."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from decoders.method.part import DRAFT_MODELS, HEADS, MINUTES, PROMPT_TOKENS, Kind, kinds, training_of
from decoders.model.files.catalog import BUNDLED, model_place
from specviz.commands import common, options
from specviz.workers.work import Work

from . import train_all, train_demo, train_units
from .recipes import RECIPES, DraftModelRecipe, HeadRecipe, PromptTokenRecipe
from .train_demo import RESUME_HELP, add_minutes, add_resume

DESCRIPTION = "Train models."
FP32 = "matrix products in fp32 also where the processor multiplies bf16 (default there: bf16)"

run = train_demo.run


def trainable() -> Mapping[str, Kind]:
    """The kinds of parts that can be trained, by name."""
    return {name: kind for name, kind in kinds().items() if kind.training is not None}


def add(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True, title="parts")
    train_demo.add(parts)
    adds = {DRAFT_MODELS: _add_drafter, PROMPT_TOKENS: _add_prompt_tokens, HEADS: _add_heads}
    for name, kind in trainable().items():
        training = training_of(name)
        adds[training.family](_add_part(parts, name, training.summary, training.about, training.minutes), kind)
    _add_several(parts)
    scope = "every part for a target, as far as the time goes"
    train_all.add(parts.add_parser("all", help=scope, description=f"Train {scope}. {RESUME_HELP}"))


def _of_others(kind: Kind) -> set[str]:
    """The settings of a family's recipe that other kinds alone have."""
    own_training = training_of(kind.name)
    alike = [training for name in trainable() if (training := training_of(name)).family == own_training.family]
    return {setting for training in alike for setting in training.own} - {*own_training.own}


def _add_drafter(parser: argparse.ArgumentParser, kind: Kind) -> None:
    options.add_settings(parser, DraftModelRecipe, but=_of_others(kind))
    embeddings = "embedding and head: the target's, which the part does not hold, or its own (default: the target's"
    parser.add_argument("--embeddings", choices=("target", "own"), help=f"{embeddings} where its vocabulary is large)")
    options.file(parser, "--states", "where that is kept, to share it with another draft model", "FOLDER")
    parser.set_defaults(run=lambda args: _train_drafter(kind, args))


def _add_prompt_tokens(parser: argparse.ArgumentParser, kind: Kind) -> None:
    options.add_settings(parser, PromptTokenRecipe, but=_of_others(kind))
    parser.set_defaults(run=lambda args: _train_prompt_tokens(kind, args))


def _add_heads(parser: argparse.ArgumentParser, kind: Kind) -> None:
    options.add_settings(parser, HeadRecipe, but=_of_others(kind), defaults=training_of(kind.name).defaults)
    options.file(
        parser, "--states", "where the target's states are kept, to share them with other parts (default: in --out)",
        "FOLDER",
    )  # fmt: skip
    parser.add_argument(
        "--recipe", choices=RECIPES, default=RECIPES[0],
        help="ours: Muon for matrices (default). paper: AdamW for everything, as the heads' authors train"
        + (", and no step on its own states" if "own_states" in training_of(kind.name).own else ""),
    )  # fmt: skip
    parser.set_defaults(run=lambda args: _train_heads(kind, args))


def _add_several(parts: Any) -> None:
    parser = _add_part(parts, "several", "several of these parts for a target", "several parts for a target")
    names = tuple(trainable())
    parser.add_argument("parts", nargs="+", choices=names, metavar="PART", help=", ".join(names))
    parser.set_defaults(run=lambda args: train_units.train_all(args, args.parts, open_trainings))


def open_trainings(about: Mapping[str, Any]) -> Work:
    """The work of a worker that trains parts."""

    def train(part: str, overrides: dict[str, Any]) -> None:
        parser = argparse.ArgumentParser()
        add(parser)
        args = parser.parse_args([part])
        vars(args).update(overrides)
        args.run(args)

    return train_units.work_of(about, train)


def _add_part(parts: Any, kind: str, short: str, purpose: str, minutes: float = MINUTES) -> argparse.ArgumentParser:
    """The options that every trained part has."""
    about = f"Train {purpose}. {RESUME_HELP}"
    parser = parts.add_parser(kind, help=short, description=about)
    parser.add_argument(
        "--data", nargs="+", default=["demo"], metavar="FILE",
        help="text files, or JSONL with conversations; `demo` for the generator of the bundled tasks (default)",
    )  # fmt: skip
    budget = parser.add_mutually_exclusive_group()
    add_minutes(budget, minutes)
    options.count(budget, "--steps", "steps to make: to train two models alike")
    options.file(
        parser, "--out", f"where checkpoints, curves and the part go (default: {Path('runs') / kind})", "FOLDER"
    )
    options.flag(parser, "--distill", "learn the target's own greedy answers to the prompts")
    options.count(parser, "--seed", "of data and weights", 0, low=0)
    add_resume(parser)
    options.flag(parser, "--fast", "bf16 and compiled layers, as for `train demo`")
    options.flag(parser, "--fp32", FP32)
    options.flag(parser, "--best", "keep the weights of the best validation, where the last ones are worse")
    options.file(parser, "--from-part", "begin with the weights of this part of the same kind and shape", "FOLDER")
    options.add_tracker(parser)
    train_units.add(parser)
    parser.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)  # it is not kept where methods look
    options.add_model(parser, "the target (default: the bundled one)", dtype=False, plugins=False)
    return parser


def _train_drafter(kind: Kind, args: argparse.Namespace) -> int:
    from .drafter import DrafterTraining

    shared = None if args.embeddings is None else args.embeddings == "target"
    recipe = options.settings_of(args, DraftModelRecipe, shared=shared, fast=args.fast)
    run_of = partial(DrafterTraining, states=args.states)
    return _train_for(kind, args, run_of, recipe, _learnt, lambda curves: curves.training_charts)


def _train_prompt_tokens(kind: Kind, args: argparse.Namespace) -> int:
    from .prompt_tokens import PromptTokenTraining

    recipe = options.settings_of(args, PromptTokenRecipe, fast=args.fast)
    return _train_for(
        kind,
        args,
        PromptTokenTraining,
        recipe,
        _guess_line,
        lambda curves: partial(curves.guess_charts, count_key="points"),
    )


def _train_heads(kind: Kind, args: argparse.Namespace) -> int:
    from .heads import lesson_of, run_of

    own_recipe = args.recipe == "ours"
    recipe = options.settings_of(args, HeadRecipe, muon=own_recipe, own_states=own_recipe, fast=args.fast)
    run = run_of(lesson_of(kind.name), args.states)
    return _train_for(
        kind, args, run, recipe, _foresaw, lambda curves: partial(curves.guess_charts, count_key="tokens")
    )


def _train_for(
    kind: Kind, args: argparse.Namespace, run_of: Callable[..., Any], recipe: Any, sentence: Callable[[Any], str],
    charts: Callable[[Any], Callable[..., Any]],
) -> int:  # fmt: skip
    """Train a part of ``kind`` for a target; ``sentence`` puts a log line into words, ``charts`` takes its drawing
    from ``curves``, which is imported when there is something to draw."""
    if train_units.wants_units(args):
        return train_units.train_all(args, [kind.name], open_trainings)
    common.settle(args.threads)

    from decoders.model.target_model.load import load_network
    from specviz.views import trackers

    from .demo_source import source_of
    from .loop import train
    from .precision import has_bf16_products

    out = args.out or Path("runs") / kind.name
    place = model_place(args.model or BUNDLED)
    model, tokenizer, name = load_network(place, dtype="float32", device=args.device, attention=None)
    source = source_of(args.data, tokenizer, args.seed, model if args.distill else None)
    steps = args.steps
    if getattr(recipe, "recipe", "") == "paper" and not (steps or args.minutes):
        from .drafter import epoch_steps

        steps = epoch_steps(source)
    minutes = None if steps else args.minutes or training_of(kind.name).minutes
    title = f"{kind.name} for {name}"
    recipe = replace(recipe, bf16=not args.fp32 and has_bf16_products(model.device))
    begun = run_of(kind.name, out, model, name, source, recipe, args.seed)
    begun.origin = args.from_part
    tracking = trackers.tracker(args.log_to, title, begun.settings, out)
    with tracking as send, common.progress_bar(f"training the {kind.name}") as bar:

        def show(report: Any) -> None:
            bar(round(report.done * 1000), 1000)
            if report.warning:
                common.say(report.warning, error=True)
            if report.logged:
                send(report.logged, report.step)
                common.say(sentence(report), error=True)
                _draw(out, title, charts)

        part_folder = train(begun, minutes=minutes, steps=steps, resume=args.resume, progress=show, keep=not args.apart,
                     best=args.best)  # fmt: skip
    common.say(
        f"{out / 'part'} holds the part, {out / 'curves.html'} its curves; "
        f"{part_folder} is where methods find it for this model"
    )
    return 0


def _learnt(report: Any) -> str:
    """One line on how far a draft model has come."""
    line = report.logged
    return (
        f"step {report.step:,}: {report.tokens / 1e6:.2f} M tokens, {line['seconds'] / 60:.1f} min, loss "
        f"{line['loss']:.3f} "
        f"(held-out {line['held_out_loss']:.3f}), acceptance {line['acceptance']:.3f} sampled and "
        f"{line['agreement']:.3f} greedy, expected speedup {line['expected_speedup']:.2f}× "
        f"(γ = 5, c = {line['cost']:.3f} of transformers' forwards), {report.tokens_per_second:,.0f} tokens/s"
    )


def _guess_line(report: Any) -> str:
    """One line on how far prompt tokens have come."""
    line = report.logged

    def shares(key: str) -> str:
        return "/".join(f"{share:.3f}" for share in line[key])

    distances = "/".join(str(i + 1) for i in range(len(line["top1"])))
    return (
        f"step {report.step:,}: {line['points'] / 1e6:.2f} M insertion points, {line['seconds'] / 60:.1f} min, loss "
        f"{line['loss']:.3f} (held-out {line['held_out_loss']:.3f}), held-out accuracy at distance {distances}: top-1 "
        f"{shares('top1')}, top-5 {shares('top5')}; {line['points_per_second']:,} points/s"
    )


def _foresaw(report: Any) -> str:
    """One line on how far heads have come."""
    line = report.logged
    shares = {key: "/".join(f"{share:.3f}" for share in line[key]) for key in ("top1", "top5")}
    return (
        f"step {report.step:,}: {report.tokens / 1e6:.2f} M tokens, {line['seconds'] / 60:.1f} min, loss "
        f"{line['loss']:.3f} "
        f"(held-out {line['held_out_loss']:.3f}), held-out accuracy by distance: top-1 {shares['top1']}, top-5 "
        f"{shares['top5']}; {report.tokens_per_second:,.0f} tokens/s"
    )


def _draw(out: Path, title: str, charts: Callable[[Any], Callable[..., Any]]) -> None:
    """The curves so far as a page; a full disk, or a machine without plotly, costs the page, not the run."""
    try:
        from specviz.views.charts import write_page

        from . import curves

        log = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
        write_page(out / "curves.html", title, charts(curves)(title, log))
    except (OSError, ModuleNotFoundError) as error:
        common.say(f"the curves could not be drawn: {getattr(error, 'strerror', error)}", error=True)
