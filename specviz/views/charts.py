"""Plotly charts, as pure functions from the JSON the commands write to figures; a page holds everything it needs."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from decoders.folders import write_text

from .export import page

# colour-blind-safe (Okabe and Ito), as in the rest of the app
BLUE, VERMILLION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#8A8A8A"
GRID = {"gridcolor": "rgba(128,128,128,.25)"}
KINDS = {"method": BLUE, "peer": GREY, "traced": GREEN}
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
LAYOUT = {
    "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#888"},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "margin": {"l": 70, "r": 20, "t": 60, "b": 55},
}


def draw_figure(data: Any, title: str, height: int, x: Mapping[str, Any], y: Mapping[str, Any]) -> go.Figure:
    """A figure with its axes; ``title`` may hold tags, so names in it are escaped before."""
    return go.Figure(data, {**LAYOUT, "title": title, "height": height, "xaxis": x, "yaxis": y})


def heads_chart(calibration: Mapping[str, Any]) -> go.Figure:
    """Heat map of how often each head attended most to the token that was copied; layers down, heads across."""
    counts, total = calibration["head_counts"], calibration["tokens_counted"]
    hover = f"layer %{{y}}, head %{{x}}: %{{customdata}} of {total:,} copied tokens (%{{z:.1%}})<extra></extra>"
    heat = go.Heatmap(
        z=[[n / total if total else 0.0 for n in row] for row in counts], customdata=counts, zmin=0, xgap=1, ygap=1,
        colorscale="Cividis", colorbar={"title": "share", "tickformat": ".0%"}, hovertemplate=hover,
    )  # fmt: skip
    title = f"Copying heads of {calibration['model']}: strongest on the token being copied ({total:,} tokens)"
    across = {"title": "head", "dtick": _tick(len(counts[0]) if counts else 1), "showgrid": False}
    down = {"title": "layer", "dtick": _tick(len(counts)), "autorange": "reversed", "showgrid": False}
    return draw_figure(heat, plain(title), max(260, 90 + 26 * len(counts)), across, down)


def layers_chart(calibration: Mapping[str, Any]) -> go.Figure:
    """Tokens per step of PLD+(h) at every hidden state, the best one marked."""
    steps, best = calibration["tokens_per_step"], calibration["best_layer"]
    layers = list(range(len(steps)))
    bars = go.Bar(
        x=layers, y=steps, marker={"color": [BLUE if layer == best else GREY for layer in layers]},
        text=[f"{value:.2f}{' best' if layer == best else ''}" for layer, value in enumerate(steps)],
        textposition="outside", cliponaxis=False,
        hovertemplate="hidden state %{x}: %{y:.3f} tokens per step<extra></extra>",
    )  # fmt: skip
    title = f"PLD+(h): tokens per step by hidden state (0 = embeddings), drafts of {calibration['draft_length']}"
    across = {"title": "hidden state", "dtick": _tick(len(steps))}
    return draw_figure(bars, plain(title), 320, across, {"title": "tokens per step", "rangemode": "tozero", **GRID})


def bench_chart(report: Mapping[str, Any]) -> go.Figure:
    """Bars of the speedups, with their quartiles."""
    rows = [row for row in report["rows"] if row["kind"] != "traced" and row["speedup"]]
    spread = {
        "type": "data", "symmetric": False, "color": VERMILLION,
        "array": [row["speedup"]["high"] - row["speedup"]["median"] for row in rows],
        "arrayminus": [row["speedup"]["median"] - row["speedup"]["low"] for row in rows],
    }  # fmt: skip
    per_step = [f"{row['tokens_per_step']:.2f}" if row["tokens_per_step"] else "–" for row in rows]
    bars = go.Bar(
        x=[row["speedup"]["median"] for row in rows], y=[plain(row["name"]) for row in rows], orientation="h",
        marker={"color": [KINDS[row["kind"]] for row in rows]}, error_x=spread,
        customdata=[[label, row["tokens"]] for label, row in zip(per_step, rows, strict=True)],
        hovertemplate="%{y}: %{x:.3f}<br>%{customdata[0]} tokens per step, %{customdata[1]} tokens<extra></extra>",
    )  # fmt: skip
    model = report["model"]
    about = f"{model['name']}, {model['parameters'] / 1e6:,.0f} M parameters, {model['dtype']} on {model['device']}"
    title = f"Speedup against plain decoding on the same engine<br><sup>{plain(about)}; median and quartiles</sup>"
    across = {"title": "×", "rangemode": "tozero", **GRID}
    return draw_figure(bars, title, 150 + 34 * len(rows), across, {"autorange": "reversed", "automargin": True})


def write_page(path: Path, title: str, figures: Sequence[go.Figure]) -> None:
    """One HTML file with all figures, whole or not at all; it works from disk and asks nothing of the network."""
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=index == 0, config={"displaylogo": False, "responsive": True})
        for index, figure in enumerate(figures)
    ]
    style = "<style>:root{color-scheme:light dark}body{margin:1rem auto;max-width:1100px}</style>"
    write_text(path, page(title, style, "".join(parts), POLICY))


def plain(text: str) -> str:
    """Names are data: plotly would read tags in them."""
    return html.escape(str(text), quote=False)


def _tick(count: int) -> int:
    """Distance of axis ticks, so that about sixteen are drawn.

    >>> _tick(6), _tick(40)
    (1, 3)
    """
    return max(1, -(-count // 16))
