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
    from decoders.study.measure.learning_curve import learning_curve

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


LOSS = (("loss", "training loss", GREY, "solid"), ("held_out_loss", "held-out loss", BLUE, "solid"))


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
