"""Results as Plotly figures: one per metric, and the paper's numbers hollow and dashed, or in a figure of their own."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from specviz.views.charts import GREY, LAYOUT

from .experiment import CATEGORY, LINE, text_of
from .prompts import NAMES
from .quantities import TOTAL, Breakdown, Profile, Quantity, parts_of
from .results import Results, place_of, points, profile_of, profile_points

# Okabe and Ito's colours, told apart by the colour-blind; every line has a marker of its own besides
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A6FB0", GREY)
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
GRID = "rgba(128,128,128,.25)"
PARTS = {
    "main": "#0072B2", "branch": "#E69F00", "branch+successor": "#D55E00", "mismatch": "#9AA3AE", "none": "#D5DAE0",
    "lexical": "#0072B2", "semantic": "#E69F00",
    "rank 1": "#0072B2", "rank 2": "#4A9CCB", "rank 3": "#8CC1E0", "rank 4 to 8": "#C6E0F0", "beyond 8": "#9AA3AE",
}  # fmt: skip
HEIGHT, NARROW = 340, 420
MOST_OVERLAID, WIDEST = 3, 1.8  # a paper's series are drawn over ours if so few and of like size
LABELLED = 9  # a paper's bars have numbers if so few
SHORTEST = 0.07  # of the tallest bar: on shorter ones the number stands above


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure; ``paper`` says that all of it is from a paper. A trace's customdata are indices of ``points``."""

    title: str
    figure: go.Figure
    paper: bool = False


def charts(results: Results, metrics: Sequence[str] | None = None) -> list[Chart]:
    """Every figure of the results: per metric ours first, then the paper's where it stands alone."""
    found = list(points(results, metrics))
    made: list[Chart] = []
    for key in metrics or results.about["metrics"]:
        quantity = results.quantity(key)
        if isinstance(quantity, Breakdown):
            made += _breakdown(results, quantity, found)
        elif isinstance(quantity, Profile):
            made += _profile(results, quantity, found)
        else:
            made += _quantity(results, quantity, found)
    return made


def caption(results: Results) -> str:
    """What has to be known to read the charts, in sentences."""
    about = results.about
    model = about["model"]
    size = f", {model['parameters'] / 1e6:,.0f} M parameters" if model.get("parameters") else ""
    where = f"{model.get('name') or 'model'}{size}, {model.get('dtype')} on {model.get('device')}"
    count = len({row["prompt"] for row in results.rows if row.get("prompt")})
    ours = f"Ours: {where}; means over {count} prompts of at most {about['max_new_tokens']} new tokens"
    if not count:
        ours = f"Ours: {where}"
    elif all(isinstance(results.quantity(key), Profile) for key in about["metrics"]):
        ours = ours.replace("; means over", "; all of")
    elif about["chart"] in ("line", "bar"):
        ours += ", with standard errors"
    if about.get("training_steps"):
        ours += f"; {about.get('parts') or 'draft models'} trained for {about['training_steps']:,} steps"
    if about["temperature"]:
        ours += f", T = {about['temperature']:g}"
    parts = [ours + "."]
    if about["papers"]:
        models = ", ".join(dict.fromkeys(series["model"] for series in about["papers"]))
        parts.append(
            f"Hollow, dashed or hatched: the paper's numbers ({models}), on other prompts and another machine: compare "
            "shapes, not heights."
        )
    return " ".join(parts)


# --- one number per run ---


