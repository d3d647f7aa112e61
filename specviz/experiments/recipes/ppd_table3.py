"""PPD table 3: do several vectors per prompt token (EPTs) guess better?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis
from specviz.experiments.guesses import ablation

EXPERIMENT = ablation(
    3,
    "Vectors per prompt token",
    Axis("vectors", (1, 2, 4), "EPTs per prompt token", log=True),
    {
        1: (0.472, 0.771, 0.248, 0.576),
        2: (0.486, 0.777, 0.259, 0.583),
        5: (0.499, 0.787, 0.265, 0.596),
        10: (0.494, 0.786, 0.273, 0.600),
        20: (0.501, 0.791, 0.276, 0.607),
        50: (0.502, 0.791, 0.281, 0.604),
        100: (0.506, 0.794, 0.276, 0.602),
    },
    question="Does an ensemble of vectors per prompt token guess better than one, for the rows that it takes?",
    finding="A little: 100 instead of 1 gain 0.02 to 0.03, most of it with the first five.",
    note="Each number is trained anew, and ours learn from as many insertion points each.",
    model="model not named",
    chart="line",
)
