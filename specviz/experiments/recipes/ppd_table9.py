"""PPD table 9: do the states of several layers guess better than the last one's?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis
from specviz.experiments.guesses import ablation

EXPERIMENT = ablation(
    9,
    "Multi-exit ensemble",
    Axis("exits", (1, 2, 3), "last layers whose states are averaged"),
    {
        1: (0.485, 0.779, 0.261, 0.586),
        2: (0.420, 0.723, 0.213, 0.518),
        3: (0.422, 0.723, 0.214, 0.517),
    },
    question="Does the average of the last layers' states, an ensemble that takes no rows, guess better than the last "
    "layer's state?",
    finding="No: 7 to 18 % worse, with two exits and with three.",
    note="The paper does not name the model. Ours averages what the layers hand on, before the final norm, which then "
    "reads the average; in the paper's code the last layer's state has been through that norm and the others have not.",
)
