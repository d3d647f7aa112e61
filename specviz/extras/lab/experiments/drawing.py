"""Shared parts of the lab's figures: colours and markers, empty figures, axes, and how numbers and names are shown."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf, log10
from typing import Any

import plotly.graph_objects as go

from specviz.views.charts import GREY, LAYOUT, plain
from specviz.words import enumeration

from .experiment import CATEGORY, LINE, text_of
from .quantities import LEARNT, POOLED, Breakdown, Profile, Quantity
from .results import Results
from .wording import legend_text, plain_number

# Okabe and Ito's colours, told apart by the colour-blind; every line has a marker of its own besides
COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A6FB0", GREY, "#332288", "#8C564B", "#882255",
    "#999933",
)  # fmt: skip
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
GRID = "rgba(128,128,128,.25)"
PARTS = {
    "main": "#0072B2", "branch": "#E69F00", "branch+successor": "#D55E00", "mismatch": "#9AA3AE", "none": "#D5DAE0",
    "lexical": "#0072B2", "semantic": "#E69F00",
    "rank 1": "#0072B2", "rank 2": "#4A9CCB", "rank 3": "#8CC1E0", "rank 4 to 8": "#C6E0F0", "beyond 8": "#9AA3AE",
}  # fmt: skip
HEIGHT, NARROW, MARGINS = 300, 420, 76  # MARGINS: at the left and the right of a chart
NEAR = 0.01  # of an axis: numbers no further apart lie on one another
CLOSE = 0.02  # of an axis: nearer numbers have one label
LETTER = 7.0  # pixels of a character below an axis
PLOT_WIDTH, ENTRY = 388, 45  # pixels of a chart of two in a row, and of a legend's entry beside its text
NOTE = 56  # characters of a line below a title


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure; ``paper`` says that all of it is from a paper. A trace's customdata are indices of ``points``."""

    title: str
    figure: go.Figure
    paper: bool = False


def basis(results: Results, quantity: Quantity | Breakdown | Profile, part: str = "") -> str:
    """The model that a chart's numbers are of, and the prompts, where those of several tasks stand together."""
    about, tasks = results.about, {row.get(CATEGORY) for row in results.rows}
    is_apart = about["by_category"] or quantity.key in LEARNT
    is_apart = is_apart or (about["x"] == CATEGORY and not isinstance(quantity, Profile))
    model = (about["model"].get("name") or "") + results.rough(quantity)
    prompts = f"all {about['cases']} prompts" if len(tasks) > 1 and not is_apart and about.get("cases") else ""
    return " · ".join(filter(None, [model, part, prompts]))


