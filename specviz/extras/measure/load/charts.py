"""The break-even acceptance and the best draft length by batch, as charts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from specviz.views.charts import BLUE, GREY, GRID, draw_figure, plain


def load_charts(table: Mapping[str, Any]) -> list[go.Figure]:
    """Of ``specviz load table``: the acceptance from which drafts pay, by length and batch size, and the best length.

    Batch sizes beyond the measured ones are dotted, and hollow.
    """
    measured_batch, lines = table["measured_to"], []
    for number, (batch, alphas) in enumerate(table["curve"].items()):
        color = sample_colorscale("Cividis", number / max(1, len(table["curve"]) - 1))[0]
        lines.append(
            go.Scatter(
                x=list(range(1, len(alphas) + 1)), y=alphas, name=f"batch {batch}", mode="lines+markers",
                line={"color": color, "dash": "solid" if int(batch) <= measured_batch else "dot"},
                hovertemplate=f"batch {batch}: %{{x}} tokens pay from %{{y:.0%}} on<extra></extra>",
            )
        )  # fmt: skip
    lines.append(
        go.Scatter(
            x=[1, max(len(alphas) for alphas in table["curve"].values())], y=[table["acceptance"]] * 2, mode="lines",
            name="α", line={"color": GREY, "dash": "dash", "width": 3}, hovertemplate="α = %{y:.0%}<extra></extra>",
        )
    )  # fmt: skip
    about = plain(f"{table['model']}, c = {table['cost']:g}")
    share = {"title": "α", "tickformat": ".0%", "range": [0, 1.02], **GRID}
    even = draw_figure(lines, f"Break-even acceptance<br><sup>{about}</sup>", 420, {"title": "draft length"}, share)
    tiers = table["tiers"]
    best = go.Scatter(
        x=[str(tier["batch"]) for tier in tiers], y=[tier["length"] for tier in tiers], mode="lines+markers",
        customdata=[tier["speedup"] for tier in tiers], line={"color": BLUE, "shape": "hv"},
        marker={
            "size": 10, "symbol": ["circle" if tier["batch"] <= measured_batch else "circle-open" for tier in tiers]
        },
        hovertemplate="batch %{x}: %{y} tokens, %{customdata:.2f}×<extra></extra>",
    )  # fmt: skip
    title = f"Best draft length by batch size<br><sup>{about}, α = {table['acceptance']:g}</sup>"
    down = {"title": "tokens", "rangemode": "tozero", "dtick": 1, **GRID}
    return [even, draw_figure(best, title, 360, {"title": "batch size", "type": "category"}, down)]
