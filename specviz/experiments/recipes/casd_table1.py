"""CASD table 1: does conditional verification improve answers, and by how much could it?"""

from __future__ import annotations

from collections.abc import Sequence

from specviz.experiments.experiment import Axis, Experiment, Line, PaperSeries, Row

TASKS = ("NQ", "TQA", "2WikiMQA", "HotpotQA", "Multi-News", "GovReport", "RepoBench-P", "LCC", "Avg.")
ROWS = {
    "Plain decoding": (29.13, 92.13, 42.83, 49.80, 13.51, 15.96, 48.11, 66.05, 44.69),
    "CASD, fixed": (33.51, 92.62, 44.67, 51.72, 14.97, 20.09, 56.31, 69.24, 47.89),
    "CASD, mixed": (33.69, 92.62, 43.95, 52.46, 14.83, 20.06, 56.63, 69.46, 47.96),
    "Oracle-D": (43.78, 92.75, 44.52, 52.46, 15.14, 20.13, 58.08, 70.72, 49.70),
    "Oracle-S": (53.84, 92.75, 45.43, 53.84, 17.79, 23.40, 61.14, 74.16, 52.79),
}
SWEEP = "CASD, δ swept"


def oracles(rows: list[Row]) -> list[Row]:
    """The sweep hidden, and its best δ per task (Oracle-D) and per prompt (Oracle-S) as series of their own.

    Equal scores: the largest δ, which is the nearest to plain decoding.
    """
    shown = [{**row, "role": "hidden"} if row["series"] == SWEEP else row for row in rows]
    swept = [row for row in shown if row["series"] == SWEEP and row.get("quality") is not None]

    def best(group: Sequence[Row]) -> str:
        scores: dict[str, list[float]] = {}
        for row in group:
            scores.setdefault(row["param:delta"], []).append(row["quality"])
        return max(scores, key=lambda delta: sum(scores[delta]) / len(scores[delta]))

    derived = []
    for name, column in (("Oracle-D", "category"), ("Oracle-S", "prompt")):
        groups: dict[str, list[Row]] = {}
        for row in swept:
            groups.setdefault(row[column], []).append(row)
        for group in groups.values():
            chosen = best(group)
            derived += [{**r, "series": name, "role": "derived"} for r in group if r["param:delta"] == chosen]
    return shown + derived


EXPERIMENT = Experiment(
    "casd-table1",
    "Quality of the answers",
    paper="casd",
    figure="table 1",
    question="Are answers better when drafts from the context may stand that the target would not have chosen?",
    finding="Better on every dataset: 44.69 to 47.96 on average, and 52.79 with the best δ for every prompt.",
    note="Oracle-D takes the best δ of 0.1 to 1e-5 per task, Oracle-S per prompt: upper bounds, not methods.",
    lines=(
        Line("Plain decoding", "plain", fixed=True),
        Line("CASD, fixed", "casd", fixed=True),
        Line("CASD, mixed", "casd", {"rule": "mixed"}, fixed=True),
        Line(SWEEP, "casd"),
    ),
    axes=(Axis("delta", (0.1, 0.01, 1e-3, 1e-4, 1e-5), "δ", log=True),),
    prompts="demo:quote,summary,code_edit",
    count=12,
    metrics=("quality",),
    x="category",
    chart="bar",
    arrange=oracles,
    papers=tuple(
        PaperSeries(
            label, "table 1", "quality", tuple((t, v / 100) for t, v in zip(TASKS, row, strict=True)), "Llama-3.1-8B"
        )
        for label, row in ROWS.items()
    ),
)
