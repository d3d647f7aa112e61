"""Figures of quantities with parts: shares of a whole, parts side by side, and profiles along something in the runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import plotly.graph_objects as go

from specviz.views.charts import GREY
from specviz.words import plural

from .drawing import (
    GRID,
    HEIGHT,
    MARKERS,
    PARTS,
    Chart,
    amount,
    amounts,
    basis,
    color_of,
    hover,
    hover_texts,
    looks_of,
    make_room,
    marker_size,
    new_figure,
    overlap_note,
    overlaps,
    paper_line,
    plain,
    visible_text,
)
from .experiment import CATEGORY, LINE
from .quantities import TOTAL, Breakdown, Profile, part_name, parts_of
from .results import Results, place_of, profile_of, profile_points

MOST_TICKS = 16  # along a profile, each labelled


def breakdown_charts(results: Results, breakdown: Breakdown, points: list[dict[str, Any]]) -> Iterator[Chart]:
    about = results.about
    columns = list(dict.fromkeys(column for point in points for column in point["values"]))
    parts = parts_of(breakdown, columns)
    papers = [series for series in about["papers"] if series["metric"] == breakdown.key]
    parts += [str(x) for series in papers for x, _ in series["points"] if str(x) not in parts]
    parts = list(dict.fromkeys(parts))
    breakdowns = [entry for key in about["metrics"] if isinstance(entry := results.quantity(key), Breakdown)]
    every_part = list(dict.fromkeys([*(part for entry in breakdowns for part in parts_of(entry, columns)), *parts]))
    looks = [*map(every_part.index, parts)]  # a part has its colour in all charts
    rows = [(n, p) for n, p in enumerate(points) if p["count"]]
    several = len({p["series"] for _, p in rows}) > 1
    shows_series = several and about["x"] != LINE
    labels = [
        " · ".join([visible_text(p["series"]), visible_text(p["x"])] if shows_series else [visible_text(p["x"])])
        for _, p in rows
    ]
    figure = new_figure(breakdown, basis(results, breakdown))
    sizes = [p["values"].get(f"{breakdown.key}:{part}", {}).get("value") for part in parts for _, p in rows]
    texts = amounts(sizes, breakdown.unit)
    for number, part in enumerate(parts):
        key = f"{breakdown.key}:{part}"
        values = [p["values"].get(key, {}).get("value") for _, p in rows]
        text = [amount(v, breakdown.unit) if v and v >= 0.04 else "" for v in values]
        if not breakdown.whole:
            text = texts[number * len(rows) : (number + 1) * len(rows)]
        hovers = [hover(breakdown, p, key, part_name(part)) for _, p in rows]
        figure.add_trace(_segment(breakdown, part, looks[number], labels, values, text, hovers, [n for n, _ in rows]))
    _segments_axes(figure, breakdown, len(rows))
    yield Chart(breakdown.label, figure)
    for model in dict.fromkeys(series["model"] for series in papers):
        model_series = [series for series in papers if series["model"] == model]
        figure = new_figure(breakdown, f"paper: {model_series[0]['where']}, {model}", paper=True)
        for look, part in zip(looks, parts, strict=True):
            values = [dict((str(x), y) for x, y in series["points"]).get(part) for series in model_series]
            text = ["" if breakdown.whole else amount(v, breakdown.unit) for v in values]
            hovers = [
                f"{visible_text(s['label'])}, {part_name(part)}: {amount(v, breakdown.unit)}"
                f"<br>paper, {s['where']}, {model}"
                for s, v in zip(model_series, values, strict=True)
            ]
            names = [visible_text(series["label"]) for series in model_series]
            figure.add_trace(_segment(breakdown, part, look, names, values, text, hovers, None))
        _segments_axes(figure, breakdown, len(model_series))
        yield Chart(f"{breakdown.label} (paper, {model})", figure, True)


def _segment(
    breakdown: Breakdown | Profile, part: str, number: int, labels: list[str], values: list[Any], text: list[str],
    hovers: list[str], index: list[int] | None,
) -> go.Bar:  # fmt: skip
    color = PARTS.get(part, color_of(number))
    marker: dict[str, Any] = {"color": color, "line": {"color": "rgba(128,128,128,.6)", "width": 0.5}}
    if index is None:
        marker |= {"pattern": {"shape": "/", "fillmode": "replace", "size": 6, "fgcolor": color}}
    flat = {"x": values, "y": labels, "orientation": "h"}
    upright = {"x": [part] * len(labels), "y": values}
    return go.Bar(
        **(flat if breakdown.whole else upright), name=plain(part_name(part)), marker=marker, text=text,
        textposition="inside" if breakdown.whole else "outside", insidetextanchor="middle", textfont={"size": 11},
        textangle=0, cliponaxis=False, showlegend=breakdown.whole, **hover_texts(index, hovers),
    )  # fmt: skip


def _segments_axes(figure: go.Figure, breakdown: Breakdown | Profile, rows: int) -> None:
    if breakdown.whole:
        height = max(240, 170 + 34 * rows)
        figure.update_layout(barmode="stack", margin_r=32, height=height, legend_traceorder="normal", bargap=0.3)
        figure.update_xaxes(range=[0, 1], dtick=0.25, tickformat=".0%", gridcolor=GRID)
        figure.update_yaxes(autorange="reversed", automargin=True, type="category", ticklabelstandoff=6)
    else:
        figure.update_layout(barmode="group")
        form = ".2%" if breakdown.unit == "share" else None
        figure.update_yaxes(rangemode="tozero", tickformat=form, gridcolor=GRID)


# --- along something inside the runs ---


def profile_charts(results: Results, profile: Profile, points: list[dict[str, Any]]) -> Iterator[Chart]:
    about = results.about
    shown_points = [(n, p, at) for n, p in profile_points(results, points) if (at := profile_of(profile, p))]
    several = len({p["series"] for _, p, _ in shown_points}) > 1

    def label(point: Mapping[str, Any]) -> str:
        place = "" if about["x"] == CATEGORY or point["level"] else visible_text(point["x"])
        return " · ".join(
            part for part in (visible_text(point["series"]) if several or not place else "", place) if part
        )

    shapes = {n: [(place, shares[TOTAL]) for place, shares, _ in at] for n, _, at in shown_points if not profile.whole}
    groups = overlaps(shapes, from_zero=True)
    names = {n: label(p) for n, p, _ in shown_points}
    note = overlap_note([[names[n] for n in group] for group in groups])
    figure = new_figure(profile, basis(results, profile), note=note)
    if profile.whole:
        parts = [
            part for part in profile.parts if any(part in shares for *_, at in shown_points for _, shares, _ in at)
        ]
        rows = [(n, p, *place) for n, p, at in shown_points for place in at]
        labels = [
            " · ".join(text for text in (label(p) if len(shown_points) > 1 else "", f"{profile.along} {place}") if text)
            + f"<br><span style='font-size:10px'>{plural(round(count), 'position')}</span>"
            for _, p, place, _, count in rows
        ]
        for number, part in enumerate(parts):
            values = [shares.get(part, 0.0) for *_, shares, _ in rows]
            text = [amount(v, "share") if v >= 0.04 else "" for v in values]
            hovers = [
                f"<b>{amount(v, 'share')}</b> {plain(part)} · {label(p)}<br>{profile.along} {place}, "
                f"{plural(round(count), 'position')}"
                for v, (_, p, place, _, count) in zip(values, rows, strict=True)
            ]
            figure.add_trace(_segment(profile, part, number, labels, values, text, hovers, [n for n, *_ in rows]))
        _segments_axes(figure, profile, len(rows))
        yield Chart(profile.label, figure)
        return
    bars = []
    look_by_name = looks_of(about, points)
    looks, first_free = [look_by_name[p["x"] if about["x"] == LINE else p["series"]] for _, p, _ in shown_points], 0
    if len({*looks}) < len(looks):  # several profiles of a line
        looks, first_free = [*range(len(looks))], len(looks)
    underlines = {n for group in groups for n in group[:-1]}
    for look, (n, point, at) in zip(looks, shown_points, strict=True):
        xs, color = [float(place) for place, *_ in at], color_of(look)
        ys, counts = [shares[TOTAL] for _, shares, _ in at], [count for *_, count in at]
        place_texts = [f"{profile.along.split(':')[0]} {place_of(profile, place)}" for place, *_ in at]
        count_notes = [f"<br>{count:,.0f} {profile.things}" if profile.counted else "" for count in counts]
        hovers = [
            f"<b>{amount(y, profile.unit)}</b> {label(point)}<br>{place}{count_note}"
            for y, place, count_note in zip(ys, place_texts, count_notes, strict=True)
        ]
        figure.add_trace(
            go.Scatter(
                x=xs, y=ys, name=label(point), mode="lines+markers", cliponaxis=False,
                line={"color": color, "width": 2},
                marker={"symbol": MARKERS[look % len(MARKERS)], "size": 12 if n in underlines else marker_size(xs)},
                **hover_texts([n] * len(xs), hovers),
            )
        )  # fmt: skip
        bars.append(
            go.Bar(
                x=xs, y=counts, yaxis="y2", marker={"color": color, "opacity": 0.55}, name=label(point),
                showlegend=False, **hover_texts([n] * len(xs), hovers),
            )
        )  # fmt: skip
    for series in (series for series in about["papers"] if series["metric"] == profile.key):
        xs, look = [float(x) for x, _ in series["points"]], first_free + look_by_name[series["label"]]
        figure.add_trace(paper_line(series, xs, f"paper, {series['label']}", look))
    figure.update_xaxes(title_text=plain(profile.along), gridcolor=GRID, zeroline=False)
    last = max((float(place) for *_, at in shown_points for place, *_ in at), default=0.0)
    if not profile.tenths and last <= MOST_TICKS:
        figure.update_xaxes(dtick=1)  # depths, or states: nothing lies between two of them
    shares = profile.unit == "share"
    figure.update_yaxes(tickformat=".0%" if shares else None, gridcolor=GRID, zeroline=False, rangemode="tozero")
    if profile.tenths:
        line_style, equal = {"dash": "dot", "width": 1.5, "color": GREY}, "acceptance = confidence"
        figure.add_trace(go.Scatter(x=[0, 1], y=[0, 1], mode="lines", line=line_style, name=equal, hoverinfo="skip"))
        figure.update_xaxes(range=[0, 1], dtick=0.1, tickformat=".0%")
    if profile.counted:
        figure.add_traces(bars)
        figure.update_xaxes(anchor="y2", showgrid=False)
        figure.update_yaxes(range=[0, 1.04], domain=[0.3, 1])
        tokens = {"text": profile.things, "font": {"size": 12}}
        figure.update_layout(
            barmode="group", bargap=0.15,
            margin_r=32,
            yaxis2={"domain": [0, 0.22], "gridcolor": GRID, "nticks": 3, "title": tokens, "zeroline": False},
        )  # fmt: skip
    make_room(figure, HEIGHT + 90 if profile.counted else HEIGHT)
    yield Chart(profile.label, figure)
