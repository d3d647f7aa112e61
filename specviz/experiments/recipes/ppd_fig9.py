"""PPD fig. 9: how does the loss fall, with one vector per prompt token and with several?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specviz.experiments.experiment import Experiment, Line, Row
from specviz.experiments.guesses import part_of
from specviz.experiments.quantities import learning


def measure(target: Any, params: Mapping[str, Any]) -> Iterator[Row]:
    """The loss by step, from the part's own log."""
    yield learning(part_of(target, params)[1].training.get("log") or ())


EXPERIMENT = Experiment(
    "ppd-fig9",
    "Training loss",
    paper="ppd",
    figure="fig. 9",
    question="How fast is what prompt tokens can learn learnt, and do more vectors learn more?",
    finding="With 1 EPT the loss falls from above 5 to below 2 in the first epoch and stays there; with 100 it begins "
    "below 3 and goes on falling slowly.",
    note="The figure's curves are drawn in the paper, not printed. Ours is the loss on held-out documents; the first "
    "curve is of the prompt tokens in use, the others of short runs that are tried on fewer documents.",
    lines=(
        Line("in use", "ppd"),
        Line("1 EPT", "ppd", trains={}),
        Line("4 EPTs", "ppd", trains={"vectors": 4}),
    ),
    metrics=("loss",),
    x="line",
    measure=measure,
)
