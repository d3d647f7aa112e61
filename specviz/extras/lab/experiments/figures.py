"""Results as Plotly figures: one per metric, and the paper's numbers hollow and dashed, or in a figure of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from decoders.model.files.catalog import precision_of
from specviz.views.charts import GREY
from specviz.words import plural

from .answers import CASES
from .drawing import (
    MARKERS,
    NARROW,
    Chart,
    all_numbers,
    amount,
    amounts,
    band,
    basis,
    color_of,
    draw_axes,
    hover,
    hover_texts,
    looks_of,
    make_room,
    name_places,
    new_figure,
    overlap_note,
    overlaps,
    paper_line,
    paper_note,
    place_on_axis,
    places_along,
    plain,
    ticks,
    value_of,
    visible_text,
    whiskers,
)
from .experiment import CATEGORY, LINE, text_of
from .part_figures import breakdown_charts, profile_charts
from .quantities import POOLED, Breakdown, Profile, Quantity
from .results import Results, points
from .sheets import sheet_charts
from .wording import legend_text

MOST_OVERLAID, WIDEST = 3, 1.8  # a paper's series are drawn over ours if so few and of like size
BEYOND_NOISE = 1.1  # times the tokens per step: a speedup above it is no matter of the clock
MOST_BANDS = 2  # lines whose standard errors are shaded: more lie over one another
MOST_LINES = 6  # of a chart
MOST_CHARTS = 4  # above which the page shows the paper's apart: results.js
MAX_LABELS = 9  # a paper's bars have numbers if so few
# pixels of all bars, of their height, and of a number above one: its size, a digit, its height
BARS, PLOT, NUMBER, DIGIT, LINE_HEIGHT = 0.6 * NARROW, 180, 11, 7, 14
COUNTS = {2: "both", 3: "all three"}
NARROW_SIGNS = ".,"  # half a digit


def charts(results: Results, metrics: Sequence[str] | None = None) -> list[Chart]:
    """Every figure of the results: per metric ours first, then the paper's where it stands alone."""
    shown_points = list(points(results, metrics))
    for number, point in enumerate(shown_points):
        point["index"] = number
    chart_list: list[Chart] = []
    for key in metrics or results.about["metrics"]:
        quantity = results.quantity(key)
        if isinstance(quantity, Breakdown):
            chart_list += breakdown_charts(results, quantity, shown_points)
        elif isinstance(quantity, Profile):
            chart_list += profile_charts(results, quantity, shown_points)
        else:
            for part, part_results, part_points in _split(results, shown_points):
                chart_list += _quantity(part_results, quantity, part_points, part)
    grids = [chart_list]
    if len(chart_list) > MOST_CHARTS:
        grids = [[chart for chart in chart_list if chart.paper is paper] for paper in (False, True)]
    for grid in grids:
        for first in range(0, len(grid), 2):
            _align(grid[first : first + 2])
    return chart_list


def _split(
    results: Results, points: list[dict[str, Any]]
) -> Iterator[tuple[str, Results, list[dict[str, Any]]]]:
    """The results whole, or, where they have more lines than can be told apart, for each value of the other axis: its
    words, and the results and points of that value, whose series are named without it.
    """
    about = results.about
    other_axes = [axis for axis in about["axes"] if axis["param"] != about["x"]]
    lines = {point["series"] for point in points}
    if about["chart"] != "line" or len(other_axes) != 1 or len(about["lines"]) < 2 or len(lines) <= MOST_LINES:
        yield "", results, points
        return
    for value in other_axes[0]["values"]:
        part = f"{other_axes[0]['label']} = {text_of(value)}"
        part_points = [
            point | {"series": point["series"].removesuffix(f" · {part}")}
            for point in points if point["level"] or point["series"].endswith(f" · {part}")
        ]  # fmt: skip
        part_papers = [
            series | {"label": series["label"].removesuffix(f" · {part}")}
            for series in about["papers"] if " · " not in series["label"] or series["label"].endswith(f" · {part}")
        ]  # fmt: skip
        yield legend_text(part), Results(about | {"papers": part_papers}, results.rows), part_points


