"""PPD §3 and §5.1: what does typical acceptance win, and what do answers lose?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line

EXPERIMENT = Experiment(
    "ppd-typical",
    "Typical acceptance",
    paper="ppd",
    figure="§5.1",
    question="How much longer are steps if guesses may stand that are merely likely, and how good are the answers?",
    finding="With typical acceptance, the speedup grows with the temperature; the paper's answers are judged as good "
    "as plain decoding's.",
    note="At temperature 1, with trees of 24 rows. A guess stands above min(ε, α · exp(−entropy)), α = 0.3; exact "
    "match asks for the token that was drawn, and is lossless.",
    lines=(Line("typical", "ppd+typical", {"size": 24}), Line("exact match", "ppd", {"size": 24}, fixed=True)),
    axes=(Axis("epsilon", (1e-4, 1e-3, 0.01, 0.03, 0.09, 0.3), "threshold ε", log=True, paper=0.09),),
    prompts="demo:summary,text_edit,code_edit,quote",
    count=16,
    temperature=1.0,
    metrics=("tokens_per_step", "quality"),
)
