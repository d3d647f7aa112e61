"""Text of any origin inside LaTeX, Markdown and CSV: nothing in it is a command, a link, markup or a formula."""

from __future__ import annotations

import re

TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "±": r"$\pm$", "×": r"$\times$", "÷": r"$\div$",
    "‡": r"\ddag{}", "†": r"\dag{}", "Σ": r"$\Sigma$", "δ": r"$\delta$", "β": r"$\beta$", "γ": r"$\gamma$",
    "−": "$-$", "·": r"$\cdot$", "θ": r"$\theta$", "τ": r"$\tau$", "≤": r"$\le$", "≥": r"$\ge$", "→": r"$\to$",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''", "`": r"\textasciigrave{}",
}  # fmt: skip


def tex(text: str) -> str:
    r"""Text as LaTeX prints it: nothing in it is a command.

    >>> tex("50 % of a_b\n\\input{x}")
    '50 \\% of a\\_b \\textbackslash{}input\\{x\\}'
    """
    return "".join(TEX.get(c, c) for c in line(text))


def md(text: str) -> str:
    r"""Text as Markdown prints it: no markup, no link, no HTML in it.

    >>> md("a|b <i>c_d")
    'a\\|b \\<i\\>c\\_d'
    """
    return re.sub(r"([\\`*_{}\[\]<>#|~$&!])", r"\\\1", line(text)).replace("://", ":\\/\\/")


_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")


def inert(text: str) -> str:
    """Text in a cell that a spreadsheet would run as a formula, with an apostrophe before it; ``drop_guard`` takes it
    off again, and gives every text back.

    >>> inert("=1+1"), inert("a=b"), inert("'=1"), [drop_guard(inert(text)) for text in ("=1", "'=1", "''a")]
    ("'=1+1", 'a=b', "''=1", ['=1', "'=1", "''a"])
    """
    return f"'{text}" if _FORMULA.match(text) else text


def drop_guard(text: str) -> str:
    """Text of a cell without the apostrophe that ``inert`` put before it."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def line(text: str) -> str:
    """On one line, without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
