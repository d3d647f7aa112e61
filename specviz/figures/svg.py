"""A sheet as SVG: text stays text, its fonts come along."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from io import BytesIO

from .sheet import FAMILY, FONTS, Shape, Sheet, Text, font, used


def svg(sheet: Sheet) -> str:
    """The drawing as one file. Every line of text has its width, so that no other font can change the layout."""
    size = f"{_n(sheet.width)} {_n(sheet.height)}"
    wide, high = f"{_n(sheet.width)}pt", f"{_n(sheet.height)}pt"
    faces = "".join(_face(sheet, bold) for bold in FONTS)
    style = f"text{{font-family:'{FAMILY}',sans-serif;font-kerning:none;white-space:pre}}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {size}">',
            f"<title>{_safe(sheet.title)}</title>",
            f"<desc>{_safe(sheet.about)}</desc>",
            f"<style>{faces}{style}</style>",
            *(_text(item) if isinstance(item, Text) else _shape(item) for item in sheet.items),
            "</svg>\n",
        ]
    )


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _safe(text: str) -> str:
    """Text for XML, which has no word for control characters."""
    return escape("".join(c if c.isprintable() or c in "\n\t" else " " for c in text))


def _text(item: Text) -> str:
    weight = ' font-weight="700"' if item.bold else ""
    return (
        f'<text x="{_n(item.x)}" y="{_n(item.y)}" font-size="{_n(item.size)}" fill="{item.color}"{weight} '
        f'textLength="{_n(item.width)}" lengthAdjust="spacingAndGlyphs">{_safe(item.text)}</text>'
    )


def _shape(item: Shape) -> str:
    points = " ".join(f"{_n(x)},{_n(y)}" for x, y in item.points)
    dash = f' stroke-dasharray="{_n(item.dash[0])} {_n(item.dash[1])}"' if item.dash else ""
    pen = f' stroke="{item.stroke}" stroke-width="{_n(item.line)}"{dash}' if item.stroke else ""
    return f'<{"polygon" if item.closed else "polyline"} points="{points}" fill="{item.fill or "none"}"{pen}/>'


def _face(sheet: Sheet, bold: bool) -> str:
    """A font cut down to the characters that are drawn with it, inside the file; "" where there are none."""
    if not (text := used(sheet.items, bold)):
        return ""
    from fontTools.subset import Options, Subsetter

    one = font(bold)
    cutter = Subsetter(Options(notdef_outline=True, drop_tables=["name"]))
    cutter.populate(text=text)
    cutter.subset(one)
    one.flavor = "woff"
    data = BytesIO()
    one.save(data, reorderTables=False)
    source = f"data:font/woff;base64,{b64encode(data.getvalue()).decode()}"
    weight = 700 if bold else 400
    return f"@font-face{{font-family:'{FAMILY}';font-weight:{weight};src:url({source}) format('woff')}}"
