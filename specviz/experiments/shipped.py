"""A recorded experiment that comes along, so that the Lab has something to show before anything was run on it.

``python -m specviz.experiments.shipped [MODEL]`` records it anew, by default with the bundled target (a minute).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from decoders.folders import ASSETS, replacing
from decoders.model.catalog import BUNDLED, model_place
from decoders.trace import files as tracefile
from specviz.places import SUFFIX, TRACES

from .free import free
from .plan import Plan, plan
from .prompts import cases, records
from .results import Results
from .running import begin, run_experiment

if TYPE_CHECKING:
    from decoders import Target
    from decoders.trace.trace import Trace

SHIPPED = ASSETS / "lab"
KEY = "draft-length"


def record(target: Target, folder: Path, *, toy: bool = False, count: int = 4, new: int = 96) -> Results:
    """Draft length of PLD and PLD+ (h) on the examples: the results with their runs, in ``folder``/``KEY``."""
    experiment = free(["pld", "pld+h"], {}, {"k": "2, 5, 10, 20"}, ("tokens_per_step",))
    experiment = replace(
        experiment, title="How long should a copied draft be?", prompts="examples", count=count, max_new_tokens=new,
        question="More drafted tokens per step save forwards, as long as what follows the place is what is wanted.",
    )  # fmt: skip
    planned: Plan = plan(target, experiment, cases(target.tokenizer, records("examples", count, toy=toy)))
    results = begin(planned, target)
    results.about["id"] = KEY
    with replacing(folder / KEY) as place:
        (place / TRACES).mkdir()

        def keep(trace: Trace) -> None:
            tracefile.save(trace, place / TRACES / f"{trace.run['id']}{SUFFIX}")

        run_experiment(target, planned, results, keep=keep)
        results.save(place)
    return results


def main() -> None:
    """Record what comes along, with the model that is named, or the bundled one."""
    from decoders import load_target

    model = sys.argv[1] if len(sys.argv) > 1 else BUNDLED
    results = record(load_target(model_place(model)), SHIPPED, toy=model == BUNDLED)
    print(f"{SHIPPED / KEY}: {len(results.rows)} runs, {results.about['state']}")


if __name__ == "__main__":
    main()
