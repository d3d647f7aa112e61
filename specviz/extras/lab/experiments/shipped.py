"""Recorded experiments that come along, so that the Lab has something to show before anything was run on it.

``assets/lab`` holds one with all its runs, in a folder, and results of recipes without their runs, a zip file each,
named by the recipe. ``comparison`` holds each of these beside its paper.

``python -m specviz.extras.lab.experiments.shipped [MODEL]`` records the first anew, by default with the bundled target
(a minute); ``python -m specviz.extras.lab.experiments.shipped smollm2 RECIPE …`` the recipes named that are not there
yet.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.folders import ASSETS, replacing, write_bytes
from decoders.model.files.catalog import BUNDLED, model_place
from decoders.names import QUICK, USUAL
from decoders.trace import files as tracefile
from specviz import __version__
from specviz.places import SUFFIX, TRACES
from specviz.views.prompts import DEMO, cases, records

from .comparison import comparisons
from .experiment import Row
from .free import free
from .plan import Plan, plan
from .quantities import WEIGHTS
from .recipe_files import find_recipe, recipes
from .results import Results, columns_of, is_text
from .running import begin, run_experiment

if TYPE_CHECKING:
    from decoders import Target
    from decoders.trace.trace import Trace

SHIPPED = ASSETS / "lab"
KEY = "draft-length"
PROMPTS, NEW_TOKENS = (4, 6), 40  # of a recipe that is recorded to come along: at least and at most; at most
LEAST_PROMPTS = 2  # that its results must have
ROUND = "round"
SECONDS = 360.0  # after which a recording stops
BUSY = 1.5  # load for each core from which times are rough
# of a recipe, as it is today
TEXTS = ("title", "figure", "question", "finding", "note", "papers", "tested", "own", "groups")
ALWAYS = ("tokens_per_step", "tokens_per_s", "speedup")  # quantities that are kept with the metrics


def record(target: Target, folder: Path, *, toy: bool = False, count: int = 4, new: int = 96) -> Results:
    """Draft length of PLD and PLD+ (h) on the examples: the results with their runs, in ``folder``/``KEY``."""
    experiment = free([QUICK, USUAL], {}, {"k": "2, 5, 10, 20"}, ("tokens_per_step",))
    experiment = replace(
        experiment, title="How long should a copied draft be?", prompts="examples", count=count, max_new_tokens=new,
        question="More drafted tokens per step save forwards, as long as what follows the place is what is wanted.",
    )  # fmt: skip
    run_plan: Plan = plan(target, experiment, cases(target.tokenizer, records("examples", count, toy=toy)))
    results = begin(run_plan, target)
    results.about["id"] = KEY
    with replacing(folder / KEY) as place:
        (place / TRACES).mkdir()

        def keep(trace: Trace) -> None:
            tracefile.save(trace, place / TRACES / f"{trace.run['id']}{SUFFIX}")

        run_experiment(target, run_plan, results, keep=keep)
        results.save(place)
    return results


# --- recipes ---


def record_recipe(
    target: Target,
    name: str,
    folder: Path,
    *,
    count: int = 0,
    new: int = NEW_TOKENS,
    seconds: float = SECONDS,
    training_steps: int = 0,
) -> Results:
    """A recipe's results on few prompts and short answers, without their runs, as ``folder``/``name``.zip.

    ``count`` prompts, by default one of each task, four to six. Parts that it trains learn for ``training_steps``
    steps instead of the recipe's own (0). What is done after ``seconds`` is kept, in whole prompts. Raises UserError
    where these are fewer than two, where every run failed, or where nothing can run.
    """
    recipe = find_recipe(name)
    tasks = recipe.prompts.partition(":")[2].split(",") if ":" in recipe.prompts else list(DEMO)
    count = count or max(PROMPTS[0], min(PROMPTS[1], len(tasks), recipe.count))
    recipe = replace(
        recipe, count=count, max_new_tokens=min(new, recipe.max_new_tokens),
        training_steps=training_steps or recipe.training_steps,
    )  # fmt: skip
    prompts = [] if recipe.measure else cases(target.tokenizer, records(recipe.prompts, count))
    run_plan = plan(target, recipe, prompts)
    start_load, start_time = _load(), time.monotonic()
    rows, prompt_count = _whole_prompts(target, run_plan, seconds)
    prompt_minimum = min(LEAST_PROMPTS, len(run_plan.cases))
    if not rows or prompt_count < prompt_minimum or all(row["error"] for row in rows):
        errors = dict.fromkeys(row["error"] for row in rows if row["error"])
        raise UserError(
            f"{name}: {'; '.join(errors) or f'{prompt_count} of {prompt_minimum} prompts were done in {seconds:g} s'}"
        )
    results = begin(run_plan, target)
    arranged_rows = recipe.arrange(rows) if recipe.arrange is not None else rows
    results.about |= {
        "id": name, "state": "complete", "count": count, "cases": prompt_count, "runs": len(rows),
        "seconds": round(time.monotonic() - start_time, 1),
        "recorded": recording_facts(target, max(start_load, _load())),
    }  # fmt: skip
    results.rows = slim(Results(results.about, arranged_rows))
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / f"{name}.zip", results.to_zip())
    return results


def _whole_prompts(target: Target, run_plan: Plan, seconds: float) -> tuple[list[Row], int]:
    """The rows of the prompts that were done in time, not yet arranged, and how many prompts these are."""
    plain = replace(run_plan, experiment=replace(run_plan.experiment, arrange=None))
    cancel = threading.Event()
    timer = threading.Timer(seconds, cancel.set)
    timer.daemon = True
    timer.start()
    rows, prompt_count = list[Row](), 0
    for case in run_plan.cases or (None,):
        part = replace(plain, cases=(case,)) if case is not None else plain
        part_results = run_experiment(target, part, Results(begin(part, target).about), cancel=cancel)
        if part_results.about["state"] != "complete":
            break
        rows += part_results.rows
        prompt_count += case is not None
    timer.cancel()
    return rows, prompt_count


def recording_facts(target: Target, load: float) -> dict[str, Any]:
    """On which machine and engine results were recorded; ``rough``: with so much other work that times say little."""
    from decoders.sweep.bench import machine

    facts = {**machine(), "specviz": __version__}
    rough = load > BUSY * facts["cores"]
    return {"engine": target.engines.engine, "machine": facts, "load": round(load, 1), "rough": rough}


def _load() -> float:
    """Processes that want the processor, over the last minute; 0 where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def slim(results: Results) -> list[Row]:
    """Rows with what is drawn of them alone, to six digits; their runs do not come along, so none is named."""
    about, columns = results.about, results.columns
    keys = dict.fromkeys([*about["metrics"], *filter(None, [about.get("against")]), *ALWAYS])
    kept_columns = {
        ROUND,
        *WEIGHTS,
        *(column for key in keys for column in columns_of(results.quantity(key), key, columns)),
    }

    def slim_value(name: str, value: Any) -> Any:
        if name == "trace":
            return ""
        return float(f"{value:.6g}") if isinstance(value, int | float) else value

    return [{n: slim_value(n, v) for n, v in row.items() if is_text(n) or n in kept_columns} for row in results.rows]


