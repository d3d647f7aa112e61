"""Curves of trainings, as pure functions from their logs to figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from decoders.study.measure.learning_curve import learning_curve
from specviz.views.charts import BLUE, GREEN, GREY, GRID, VERMILLION, draw_figure, plain

LOSS = (("loss", "training loss", GREY, "solid"), ("held_out_loss", "held-out loss", BLUE, "solid"))


def training_charts(name: str, log: Sequence[Mapping[str, Any]]) -> list[go.Figure]:
    """Loss, and acceptance with expected speedup, over the steps of a draft model's training."""
    about = [[line["tokens"], line["seconds"] / 60, line["expected_speedup"]] for line in log]
    hover = "%{y:.3f}<br>%{customdata[0]:,} tokens, %{customdata[1]:.1f} min, expected speedup %{customdata[2]:.2f}×"
    last = log[-1] if log else None
    summary = f": β {last['acceptance']:.3f}, expected speedup {last['expected_speedup']:.2f}×" if last else ""
    summary += f" at γ = 5, c = {last['cost']:.3f} of transformers' forwards" if last and "cost" in last else ""
    learnt = (("acceptance", "acceptance β, sampled", BLUE, "solid"),
              ("agreement", "equal first choices, greedy", GREEN, "dash"))  # fmt: skip
    return [
        _curves(f"{name}: loss per answer token", log, LOSS, hover, about),
        _curves(f"{name}{summary}", log, learnt, hover, about),
    ]


def guess_charts(name: str, log: Sequence[Mapping[str, Any]], count_key: str) -> list[go.Figure]:
    """Loss, and held-out top-1 and top-5 accuracy per distance, over the steps of a training that counts "points" (of
    prompt tokens) or "tokens" (of heads).
    """
    unit, loss = ("insertion points", "decayed") if count_key == "points" else ("tokens", "summed")
    about = [[line[count_key], line["seconds"] / 60] for line in log]
    hover = f"%{{y:.3f}}<br>%{{customdata[0]:,}} {unit}, %{{customdata[1]:.1f}} min"
    guesses = [
        ((key, i), f"top-{key[3:]}, distance {i + 1}", (BLUE, VERMILLION, GREEN, GREY)[i % 4], dash)
        for i in range(len(log[0]["top1"]) if log else 0)
        for key, dash in (("top1", "dash"), ("top5", "solid"))
    ]
    return [
        _curves(f"{name}: loss, {loss} over distances", log, LOSS, hover, about),
        _curves(f"{name}: the target's first choice among the first guesses", log, guesses, "%{y:.1%}", about),
    ]


def seen_chart(rows: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Acceptance of the first drafted token over the tokens seen in training, a curve per part; dashed, where its line
    over the logarithm of tokens would lead by eight times as many (``learning_curve``).
    """
    figure = draw_figure(
        [], "Acceptance of the first drafted token, held out, by tokens seen in training", 460,
        {"title": "tokens seen", "type": "log"}, {"title": "acceptance", "rangemode": "tozero"},
    )  # fmt: skip
    for part in dict.fromkeys(row["part"] for row in rows):
        part_rows = [row for row in rows if row["part"] == part and row["tokens"] and row["acceptance"] is not None]
        figure.add_scatter(
            x=[row["tokens"] for row in part_rows], y=[row["acceptance"] for row in part_rows], name=plain(part),
            mode="lines+markers", hovertemplate="%{y:.3f} after %{x:,} tokens", legendgroup=part,
        )  # fmt: skip
        if (curve := learning_curve(part_rows)) is not None:
            token_count, last = curve.points[-1]
            figure.add_scatter(
                x=[token_count, 8 * token_count], y=[last, last + 3 * curve.doubling], mode="lines", legendgroup=part,
                line={"dash": "dot", "color": GREY}, showlegend=False, name=plain(part),
                hovertemplate="%{y:.3f} at %{x:,} tokens, if it went on so",
            )  # fmt: skip
    return figure


def _curves(title: str, log: Sequence[Mapping[str, Any]], curves: Any, hover: str, about: list[Any]) -> go.Figure:
    """Numbers of a log over its steps; a curve is a key (or a key and a place), a label, a colour and a dash."""
    lines = [
        go.Scatter(
            x=[line["step"] for line in log],
            y=[line[key] if isinstance(key, str) else line[key[0]][key[1]] for line in log],
            name=label, mode="lines", line={"color": color, "dash": dash}, customdata=about,
            hovertemplate=f"step %{{x:,}}: {hover}",
        )
        for key, label, color, dash in curves
    ]  # fmt: skip
    figure = draw_figure(lines, plain(title), 360, {"title": "step"}, {"rangemode": "tozero", **GRID})
    return figure.update_layout(legend={"orientation": "h", "y": 1.12})
