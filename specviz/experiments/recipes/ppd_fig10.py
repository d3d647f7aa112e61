"""PPD fig. 10: do the same prompt tokens guess well in every task?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line
from specviz.experiments.guesses import ACCURACY, look, side_by_side

EXPERIMENT = Experiment(
    "ppd-fig10",
    "Accuracy by task",
    paper="ppd",
    figure="fig. 10a–c",
    question="Do prompt tokens that were trained once guess well in all kinds of tasks?",
    finding="One set of prompt tokens carries over to mathematics, code and conversation.",
    note="The figure's values are drawn in the paper, not printed.",
    lines=(Line("PPD", "ppd"),),
    prompts="demo",
    count=24,
    metrics=("accuracy",),
    x="category",
    chart="bar",
    look=look,
    arrange=side_by_side,
    own=(ACCURACY,),
)
