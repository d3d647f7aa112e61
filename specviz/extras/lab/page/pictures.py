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

from ..experiments.comparison import ALL_RUNS, SEPARATOR, Claim, comparisons, order
from ..experiments.drawing import amounts
from ..experiments.experiment import text_of
from ..experiments.findings import (
    claim_phrases,
    claimed_metric,
    claimed_noun,
    level_of,
    main_claim,
    summary,
    with_extremes,
)
from ..experiments.quantities import Breakdown, Profile, Quantity
from ..experiments.results import Results, columns_of, points, profile_of
from ..experiments.shipped import SHIPPED, example
from ..experiments.wording import Phrase, axis_phrase, heading, noun_of, number_with_unit, phrase

MAX_LINES, MAX_VALUES = 6, 24  # a picture of more says nothing
FILE = "pictures.json"
AnyQuantity = Quantity | Breakdown | Profile


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
        results = example(path)
        comparison = comparisons(path.parent).get(path.stem)
        pair = main_claim(results, comparison)
        drawing = picture_of(results, pair and pair[0])
        entries = {key: value for key, value in (drawing or {}).items() if value}
        return drawing and {**entries, "finding": summary(results, comparison)}
    return None


def picture_of(results: Results, claim: Claim | None = None) -> dict[str, Any] | None:
    """``{"kind", "lines", "marks", "names", "note", "metric", "range"}``: "bar", "line" or "heat"; per line its values
    of one metric (None: no number), from 0 to 1; [line, place] of the values that a claim compares; a name for each
    line (with its number where it has one), or of the places of the only one; what the places are; the metric's name,
    and the values that the picture spans. None where there are no numbers.
    Of a ``claim`` it draws what its sentence says: the line that it is about, from the first to the last place; else a
    bar for each of its numbers.
    """
    drawing = _draw_metric(results, claim)
    if drawing is None or claim is None:
        return drawing
    return drawing if drawing["marks"] or drawing["kind"] == "heat" else _bars_of(results, claim)


def _bars_of(results: Results, claim: Claim) -> dict[str, Any]:
    """A bar for each number of a claim's sentence, by the names that it has for them."""
    claim, _ = with_extremes(results, claim)
    quantity, sizes = results.quantity(claimed_metric(claim).partition(":")[0]), [*map(abs, claim.numbers(results))]
    high, names = max(sizes) or 1.0, [entry.name for entry in claim_phrases(results, claim)]
    if level_of(claim):
        is_plain = level_of(claim) == "1" and quantity.unit == "×"
        names.append("plain decoding" if is_plain else "bound set here")
    texts, noun = claim.texts(results), claimed_noun(results, claim)
    ends = [texts[sizes.index(size)] for size in (min(sizes), max(sizes))]
    return {
        "kind": "bar", "lines": [[round(size / high, 2)] for size in sizes], "marks": [],
        "names": _with_numbers(names, texts, quantity.unit, noun), "note": "", "metric": heading(noun),
        "range": number_with_unit("–".join(dict.fromkeys(ends)), quantity.unit, noun),
    }  # fmt: skip


def _with_numbers(names: Sequence[str], texts: Sequence[str], unit: str, noun: str) -> list[str]:
    return [f"{name}: {number_with_unit(text, unit, noun)}" for name, text in zip(names, texts, strict=True)]


