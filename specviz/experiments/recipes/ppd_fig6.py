"""PPD fig. 6: how often is the right token among the first k guesses, further and further ahead?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line
from specviz.experiments.guesses import ACCURACY, RANKS, by_distance, look

EXPERIMENT = Experiment(
    "ppd-fig6",
    "Accumulative accuracy",
    paper="ppd",
    figure="fig. 6",
    question="How often is the target's token among the first k guesses of a prompt token, and how fast does that fall "
    "with the distance?",
    finding="More guesses help most far ahead: at distance 3, ten guesses gain 0.1 over Medusa's, one guess 0.02. "
    "100 EPTs instead of 1 add 0.018 to 0.045; Vicuna-13B instead of 7B adds 0.011 to 0.038.",
    note="The figure's values are drawn in the paper, not printed. Every position of the target's own answers counts.",
    lines=(Line("PPD", "ppd"),),
    axes=(Axis("k", tuple(range(1, RANKS + 1)), "first guesses", found=True),),
    prompts="demo",
    count=24,
    metrics=("accuracy",),
    look=look,
    arrange=by_distance,
    own=(ACCURACY,),
)
