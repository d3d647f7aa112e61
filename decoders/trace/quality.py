"""The quality of an answer against a reference: the scores of CASD's tables.

Every score is from 0 to 1. ``rapidfuzz`` is imported only where it is used.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from decoders.errors import UserError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WORDS = re.compile(r"[a-z0-9]+")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> list[str]:
    """A text's words as SQuAD compares them: lower case, without punctuation and articles.

    >>> normalise("The well-known  Mahesh Bhatt.")
    ['wellknown', 'mahesh', 'bhatt']
    """
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def f1(answer: str, reference: str) -> float:
    """F1 of the bags of normalised words (SQuAD; LongBench's QA score). Two texts without words agree.

    >>> f1("Mahesh Bhatt is the father.", "Mahesh Bhatt")
    0.6666666666666666
    """
    answer_words, reference_words = Counter(normalise(answer)), Counter(normalise(reference))
    if not answer_words or not reference_words:
        return float(answer_words == reference_words)
    return 2 * (answer_words & reference_words).total() / (answer_words.total() + reference_words.total())


def rouge_l(answer: str, reference: str) -> float:
    """The F-measure of ROUGE-L: the longest common subsequence of words (as the package rouge-score, whose import takes
    a second, computes it without stemming).
    """
    try:
        from rapidfuzz.distance import LCSseq
    except ImportError as error:
        raise _missing("ROUGE-L", "rapidfuzz") from error
    words, reference_words = (_WORDS.findall(text.lower()) for text in (answer, reference))
    if not words or not reference_words:
        return 0.0
    common = LCSseq.similarity(reference_words, words)
    precision, recall = common / len(words), common / len(reference_words)
    return 2 * precision * recall / (precision + recall) if common else 0.0


def edit_similarity(answer: str, reference: str) -> float:
    """1 − insertions and deletions ÷ both lengths, of the first code line (LongBench's score of code completion).

    Of the answer it is the first line without a backtick, a "#" or a "//"; of the reference the first line, or where
    that is a fence, its first one of code.
    """
    try:
        from rapidfuzz import fuzz
    except ImportError as error:
        raise _missing("edit similarity", "rapidfuzz") from error
    first = reference.lstrip("\n").partition("\n")[0]
    return fuzz.ratio(first_code_line(answer), first_code_line(reference) if first.startswith("```") else first) / 100


def first_code_line(text: str) -> str:
    """The first line that is neither a fence nor has a comment; "" if there is none.

    >>> first_code_line("```python\\n# next\\nreturn total\\n```")
    'return total'
    """
    lines = text.lstrip("\n").split("\n")
    return next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), "")


SCORES: dict[str, Callable[[str, str], float]] = {"f1": f1, "rouge_l": rouge_l, "edit": edit_similarity}


def quality(answer: str, reference: str) -> dict[str, float]:
    """Every score whose package is installed: ``f1``, ``rouge_l``, ``edit``; nothing without a reference."""
    scores: dict[str, float] = {}
    for name, score in SCORES.items() if reference.strip() else ():
        with suppress(UserError):  # the package is missing: that score is not known
            scores[name] = score(answer, reference)
    return scores


def _missing(score: str, package: str) -> UserError:
    return UserError(f"{score} needs the package {package}: run `pip install {package}`")
