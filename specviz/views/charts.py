"""Plotly charts, as pure functions from the JSON the commands write to figures; a page holds everything it needs."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

# colour-blind-safe (Okabe and Ito), as in the rest of the app
BLUE, VERMILLION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#8A8A8A"
KINDS = {"method": BLUE, "peer": GREY, "traced": GREEN}
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
LAYOUT = {
    "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#888"},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "margin": {"l": 70, "r": 20, "t": 60, "b": 55},
}


def heads_chart(calibration: Mapping[str, Any]) -> go.Figure:
    """Heat map of how often each head attended most to the token that was copied; layers down, heads across."""
    counts, total = calibration["head_counts"], calibration["tokens_counted"]
    shares = [[n / total if total else 0.0 for n in row] for row in counts]
    figure = go.Figure(
        go.Heatmap(
            z=shares,
            customdata=counts,
            colorscale="Cividis",
            zmin=0,
            colorbar={"title": "share", "tickformat": ".0%"},
            hovertemplate="layer %{y}, head %{x}: %{customdata} of "
            + f"{total:,}"
            + " copied tokens (%{z:.1%})<extra></extra>",
            xgap=1,
            ygap=1,
        )
    )
    title = f"Copying heads of {calibration['model']}: strongest on the token being copied ({total:,} tokens)"
    figure.update_layout(**LAYOUT, title=_plain(title), height=max(260, 90 + 26 * len(counts)))
    figure.update_xaxes(title="head", dtick=_tick(len(counts[0]) if counts else 1), showgrid=False)
    figure.update_yaxes(title="layer", dtick=_tick(len(counts)), autorange="reversed", showgrid=False)
    return figure


def layers_chart(calibration: Mapping[str, Any]) -> go.Figure:
    """Tokens per step of PLD+(h) at every hidden state, the best one marked."""
    steps, best = calibration["tokens_per_step"], calibration["best_layer"]
    colors = [BLUE if layer == best else GREY for layer in range(len(steps))]
    labels = [f"{value:.2f}{' best' if layer == best else ''}" for layer, value in enumerate(steps)]
    figure = go.Figure(
        go.Bar(
            x=list(range(len(steps))),
            y=steps,
            marker={"color": colors},
            text=labels,
            textposition="outside",
            cliponaxis=False,
            hovertemplate="hidden state %{x}: %{y:.3f} tokens per step<extra></extra>",
        )
    )
    title = f"PLD+(h): tokens per step by hidden state (0 = embeddings), drafts of {calibration['draft_length']}"
    figure.update_layout(**LAYOUT, title=_plain(title), height=320)
    figure.update_xaxes(title="hidden state", dtick=_tick(len(steps)))
    figure.update_yaxes(title="tokens per step", rangemode="tozero", gridcolor="rgba(128,128,128,.25)")
    return figure


def bench_chart(report: Mapping[str, Any], value: str = "speedup") -> go.Figure:
    """Bars of one quantity with its quartiles: ``speedup`` against plain decoding, ``tokens_per_s``, ``end_to_end``."""
    titles = {
        "speedup": "Speedup against plain decoding on the same engine",
        "tokens_per_s": "Tokens per second of decoding",
        "end_to_end": "Output tokens per second, the prompt included",
    }
    if value not in titles:
        raise ValueError(f"there is no chart of {value!r}: choose one of {', '.join(titles)}")
    rows = [row for row in report["rows"] if row["kind"] != "traced" and row[value]]
    middle = [row[value]["median"] for row in rows]
    figure = go.Figure(
        go.Bar(
            x=middle,
            y=[_plain(row["name"]) for row in rows],
            orientation="h",
            marker={"color": [KINDS[row["kind"]] for row in rows]},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [row[value]["high"] - row[value]["median"] for row in rows],
                "arrayminus": [row[value]["median"] - row[value]["low"] for row in rows],
                "color": VERMILLION,
            },
            customdata=[
                [f"{row['tokens_per_step']:.2f}" if row["tokens_per_step"] else "–", row["tokens"]] for row in rows
            ],
            hovertemplate="%{y}: %{x:.3f}<br>%{customdata[0]} tokens per step, %{customdata[1]} tokens<extra></extra>",
        )
    )
    model = report["model"]
    about = f"{model['name']}, {model['parameters'] / 1e6:,.0f} M parameters, {model['dtype']} on {model['device']}"
    title = f"{titles[value]}<br><sup>{_plain(about)}; median and quartiles</sup>"
    figure.update_layout(**LAYOUT, title=title, height=150 + 34 * len(rows))
    unit = "×" if value == "speedup" else "tokens/s"
    figure.update_xaxes(title=unit, rangemode="tozero", gridcolor="rgba(128,128,128,.25)")
    figure.update_yaxes(autorange="reversed", automargin=True)
    return figure


def training_charts(name: str, log: Sequence[Mapping[str, Any]]) -> list[go.Figure]:
    """Loss, and acceptance with expected speedup, over the steps of a draft model's training."""
    steps = [line["step"] for line in log]
    loss, learnt = go.Figure(), go.Figure()
    curves = (
        (loss, "loss", "training loss", GREY, "solid"),
        (loss, "held_out_loss", "held-out loss", BLUE, "solid"),
        (learnt, "acceptance", "acceptance β, sampled", BLUE, "solid"),
        (learnt, "agreement", "equal first choices, greedy", GREEN, "dash"),
    )
    for figure, key, label, color, dash in curves:
        figure.add_scatter(
            x=steps, y=[line[key] for line in log], name=label, mode="lines", line={"color": color, "dash": dash},
            customdata=[[line["tokens"], line["seconds"] / 60, line["expected_speedup"]] for line in log],
            hovertemplate="step %{x:,}: %{y:.3f}<br>%{customdata[0]:,} tokens, %{customdata[1]:.1f} minutes, "
            "expected speedup %{customdata[2]:.2f}×",
        )  # fmt: skip
    last = log[-1] if log else None
    reached = f": β {last['acceptance']:.3f}, expected speedup {last['expected_speedup']:.2f}× at γ = 5" if last else ""
    for figure, title in ((loss, f"{name}: loss per answer token"), (learnt, f"{name}{reached}")):
        figure.update_layout(**LAYOUT, title=_plain(title), height=360, legend={"orientation": "h", "y": 1.12})
        figure.update_xaxes(title="step")
        figure.update_yaxes(gridcolor="rgba(128,128,128,.25)")
    return [loss, learnt]


