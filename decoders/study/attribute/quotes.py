"""Gold quotes, and how well attribution finds them: QuoteSum's form, token precision, recall and F1.

QuoteSum (Schuster et al. 2023) writes an answer as text with ``[ n words of source n ]`` in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from decoders.errors import UserError
from decoders.folders import read_text
from decoders.prompt.files import PromptRecord
from decoders.trace.trace import Trace

from .attribution import Link, link_mask, links
from .text import TokenText

INSTRUCTION = "Answer the question with quotes from the passages."
FORM = 'QuoteSum\'s form is {"question": "...", "summary": "... [ 1 quoted words ] ...", "source1": "...", ...}'


@dataclass(frozen=True, slots=True)
class Quote:
    """Characters [start, stop) of an answer that are quoted from ``passage`` (from 0; -1: one that is not given), where
    they stand at [source_start, source_stop) (-1, -1: not word for word).
    """

    start: int
    stop: int
    passage: int
    source_start: int = -1
    source_stop: int = -1


@dataclass(frozen=True, slots=True)
class QuotedAnswer:
    """A question over passages, and an answer whose quotes are known. No passage is blank."""

    id: str
    instruction: str
    passages: tuple[str, ...]
    question: str
    answer: str
    quotes: tuple[Quote, ...]

    def record(self) -> PromptRecord:
        """The question as the model is asked it."""
        return PromptRecord(
            self.id, "quote", instruction=self.instruction, context=self.passages, question=self.question,
            reference=self.answer,
        )  # fmt: skip


# --- QuoteSum ---------------------------------------------------------------------------------------------------------

_OPEN = re.compile(r"\[\s*([1-9]\d?)\s+")
_GAP = re.compile(r"\s+(?=[.,;:!?)])")


def parse_quotes(text: str) -> tuple[str, list[tuple[int, int, int]]]:
    """The answer without its marks, and (start, stop, source number) of each quote in it, in characters.

    A mark opens with a bracket, a number from 1 to 99 and a blank; other brackets ("[sic]", "[1]") are text, inside a
    quote too. Blanks before a closing mark, and between it and the punctuation that follows, go with it. A mark around
    nothing is no quote. Raises ValueError for a quote inside another one, or one that never closes.

    >>> parse_quotes("He said [ 2 it rained ] , twice .")
    ('He said it rained, twice .', [(8, 17, 2)])
    """
    text = text.strip()
    answer_words: list[str] = []
    quotes: list[tuple[int, int, int]] = []
    number = start = inner = at = 0
    while at < len(text):
        opening = _OPEN.match(text, at)
        if opening and number:
            raise ValueError(f"a quote of source {opening[1]} begins inside one of source {number}")
        if opening:
            number, start, inner, at = int(opening[1]), len(answer_words), 0, opening.end()
        elif text[at] == "]" and number and not inner:
            while len(answer_words) > start and answer_words[-1].isspace():
                answer_words.pop()
            if len(answer_words) > start:
                quotes.append((start, len(answer_words), number))
            number, at = 0, at + 1
            if gap := _GAP.match(text, at):
                at = gap.end()
        else:
            inner += number > 0 and {"[": 1, "]": -1}.get(text[at], 0)
            answer_words.append(text[at])
            at += 1
    if number:
        raise ValueError(f"the quote of source {number} never closes")
    return "".join(answer_words), quotes


def locate(passage: str, words: str) -> tuple[int, int]:
    """Find words in a passage: as they are, or else but for case, blanks, the form of quotation marks and dashes, and
    punctuation at their end; (-1, -1) where they are not there.

    >>> locate("It rained: “cats”.", 'rained :"cats" ,')
    (3, 17)
    """
    if (at := passage.find(words)) >= 0:
        return at, at + len(words)
    folded_text, place = _fold(passage)
    needle, _ = _fold(words)
    for form in (needle, needle.rstrip(".,;:!?")):
        if form and (at := folded_text.find(form)) >= 0:
            return place[at], place[at + len(form) - 1] + 1
    return -1, -1


_FORMS = str.maketrans("“”„‘’‚–—−", "\"\"\"'''---")


def _fold(text: str) -> tuple[str, list[int]]:
    """Text without blanks, case and forms of marks, and the place of each of its characters."""
    letters = [(c, i) for i, char in enumerate(text.translate(_FORMS)) if not char.isspace() for c in char.casefold()]
    return "".join(c for c, _ in letters), [i for _, i in letters]


def parse_quotesum(row: Any, name: str) -> QuotedAnswer:
    """One row of QuoteSum, its passages the sources that are not blank, each after its title.

    A quote of a source that is not there is kept (its words are quoted), with no passage. Raises ValueError saying what
    is wrong: another form, marks that cannot be read, no source, no quote.
    """
    if not isinstance(row, dict):
        raise ValueError("it is not an object")
    if wrong := [key for key in ("question", "summary") if not isinstance(row.get(key), str)]:
        raise ValueError(f"its {wrong[0]!r} is missing or not text")
    passages: dict[int, str] = {}
    for number in sorted(int(key[6:]) for key in row if re.fullmatch(r"source[1-9]\d?", key)):
        source, title = row[f"source{number}"] or "", row.get(f"title{number}") or ""
        if not isinstance(source, str) or not isinstance(title, str):
            raise ValueError(f"its source{number} or title{number} is not text")
        if source.strip():
            has_title = title.strip() and not source.startswith(title.strip())
            passages[number] = f"{title.strip()}: {source.strip()}" if has_title else source.strip()
    if not passages:
        raise ValueError("it has no source with text")
    answer, marks = parse_quotes(row["summary"])
    if not marks:
        raise ValueError("its summary quotes nothing")
    places = {number: (i, passage) for i, (number, passage) in enumerate(passages.items())}
    quotes = []
    for start, stop, number in marks:
        i, passage = places.get(number, (-1, ""))
        quotes.append(Quote(start, stop, i, *locate(passage, answer[start:stop])))
    label = next((str(row[key]) for key in ("unique_id", "qid") if isinstance(row.get(key), str | int)), name)
    return QuotedAnswer(label, INSTRUCTION, tuple(passages.values()), row["question"], answer, tuple(quotes))


def read_quotesum(path: str | Path, limit: int | None = None) -> tuple[list[QuotedAnswer], list[str]]:
    """The rows of a QuoteSum file (JSON lines), at most ``limit``, and one sentence for each row that was left out.

    Raises UserError where no row can be used.
    """
    path = Path(path)
    return parse_rows(read_text(path, "QuoteSum"), path.stem, limit, str(path))


def parse_rows(
    text: str, name: str, limit: int | None = None, title: str = "the text"
) -> tuple[list[QuotedAnswer], list[str]]:
    """``read_quotesum`` of a file's text. ``name`` begins the names of rows without an id; ``title`` is what the error
    calls the file.
    """
    answers: list[QuotedAnswer] = []
    left_out: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        if limit is not None and len(answers) >= limit:
            break
        try:
            answers.append(parse_quotesum(json.loads(line), f"{name}-{number}"))
        except json.JSONDecodeError as error:
            left_out.append(f"line {number} was left out: it is not JSON (column {error.colno}: {error.msg.lower()})")
        except RecursionError:
            left_out.append(f"line {number} was left out: it is not JSON of this form")
        except ValueError as error:
            left_out.append(f"line {number} was left out: {error}")
    if not answers:
        raise UserError(f"{title} holds no row to score ({left_out[0] if left_out else 'it is empty'}); {FORM}")
    return answers, left_out


# --- the score --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QuoteScore:
    """Of one example, or the mean over several: linked tokens that are quoted ÷ linked, ÷ quoted, and their harmonic
    mean. ``right_passage``: of the tokens both linked and quoted, the share whose source is the quoted passage (None
    where there are none).
    """

    precision: float
    recall: float
    f1: float
    right_passage: float | None = None


def token_score(link_mask: np.ndarray, gold: np.ndarray) -> QuoteScore:
    """Precision, recall and F1 of boolean arrays, one entry per token. Nothing linked: 1, 0, 0 (methods.md §2).

    Raises ValueError where nothing is quoted.

    >>> token_score(np.array([True, True, False, False]), np.array([True, False, True, False]))
    QuoteScore(precision=0.5, recall=0.5, f1=0.5, right_passage=None)
    """
    if not gold.any():
        raise ValueError("no token is quoted, so there is nothing to find: leave the example out")
    overlap, all_linked, all_gold = int((link_mask & gold).sum()), int(link_mask.sum()), int(gold.sum())
    precision = overlap / all_linked if all_linked else 1.0
    return QuoteScore(precision, overlap / all_gold, 2 * overlap / (all_linked + all_gold))


def gold_tokens(trace: Trace, gold: QuotedAnswer) -> np.ndarray | None:
    """The quoted passage of every output token ``[output]``, -2 where it is not quoted; None unless the output holds
    all quotes, in their order.

    A token is quoted if all its characters are, blanks at its ends aside: one that goes on beyond the quotation, as
    ``."`` does, is not what the source has.
    """
    answer = TokenText(trace, trace.output_ids)
    quotes = _place(gold, answer.text)
    if quotes is None:
        return None
    passage = np.full(len(answer.starts), -2, dtype=np.int64)
    for token in range(len(passage)):
        start, stop = answer.core(token)
        for a, b, number in quotes:
            if a <= start < stop <= b:
                passage[token] = number
    return passage


def _place(gold: QuotedAnswer, text: str) -> list[tuple[int, int, int]] | None:
    """(start, stop, passage) of the quotes in an answer, which may be another than the gold one."""
    if text == gold.answer:
        return [(q.start, q.stop, q.passage) for q in gold.quotes]
    at, placements = 0, []
    for quote in gold.quotes:
        words = gold.answer[quote.start : quote.stop]
        at = text.find(words, at)
        if at < 0:
            return None
        placements.append((at, at + len(words), quote.passage))
        at += len(words)
    return placements


def score_links(trace: Trace, gold: QuotedAnswer, copies: Sequence[Link]) -> QuoteScore | None:
    """The scores of links to passages (of the context or a pool) as finders of quotes; None where ``gold_tokens``
    is.
    """
    passage = gold_tokens(trace, gold)
    if passage is None:
        return None
    from_passage = link_mask(copies, len(passage))
    score = token_score(from_passage >= -1, passage >= -1)
    overlap = (from_passage >= -1) & (passage >= -1)
    return replace(
        score, right_passage=float((from_passage[overlap] == passage[overlap]).mean()) if overlap.any() else None
    )


@dataclass(frozen=True, slots=True)
class SweepRow:
    """The mean over ``examples`` of their scores at one ``min_run``."""

    min_run: int
    examples: int
    score: QuoteScore


def sweep(runs: Sequence[tuple[Trace, QuotedAnswer]], min_runs: Sequence[int], *, whole: bool = True) -> list[SweepRow]:
    """PLD+ table 10: scores per example, then averaged, for each threshold. Answers without the gold quotes do not
    count. Raises ValueError if none does. ``whole`` as in ``links``.
    """
    scored = [
        score_row for trace, gold in runs if (score_row := scores(trace, gold, min_runs, whole=whole)) is not None
    ]
    return [
        SweepRow(n, len(scored), mean_score([score_row[i] for score_row in scored])) for i, n in enumerate(min_runs)
    ]


def scores(trace: Trace, gold: QuotedAnswer, min_runs: Sequence[int], *, whole: bool = True) -> list[QuoteScore] | None:
    """The scores of one answer, one per threshold; None where it does not hold the gold quotes."""
    all_links = links(trace, 1, whole=whole)
    link_scores = (score_links(trace, gold, [link for link in all_links if len(link) >= n]) for n in min_runs)
    scored = [score for score in link_scores if score is not None]
    return scored if len(scored) == len(min_runs) else None


def mean_score(quote_scores: Sequence[QuoteScore]) -> QuoteScore:
    """The mean over examples, each counted alike. Raises ValueError where there is none."""
    if not quote_scores:
        raise ValueError("no answer holds the quotes of its gold answer, so there is nothing to score")
    rights = [score.right_passage for score in quote_scores if score.right_passage is not None]
    means = np.mean([(score.precision, score.recall, score.f1) for score in quote_scores], axis=0).tolist()
    return QuoteScore(*means, right_passage=float(np.mean(rights)) if rights else None)


def gold_json(trace: Trace, gold: QuotedAnswer) -> dict[str, Any] | None:
    """Gold quotes for a page: "tokens", the quoted passage of every output token (-2: none), and "quotes", [start,
    stop, passage] in characters of the answer. None where the answer does not hold the quotes.
    """
    tokens, quotes = gold_tokens(trace, gold), _place(gold, TokenText(trace, trace.output_ids).text)
    return None if tokens is None or quotes is None else {"tokens": tokens.tolist(), "quotes": quotes}
