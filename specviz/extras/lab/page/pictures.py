"""Cards of recorded experiments: a small picture, and what was found in one sentence.

``assets/lab/pictures.json`` holds those of what comes along, so that the gallery waits for nothing: ``python -m
specviz.extras.lab.page.pictures`` writes it anew.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from decoders.errors import UserError

from ..experiments.comparison import ALL_RUNS, SEPARATOR, Claim, comparisons, is_number, order
from ..experiments.drawing import amount
from ..experiments.findings import UNITS, claimed_metric, compared_names, first_claim, summary
from ..experiments.quantities import Profile
from ..experiments.results import Results, columns_of, points
from ..experiments.shipped import SHIPPED

MAX_LINES, MAX_VALUES = 6, 24  # a picture of more says nothing
FILE = "pictures.json"


@cache
def pictures(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """The picture of each recorded experiment that comes along, by its recipe: as its file says, or drawn anew."""
    path = folder / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else draw_pictures(folder)


def draw_pictures(folder: Path) -> dict[str, dict[str, Any]]:
    """The pictures of a folder's results."""
    drawings = {path.stem: picture(path) for path in sorted(folder.glob("*.zip"))}
    return {name: drawing for name, drawing in drawings.items() if drawing is not None}


def picture(path: Path) -> dict[str, Any] | None:
    """Picture of an experiment, with its "finding": its ``picture_of`` and its ``findings.summary``; None
    where it has no numbers.
    """
    with contextlib.suppress(UserError):
        results = Results.load(path)
        comparison = comparisons(path.parent).get(path.stem)
        drawing = picture_of(results, first_claim(results, comparison))
        return drawing and {**drawing, "finding": summary(results, comparison)}
    return None


def picture_of(results: Results, claim: Claim | None = None) -> dict[str, Any] | None:
    """``{"kind", "lines", "marks", "names", "metric", "range"}``: "bar", "line" or "heat"; per line its values of one
    metric (None: no number), from 0 to 1; [line, place] of the values that a claim compares; the names of the bars, or
    the places of the line; the metric's name, and the values that the picture spans. None where there are no numbers.
    Of a ``claim`` it draws what its sentence says: the line that it is about, from the first to the last place; else a
    bar for each of its numbers.
    """
    drawing = _draw_metric(results, claim)
    if drawing is None or claim is None:
        return drawing
    return drawing if drawing["marks"] or drawing["kind"] == "heat" else _bars_of(results, claim)


def _bars_of(results: Results, claim: Claim) -> dict[str, Any]:
    """A bar for each number of a claim, by the names that its sentence has for them."""
    quantity, sizes = results.quantity(claimed_metric(claim).partition(":")[0]), [*map(abs, claim.numbers(results))]
    high, names, texts = max(sizes) or 1.0, compared_names(results, claim), claim.texts(results)
    ends = [texts[sizes.index(size)] for size in (min(sizes), max(sizes))]
    unit = UNITS[quantity.unit] if quantity.unit in ("share", "×") else ""
    if is_number(claim.ours[-1]):
        is_plain = claim.ours[-1] == "1" and quantity.key == "speedup"
        names[-1] = "plain decoding" if is_plain else f"level {texts[-1]}{unit}"
    return {
        "kind": "bar", "lines": [[round(size / high, 2)] for size in sizes], "marks": [],
        "names": names, "metric": quantity.label, "range": "–".join(dict.fromkeys(ends)) + unit,
    }  # fmt: skip