def _align(chart_list: Sequence[Chart]) -> None:
    """One height and one base for the upright charts of a row."""
    layouts = [
        chart.figure.layout
        for chart in chart_list
        if not any(getattr(trace, "orientation", None) == "h" for trace in chart.figure.data)
    ]
    height = max((layout.height for layout in layouts), default=0)
    bottom = max((layout.margin.b for layout in layouts), default=0)
    for layout in layouts:
        layout.update(height=height, margin_b=bottom)


def caption(results: Results) -> str:
    """Notes for reading the charts, in sentences."""
    about = results.about
    model = about["model"]
    size = f", {model['parameters'] / 1e6:,.0f} M parameters" if model.get("parameters") else ""
    setup = f"{model.get('name') or 'model'}{size}, {precision_of(model)} on {model.get('device')}"
    turns = {row["prompt"]: float(row.get("turn") or 1) for row in results.rows if row.get("prompt")}
    count = sum(turn == 1 for turn in turns.values())
    several = f" in {plural(len(turns), 'turn')}" if len(turns) > count else ""
    tokens = f"{several} of at most {about['max_new_tokens']} new tokens"
    pooled = [results.quantity(key).label.lower() for key in about["metrics"] if key in POOLED]
    own_note = f"Ours: {setup}; means over {plural(count, 'prompt')}{tokens}"
    if not count:
        own_note = f"Ours: {setup}"
    elif count == 1:
        own_note = f"Ours: {setup}; one prompt{tokens}"
    elif all(isinstance(results.quantity(key), Profile) for key in about["metrics"]):
        own_note = own_note.replace("; means over", "; all of")
    elif about["chart"] in ("line", "bar", CASES):
        lines = len({point["series"] for point in points(results)}) if about["chart"] == "line" else 0
        spread_note = "shaded: ± a standard error" if lines <= MOST_BANDS else "± standard errors in the table"
        own_note += f", {spread_note if lines else 'whiskers: ± a standard error of each alone'}"
    if count > 1 and pooled and about["chart"] != CASES:
        own_note += f", {' and '.join(pooled)} pooled (Σ ÷ Σ over their steps)"
    if about.get("rounds", 1) > 1:
        own_note += f", each run {about['rounds']} times (± in tables: standard deviation of the rounds' means)"
    if about.get("training_steps"):
        own_note += f"; {about.get('parts') or 'draft models'} trained for {about['training_steps']:,} steps"
    if about["temperature"]:
        own_note += f", T = {about['temperature']:g}"
    parts = [own_note + ".", *_recording_notes(results), *_too_fast(results)]
    if about["papers"]:
        names = dict.fromkeys(series["model"] for series in about["papers"])
        models = ("; " if any("," in name for name in names) else ", ").join(names)
        paper_marks, compare = "Hollow, dashed or hatched", "shapes, not heights"
        if about["chart"] == "sheet":
            paper_marks, compare = "Grey", "orders, not numbers"
        parts.append(
            f"{paper_marks}: the paper's numbers ({models}), on other prompts and another machine: compare {compare}."
        )
    return " ".join(parts)


def _recording_notes(results: Results) -> list[str]:
    """Of an example result, a sentence on where it was recorded, and one on times that other work disturbed."""
    about = results.about
    if not (recording := about.get("recorded")):
        return []
    cores, load = recording["machine"]["cores"], recording["load"]
    day = about["created"][:10]
    sentences = [f"An example result, recorded on {day} on {plural(cores, 'core')}, engine {recording['engine']}."]
    if results.any_rough:
        sentences.append(f"Other work kept these busy (load {load:g}): times and speedups are rough.")
    return sentences


def _too_fast(results: Results) -> list[str]:
    """A sentence where speedups say more than can be: no step is faster than plain decoding's."""
    pairs = [(row.get("speedup"), row.get("tokens_per_step")) for row in results.rows if row.get("role") != "hidden"]
    known_pairs = [(speedup, tokens) for speedup, tokens in pairs if speedup and tokens]
    excess_count = sum(speedup > BEYOND_NOISE * tokens for speedup, tokens in known_pairs)
    if "speedup" not in results.about["metrics"] or not excess_count:
        return []
    return [
        f"{excess_count:,} of {len(known_pairs):,} speedups are above their run's tokens per step, which cannot be: "
        "something else "
        "kept the machine busy, so run it again when nothing does."
    ]