def _draw_metric(results: Results, claim: Claim | None) -> dict[str, Any] | None:
    """The picture of the first metric that has numbers, a claim's own before the others."""
    about = results.about
    for metric in sorted(about["metrics"], key=lambda name: claim is not None and name != claim.metric):
        quantity = results.quantity(metric)
        columns = list(columns_of(quantity, metric, results.columns))
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
            if isinstance(quantity, Profile):  # the first part of its first place
                value = next((next(iter(shares.values())) for _, shares, _ in profile_of(quantity, point)), None)
            # along the lines every bar is a line of its own
            name, x = str(point["y"] if is_heat else point["series"] or point["x"]), point["x"]
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
        is_last = claim is not None or metric == about["metrics"][-1]
        if not numbers or not max(numbers) or (len({*numbers}) == 1 and not is_last):
            continue
        high, low = max(numbers), 0.0
        says_level = claim is not None and "=" in order(claim.numbers(results), claim.level)
        if is_line and min(numbers) < high and not says_level:  # its shape, not its height
            low = min(numbers) - 0.15 * (high - min(numbers))
        span = high - low
        shares = [[None if value is None else round((abs(value) - low) / span, 2) for value in row] for row in rows]
        kind = "heat" if is_heat else "line" if is_line else "bar"
        noun = claimed_noun(results, claim) if claim and marks else noun_of(results, metric)
        if isinstance(quantity, Profile):
            noun = noun_of(results, f"{metric}:{columns[0].partition(':')[2]}")
        return {
            "kind": kind, "lines": shares, "marks": marks,
            "names": [_span(claim_phrases(results, claim))] if claim and marks else (
                [] if is_heat else _names(results, lines, quantity, noun)
            ),
            "note": "" if claim and marks else _places_note(about, kind, rows), "metric": heading(noun),
            "range": _range(min(numbers), high, quantity.unit, noun),
        }  # fmt: skip
    return None


def _names(
    results: Results, lines: Mapping[str, Sequence[float | None]], quantity: AnyQuantity, noun: str
) -> list[str]:
    """A name for each of several lines; with its number where it is one."""
    rows = [*lines.values()][:MAX_LINES]
    if len(rows) < 2:
        return []
    names = [phrase(results, [name], quantity.key).name for name in [*lines][:MAX_LINES]]
    if max(map(len, rows)) > 1:
        return names
    texts = amounts([row[0] for row in rows], quantity.unit)
    return _with_numbers(names, [text.removesuffix("%") for text in texts], quantity.unit, noun)


def _places_note(about: Mapping[str, Any], kind: str, rows: Sequence[Sequence[float | None]]) -> str:
    """A note on the axes of a picture that draws all of the results."""
    spans = [_span([axis_phrase(axis["label"], text_of(axis["values"][n])) for n in (0, -1)]) for axis in about["axes"]]
    if kind == "heat":
        return f"to the right: {spans[0]}; downwards: {spans[1]}; darker: higher"
    if kind == "line" and spans:
        return f"to the right: {spans[0]}"
    return "a bar for each task, the last for all" if kind == "bar" and max(map(len, rows)) > 1 else ""


def _range(low: float, high: float, unit: str, noun: str = "") -> str:
    """The lowest and the highest value of a picture.

    >>> _range(0.0, 0.352, "share"), _range(2.71, 3.25, "×"), _range(3.9, 3.9, "tokens/step", "tokens per step")
    ('0–35 %', '2.71–3.25×', '3.90')
    """
    is_mean = unit in ("×", "tokens/step")
    texts = [f"{low:.2f}", f"{high:.2f}"] if is_mean else amounts([low, high], unit)
    texts = [text.removesuffix("%") for text in texts]
    return number_with_unit("–".join(dict.fromkeys([texts[0] if low else "0", texts[1]])), unit, noun)


def _span(phrases: Sequence[Phrase]) -> str:
    """The places of a line as one name.

    >>> _span([axis_phrase("draft length K", "10"), axis_phrase("draft length K", "40")])
    'draft length of 10 to 40 tokens'
    >>> _span([axis_phrase("threshold θ", "off"), axis_phrase("threshold θ", "0")])
    'without a threshold, to cosine threshold of 0'
    """
    first, last = phrases[0], phrases[-1]
    words, last_words = first.name.split(), last.name.split()
    if len(words) != len(last_words) or not first.repeat or not last.repeat:
        return f"{first.name}, to {last.name}"
    number = next(n for n, (word, other) in enumerate(zip(words, last_words, strict=True)) if word != other)
    return " ".join([*words[: number + 1], "to", *last_words[number:]])


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
