"""CASD table 4: speed with and without prompt compression."""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line, PaperSeries

SETS = ("NQ", "GovReport", "LCC")
ROWS = {
    "Plain decoding": ((1.00, 24.61, 1.00), (1.00, 28.45, 1.00), (1.00, 27.02, 1.00)),
    "CASD": ((3.10, 48.94, 1.99), (2.02, 46.48, 1.63), (2.58, 48.58, 1.80)),
    "CASD, 3× compressed": ((1.22, 28.20, 1.15), (1.24, 31.04, 1.09), (2.08, 49.92, 1.85)),
    "CASD, 5× compressed": ((1.21, 30.31, 1.23), (1.16, 29.41, 1.03), (1.74, 43.29, 1.60)),
    "CASD, 10× compressed": ((1.21, 30.46, 1.24), (1.06, 28.64, 1.01), (1.17, 29.81, 1.10)),
}
PRINTED = ("tokens_per_step", "tokens_per_s", "speedup")

EXPERIMENT = Experiment(
    "casd-table4",
    "Speed and prompt compression",
    paper="casd",
    figure="table 4",
    question="How fast is CASD, and what does a compressed prompt save and cost?",
    finding="1.63 to 1.99 times as fast; a compressed prompt saves memory and reading time, and lowers acceptance.",
    note="The paper compresses with LLMLingua-2 and uses δ = 1e-5 for NQ; here the built-in extractive compressor "
    "and δ = 0.1 throughout.",
    lines=(
        Line("Plain decoding", "plain"),
        Line("CASD", "casd"),
        *(Line(f"CASD, {n}× compressed", "casd", {"compression": f"{n}x"}) for n in (3, 5, 10)),
    ),
    prompts="demo:quote,summary,code_edit",
    count=12,
    metrics=("tokens_per_step", "speedup", "prefill_ms", "kv_mb", "kept_context", "tokens_per_s"),
    x="category",
    chart="bar",
    papers=tuple(
        PaperSeries(
            label, "table 4", metric, tuple((s, row[n]) for s, row in zip(SETS, rows, strict=True)), "Llama-3.1-8B"
        )
        for n, metric in enumerate(PRINTED)
        for label, rows in ROWS.items()
    ),
)