# --- one number per run ---


def _quantity(
    results: Results, quantity: Quantity, points: list[dict[str, Any]], part: str = ""
) -> Iterator[Chart]:
    """Charts of all points, or of those of a ``part`` of the results, as in "counting drafted tokens"."""
    about = results.about
    papers = [series for series in about["papers"] if series["metric"] == quantity.key]
    if about["chart"] == "heat" and len(about["axes"]) == 2:
        yield from _heat(results, quantity, points)
        return
    if about["chart"] == "sheet":
        yield from sheet_charts(results, quantity, points)
        return
    looks = looks_of(about, points)
    lines = about["chart"] == "line" and about["x"] not in (CATEGORY, LINE)
    names = _drawn_names(points, quantity.key)
    line_count = len({point["series"] for point in points})
    note = ""
    if lines:
        note = overlap_note(overlaps(_series_values(points, quantity.key)))
    elif len(names) < line_count:
        note = f"the same for {COUNTS.get(line_count, f'all {line_count}')} series"
    figure = new_figure(quantity, basis(results, quantity, part), note=note)
    if lines:
        _lines(figure, results, quantity, points, looks)
    else:
        _bars(figure, results, quantity, points, looks, names)
    over = [s for s in papers if lines and len(papers) <= MOST_OVERLAID and _alike(s, quantity.key, points)]
    for series in over:
        _paper_line(figure, about, series, looks[series["label"]], overlaid=True)
    make_room(figure)
    yield Chart(f"{quantity.label}, {part}" if part else quantity.label, figure)
    separate = [s for s in papers if s not in over]
    for model in dict.fromkeys(s["model"] for s in separate):
        model_series = [s for s in separate if s["model"] == model]
        is_labelled = sum(len(s["points"]) for s in model_series) <= MAX_LABELS
        figure = new_figure(quantity, f"paper: {model_series[0]['where']}, {model}", paper=True)
        for series in model_series:
            if lines:
                _paper_line(figure, about, series, looks[series["label"]], overlaid=False)
            else:
                _paper_bars(figure, series, looks[series["label"]], quantity.unit if is_labelled else None)
        draw_axes(figure, about, quantity, paper=not lines)
        if not lines:
            name_places(figure)
        elif all_numbers(places_along(about)):
            places = sorted({x for series in model_series for x, _ in series["points"]})
            texts = ticks(places, figure.layout.xaxis.type == "log")
            figure.update_xaxes(tickvals=places if len(places) <= 12 else None, ticktext=texts)
        make_room(figure)
        yield Chart(f"{quantity.label} (paper, {model})", figure, True)


def _series_values(points: list[dict[str, Any]], key: str) -> dict[str, tuple[Any, ...]]:
    """Places and numbers of each series; of a level line at all places."""
    places = dict.fromkeys(point["x"] for point in points if not point["level"])
    return {
        name: tuple(
            (x, value_of(p, key))
            for p in points if p["series"] == name
            for x in (places if p["level"] else [p["x"]])
        )
        for name in dict.fromkeys(point["series"] for point in points)
    }


def _drawn_names(points: list[dict[str, Any]], key: str) -> list[str]:
    """The series that have bars: the first alone where all have the same numbers."""
    values = _series_values(points, key)
    return list(values)[: 1 if len({*values.values()}) == 1 else None]


