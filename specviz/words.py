"""Words for users: what went wrong in one line, numbers with their nouns, large numbers short."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence

from decoders.errors import sentence as sentence

UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")
SIGNS = {" ": "␣", "\n": "⏎", "\t": "→", "\r": "␍"}  # for what cannot be seen of a token by itself


def mark_unseen(text: str) -> str:
    """Text whose invisible characters, which could turn round what stands beside them, are shown as marks. The
    browser's ``safe`` is the same.

    >>> mark_unseen("a\\u202eb\\x07")
    'a⟨U+202E⟩b⟨x07⟩'
    """

    def mark(match: re.Match[str]) -> str:
        code = ord(match[0])
        return f"⟨x{code:02X}⟩" if code < 0xA0 else f"⟨U+{code:04X}⟩"

    return UNSEEN.sub(mark, text)


def visible(text: str) -> str:
    """Model text fit for a terminal: control characters, which could move the cursor or worse, become visible.

    >>> visible("a\\tb\\x1b[31m")
    'a\\tb\\\\x1b[31m'
    """
    return "".join(c if c in "\n\t" or c == "\u200d" or c.isprintable() else repr(c)[1:-1] for c in text)


def enumeration(texts: Sequence[str]) -> str:
    """
    >>> enumeration(["2", "3", "4"])
    '2, 3 and 4'
    """
    return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def plural(count: int, noun: str) -> str:
    """A number with its noun.

    >>> plural(1, "prompt"), plural(2_000, "prompt")
    ('1 prompt', '2,000 prompts')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def numeric(text: str) -> bool:
    """True for a text that is a number, as ``float`` reads it."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def short_number(count: float) -> str:
    """A large number in three digits.

    >>> short_number(134_515_008), short_number(7.24e9), short_number(5_300)
    ('135M', '7.24B', '5.3k')
    """
    value, unit = (count / 1e9, "B") if count >= 1e9 else (count / 1e6, "M") if count >= 1e6 else (count / 1e3, "k")
    return f"{value:.3g}{unit}"


def decimal(value: float | None) -> str:
    """A number as people read it, to three digits; a dash where there is none. The browser's ``format`` is the same.

    >>> decimal(8.2308), decimal(1234.5), decimal(0.00001234), decimal(12), decimal(0.1), decimal(None)
    ('8.23', '1,234', '1.2e-5', '12', '0.100', '–')
    """
    if value is None or value != value:
        return "–"
    size = abs(value)
    if value == int(value) or size >= 1000:
        return f"{value:,.0f}"
    if size < 0.001:
        return f"{value:.1e}".replace("e-0", "e-")
    return f"{value:#.3g}".rstrip(".")


def decimals(value: float | None, digits: int) -> str:
    """A number of a column, in which all have the same number of decimals; a dash where there is none.

    >>> decimals(3.14159, 2), decimals(1234.5, 1), decimals(None, 2)
    ('3.14', '1,234.5', '–')
    """
    return "–" if value is None or value != value else f"{value:,.{digits}f}"


def column(unit: str, values: Iterable[float | None]) -> Callable[[float | None], str]:
    """Write the numbers of a column, or of a table of one quantity: all with the same number of decimals,
    shares in per cent without the sign. The one rule of all tables.

    >>> column("share", [0.5])(0.123), column("tokens/s", [1234.5, 2.0])(2.0), column("×", [1.5])(1.5)
    ('12.3', '2.0', '1.50')
    >>> column("ms", [0.1])(0.25), column("tokens", [3, 400])(3), column("×", [1.5])(None)
    ('0.250', '3', '–')
    """
    if unit == "share":
        return lambda value: "–" if value is None else decimals(100 * value, 1)
    finite_values = [value for value in values if value is not None and math.isfinite(value)]
    largest = max(map(abs, finite_values), default=0.0)
    whole = bool(finite_values) and all(value == int(value) for value in finite_values)
    digits = 0 if whole else 1 if largest >= 100 else 2 if largest >= 1 else 3
    return lambda value: decimals(value, digits)


def column_texts(unit: str, values: Iterable[float | None]) -> list[str]:
    """The numbers of a column as they are written (``column``).

    >>> column_texts("×", [1.5, 0.25, None])
    ['1.50', '0.25', '–']
    """
    values = list(values)
    return list(map(column(unit, values), values))


def with_unit(label: str, unit: str) -> str:
    """A quantity with its unit, where its name does not say it.

    >>> with_unit("Speedup", "×"), with_unit("Tokens per step", "tokens/step"), with_unit("Reuse", "share")
    ('Speedup (×)', 'Tokens per step', 'Reuse (%)')
    """
    unit = "" if unit.replace("/", " per ") in label.lower() else "%" if unit == "share" else unit
    return f"{label} ({unit})" if unit else label


def probability(value: float | None) -> str:
    """A probability in a narrow place.

    >>> probability(0.9312), probability(0.004), probability(0.9999), probability(0.0001), probability(None)
    ('.93', '.004', '1.0', '<.001', '–')
    """
    if value is None:
        return "–"
    if value >= 0.995:
        return "1.0"
    if value < 0.001:
        return "<.001"
    return f"{value:.{3 if value < 0.01 else 2}f}".removeprefix("0")


def duration(seconds: float) -> str:
    """A length of time in words.

    >>> duration(8), duration(200), duration(9000)
    ('10 seconds', '3 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{max(5, round(seconds / 5) * 5)} seconds"
    if seconds < 5400:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"
