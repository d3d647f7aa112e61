"""The answers themselves, side by side: what each method wrote on a prompt, and which of it was drafted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from specviz.views.step_words import pieces
from specviz.words import column

from .experiment import Row
from .quantities import Quantity
from .results import Results

if TYPE_CHECKING:
    from decoders.trace.trace import Trace

CASES = "cases"  # the chart of experiments that show answers
OPEN, CLOSE = "⟦", "⟧"  # around drafted tokens that were accepted
Case = tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...], int]


def mark_accepted(trace: Trace) -> str:
    """A run's answer, its accepted tokens in white brackets (``pieces``)."""
    texts = (f"{OPEN}{piece.text}{CLOSE}" if piece.accepted and piece.text else piece.text for piece in pieces(trace))
    return "".join(texts)


def answer_text(row: Row, limit: int) -> str:
    """A row's answer on one line, marks around its tokens without the spaces beside them; "…" where ``limit`` cut it.

    >>> answer_text({"output": "Here⟦ is\\n⟧more⟦ ⟧1⟦4⟧", "tokens": 5.0}, 5), answer_text({"output": "Here"}, 5)
    ('Here ⟦is⟧ more ⟦ ⟧1⟦4⟧\xa0…', 'Here')
    """
    text = " ".join((row.get("output") or row.get("error") or "–").split())
    text = re.sub(rf"{OPEN} (?!{CLOSE})", f" {OPEN}", text).replace(f"{OPEN} {CLOSE}", f" {OPEN} {CLOSE}")
    text = re.sub(rf"(?<!{OPEN}) {CLOSE}", f"{CLOSE} ", text)
    return text + "\u00a0…" * ((row.get("tokens") or 0) >= limit and not row.get("error"))


def cases_shown(results: Results, metrics: Sequence[str]) -> Iterator[Case]:
    """Per prompt a table: its title, heads, a row per line (and value of the first axis), and how many columns hold
    text. Lines that were not run say what would fill them.
    """
    about = results.about
    axes = [(f"param:{axis['param']}", axis["label"]) for axis in about["axes"]]
    quantities = [q for q in map(results.quantity, metrics) if isinstance(q, Quantity)]
    forms = [column(q.unit, [row.get(q.key) for row in results.rows]) for q in quantities]
    heads = ["", *(label for _, label in axes), "answer, ⟦drafted tokens⟧ (a token may be part of a word)"]
    labels = [f"{q.label} (%)" if q.unit == "share" else q.label for q in quantities]
    absent: dict[str, Any] = dict(about.get("absent") or {})
    for prompt in dict.fromkeys(row["prompt"] for row in results.rows):
        rows = []
        for row in results.rows:
            if row["prompt"] == prompt and row.get("role") != "hidden":
                text = answer_text(row, about["max_new_tokens"])
                numbers = (form(row.get(q.key)) for q, form in zip(quantities, forms, strict=True))
                rows.append((row["series"], *(row.get(name) or "" for name, _ in axes), text, *numbers))
        blank = ("–",) * len(quantities)
        rows += [(name, *("" for _ in axes), f"not run: {reason}", *blank) for name, reason in absent.items()]
        yield f"Prompt {prompt}", (*heads, *labels), tuple(rows), len(heads)
