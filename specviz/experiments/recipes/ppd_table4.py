"""PPD table 4: is it better to learn the target's distributions than the text's next tokens?"""

from __future__ import annotations

from ..experiment import Axis, Experiment, Line, PaperSeries
from ..guesses import ACCURACY, look, side_by_side
from .ppd_table3 import NAMES

ROWS = {"no": (0.485, 0.779, 0.261, 0.586), "yes": (0.472, 0.771, 0.248, 0.576)}  # 1 EPT, 12 epochs, batch size 4

EXPERIMENT = Experiment(
    "ppd-table4",
    "Distillation and hard labels",
    paper="ppd",
    figure="table 4",
    question="Do prompt tokens guess better if they learn the target's distributions instead of the text's tokens?",
    finding="Distillation gains up to 12 %; longer training and a smaller batch gain a little more.",
    note="The paper's numbers are of 1 EPT, 12 epochs, batch size 4; it does not name the model. Neither epochs nor "
    "batch sizes are varied here.",
    lines=(Line("PPD", "ppd", trains={}),),
    axes=(Axis("hard_labels", (False, True), "hard labels"),),
    prompts="demo",
    count=12,
    metrics=("accuracy",),
    chart="bar",
    look=look,
    arrange=side_by_side,
    own=(ACCURACY,),
    papers=tuple(
        PaperSeries(name, "table 4", "accuracy", tuple((label, row[i]) for label, row in ROWS.items()), "1 EPT")
        for i, name in enumerate(NAMES)
    ),
)