def new_figure(
    quantity: Quantity | Breakdown | Profile, about: str, *, paper: bool = False, note: str = ""
) -> go.Figure:
    """``about``: whose numbers these are; ``note``: a sentence below it."""
    in_label = quantity.unit.replace("/", " per ") in quantity.label.lower()
    unit = "" if in_label or quantity.unit in ("", "share") else f" ({quantity.unit})"
    notes = textwrap.wrap(note, NOTE)
    lines = "<br>".join(map(plain, [about, *notes]))
    title = f"<b>{plain(quantity.label)}</b>{unit}<br><span style='font-size:12px'>{lines}</span>"
    layout = {**LAYOUT, "margin": {"l": 60, "r": 16, "t": 64 + 16 * len(notes), "b": 56}}
    figure = go.Figure()
    head = {"text": title, "x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top"}
    head |= {"font": {"size": 15}, "pad": {"t": 12, "l": 8}}
    legend = {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"}
    legend |= {"traceorder": "normal", "groupclick": "togglegroup"}  # bands and numbers go with their line or bars
    figure.update_layout(
        **layout, template="none", title=head, legend=legend | {"font": {"size": 12}},
        height=HEIGHT, hoverlabel={"align": "left"},
    )  # fmt: skip
    figure.update_xaxes(title_font_size=13, title_standoff=10, automargin=True)
    figure.update_yaxes(title_font_size=13)
    if paper:
        figure.update_layout(font_color="#999")
    return figure


def paper_note(series: Mapping[str, Any]) -> str:
    """The words on a paper's number."""
    source = f"paper, {plain(series['where'])}, {plain(series['model'])}"
    return f"{visible_text(series['label'])}: %{{y}}<br>{source}<extra></extra>"


def paper_line(series: Mapping[str, Any], xs: Sequence[Any], name: str, look: int) -> go.Scatter:
    """A paper's numbers as a dashed line with open markers; ``xs`` are their places along the axis."""
    return go.Scatter(
        x=xs, y=[y for _, y in series["points"]], name=visible_text(name), mode="lines+markers",
        line={"color": color_of(look), "width": 1.5, "dash": "dash"},
        marker={"symbol": f"{MARKERS[look % len(MARKERS)]}-open", "size": 9}, hovertemplate=paper_note(series),
    )  # fmt: skip


def make_room(figure: go.Figure, height: int = HEIGHT) -> None:
    """Columns for the legend's entries, and room for its rows in a narrow chart."""
    traces = [(getattr(trace, "name", None), getattr(trace, "showlegend", None)) for trace in figure.data]
    names = [str(name) for name, in_legend in traces if name and in_legend is not False]
    width = min(260, round(max(map(_text_width, names), default=0)))
    columns = max(1, PLOT_WIDTH // (width + ENTRY))
    if len(names) - columns == 1 < columns:  # the last would be alone
        columns -= 1
        width = PLOT_WIDTH // columns - ENTRY
    rows = -(-len(names) // max(1, (NARROW - MARGINS) // (width + ENTRY))) if len(names) > 1 else 0
    figure.update_layout(
        height=height + 20 * rows, margin_b=56 + 20 * rows, legend_entrywidth=width, showlegend=len(names) > 1
    )


def _text_width(text: str) -> float:
    """Pixels of a text in a legend, in a wide font."""
    return sum(4.5 if sign in " .,:'()fijlrt" else 8.7 if sign.isupper() or sign in "mw" else 7.5 for sign in text)


def draw_axes(figure: go.Figure, about: Mapping[str, Any], quantity: Quantity, *, paper: bool = False) -> None:
    bars = any(isinstance(trace, go.Bar) for trace in figure.data)
    shares = quantity.unit == "share"
    ys = [y for trace in figure.data for y in getattr(trace, "y", None) or ()] if bars else []
    is_below = any(y is not None and y < 0 for y in ys)
    base = "tozero" if is_below else "nonnegative"  # bars stand on 0, even where a whisker reaches below
    figure.update_yaxes(
        rangemode=base if bars else "normal", gridcolor=GRID, zeroline=False, tickformat=".1~%" if shares else None,
        title=None,
    )  # fmt: skip
    if shares and not bars:  # a share ends at 100 %
        figure.update_yaxes(autorangeoptions={"clipmin": 0, "clipmax": 1})
        figure.update_traces(cliponaxis=False, selector={"mode": "lines+markers"})
    axis = next((a for a in about["axes"] if a["param"] == about["x"]), None)
    if about.get("against") and axis is not None and not bars and not paper:
        over = about["against_label"] + f" (at each point: {axis['label']})"
        figure.update_xaxes(title_text=plain(over), gridcolor=GRID, zeroline=False, rangemode="tozero")
        return
    if axis is None or paper:
        label = axis["label"] if axis else "" if about["x"] == LINE or paper else about.get("groups", "task")
        figure.update_xaxes(type="category", automargin=True, title_text=plain(label) or None)
        if bars:
            figure.update_layout(barmode="group", bargap=0.25, bargroupgap=0.05)
        return
    values = axis["values"]
    figure.update_xaxes(title_text=plain(axis["label"]), gridcolor=GRID, showgrid=not bars, zeroline=False)
    if not all_numbers(values):
        figure.update_xaxes(type="category", categoryorder="array", categoryarray=[text_of(v) for v in values])
        return
    if axis["log"]:
        figure.update_xaxes(type="log")
    figure.update_xaxes(tickvals=values if len(values) <= 12 else None, ticktext=ticks(values, axis["log"]))
    if axis["paper"] is not None:
        place = axis["paper"]
        figure.add_vline(place, line={"dash": "dot", "width": 1, "color": GREY})
        figure.add_annotation(  # above the plot; on a log axis at its exponent
            x=log10(place) if axis["log"] else place, y=1, yref="paper", yanchor="bottom", text="paper's choice",
            xanchor="right" if place == max(values) else "center", showarrow=False, font_size=11, borderpad=0, yshift=5,
        )  # fmt: skip


def name_places(figure: go.Figure) -> None:
    """Names below the places of an axis of names: in lines where that makes room for them, not aslant."""
    places = [getattr(trace, "x", ()) for trace in figure.data]
    names = list(dict.fromkeys(str(place) for trace_places in places for place in trace_places))
    letters = int((NARROW - MARGINS) / max(1, len(names)) / LETTER) - 1  # a number stays with its name
    phrases = [re.sub(r" (?=[\d=])", "\u00a0", name) for name in names]
    lines = ["<br>".join(textwrap.wrap(phrase, max(1, letters), break_long_words=False)) for phrase in phrases]
    longest = max((len(word) for name in names for word in name.split()), default=0)
    if figure.layout.xaxis.type == "category" and longest * LETTER <= NARROW / max(1, len(names)):
        figure.update_xaxes(tickvals=names, ticktext=lines, tickangle=0)


def ticks(values: Sequence[float], log: bool = False) -> list[str] | None:
    """Labels of a few numbers along an axis: none for one that the next would lie on.

    >>> ticks([1, 256, 270], log=True), ticks([1, 1000, 20000])
    (['1', '', '270'], ['1', '1,000', '20,000'])
    """
    if len(values) > 12:
        return None
    places = [log10(value) if log else value for value in values]
    gaps = [abs(right - left) for left, right in itertools.pairwise(places)]
    texts = [plain_number(text_of(value)) for value in values]
    return [text if gap > CLOSE * sum(gaps) else "" for text, gap in zip(texts, [*gaps, inf], strict=True)]


def places_along(about: Mapping[str, Any]) -> list[Any]:
    return next(axis["values"] for axis in about["axes"] if axis["param"] == about["x"])


def all_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def marker_size(places: Sequence[float]) -> float:
    """Pixels of a line's markers: as large as leaves the two nearest places apart, within limits.

    >>> marker_size([13, 26, 78, 80]), marker_size([1, 2, 3])
    (6, 8)
    """
    xs = sorted(places)
    gaps = [right - left for left, right in itertools.pairwise(xs) if right > left]
    pixels = min(gaps) / (xs[-1] - xs[0]) * 0.8 * NARROW if gaps else NARROW
    return max(4, min(8, round(pixels) - 4))


def place_on_axis(values: Sequence[Any], value: Any) -> Any:
    """A place on the x axis: a number where all values are, else its text."""
    return float(value) if all_numbers(values) else text_of(value)


def whiskers(errors: Sequence[float], color: str | None = None) -> dict[str, Any] | None:
    """Error bars; without a color they have that of their line. A number without an error has none."""
    sizes = [error or None for error in errors]
    return {"type": "data", "array": sizes, "thickness": 1, "width": 3, "color": color} if any(errors) else None


def band(xs: Sequence[Any], ys: Sequence[float], errors: Sequence[float], look: int, name: str) -> go.Scatter:
    """A line's standard errors as a shade behind it."""
    channels = ", ".join(str(int(color_of(look)[n : n + 2], 16)) for n in (1, 3, 5))
    pairs = list(zip(ys, errors, strict=True))
    return go.Scatter(
        x=[*xs, *reversed(xs)], y=[*(y + error for y, error in pairs), *(y - error for y, error in reversed(pairs))],
        mode="lines", line={"width": 0}, fill="toself", fillcolor=f"rgba({channels}, .12)", name=name,
        legendgroup=name, showlegend=False, hoverinfo="skip", customdata=[],
    )  # fmt: skip


def value_of(point: Mapping[str, Any], key: str) -> float | None:
    """The number that is drawn of a point (``results.points``)."""
    return point["values"].get(key, {}).get("value")


Line = Sequence[tuple[Any, float | None]]


def overlaps(lines: Mapping[Any, Line], *, from_zero: bool = False) -> list[list[Any]]:
    """The names of lines in groups that lie on one another: at the same places, numbers as good as the same, on an axis
    of their values or from 0 on.

    >>> overlaps({"a": [("1", 2.0)], "b": [("1", 3.0)], "c": [("1", 2.001)]})
    [['a', 'c'], ['b']]
    """
    values = [abs(value) for line in lines.values() for _, value in line if value is not None]
    near = NEAR * (max(values, default=0) - (0 if from_zero else min(values, default=0)))
    groups = list[list[Any]]()
    for name, line in lines.items():
        if group := next((group for group in groups if _covers(line, lines[group[0]], near)), None):
            group.append(name)
        else:
            groups.append([name])
    return groups


def _covers(line: Line, line_below: Line, near: float) -> bool:
    is_drawn = any(value is not None for _, value in line)
    return is_drawn and [x for x, _ in line] == [x for x, _ in line_below] and all(
        a == b if a is None or b is None else abs(a - b) <= near
        for (_, a), (_, b) in zip(line, line_below, strict=True)
    )  # fmt: skip


def overlap_note(groups: Sequence[Sequence[str]]) -> str:
    """
    >>> overlap_note([["a", "c"], ["b"]]), overlap_note([["a", "b", "c"]])
    ('a and c lie on each other', 'all 3 lines lie on each other')
    >>> overlap_note([["a", "c"], ["b", "d"]])
    'a and c lie on each other, b and d too'
    """
    if len(groups) == 1 and len(groups[0]) > 2:
        return f"all {len(groups[0])} lines lie on each other"
    names = [enumeration([*map(legend_text, group)]) for group in groups if group[1:]]
    clauses = [f"{name} {'too' if n else 'lie on each other'}" for n, name in enumerate(names)]
    return ", ".join(clauses)


def looks_of(about: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """A colour and a marker for each series of a result, in all of its charts; a level line has the colour of the line
    of the same task, where there is one.
    """
    level = {p["series"] for p in points if p["level"]}
    names = [p["x"] if about["x"] == LINE else p["series"] for p in points if p["series"] not in level]
    looks = {name: n for n, name in enumerate(dict.fromkeys([*names, *(s["label"] for s in about["papers"])]))}
    of_task = {name.rsplit(" · ", 1)[-1]: n for name, n in reversed(looks.items())} if about["by_category"] else {}
    for name in dict.fromkeys(p["series"] for p in points if p["level"]):
        looks[name] = of_task.get(name.rsplit(" · ", 1)[-1], len(looks))
    return looks


def visible_text(place: str) -> str:
    return plain(legend_text(place))


def color_of(number: int) -> str:
    return COLORS[number % len(COLORS)]


def amount(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "share":
        return f"{value:.0%}" if value >= 0.1 or not value else f"{value:.1%}" if value >= 0.01 else f"{value:.2%}"
    return f"{value:,.0f}" if abs(value) >= 100 else plain_number(f"{value:.3g}")


def amounts(values: Sequence[float | None], unit: str) -> list[str]:
    """Numbers that stand beside each other, with as many decimals, which leave the largest three digits.

    >>> amounts([1.0, 1.75], ""), amounts([0.079, 0.23], "share"), amounts([0.001, 0.23], "share")
    (['1.00', '1.75'], ['8%', '23%'], ['0.10%', '23%'])
    >>> amounts([2.17, 12.33], "tokens"), amounts([7.87e-05, 5.48], "%")
    (['2.2', '12.3'], ['0.000079', '5.48'])
    """
    texts, sizes = [amount(value, unit) for value in values], [abs(value) for value in values if value]
    if unit == "share":
        is_whole = bool(sizes) and min(sizes) >= 0.01 and max(sizes) >= 0.1
        return ["–" if value is None else f"{value:.0%}" for value in values] if is_whole else texts
    decimals = max((len(text.partition(".")[2]) for text in texts if "e" not in text), default=0)
    decimals = min(decimals, max(0, 2 - floor(log10(max(sizes, default=1)))))
    return [
        text if value is None or "e" in text else f"{value:,.{decimals}f}"
        if not value or abs(value) >= 0.5 * 10**-decimals else plain_number(f"{value:.2g}")
        for value, text in zip(values, texts, strict=True)
    ]  # fmt: skip


def hover(quantity: Quantity | Breakdown, point: Mapping[str, Any], key: str, part: str = "") -> str:
    """Text under the pointer; of a pooled number also the mean of the runs' own."""
    spread = point["values"].get(key) or {"value": None, "mean": None, "low": None, "high": None, "n": 0}
    place = ", ".join(visible_text(p) for p in (point["x"], point["y"]) if p)
    head = " · ".join(p for p in (visible_text(point["series"]), place, plain(part)) if p)
    middle = f"{amount(spread['value'], quantity.unit)} {'' if quantity.unit == 'share' else quantity.unit}".strip()
    pooled = key.partition(":")[0] in POOLED and spread["n"] > 1
    mean_note = f"mean of runs {amount(spread['mean'], quantity.unit)}, " if pooled else ""
    low, high = amount(spread["low"], quantity.unit), amount(spread["high"], quantity.unit)
    failed = f"<br>{point['failed']} failed" if point["failed"] else ""
    return f"<b>{middle}</b> {head}<br>{mean_note}quartiles {low} to {high}, {spread['n']} runs{failed}"


def hover_texts(index: Sequence[int | None] | None, hovers: Sequence[str]) -> dict[str, Any]:
    """Facts that a Plotly trace carries on its points: their places in ``points``, and the text under the pointer."""
    return {"customdata": index, "hovertext": hovers, "hovertemplate": "%{hovertext}<extra></extra>"}
