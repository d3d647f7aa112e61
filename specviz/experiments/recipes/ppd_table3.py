"""PPD table 3: do several vectors per prompt token (EPTs) guess better?"""

from __future__ import annotations

from ..experiment import Axis, Experiment, Line, PaperSeries
from ..guesses import ACCURACY, look, side_by_side

NAMES = ("@1 top-1", "@1 top-5", "@2 top-1", "@2 top-5")
ROWS = {
    1: (0.472, 0.771, 0.248, 0.576),
    2: (0.486, 0.777, 0.259, 0.583),
    5: (0.499, 0.787, 0.265, 0.596),
    10: (0.494, 0.786, 0.273, 0.600),
    20: (0.501, 0.791, 0.276, 0.607),
    50: (0.502, 0.791, 0.281, 0.604),
    100: (0.506, 0.794, 0.276, 0.602),
}

EXPERIMENT = Experiment(
    "ppd-table3",
    "Vectors per prompt token",
    paper="ppd",
    figure="table 3",
    question="Does an ensemble of vectors per prompt token guess better than one, for the rows that it takes?",
    finding="A little: 100 instead of 1 gain 0.02 to 0.03, most of it with the first five.",
    note="Each number is trained anew, and ours learn from as many insertion points each.",
    lines=(Line("PPD", "ppd", trains={}),),
    axes=(Axis("vectors", (1, 2, 4), "EPTs per prompt token", log=True),),
    prompts="demo",
    count=12,
    metrics=("accuracy",),
    look=look,
    arrange=side_by_side,
    own=(ACCURACY,),
    papers=tuple(
        PaperSeries(name, "table 3", "accuracy", tuple((n, row[i]) for n, row in ROWS.items()), "model not named")
        for i, name in enumerate(NAMES)
    ),
)