def example(path: Path) -> Results:
    """The recorded results of a recipe, with the recipe's texts and printed numbers as they are today, and the sentence
    that compares them; ``rough`` where there are times among them. Raises UserError.
    """
    results = Results.load(path)
    recipe, about = recipes().get(path.stem), results.about
    if recipe is not None:
        today = recipe.describe(about["model"])
        about |= {name: today[name] for name in TEXTS}
        labels = {axis["param"]: axis["label"] for axis in today["axes"]}
        about["axes"] = [{**axis, "label": labels.get(axis["param"], axis["label"])} for axis in about["axes"]]
    about["recorded"]["rough"] = results.any_rough
    comparison = comparisons(path.parent).get(path.stem)
    results.about["compared"] = comparison.sentence if comparison else ""
    return results


@cache
def comes_along(folder: Path = SHIPPED) -> Mapping[str, Mapping[str, Any]]:
    """Subjects of the recorded results, by recipe."""
    return {path.stem: example(path).about for path in sorted(folder.glob("*.zip"))}


def main() -> None:
    """Record what comes along, with the model that is named, or the bundled one."""
    from decoders import load_target
    from decoders.drafters.sps import offer_drafter

    parser = argparse.ArgumentParser(prog="python -m specviz.extras.lab.experiments.shipped", description=main.__doc__)
    parser.add_argument("model", nargs="?", default=BUNDLED)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE")
    parser.add_argument("--folder", type=Path, default=SHIPPED)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each recipe, at most")
    parser.add_argument("--training-steps", type=int, default=0, help="of parts that a recipe trains (0: its own)")
    parser.add_argument("--drafter", help="a model that drafts where a line names none")
    args = parser.parse_args()
    target = load_target(model_place(args.model), engine="eager")
    if args.drafter:
        offer_drafter(target, args.drafter)
    if not args.recipes:
        results = record(target, args.folder, toy=args.model == BUNDLED)
        print(f"{args.folder / KEY}: {len(results.rows)} runs, {results.about['state']}")
    for name in args.recipes:
        if (args.folder / f"{name}.zip").exists():
            continue
        began = time.monotonic()
        try:
            results = record_recipe(target, name, args.folder, seconds=args.seconds, training_steps=args.training_steps)
            outcome = f"{len(results.rows)} rows, {results.about['cases']} prompts, {results.failures} failed"
        except UserError as problem:
            outcome = f"not recorded: {problem}"
        print(f"{name}: {outcome}, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