def _alike(series: Mapping[str, Any], key: str, points: list[dict[str, Any]]) -> bool:
    """True where a paper's numbers are of a size with ours, so that one axis can hold both."""
    own_values = sorted(value for p in points if (value := value_of(p, key)))
    paper_values = sorted(y for _, y in series["points"])
    if not own_values or not paper_values:
        return False
    low, high = sorted((own_values[len(own_values) // 2], paper_values[len(paper_values) // 2]))
    return 0 < high <= WIDEST * low


def _lines(
    figure: go.Figure, results: Results, quantity: Quantity, points: list[dict[str, Any]], looks: Mapping[str, int]
) -> None:
    about = results.about
    values, against = places_along(about), about.get("against") or ""
    values_by_name = _series_values(points, quantity.key)
    underlines = {name for group in overlaps(values_by_name) for name in group[:-1]}
    bands = list[go.Scatter]()
    for name in values_by_name:
        line_points = [
            (p["index"], p) for p in points if p["series"] == name and value_of(p, quantity.key) is not None
        ]
        if against:  # where a point comes to lie is measured too
            line_points = [(n, p) for n, p in line_points if value_of(p, against) is not None]
            line_points.sort(key=lambda item: value_of(item[1], against) or 0)
        if not line_points:
            continue
        level = line_points[0][1]["level"]
        if against:
            xs = [value_of(p, against) for _, p in line_points]
        elif level:  # one point, drawn across
            line_points, xs = line_points[:1] * len(values), [place_on_axis(values, v) for v in values]
        else:
            xs = [place_on_axis(values, p["x"]) for _, p in line_points]
        index = [n for n, _ in line_points]
        look = looks[name]
        ys = [value_of(p, quantity.key) or 0.0 for _, p in line_points]
        size = 11 if level else 12 if name in underlines else 8  # a marker below another is seen around it
        errors = [p["values"][quantity.key]["se"] or 0.0 for _, p in line_points]
        if any(errors) and not level and not against and len(values_by_name) <= MOST_BANDS:
            bands.append(band(xs, ys, errors, look, visible_text(name)))
        figure.add_trace(
            go.Scatter(
                x=xs, y=ys, name=visible_text(name), mode="lines+markers", legendgroup=visible_text(name),
                line={"color": color_of(look), "width": 2, "dash": "dot" if level else "solid"},
                marker={"symbol": MARKERS[look % len(MARKERS)], "size": size},
                error_y=whiskers(errors) if against else None,
                **hover_texts(index, [hover(quantity, p, quantity.key) for _, p in line_points]),
            )
        )  # fmt: skip
        if level:
            figure.data[-1].update(mode="markers" if against else "lines")
        elif against:
            label_style = {"mode": "lines+markers+text", "textposition": "bottom right", "textfont_size": 11}
            figure.data[-1].update(text=[visible_text(p["x"]) for _, p in line_points], **label_style)
    figure.add_traces(bands)
    draw_axes(figure, about, quantity)


def _bars(
    figure: go.Figure, results: Results, quantity: Quantity, points: list[dict[str, Any]], looks: Mapping[str, int],
    names: Sequence[str],
) -> None:  # fmt: skip
    """Bars of the series ``names``, numbers above their whiskers where there is room."""
    about = results.about
    quantities = [results.quantity(key) for key in about["metrics"]]  # all bars of a result have numbers, or none
    is_numbered = all(_has_room(entry, points) for entry in quantities if isinstance(entry, Quantity))
    texts = dict(enumerate(amounts([value_of(point, quantity.key) for point in points], quantity.unit)))
    is_shared = len(names) < len({point["series"] for point in points})  # the colour is of no series
    for name in names:
        line_points = [(p["index"], p) for p in points if p["series"] == name]
        errors = [p["values"].get(quantity.key, {}).get("se") or 0 for _, p in line_points]
        values = [value_of(p, quantity.key) for _, p in line_points]
        places = [visible_text(p["x"]) for _, p in line_points]
        single = len(names) == 1 and about["x"] == LINE
        color = GREY if is_shared else color_of(looks.get(name, 0))
        colors = [color_of(looks[p["x"]]) for _, p in line_points] if single else color
        strokes = {"color": colors, "width": 2}  # 0 is seen too
        figure.add_trace(
            go.Bar(
                x=places, y=values, name=visible_text(name), offsetgroup=name or "all", legendgroup=name or "all",
                marker={"color": colors, "line": strokes}, error_y=whiskers(errors, GREY),
                **hover_texts([n for n, _ in line_points], [hover(quantity, p, quantity.key) for _, p in line_points]),
                showlegend=len(names) > 1,
            )
        )  # fmt: skip
        if is_numbered:  # on a bar that cannot be seen and reaches to the end of the whisker
            tops = [None if v is None else v + error for v, error in zip(values, errors, strict=True)]
            figure.add_trace(
                go.Bar(
                    x=places, y=tops, offsetgroup=name or "all", legendgroup=name or "all", showlegend=False,
                    marker={"color": "rgba(0,0,0,0)"}, hoverinfo="skip", text=[texts[n] for n, _ in line_points],
                    textposition="outside", constraintext="none", textangle=0, textfont={"size": NUMBER},
                    cliponaxis=False,
                )
            )  # fmt: skip
    draw_axes(figure, about, quantity)
    name_places(figure)


def _has_room(quantity: Quantity, points: list[dict[str, Any]]) -> bool:
    """True where numbers fit above bars: each is as narrow as its bar, or stands above the neighbours' numbers too."""
    names = _drawn_names(points, quantity.key)
    points = [point for point in points if point["series"] in names]
    spreads = [point["values"].get(quantity.key) or {} for point in points]
    texts = amounts([spread.get("value") for spread in spreads], quantity.unit)
    tops = [(spread.get("value") or 0.0) + (spread.get("se") or 0.0) for spread in spreads]
    room, line_height = BARS / max(1, len(points)), LINE_HEIGHT * max(tops, default=0.0) / PLOT
    order = sorted(range(len(points)), key=lambda n: points[n]["x"])  # those of a place stand beside each other
    for place, n in enumerate(order):
        neighbours = [order[k] for k in (place - 1, place + 1) if 0 <= k < len(order)]
        is_free = all(abs(tops[n] - tops[k]) >= line_height for k in neighbours)
        width = sum(DIGIT * (0.5 if sign in NARROW_SIGNS else 1) for sign in texts[n])
        if width > room and not (is_free and width <= 1.5 * room and all(tops[n] > tops[k] for k in neighbours)):
            return False
    return max(tops, default=0.0) > 0


def _heat(results: Results, quantity: Quantity, points: list[dict[str, Any]]) -> Iterator[Chart]:
    about = results.about
    across, down = ([text_of(v) for v in axis["values"]] for axis in about["axes"])
    for name in dict.fromkeys(point["series"] for point in points):
        at = {(p["x"], p["y"]): n for n, p in enumerate(points) if p["series"] == name}
        index = [[at.get((x, y)) for x in across] for y in down]
        z = [[None if n is None else value_of(points[n], quantity.key) for n in row] for row in index]
        figure = new_figure(quantity, f"{name}, {about['model'].get('name') or ''}{results.rough(quantity)}")
        figure.add_trace(
            go.Heatmap(
                z=z, x=across, y=down, customdata=index, colorscale="Cividis", xgap=2, ygap=2,
                colorbar={"title": {"text": quantity.unit}, "thickness": 12},
                text=[["" if n is None else hover(quantity, points[n], quantity.key) for n in row] for row in index],
                texttemplate="%{z:.3g}", hovertemplate="%{text}<extra></extra>",
            )
        )  # fmt: skip
        figure.update_xaxes(title_text=plain(about["axes"][0]["label"]), type="category", showgrid=False)
        figure.update_yaxes(title=plain(about["axes"][1]["label"]), type="category", showgrid=False)
        yield Chart(f"{quantity.label}: {name}", figure)


def _paper_line(
    figure: go.Figure, about: Mapping[str, Any], series: Mapping[str, Any], look: int, *, overlaid: bool
) -> None:
    values = places_along(about)
    group = f"paper ({series['model']})"
    xs = [place_on_axis(values, x) for x, _ in series["points"]]
    figure.add_trace(paper_line(series, xs, f"{series['label']}, {group}" if overlaid else series["label"], look))


def _paper_bars(figure: go.Figure, series: Mapping[str, Any], look: int, unit: str | None) -> None:
    """Bars; with a ``unit``, their numbers stand above them."""
    figure.add_trace(
        go.Bar(
            x=[plain(str(x)) for x, _ in series["points"]], y=[y for _, y in series["points"]],
            name=visible_text(series["label"]), showlegend=True,
            text=None if unit is None else [amount(y, unit) for _, y in series["points"]],
            textposition="outside", textfont={"size": 11}, textangle=0, cliponaxis=False,
            marker={
                "color": color_of(look), "line": {"color": color_of(look), "width": 1.2},
                "pattern": {"shape": "/", "fillmode": "replace", "size": 6, "fgcolor": color_of(look)},
            },
            hovertemplate=paper_note(series),
        )
    )  # fmt: skip