def _draw_metric(results: Results, claim: Claim | None) -> dict[str, Any] | None:
    """The picture of the first metric that has numbers, a claim's own before the others."""
    about = results.about
    for metric in sorted(about["metrics"], key=lambda name: claim is not None and name != claim.metric):
        columns = list(columns_of(results.quantity(metric), metric, results.columns))
        if not columns:
            continue
        lines: dict[str, list[float | None]] = {}
        names: dict[tuple[int, int], set[str]] = {}
        is_heat = about["chart"] == "heat" and len(about["axes"]) == 2
        shown_points = list(points(results, [metric]))
        claimed = {part for selector in claim.ours for part in selector.split(SEPARATOR)} if claim else set()
        if len({point["series"] for point in shown_points}) > MAX_LINES:  # the lines of the sentence come first
            shown_points.sort(key=lambda point: point["series"] not in claimed)
        for point in shown_points:
            value = (point["values"].get(columns[0]) or {}).get("value")
            name, x = str(point["y"] if is_heat else point["series"]), point["x"]
            row = lines.setdefault(name, [])
            names[[*lines].index(name), len(row)] = {point["series"], x, f"{about['x']}={x}"}
            row.append(value if isinstance(value, int | float) else None)
        rows = [row[:MAX_VALUES] for row in [*lines.values()][:MAX_LINES]]
        is_line = not is_heat and any(len(row) > 2 for row in rows) and about["chart"] not in ("bar", "cases", "sheet")
        marks = _marks(claim, names) if claim and claim.metric == metric and is_line else []
        if marks:  # the line of the sentence, from its first to its last place
            line, places = marks[0][0], [place for _, place in marks]
            rows = [rows[line][min(places) : max(places) + 1]]
            marks = [(0, place - min(places)) for place in places]
        numbers = [abs(value) for row in rows for value in row if value is not None]
        if not numbers or not max(numbers):
            continue
        high, low = max(numbers), 0.0
        says_level = claim is not None and "=" in order(claim.numbers(results), claim.level)
        if is_line and min(numbers) < high and not says_level:  # its shape, not its height
            low = min(numbers) - 0.15 * (high - min(numbers))
        span = high - low
        shares = [[None if value is None else round((abs(value) - low) / span, 2) for value in row] for row in rows]
        quantity = results.quantity(metric)
        return {
            "kind": "heat" if is_heat else "line" if is_line else "bar", "lines": shares, "marks": marks,
            "names": _span(compared_names(results, claim)) if claim and marks else [], "metric": quantity.label,
            "range": "" if isinstance(quantity, Profile) else _range(min(numbers), high, quantity.unit),
        }  # fmt: skip
    return None


def _range(low: float, high: float, unit: str) -> str:
    """The lowest and the highest value of a picture.

    >>> _range(0.0, 0.352, "share"), _range(2.71, 3.25, "×"), _range(3.9, 3.9, "tokens/step")
    ('0–35 %', '2.71–3.25×', '3.90')
    """
    is_mean = unit in ("×", "tokens/step")
    first, last = (f"{value:.2f}" if is_mean else amount(value, unit).removesuffix("%") for value in (low, high))
    ends = "–".join(dict.fromkeys([first if low else "0", last]))
    return f"{ends}{UNITS[unit] if unit in ('share', '×') else ''}"


def _span(names: Sequence[str]) -> list[str]:
    """The places of a line as one name.

    >>> _span(["draft length K = 10", "draft length K = 40"])
    ['draft length K 10–40']
    """
    axis, _, first = names[0].rpartition(" = ")
    return [f"{axis} {first}–{names[-1].rpartition(' = ')[2]}".strip()]


def _marks(claim: Claim, names: Mapping[tuple[int, int], set[str]]) -> list[tuple[int, int]]:
    """[line, place] of each value that a claim names; none unless all are drawn, each at one place of one line."""
    found = []
    for selector in claim.ours:
        parts = {part for part in selector.split(SEPARATOR) if part != ALL_RUNS}
        at = [place for place, given in names.items() if parts <= given]
        if len(at) != 1 or at[0][0] >= MAX_LINES or at[0][1] >= MAX_VALUES:
            return []
        found += at
    return found if len({line for line, _ in found}) == 1 and len({*found}) > 1 else []


if __name__ == "__main__":
    drawing = draw_pictures(SHIPPED).items()
    compact: Any = {"ensure_ascii": False, "separators": (",", ":")}
    lines = [f"{json.dumps(name)}: {json.dumps(entry, **compact)}" for name, entry in drawing]
    (SHIPPED / FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
