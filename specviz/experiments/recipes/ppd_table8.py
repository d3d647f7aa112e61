"""PPD table 8: should the votes of a prompt token's vectors be averaged, or weighed?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis
from specviz.experiments.guesses import ablation

EXPERIMENT = ablation(
    8,
    "Learned weights of the vectors",
    Axis("learned", (False, True), "learned weights"),
    {False: (0.506, 0.794, 0.276, 0.602), True: (0.503, 0.779, 0.250, 0.576)},
    question="Do weights that are learned beside the vectors guess better than their average?",
    finding="No: 0.6 to 9.4 % worse.",
    note="Ours have 4 EPTs per prompt token, the paper's 100; it does not name the model.",
    model="100 EPTs",
    trains={"vectors": 4},
)