def _quantity(results: Results, quantity: Quantity, found: list[dict[str, Any]]) -> Iterator[Chart]:
    about = results.about
    papers = [series for series in about["papers"] if series["metric"] == quantity.key]
    if about["chart"] == "heat" and len(about["axes"]) == 2:
        yield from _heat(results, quantity, found)
        return
    looks = _looks(about, found, [s["label"] for s in papers])
    lines = about["chart"] == "line" and about["x"] not in (CATEGORY, LINE)
    figure = _figure(quantity, results.about["model"].get("name") or "")
    if lines:
        _lines(figure, results, quantity, found, looks)
    else:
        _bars(figure, results, quantity, found, looks)
    over = [s for s in papers if lines and len(papers) <= MOST_OVERLAID and _alike(s, quantity.key, found)]
    for series in over:
        _paper_line(figure, about, series, looks[series["label"]], overlaid=True)
    _room(figure)
    yield Chart(quantity.label, figure)
    alone = [s for s in papers if s not in over]
    for model in dict.fromkeys(s["model"] for s in alone):
        mine = [s for s in alone if s["model"] == model]
        few = sum(len(s["points"]) for s in mine) <= LABELLED
        figure = _figure(quantity, f"paper: {mine[0]['where']}, {model}", paper=True)
        for series in mine:
            if lines:
                _paper_line(figure, about, series, looks[series["label"]], overlaid=False)
            else:
                _paper_bars(figure, series, looks[series["label"]], quantity.unit if few else None)
        _axes(figure, about, quantity, paper=not lines)
        if lines and _numeric(_places(about)):
            places = sorted({x for series in mine for x, _ in series["points"]})
            figure.update_xaxes(tickvals=places if len(places) <= 12 else None, ticktext=_ticks(places))
        _room(figure)
        yield Chart(f"{quantity.label} (paper, {model})", figure, True)


def _looks(about: Mapping[str, Any], found: list[dict[str, Any]], papers: list[str]) -> dict[str, int]:
    """A colour and a marker per series; a level line has those of the line of the same task, where there is one."""
    level = {p["series"] for p in found if p["level"]}
    free = dict.fromkeys([*(p["series"] for p in found if p["series"] not in level), *papers])
    looks = {name: n for n, name in enumerate(free)}
    of_task = {name.rsplit(" · ", 1)[-1]: n for name, n in reversed(looks.items())} if about["by_category"] else {}
    for name in dict.fromkeys(p["series"] for p in found if p["level"]):
        looks[name] = of_task.get(name.rsplit(" · ", 1)[-1], len(looks))
    return looks


