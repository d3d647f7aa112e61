"""A sheet as SVG: text stays text, its fonts come along; on a screen it follows the reader's light or dark scheme."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from html import escape
from io import BytesIO

from .sheet import DARK, FONTS, PAPER, Face, Shape, Sheet, TextMark, characters_of, font

MARGIN = 8.0  # points around a figure, as a page may have any background; a PDF has none, a paper sets its own
FAMILY = "specviz {}"  # of each face, so that no font of the machine takes its place


def svg(sheet: Sheet) -> str:
    """The drawing as one file. Every line of text has its width, so that no other font can change the layout."""
    return document(sheet, map(element_of, sheet.items), margin=MARGIN)


def document(sheet: Sheet, body: Iterable[str], rules: str = "", margin: float = 0.0) -> str:
    """A file with a sheet's title, size and fonts; ``rules`` go into its style sheet, ``margin`` (points) around it."""
    wide, high = _n(sheet.width + 2 * margin), _n(sheet.height + 2 * margin)
    faces = "".join(_embed(characters_of(sheet.items, face), face) for face in FONTS)
    style = "text{font-kerning:none;white-space:pre}" + "".join(
        f".{face}{{font-family:'{FAMILY.format(face)}',{'monospace' if face == 'mono' else 'sans-serif'}}}"
        for face in FONTS
    )
    # a picture's own colours, as pages may have others; what prints or converts a drawing reads its attributes alone
    changes = "".join(
        f'[{paint}="{light}"]{{{paint}:{dark}}}' for light, dark in DARK.items() for paint in ("fill", "stroke")
    )
    scheme = f"@media screen and (prefers-color-scheme:dark){{svg{{background:{DARK[PAPER]}}}{changes}}}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}pt" height="{high}pt" '
            f'viewBox="{_n(-margin)} {_n(-margin)} {wide} {high}">',
            f"<title>{_safe(sheet.title)}</title>",
            f"<desc>{_safe(sheet.about)}</desc>",
            f"<style>svg{{background:{PAPER}}}{faces}{style}{rules}{scheme}</style>",
            *body,
            "</svg>\n",
        ]
    )


def element_of(item: TextMark | Shape) -> str:
    """An item as an element."""
    return _text(item) if isinstance(item, TextMark) else _shape(item)


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _safe(text: str) -> str:
    """Text for XML, which has no word for control characters."""
    return escape("".join(c if c.isprintable() or c in "\n\t" else " " for c in text))


def _text(item: TextMark) -> str:
    return (
        f'<text class="{item.face}" x="{_n(item.x)}" y="{_n(item.y)}" font-size="{_n(item.size)}" fill="{item.color}" '
        f'textLength="{_n(item.width)}" lengthAdjust="spacingAndGlyphs">{_safe(item.text)}</text>'
    )


def _shape(item: Shape) -> str:
    points = " ".join(f"{_n(x)},{_n(y)}" for x, y in item.points)
    pen = f' stroke="{item.stroke}" stroke-width="{_n(item.line)}"' if item.stroke else ""
    return f'<{"polygon" if item.closed else "polyline"} points="{points}" fill="{item.fill or "none"}"{pen}/>'


def _embed(text: str, face: Face) -> str:
    """A font cut down to the characters of ``text``, inside the file; "" where there are none."""
    if not text:
        return ""
    from fontTools.subset import Options, Subsetter

    face_font = font(face)
    cutter = Subsetter(Options(notdef_outline=True, name_IDs=[1, 2]))  # browsers open no font without names
    cutter.populate(text=text)
    cutter.subset(face_font)
    face_font.flavor = "woff"
    data = BytesIO()
    face_font.save(data, reorderTables=False)
    source = f"data:font/woff;base64,{b64encode(data.getvalue()).decode()}"
    return f"@font-face{{font-family:'{FAMILY.format(face)}';src:url({source}) format('woff')}}"
