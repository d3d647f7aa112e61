"""PPD table 7: which vectors of a prompt token may see which?"""

from __future__ import annotations

from ..experiment import Axis, Experiment, Line, PaperSeries
from ..guesses import ACCURACY, look, side_by_side
from .ppd_table3 import NAMES

ROWS = {
    "ensemble": (0.506, 0.794, 0.276, 0.602),
    "decoder": (0.465, 0.755, 0.262, 0.572),
    "encoder": (0.473, 0.765, 0.256, 0.573),
}

EXPERIMENT = Experiment(
    "ppd-table7",
    "Masks between vectors",
    paper="ppd",
    figure="table 7",
    question="Should the vectors of a prompt token be separate votes, or see one another?",
    finding="Separate votes: the ensemble mask is 4 to 8 % ahead of the others.",
    note="Ours have 4 EPTs per prompt token, the paper's 100; it does not name the model.",
    lines=(Line("PPD", "ppd", trains={"vectors": 4}),),
    axes=(Axis("mask", tuple(ROWS), "mask"),),
    prompts="demo",
    count=12,
    metrics=("accuracy",),
    chart="bar",
    look=look,
    arrange=side_by_side,
    own=(ACCURACY,),
    papers=tuple(
        PaperSeries(name, "table 7", "accuracy", tuple((label, row[i]) for label, row in ROWS.items()), "100 EPTs")
        for i, name in enumerate(NAMES)
    ),
)
