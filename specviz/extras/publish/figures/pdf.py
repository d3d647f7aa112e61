"""A sheet as PDF: text stays text, its fonts are embedded (TrueType, cut down to what is drawn)."""

from __future__ import annotations

import logging
from datetime import datetime

from .sheet import FONTS, Shape, Sheet, TextMark, characters_of


def pdf(sheet: Sheet, creation_date: datetime, *, compress: bool = True) -> bytes:
    """The drawing as one page of its own size; the same drawing gives the same bytes."""
    from fpdf import FPDF

    logging.getLogger("fontTools").setLevel(logging.ERROR)
    page = FPDF(unit="pt", format=(sheet.width, sheet.height))
    page.set_compression(compress)
    page.set_margin(0)
    page.set_auto_page_break(False)
    page.set_creation_date(creation_date)
    page.set_title(sheet.title)
    page.set_subject(sheet.about)
    page.set_creator("specviz")
    page.add_page()
    for face, file in FONTS.items():
        if characters_of(sheet.items, face):
            page.add_font(face, "", file)
    for item in sheet.items:
        if isinstance(item, TextMark):
            page.set_font(item.face, "", item.size)
            page.set_text_color(item.color)
            page.text(item.x, item.y, item.text)
        else:
            _shape(page, item)
    return bytes(page.output())


def _shape(page, item: Shape) -> None:
    page.set_line_width(item.line)
    if item.stroke:
        page.set_draw_color(item.stroke)
    if item.fill:
        page.set_fill_color(item.fill)
    style = ("D" if item.stroke else "") + ("F" if item.fill else "")
    page.polyline([*item.points], style=style, polygon=item.closed)
