"""GLIDE tables 1 and 5: acceptance, cost, expected and actual speedup."""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line, PaperSeries

SETS = ("GSM8K", "Fin.-Alp.", "Spider", "Code")
# target → drafter → (c, α per data set, expected speedup per data set), in percent and ×
ROWS = {
    "Vicuna-7B": {
        "LLaMA-68m": (7.7, (51.6, 49.7, 19.2, 34.8), (1.46, 1.41, 0.89, 1.11)),
        "LLaMA-160m": (49.0, (58.0, 57.1, 25.1, 40.0), (0.66, 0.65, 0.38, 0.48)),
        "GLIDE": (6.7, (64.8, 63.2, 55.7, 67.0), (1.97, 1.90, 1.64, 2.06)),
    },
    "Mistral-7B": {
        "LLaMA-45m": (4.9, (36.7, 40.2, 41.9, 44.5), (1.27, 1.34, 1.38, 1.44)),
        "GLIDE": (6.6, (60.1, 56.4, 59.8, 62.6), (1.80, 1.67, 1.79, 1.89)),
    },
}
SPEEDUPS = {"LLaMA-68m": (1.53, 1.48, 0.95, 1.02), "GLIDE": (1.90, 1.94, 1.69, 2.11)}  # table 5, Vicuna-7B


def _series() -> tuple[PaperSeries, ...]:
    found = []
    for model, rows in ROWS.items():
        for label, (cost, acceptance, expected) in rows.items():
            shares = tuple((name, value / 100) for name, value in zip(SETS, acceptance, strict=True))
            found += [
                PaperSeries(label, "table 1", "beta", shares, model),
                PaperSeries(label, "table 1", "draft_cost", (("all sets", cost / 100),), model),
                PaperSeries(label, "table 1", "expected_speedup", tuple(zip(SETS, expected, strict=True)), model),
            ]
    for label, speedups in SPEEDUPS.items():
        found.append(PaperSeries(label, "table 5", "speedup", tuple(zip(SETS, speedups, strict=True)), "Vicuna-7B"))
    return tuple(found)


EXPERIMENT = Experiment(
    "glide-table1",
    "GLIDE and other draft models",
    paper="glide",
    figure="tables 1, 5",
    question="How much is accepted, what does a draft forward cost, and how much faster is decoding than those two "
    "let expect?",
    finding="GLIDE accepts 55 to 69 % at a cost of 5.5 to 6.8 % of a forward: expected 1.6 to 2.2 times as fast, and "
    "measured about the same.",
    note="γ = 5 and drawn tokens, as in the paper; its α is β here. The paper's c is one number per target. "
    "The drafters of Vicuna are other people's; LLaMA-45m was trained on GLIDE's data.",
    lines=(Line("Vanilla drafter", "sps"), Line("GLIDE", "glide")),
    prompts="demo:summary,text_edit,code_edit,chat",
    count=24,
    temperature=1.0,
    metrics=("beta", "draft_cost", "expected_speedup", "speedup"),
    x="category",
    chart="bar",
    papers=_series(),
)
