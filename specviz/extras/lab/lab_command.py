"""``specviz lab``: an experiment of a paper, or a sweep of one's own, on real prompts."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from decoders.errors import UserError
from decoders.folders import write_bytes, write_json, write_text
from specviz.commands import common, options

from . import worker_runs
from .experiments.experiment import Experiment

if TYPE_CHECKING:
    from decoders import Target
    from specviz.workers.sweep import Standing

    from .experiments import Plan, Results


DESCRIPTION = "Run a recipe (alone: list them), or sweep a parameter with --methods and --vary."


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="an experiment's name; without one they are listed")
    options.flag(parser, "--recorded", "show the recipe's example result, recorded with SmolLM2; nothing is run")
    recipes, prompt_source = "the recipe's", "the recipe's; of a sweep: examples"
    options.add_settings(parser, Experiment, "prompts", usual=prompt_source)
    options.add_settings(parser, Experiment, "count", "max_new_tokens", "length", usual=recipes)
    options.alias(parser, "--count", "--limit")
    options.several(parser, "--metric", "KEY", "measured; may be repeated")
    fixed = "a parameter of the methods that have it, as in part=FOLDER (METHOD.K=V: of one); may be repeated"
    options.several(parser, "--set", "K=V", fixed)
    trained = parser.add_argument_group("recipes that train draft models or prompt tokens")
    options.add_settings(trained, Experiment, "training_steps", usual=recipes)
    trained.add_argument(
        "--data", nargs="+", metavar="FILE", help="text or JSONL to learn from, or `demo` (default: the recipe's)"
    )
    free = parser.add_argument_group("your own sweep")
    options.add_methods(free, "methods to sweep", sets=False)
    options.several(free, "--vary", "K=VALUES", "as in k=5,10,20 or theta=0..1 step 0.1; 1 or 2")
    options.add_settings(free, Experiment, "temperature", usual=recipes)
    worker_runs.add(parser)
    out = parser.add_argument_group("output")
    options.file(out, "--json", "write description, points and runs to a file")
    options.file(out, "--csv", "write every run as a line of a table")
    options.file(out, "--parquet", "the same as a Parquet file")
    options.file(out, "--html", "write the charts to a file that works from disk")
    options.add_tracker(out)
    options.flag(out, "--yes", "start a long experiment without asking")
    options.add_model(parser, weights=True)


def run(args: argparse.Namespace) -> int:
    from specviz.views.prompts import cases, records

    from .experiments import plan
    from .experiments.plan import pace

    if args.recipe is None and not args.methods:
        needing = ("vary", "set", "prompts", "json", "csv", "parquet", "html", "workers", "results")
        if option := common.first_set(args, *needing):
            raise UserError(f"--{option} needs a recipe or --methods: specviz lab alone lists the recipes")
        return _list(args)
    common.check_writable(args.json, args.csv, args.parquet, args.html)
    experiment, workers = _experiment(args), worker_runs.worker_count(args)
    if args.recorded:
        return _finish(args, _example(args.recipe))
    from decoders import methods

    experiment.check(methods())
    prompts = [] if experiment.measure else records(experiment.prompts, experiment.count, toy=common.wants_toy(args))
    target = common.open_target(args)
    run_plan = plan(target, experiment, cases(target.tokenizer, prompts))
    if not _confirm(run_plan, pace(target) / max(1, workers), args.yes):
        return 1
    results = worker_runs.spread_out(args, target, run_plan) if workers else _run_here(target, run_plan)
    return _finish(args, results, 0 if workers else run_plan.runs)


def _finish(args: argparse.Namespace, results: Results, runs: int = 0) -> int:
    """Show results and write the files that are asked for; the exit status. ``runs`` were planned in this process."""
    from specviz.views.trackers import tracker

    _show(results)
    folder = args.json.parent if args.json else Path()
    with tracker(args.log_to, str(results.about["title"]), results.about, folder) as send:
        for number, row in enumerate(results.rows, 1):
            send(row, number)
    if args.json:
        from .experiments.tables import describe

        write_json(args.json, describe(results))
    if args.csv:
        write_text(args.csv, results.to_csv())
    if args.parquet:
        write_bytes(args.parquet, results.to_parquet())
    if args.html:
        from specviz.views.charts import write_page

        from .experiments.figures import charts

        write_page(args.html, f"specviz lab: {results.about['title']}", [chart.figure for chart in charts(results)])
    if results.about["state"] == "cancelled":
        if runs:
            print(f"stopped after {len(results.rows)} of {runs} runs; what is done is shown", file=sys.stderr)
        return 130
    return int(results.all_failed)


def _example(recipe: str | None) -> Results:
    """The example result of a recipe. Raises UserError where none comes along."""
    from .experiments.shipped import SHIPPED, comes_along, example

    if recipe is None or recipe not in comes_along():
        raise UserError(f"no example result of {recipe or 'a sweep'} comes along: those are {', '.join(comes_along())}")
    return example(SHIPPED / f"{recipe}.zip")


def _run_here(target: Target, run_plan: Plan) -> Results:
    """Run a plan in this process."""
    from .experiments import run_experiment

    tell = worker_runs.training_teller()
    with common.progress_bar(run_plan.experiment.title) as bar:

        def show(progress: Standing) -> None:
            bar(progress.done, progress.total)
            tell(progress)

        return run_experiment(target, run_plan, progress=show)


def _list(args: argparse.Namespace) -> int:
    from specviz.words import duration

    from .experiments.plan import foreseen, pace
    from .experiments.recipe_files import papers, recipes

    target = common.open_target(args)

    def time(experiment: Experiment) -> str:
        try:
            seconds = foreseen(target, experiment, pace(target))
        except UserError:
            return "–"
        return duration(seconds) + (" ~" if experiment.trains else "")

    for name, paper in papers().items():
        if rows := [(e.name, e.figure, time(e), e.question) for e in recipes().values() if e.paper == name]:
            common.show_table(("recipe", "in the paper", "takes", "question"), rows, paper.title)
    common.say(
        f"takes: expected for {target.name} on {target.info['device']} by the model's size, with nothing else running; "
        "~ is rough: parts are trained first, and kept for the next time.",
        "specviz lab RECIPE runs one; specviz lab --methods pld+h --vary k=5,10,20 is your own; specviz lab RECIPE "
        "--recorded shows an example result, recorded with SmolLM2.",
    )
    return 0


def _experiment(args: argparse.Namespace) -> Experiment:
    """The recipe, or the sweep that the options describe."""
    from .experiments import find_recipe
    from .experiments.free import free

    if args.recipe is not None:
        if option := common.first_set(args, "methods", "vary"):
            raise UserError(
                f"--{option} is for a sweep of your own and {args.recipe} is a recipe: leave out one of the two"
            )
        experiment = find_recipe(args.recipe).fixing(options.parse_sets(args.set))
    else:
        metrics = args.metric or ("tokens_per_step",)
        axes = options.parse_sets(args.vary, "--vary", "name=values, as in k=5,10,20 or theta=0..1 step 0.1")
        sweep = free(options.split(args.methods), options.parse_sets(args.set), axes, metrics)
        experiment = replace(sweep, prompts="examples")
    option = common.first_set(args, "training_steps", "data")
    if option and not experiment.trains:
        raise UserError(f"--{option} is for recipes that train parts, and this experiment trains none")
    if args.training_steps and not experiment.training_steps:
        raise UserError(f"{experiment.name} counts its training in epochs: leave --training-steps out")
    return experiment.changing(
        training_steps=args.training_steps, data=tuple(args.data or ()) or None, prompts=args.prompts,
        count=args.limit, max_new_tokens=args.max_new_tokens, temperature=args.temperature, length=args.length,
        metrics=tuple(args.metric) or None,
    )  # fmt: skip


def _confirm(run_plan: Plan, per_token: float, yes: bool) -> bool:
    """Ask whether to go on: long experiments are started only with --yes or after a question."""
    common.say(*run_plan.notes, error=True)
    question = run_plan.asks(per_token)
    if not question or yes:
        return True
    if not sys.stdin.isatty():
        raise UserError(f"{question.removesuffix(' Start it?')} Nothing was started: add --yes, or take fewer values")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _show(results: Results) -> None:
    from .experiments.comparison import comparisons
    from .experiments.figures import caption
    from .experiments.findings import findings
    from .experiments.grids import grids
    from .experiments.result_table import TERMINAL
    from .experiments.shipped import SHIPPED

    about = results.about
    head = f"{about['title']} ({about['figure']})" if about["figure"] else about["title"]
    common.say(f"{head}\n{about['question']}".rstrip())
    for table in grids(results):
        heads, *rows = table.lines(TERMINAL)
        common.show_table(heads, rows, "" if table.title == about["title"] else table.title)
    for key in about["metrics"]:
        quantity = results.quantity(key)
        common.say(f"{quantity.label} = {quantity.formula}")
    common.say(caption(results))
    for series in about["papers"]:
        point_text = ", ".join(f"{x}: {y:g}" if x != "" else f"{y:g}" for x, y in series["points"])
        label = results.quantity(series["metric"]).label
        common.say(f"paper ({series['model']}, {series['where']}), {label}, {series['label']}: {point_text}")
    common.say(about["finding"] and f"The paper found: {about['finding']}", about["note"], *about["notes"])
    for claim in findings(results, comparisons(SHIPPED).get(about["name"])):
        common.say(f"{claim.mark} {claim.text} {claim.notes}")
    common.say(about.get("compared", ""))
    common.say(*(f"failed: {error}" for error in results.reasons))
