"""PPD table 7: which vectors of a prompt token may see which?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis
from specviz.experiments.guesses import ablation

EXPERIMENT = ablation(
    7,
    "Masks between vectors",
    Axis("mask", ("ensemble", "decoder", "encoder"), "mask"),
    {
        "ensemble": (0.506, 0.794, 0.276, 0.602),
        "decoder": (0.465, 0.755, 0.262, 0.572),
        "encoder": (0.473, 0.765, 0.256, 0.573),
    },
    question="Should the vectors of a prompt token be separate votes, or see one another?",
    finding="Separate votes: the ensemble mask is 4 to 8 % ahead of the others.",
    note="Ours have 4 EPTs per prompt token, the paper's 100; it does not name the model.",
    model="100 EPTs",
    trains={"vectors": 4},
)