def _alike(series: Mapping[str, Any], key: str, found: list[dict[str, Any]]) -> bool:
    """Whether a paper's numbers are of a size with ours, so that one axis can hold both."""
    ours = sorted(mean for p in found if (mean := _mean(p, key)))
    theirs = sorted(y for _, y in series["points"])
    if not ours or not theirs:
        return False
    low, high = sorted((ours[len(ours) // 2], theirs[len(theirs) // 2]))
    return 0 < high <= WIDEST * low


def _lines(
    figure: go.Figure, results: Results, quantity: Quantity, found: list[dict[str, Any]], looks: Mapping[str, int]
) -> None:
    about = results.about
    values, against = _places(about), about.get("against") or ""
    for name in dict.fromkeys(point["series"] for point in found):
        mine = [(n, p) for n, p in enumerate(found) if p["series"] == name and _mean(p, quantity.key) is not None]
        if not mine:
            continue
        level = mine[0][1]["level"]
        place = [_x(values, mine[0][1]["x"] if not level else v) for v in values] if level else []
        ys = [_mean(p, quantity.key) for _, p in mine]
        if level:
            xs, ys, index = place, ys * len(place), [mine[0][0]] * len(place)
        else:
            xs, index = [_x(values, p["x"]) for _, p in mine], [n for n, _ in mine]
        errors = [] if level else [p["values"][quantity.key]["se"] or 0 for _, p in mine]
        if against:  # where it comes to lie is measured too
            mine = [m for m in mine if _mean(m[1], against) is not None]
            mine.sort(key=lambda m: _mean(m[1], against) or 0)
            xs, ys = [_mean(p, against) for _, p in mine], [_mean(p, quantity.key) for _, p in mine]
            index, errors = [n for n, _ in mine], [p["values"][quantity.key]["se"] or 0 for _, p in mine]
        look = looks[name]
        figure.add_trace(
            go.Scatter(
                x=xs, y=ys, name=_plain(name), customdata=index, mode="lines+markers",
                line={"color": _color(look), "width": 2, "dash": "dot" if level else "solid"},
                marker={"symbol": MARKERS[look % len(MARKERS)], "size": 11 if against and level else 4 if level else 8},
                error_y=_whiskers(errors),
                hovertext=[_hover(quantity, found[n], quantity.key) for n in index],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )  # fmt: skip
        if against and level:
            figure.data[-1].update(mode="markers")
        elif against:
            places = [_shown(found[n]["x"]) for n in index]
            told: dict[str, Any] = {"mode": "lines+markers+text", "textposition": "bottom right", "textfont_size": 11}
            figure.data[-1].update(text=places, **told)
    _axes(figure, about, quantity)


def _bars(
    figure: go.Figure, results: Results, quantity: Quantity, found: list[dict[str, Any]], looks: Mapping[str, int]
) -> None:
    about = results.about
    names = list(dict.fromkeys(point["series"] for point in found))
    tallest = max((mean for point in found if (mean := _mean(point, quantity.key)) is not None), default=0.0)
    for name in names:
        mine = [(n, p) for n, p in enumerate(found) if p["series"] == name]
        errors = [p["values"].get(quantity.key, {}).get("se") or 0 for _, p in mine]
        single = len(names) == 1 and about["x"] == LINE
        colors = [_color(n) for n in range(len(mine))] if single else _color(looks[name])
        figure.add_trace(
            go.Bar(
                x=[_shown(p["x"]) for _, p in mine], y=[_mean(p, quantity.key) for _, p in mine], name=_plain(name),
                customdata=[n for n, _ in mine], marker={"color": colors},
                error_y=_whiskers(errors, GREY),
                text=[_number(_mean(p, quantity.key), quantity.unit) for _, p in mine] if len(found) <= 16 else None,
                textposition=[
                    "outside" if (_mean(p, quantity.key) or 0) < SHORTEST * tallest else "inside" for _, p in mine
                ],
                insidetextanchor="start", textangle=0, textfont={"size": 11}, cliponaxis=False,
                hovertext=[_hover(quantity, p, quantity.key) for _, p in mine],
                hovertemplate="%{hovertext}<extra></extra>", showlegend=len(names) > 1,
            )
        )  # fmt: skip
    _axes(figure, about, quantity)


def _heat(results: Results, quantity: Quantity, found: list[dict[str, Any]]) -> Iterator[Chart]:
    about = results.about
    across, down = ([text_of(v) for v in axis["values"]] for axis in about["axes"])
    for name in dict.fromkeys(point["series"] for point in found):
        at = {(p["x"], p["y"]): n for n, p in enumerate(found) if p["series"] == name}
        known = [[at.get((x, y)) for x in across] for y in down]
        z = [[None if n is None else _mean(found[n], quantity.key) for n in row] for row in known]
        figure = _figure(quantity, f"{name}, {about['model'].get('name') or ''}")
        figure.add_trace(
            go.Heatmap(
                z=z, x=across, y=down, customdata=known, colorscale="Cividis", xgap=2, ygap=2,
                colorbar={"title": {"text": quantity.unit}, "thickness": 12},
                text=[["" if n is None else _hover(quantity, found[n], quantity.key) for n in row] for row in known],
                texttemplate="%{z:.3g}", hovertemplate="%{text}<extra></extra>",
            )
        )  # fmt: skip
        figure.update_xaxes(title_text=_plain(about["axes"][0]["label"]), type="category", showgrid=False)
        figure.update_yaxes(title=_plain(about["axes"][1]["label"]), type="category", showgrid=False)
        yield Chart(f"{quantity.label}: {name}", figure)


def _paper_line(
    figure: go.Figure, about: Mapping[str, Any], series: Mapping[str, Any], look: int, *, overlaid: bool
) -> None:
    values = _places(about)
    group = f"paper ({series['model']})"
    figure.add_trace(
        go.Scatter(
            x=[_x(values, x) for x, _ in series["points"]], y=[y for _, y in series["points"]],
            name=_plain(f"{series['label']}, {group}" if overlaid else series["label"]), mode="lines+markers",
            line={"color": _color(look), "width": 1.5, "dash": "dash"},
            marker={"symbol": f"{MARKERS[look % len(MARKERS)]}-open", "size": 9},
            hovertemplate=f"{_plain(series['label'])}: %{{y}}<br>paper, {_plain(series['where'])}, "
            f"{_plain(series['model'])}<extra></extra>",
        )
    )  # fmt: skip


def _paper_bars(figure: go.Figure, series: Mapping[str, Any], look: int, unit: str | None) -> None:
    """Bars; with a ``unit``, their numbers stand above them."""
    figure.add_trace(
        go.Bar(
            x=[_plain(str(x)) for x, _ in series["points"]], y=[y for _, y in series["points"]],
            name=_plain(series["label"]), showlegend=True,
            text=None if unit is None else [_number(y, unit) for _, y in series["points"]],
            textposition="outside", textfont={"size": 11}, textangle=0, cliponaxis=False,
            marker={
                "color": _color(look), "line": {"color": _color(look), "width": 1.2},
                "pattern": {"shape": "/", "fillmode": "replace", "size": 6, "fgcolor": _color(look)},
            },
            hovertemplate=f"{_plain(series['label'])}: %{{y}}<br>paper, {_plain(series['where'])}, "
            f"{_plain(series['model'])}<extra></extra>",
        )
    )  # fmt: skip


# --- parts of a whole, and parts side by side ---


def _breakdown(results: Results, breakdown: Breakdown, found: list[dict[str, Any]]) -> Iterator[Chart]:
    about = results.about
    columns = list(dict.fromkeys(column for point in found for column in point["values"]))
    parts = parts_of(breakdown, columns)
    papers = [series for series in about["papers"] if series["metric"] == breakdown.key]
    parts += [str(x) for series in papers for x, _ in series["points"] if str(x) not in parts]
    parts = list(dict.fromkeys(parts))
    rows = [(n, p) for n, p in enumerate(found) if p["runs"]]
    several = len({p["series"] for _, p in rows}) > 1
    named = several and about["x"] != LINE
    labels = [" · ".join([_plain(p["series"]), _shown(p["x"])] if named else [_shown(p["x"])]) for _, p in rows]
    figure = _figure(breakdown, about["model"].get("name") or "")
    for number, part in enumerate(parts):
        key = f"{breakdown.key}:{part}"
        values = [p["values"].get(key, {}).get("mean") for _, p in rows]
        text = [_number(v, breakdown.unit) if v and (v >= 0.04 or not breakdown.whole) else "" for v in values]
        hover = [_hover(breakdown, p, key, part) for _, p in rows]
        figure.add_trace(_segment(breakdown, part, number, labels, values, text, hover, [n for n, _ in rows]))
    _segments_axes(figure, breakdown, len(rows))
    yield Chart(breakdown.label, figure)
    for model in dict.fromkeys(series["model"] for series in papers):
        mine = [series for series in papers if series["model"] == model]
        figure = _figure(breakdown, f"paper: {mine[0]['where']}, {model}", paper=True)
        for number, part in enumerate(parts):
            values = [dict((str(x), y) for x, y in series["points"]).get(part) for series in mine]
            text = ["" if breakdown.whole else _number(v, breakdown.unit) for v in values]
            hover = [
                f"{_plain(s['label'])}, {part}: {_number(v, breakdown.unit)}<br>paper, {s['where']}, {model}"
                for s, v in zip(mine, values, strict=True)
            ]
            names = [_plain(series["label"]) for series in mine]
            figure.add_trace(_segment(breakdown, part, number, names, values, text, hover, None))
        _segments_axes(figure, breakdown, len(mine))
        yield Chart(f"{breakdown.label} (paper, {model})", figure, True)


def _segment(
    breakdown: Breakdown | Profile, part: str, number: int, labels: list[str], values: list[Any], text: list[str],
    hover: list[str], index: list[int] | None,
) -> go.Bar:  # fmt: skip
    color = PARTS.get(part, _color(number))
    marker: dict[str, Any] = {"color": color, "line": {"color": "rgba(128,128,128,.6)", "width": 0.5}}
    if index is None:
        marker |= {"pattern": {"shape": "/", "fillmode": "replace", "size": 6, "fgcolor": color}}
    flat = {"x": values, "y": labels, "orientation": "h"}
    upright = {"x": [part] * len(labels), "y": values}
    return go.Bar(
        **(flat if breakdown.whole else upright), name=_plain(part), marker=marker, customdata=index, text=text,
        textposition="inside" if breakdown.whole else "outside", insidetextanchor="middle", textfont={"size": 11},
        textangle=0, cliponaxis=False, hovertext=hover, hovertemplate="%{hovertext}<extra></extra>",
        showlegend=breakdown.whole,
    )  # fmt: skip


def _segments_axes(figure: go.Figure, breakdown: Breakdown | Profile, rows: int) -> None:
    if breakdown.whole:
        figure.update_layout(barmode="stack", height=max(240, 170 + 34 * rows), legend_traceorder="normal", bargap=0.3)
        figure.update_xaxes(range=[0, 1], dtick=0.25, tickformat=".0%", gridcolor=GRID)
        figure.update_yaxes(autorange="reversed", automargin=True, type="category")
    else:
        figure.update_layout(barmode="group")
        form = ".2%" if breakdown.unit == "share" else None
        title = "share of the forward" if form else breakdown.unit
        figure.update_yaxes(title=title, rangemode="tozero", tickformat=form, gridcolor=GRID)


# --- along something inside the runs ---


def _profile(results: Results, profile: Profile, found: list[dict[str, Any]]) -> Iterator[Chart]:
    about = results.about
    drawn = [(n, p, at) for n, p in profile_points(results, found) if (at := profile_of(profile, p))]
    several = len({p["series"] for _, p, _ in drawn}) > 1

    def label(point: Mapping[str, Any]) -> str:
        place = "" if about["x"] == CATEGORY or point["level"] else _shown(point["x"])
        return " · ".join(part for part in (_plain(point["series"]) if several or not place else "", place) if part)

    figure = _figure(profile, about["model"].get("name") or "")
    if profile.whole:
        parts = [part for part in profile.parts if any(part in shares for *_, at in drawn for _, shares, _ in at)]
        rows = [(n, p, *place) for n, p, at in drawn for place in at]
        labels = [
            " · ".join(text for text in (label(p) if len(drawn) > 1 else "", f"{profile.along} {place}") if text)
            + f"<br><span style='font-size:10px'>{count:,.0f} positions</span>"
            for _, p, place, _, count in rows
        ]
        for number, part in enumerate(parts):
            values = [shares.get(part, 0.0) for *_, shares, _ in rows]
            text = [_number(v, "share") if v >= 0.04 else "" for v in values]
            hover = [
                f"<b>{_number(v, 'share')}</b> {_plain(part)} · {label(p)}<br>{profile.along} {place}, "
                f"{count:,.0f} positions"
                for v, (_, p, place, _, count) in zip(values, rows, strict=True)
            ]
            figure.add_trace(_segment(profile, part, number, labels, values, text, hover, [n for n, *_ in rows]))
        _segments_axes(figure, profile, len(rows))
        yield Chart(profile.label, figure)
        return
    bars = []
    for look, (n, point, at) in enumerate(drawn):
        xs, color = [float(place) for place, *_ in at], _color(look)
        ys, counts = [shares[TOTAL] for _, shares, _ in at], [count for *_, count in at]
        where = [f"{profile.along.split(':')[0]} {place_of(profile, place)}" for place, *_ in at]
        seen = [f"<br>{count:,.0f} tokens" if profile.counted else "" for count in counts]
        hover = [
            f"<b>{_number(y, profile.unit)}</b> {label(point)}<br>{place}{more}"
            for y, place, more in zip(ys, where, seen, strict=True)
        ]
        figure.add_trace(
            go.Scatter(
                x=xs, y=ys, name=label(point), customdata=[n] * len(xs), mode="lines+markers", cliponaxis=False,
                line={"color": color, "width": 2}, marker={"symbol": MARKERS[look % len(MARKERS)], "size": 8},
                hovertext=hover, hovertemplate="%{hovertext}<extra></extra>",
            )
        )  # fmt: skip
        bars.append(
            go.Bar(
                x=xs, y=counts, yaxis="y2", marker={"color": color, "opacity": 0.55}, customdata=[n] * len(xs),
                hovertext=hover, hovertemplate="%{hovertext}<extra></extra>", showlegend=False, name=label(point),
            )
        )  # fmt: skip
    figure.update_xaxes(title_text=_plain(profile.along), gridcolor=GRID, zeroline=False)
    shares = profile.unit == "share"
    figure.update_yaxes(tickformat=".0%" if shares else None, gridcolor=GRID, zeroline=False, rangemode="tozero")
    if profile.counted:
        dotted, equal = {"dash": "dot", "width": 1.5, "color": GREY}, "acceptance = confidence"
        figure.add_trace(
            go.Scatter(x=[0, 1], y=[0, 1], mode="lines", line=dotted, name=equal, hoverinfo="skip")
        )
        figure.add_traces(bars)
        figure.update_xaxes(range=[0, 1], dtick=0.1, tickformat=".0%", anchor="y2", showgrid=False)
        figure.update_yaxes(range=[0, 1.04], domain=[0.3, 1])
        tokens = {"text": "tokens", "font": {"size": 12}}
        figure.update_layout(
            barmode="group", bargap=0.15,
            margin_r=32,
            yaxis2={"domain": [0, 0.22], "gridcolor": GRID, "nticks": 3, "title": tokens, "zeroline": False},
        )  # fmt: skip
    _room(figure)
    if profile.counted:
        figure.update_layout(height=(figure.layout.height or HEIGHT) + 90)
    yield Chart(profile.label, figure)


# --- what all share ---


def _figure(quantity: Quantity | Breakdown | Profile, about: str, *, paper: bool = False) -> go.Figure:
    said = quantity.unit.replace("/", " per ") in quantity.label.lower()
    unit = "" if said or quantity.unit in ("", "share") else f" ({quantity.unit})"
    title = f"<b>{_plain(quantity.label)}</b>{unit}<br><span style='font-size:12px'>{_plain(about)}</span>"
    layout = {**LAYOUT, "margin": {"l": 60, "r": 16, "t": 64, "b": 56}}
    figure = go.Figure()
    head = {"text": title, "x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top"}
    head |= {"font": {"size": 15}, "pad": {"t": 12, "l": 8}}
    legend = {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom", "groupclick": "toggleitem"}
    figure.update_layout(
        **layout, template="none", title=head, legend=legend | {"font": {"size": 12}},
        height=HEIGHT, hoverlabel={"align": "left"},
    )  # fmt: skip
    figure.update_xaxes(title_font_size=13, title_standoff=10, automargin=True)
    figure.update_yaxes(title_font_size=13)
    if paper:
        figure.update_layout(font_color="#999")
    return figure


def _room(figure: go.Figure) -> None:
    """Columns for the legend's entries, and room for its rows in a narrow chart."""
    traces = [(getattr(trace, "name", None), getattr(trace, "showlegend", None)) for trace in figure.data]
    names = [str(name) for name, listed in traces if name and listed is not False]
    width = min(260, 7 * max(map(len, names), default=0))
    rows = -(-len(names) // max(1, NARROW // (width + 45))) if len(names) > 1 else 0
    figure.update_layout(
        height=HEIGHT + 20 * rows, margin_b=56 + 20 * rows, legend_entrywidth=width, showlegend=len(names) > 1
    )


def _axes(figure: go.Figure, about: Mapping[str, Any], quantity: Quantity, *, paper: bool = False) -> None:
    bars = any(isinstance(trace, go.Bar) for trace in figure.data)
    shares = quantity.unit == "share"
    figure.update_yaxes(
        rangemode="tozero" if bars else "normal", gridcolor=GRID, zeroline=False, tickformat=".0%" if shares else None,
        title=None,
    )  # fmt: skip
    axis = next((a for a in about["axes"] if a["param"] == about["x"]), None)
    if about.get("against") and axis is not None and not bars and not paper:
        over = about["against_label"] + f" (at each point: {axis['label']})"
        figure.update_xaxes(title_text=_plain(over), gridcolor=GRID, zeroline=False, rangemode="tozero")
        return
    if axis is None or paper:
        figure.update_xaxes(type="category", automargin=True)
        if bars:
            figure.update_layout(barmode="group", bargap=0.25, bargroupgap=0.05)
        return
    values = axis["values"]
    figure.update_xaxes(title_text=_plain(axis["label"]), gridcolor=GRID, showgrid=not bars, zeroline=False)
    if not _numeric(values):
        figure.update_xaxes(type="category", categoryorder="array", categoryarray=[text_of(v) for v in values])
        return
    if axis["log"]:
        figure.update_xaxes(type="log")
    figure.update_xaxes(tickvals=values if len(values) <= 12 else None, ticktext=_ticks(values))
    if axis["paper"] is not None:
        figure.add_vline(
            axis["paper"], line={"dash": "dot", "width": 1, "color": GREY}, annotation_text="paper's choice",
            annotation_font_size=11, annotation_position="bottom right",
        )  # fmt: skip


def _ticks(values: Sequence[float]) -> list[str] | None:
    return [text_of(v) if v < 10_000 else f"{v:,}" for v in values] if len(values) <= 12 else None


def _places(about: Mapping[str, Any]) -> list[Any]:
    return next(axis["values"] for axis in about["axes"] if axis["param"] == about["x"])


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _x(values: Sequence[Any], value: Any) -> Any:
    """A place on the x axis: a number where all values are, else its text."""
    if not _numeric(values):
        return text_of(value)
    return float(value)


def _whiskers(errors: Sequence[float], color: str | None = None) -> dict[str, Any] | None:
    """Error bars; without a color they have that of their line."""
    return {"type": "data", "array": errors, "thickness": 1, "width": 3, "color": color} if any(errors) else None


def _mean(point: Mapping[str, Any], key: str) -> float | None:
    return point["values"].get(key, {}).get("mean")


def _shown(place: str) -> str:
    return _plain(NAMES.get(place, place))


def _color(number: int) -> str:
    return COLORS[number % len(COLORS)]


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "share":
        return f"{value:.0%}" if value >= 0.1 or not value else f"{value:.1%}" if value >= 0.01 else f"{value:.2%}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _hover(quantity: Quantity | Breakdown, point: Mapping[str, Any], key: str, part: str = "") -> str:
    spread = point["values"].get(key) or {"mean": None, "low": None, "high": None, "n": 0}
    place = ", ".join(_shown(p) for p in (point["x"], point["y"]) if p)
    head = " · ".join(p for p in (_plain(point["series"]), place, _plain(part)) if p)
    middle = f"{_number(spread['mean'], quantity.unit)} {'' if quantity.unit == 'share' else quantity.unit}".strip()
    low, high = _number(spread["low"], quantity.unit), _number(spread["high"], quantity.unit)
    failed = f"<br>{point['failed']} failed" if point["failed"] else ""
    return f"<b>{middle}</b> {head}<br>quartiles {low} to {high}, {spread['n']} runs{failed}"


def _plain(text: str) -> str:
    """Names are data: plotly would read tags in them."""
    return html.escape(str(text), quote=False)
