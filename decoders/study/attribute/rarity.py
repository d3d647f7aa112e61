"""Rarity: how much a run of words says that anybody would not have written anyway, in bits. stdlib only.

A vocabulary is in the order of frequency: its first entries are the commonest. By Zipf's law the token of rank r among
V has p(r) = 1 / (r · ln V), and a run's rarity is Σ −log2 p(r) over its tokens that hold a letter or a digit (OLMoTrace
takes the product of token counts in the same way). It needs no model, and tells gold quotations from other shared words
better than the model's own log-probability without the sources does (``benchmarks.attribution``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from decoders.trace.trace import Trace

from .text import token_bytes

_WORD = re.compile(r"\w+(?:['’]\w+)?")
FUNCTION_WORDS = frozenset(
    """a about above after again against all also am an and any are as at be because been before being below between
    both but by can could did do does doing down during each few for from further had has have having he her here
    hers him his how i if in into is it its itself just me more most must my no nor not now of off on once only or
    other our out over own same she should so some such than that the their them then there these they this those
    through to too under until up very was we were what when where which while who whom why will with would you
    your""".split()  # noqa: SIM905
)  # fmt: skip


def token_bits(trace: Trace, ids: Sequence[int]) -> list[float]:
    """The rarity of each of some tokens of a run; 0 for blanks, punctuation and special tokens."""
    of = token_bytes(trace)
    size = max(trace.run.get("model", {}).get("vocab") or 0, *of, 2)
    scale = math.log2(math.log(size))
    return [
        math.log2(token + 1) + scale if re.search(r"\w", of.get(token, b"").decode("utf-8", "replace")) else 0.0
        for token in ids
    ]


def is_quotable(text: str) -> bool:
    """True for words that can be a quotation: two words or more, or one that is no function word. Blanks and
    punctuation are none.

    >>> [is_quotable(text) for text in (" the", ", and", "1931", "in the", "\\n\\n", "museum.")]
    [False, False, True, True, False, True]
    """
    words = _WORD.findall(text)
    return len(words) > 1 or (len(words) == 1 and words[0].casefold() not in FUNCTION_WORDS)
