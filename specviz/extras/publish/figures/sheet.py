"""A drawing in points (1/72 inch, from the top left): texts and polylines, and nothing else.

Both writers, ``svg`` and ``pdf``, draw exactly its items with the fonts of ``assets/fonts``, so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from decoders.folders import ASSETS
from specviz.words import SIGNS

if TYPE_CHECKING:
    from fontTools.ttLib import TTFont

COLUMN = 238.0  # points: a column of a two-column paper, 3.3 inches
BODY, SMALL = 8.0, 7.0  # sizes of type, in points
INK, SOFT, RULE, PAPER = "#111111", "#555555", "#8c8c8c", "#ffffff"
ACCEPTED, OFFERED = "#1f5f99", "#dce8f2"  # dark and light in greyscale, too
DARK = {
    INK: "#e6edf3", SOFT: "#9da7b3", RULE: "#6e7681", PAPER: "#0d1117", ACCEPTED: "#7db8f0", OFFERED: "#1d3a54",
}  # fmt: skip # on the screen of who reads in the dark
Face = Literal["sans", "bold", "mono"]  # mono: tokens, whose spaces count
FONTS: dict[Face, Path] = {
    "sans": ASSETS / "fonts" / "DejaVuSansCondensed.woff2",
    "bold": ASSETS / "fonts" / "DejaVuSansCondensed-Bold.woff2",
    "mono": ASSETS / "fonts" / "DejaVuSansMono.woff2",
}

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class TextMark:
    """One line of text that begins at ``x``; ``y`` is its base line."""

    x: float
    y: float
    text: str
    size: float = BODY
    face: Face = "sans"
    color: str = INK

    @property
    def width(self) -> float:
        return width(self.text, self.size, self.face)


@dataclass(frozen=True, slots=True)
class Shape:
    """A polyline, closed where it is filled or ``closed``."""

    points: tuple[Point, ...]
    stroke: str = ""
    fill: str = ""
    line: float = 0.6
    closed: bool = True


@dataclass(slots=True)
class Sheet:
    """A drawing ``width`` points wide; ``height`` grows with what is drawn. Files hold ``title`` and ``about``, too."""

    title: str
    about: str = ""
    width: float = COLUMN
    height: float = 0.0
    items: list[TextMark | Shape] = field(default_factory=list)

    def text(
        self, x: float, y: float, text: str, size: float = BODY, *, face: Face = "sans", color: str = INK,
        right: bool = False,
    ) -> float:  # fmt: skip
        """Writes a line from ``x`` on (``right``: up to ``x``), its base line at ``y``; returns its width."""
        text = printable(text)
        wide = width(text, size, face)
        if text.strip():
            self.items.append(TextMark(x - wide if right else x, y, text, size, face, color))
        self.height = max(self.height, y + 0.3 * size)
        return wide

    def line(self, *points: Point, stroke: str = RULE, line: float = 0.6) -> None:
        """Draws from point to point."""
        self.items.append(Shape(points, stroke, "", line, closed=False))
        self.height = max(self.height, *(y for _, y in points))

    def box(
        self, x: float, y: float, wide: float, high: float, *, stroke: str = "", fill: str = "", line: float = 0.6
    ) -> None:
        """Draws a rectangle; ``y`` is its top."""
        corners = ((x, y), (x + wide, y), (x + wide, y + high), (x, y + high))
        self.items.append(Shape(corners, stroke, fill, line))
        self.height = max(self.height, y + high)


def wrap(text: str, wide: float, size: float = BODY) -> Iterator[str]:
    """The lines of a text; a word that is wider than a line is broken.

    >>> list(wrap("one two", 20.0, 8.0))
    ['one', 'two']
    """
    line = ""
    for word in printable(text).split():
        while (cut := max(1, fitting(word, wide, size))) < len(word):
            if line:
                yield line
                line = ""
            yield word[:cut]
            word = word[cut:]
        longer = f"{line} {word}" if line else word
        if width(longer, size) > wide:
            yield line
            longer = word
        line = longer
    if line:
        yield line


def shorten(text: str, wide: float, size: float = BODY, face: Face = "sans") -> str:
    """As much of a text as fits, "…" in place of the rest."""
    text = printable(text)
    if fitting(text, wide, size, face) == len(text):
        return text
    return text[: fitting(text, wide - width("…", size, face), size, face)] + "…"


def fitting(text: str, wide: float, size: float = BODY, face: Face = "sans") -> int:
    """Count the first characters of a printable text that are as wide at most."""
    advances, units = _metrics(face)
    widths = accumulate(advances[ord(c)] for c in text)
    return next((n for n, all_so_far in enumerate(widths) if all_so_far * size / units > wide), len(text))


def width(text: str, size: float = BODY, face: Face = "sans") -> float:
    """The width of a printable text, in points.

    >>> width("ii") < width("ww")
    True
    """
    advances, units = _metrics(face)
    return sum(advances[ord(c)] for c in text) * size / units


def printable(text: str, face: Face = "sans") -> str:
    """A text with signs for what cannot be seen, or what the face does not have.

    >>> printable("a\\n\\t中\\x00")
    'a⏎→⟨U+4E2D⟩⟨U+0000⟩'
    """
    advances, _ = _metrics(face)
    characters = (c if c == " " else SIGNS.get(c, c) for c in text)
    return "".join(c if ord(c) in advances else f"⟨U+{ord(c):04X}⟩" for c in characters)


def token_face(text: str) -> Face:
    """The face of a token: mono, or sans for a token with a character that mono lacks.

    >>> token_face("x = 1"), token_face("ế")
    ('mono', 'sans')
    """
    return "mono" if all(ord(c) in _metrics("mono")[0] for c in printable(text)) else "sans"


def font(face: Face) -> TTFont:
    """A font that may be changed: read anew."""
    from fontTools.ttLib import TTFont

    return TTFont(FONTS[face], recalcTimestamp=False)


@cache
def _metrics(face: Face) -> tuple[dict[int, int], int]:
    """Of a font: character → its advance, for those that can be seen (and that sans and bold both have); and units per
    em.
    """
    alike: tuple[Face, ...] = (face,) if face == "mono" else ("sans", "bold")
    shared = set.intersection(*(set(font(face_name).getBestCmap() or ()) for face_name in alike))
    face_font: Any = font(face)
    names, advances = face_font.getBestCmap(), face_font["hmtx"].metrics
    return {c: advances[names[c]][0] for c in shared if chr(c).isprintable()}, face_font["head"].unitsPerEm


def characters_of(items: Sequence[TextMark | Shape], face: Face) -> str:
    """The characters that a font is needed for, in order."""
    return "".join(sorted({c for item in items if isinstance(item, TextMark) and item.face == face for c in item.text}))