def prompt_charts(name: str, log: Sequence[Mapping[str, Any]]) -> list[go.Figure]:
    """Loss, and held-out top-1 and top-5 accuracy per distance, over the steps of prompt tokens' training."""
    steps = [line["step"] for line in log]
    loss, learnt = go.Figure(), go.Figure()
    for key, label, color in (("loss", "training loss", GREY), ("held_out_loss", "held-out loss", BLUE)):
        loss.add_scatter(
            x=steps, y=[line[key] for line in log], name=label, mode="lines", line={"color": color},
            customdata=[[line["points"], line["seconds"] / 60] for line in log],
            hovertemplate="step %{x:,}: %{y:.3f}<br>%{customdata[0]:,} insertion points, %{customdata[1]:.1f} minutes",
        )  # fmt: skip
    for i in range(len(log[0]["top1"]) if log else 0):
        for key, dash in (("top1", "dash"), ("top5", "solid")):
            learnt.add_scatter(
                x=steps, y=[line[key][i] for line in log], name=f"top-{key[3:]}, distance {i + 1}", mode="lines",
                line={"color": (BLUE, VERMILLION, GREEN, GREY)[i % 4], "dash": dash},
                hovertemplate="step %{x:,}: %{y:.1%}",
            )  # fmt: skip
    titles = (f"{name}: loss, decayed over distances", f"{name}: the target's first choice among the first guesses")
    for figure, title in ((loss, titles[0]), (learnt, titles[1])):
        figure.update_layout(**LAYOUT, title=_plain(title), height=360, legend={"orientation": "h", "y": 1.12})
        figure.update_xaxes(title="step")
        figure.update_yaxes(gridcolor="rgba(128,128,128,.25)", rangemode="tozero")
    return [loss, learnt]


def write_page(path: Path, title: str, figures: Sequence[go.Figure]) -> None:
    """One HTML file with all figures, whole or not at all; it works from disk and asks nothing of the network."""
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=index == 0, config={"displaylogo": False, "responsive": True})
        for index, figure in enumerate(figures)
    ]
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        "<style>:root{color-scheme:light dark}body{margin:1rem auto;max-width:1100px}</style>"
        f"</head><body>{''.join(parts)}</body></html>\n"
    )
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(page, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _plain(text: str) -> str:
    """Names are data: plotly would read tags in them."""
    return html.escape(str(text), quote=False)


def _tick(count: int) -> int:
    """Distance of axis ticks, so that about sixteen are drawn.

    >>> _tick(6), _tick(40)
    (1, 3)
    """
    return max(1, -(-count // 16))
