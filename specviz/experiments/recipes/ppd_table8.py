"""PPD table 8: should the votes of a prompt token's vectors be averaged, or weighed?"""

from __future__ import annotations

from ..experiment import Axis, Experiment, Line, PaperSeries
from ..guesses import ACCURACY, look, side_by_side
from .ppd_table3 import NAMES

ROWS = {"no": (0.506, 0.794, 0.276, 0.602), "yes": (0.503, 0.779, 0.250, 0.576)}

EXPERIMENT = Experiment(
    "ppd-table8",
    "Learned weights of the vectors",
    paper="ppd",
    figure="table 8",
    question="Do weights that are learned beside the vectors guess better than their average?",
    finding="No: 0.6 to 9.4 % worse.",
    note="Ours have 4 EPTs per prompt token, the paper's 100; it does not name the model.",
    lines=(Line("PPD", "ppd", trains={"vectors": 4}),),
    axes=(Axis("learned", (False, True), "learned weights"),),
    prompts="demo",
    count=12,
    metrics=("accuracy",),
    chart="bar",
    look=look,
    arrange=side_by_side,
    own=(ACCURACY,),
    papers=tuple(
        PaperSeries(name, "table 8", "accuracy", tuple((label, row[i]) for label, row in ROWS.items()), "100 EPTs")
        for i, name in enumerate(NAMES)
    ),
)
