"""Evidence: what a source's removal says about the words of an answer. stdlib only; the numbers come from ``without``.

A source *contributed* to some words where these become at least ten times less likely without it, and speaks *against*
them where they become ten times likelier. It *corroborates* them where it has them word for word and neither holds: the
answer says what the source says, and would have said it anyway. Contributed is a matter of the model, corroborated of
the text; words can be the one without the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from decoders.errors import UserError, capital
from decoders.trace.trace import Trace

from .attribution import SOURCES, SourcePassage, passages
from .text import TokenText, within_word
from .verbatim import quotations

if TYPE_CHECKING:
    from decoders.model.target_model.target import Target

    from .without import ReadAnswer, Without

Standing = Literal["contributed", "corroborates", "against", "none"]
DECISIVE = math.log(10)  # nats: a factor of ten in probability
DIGITS = 3  # of a fall and a probability that are kept
ALIKE = math.log(2)  # nats: what differs by less is about as likely
PASSAGE_NUMBER = re.compile(r"^\[\d+\] ")  # before a passage of several
_SHORT = "Mr|Mrs|Ms|Dr|Prof|St|No|vs|etc|cf|approx|e\\.g|i\\.e|Art|Sec|Fig|Inc|Ltd|Co|[A-Z]"
_END = re.compile(r"(?<!\b(?:[A-Z]))[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+[」』”]*|\n+")
_ABBREVIATION = re.compile(rf"(?:^|[\s(])(?:{_SHORT})\.$")
_MARKER = re.compile(r"\d{1,3}[.)]")  # of a list's item: no words


def standing(fall: float, has_words: bool) -> Standing:
    """The part of a source in some words: ``fall`` is their log-probability with it less that without it (nats),
    ``has_words`` says that it has them word for word.

    >>> standing(5.0, False), standing(0.1, True), standing(0.1, False), standing(-4.0, True)
    ('contributed', 'corroborates', 'none', 'against')
    """
    if fall >= DECISIVE:
        return "contributed"
    if fall <= -DECISIVE:
        return "against"
    return "corroborates" if has_words else "none"


def sentences(trace: Trace) -> list[tuple[int, int]]:
    """The answer's sentences and lines as output tokens [start, stop), in order; blanks alone are none, nor is what has
    no text, nor the number of a list's item.
    """
    text = TokenText(trace, trace.output_ids)
    edges = [match.end() for match in _END.finditer(text.text) if not _ABBREVIATION.search(text.text[: match.end()])]
    spans: list[tuple[int, int]] = []
    token, count = 0, len(text.starts)
    for edge in [*edges, len(text.text)]:
        start = token
        while token < count and text.core(token)[0] < edge:
            token += 1
        words = text.text[text.starts[start] : text.stops[token - 1]].strip() if token > start else ""
        if words and not _MARKER.fullmatch(words):
            spans.append((start, token))
        elif spans and token > start and not words:
            spans[-1] = spans[-1][0], token
    return spans


def evidence_sources(trace: Trace) -> list[SourcePassage]:
    """The sources that the model itself read: passages of the prompt, or its turns."""
    return [source for source in passages(trace, ()) if source.kind in SOURCES]


def copies(trace: Trace, part: Sequence[int]) -> list[list[int]]:
    """The places of the same words in the run's sources, blanks and a passage's number aside: positions each, those of
    ``part`` first. More than one where the words stand twice.
    """
    words = _words(trace, part)
    places = [[*part]]
    for source in evidence_sources(trace):
        text = TokenText(trace, source.ids)
        start = text.text.find(words) if words else -1
        while start >= 0:
            stop = start + len(words)
            tokens = zip(text.starts, text.stops, source.at, strict=True)
            place = [at for first, last, at in tokens if last > start and first < stop]
            is_whole = not within_word(text.text, start) and not within_word(text.text, stop)
            if is_whole and not {*place} & {*part}:
                places.append(place)
            start = text.text.find(words, stop)
    return places


def _words(trace: Trace, part: Sequence[int]) -> str:
    """The text of some positions, without blanks at its ends and the number before a passage."""
    ids = trace.tables["tokens"]["id"]
    return PASSAGE_NUMBER.sub("", TokenText(trace, [ids[at] for at in part]).text.strip()).strip()


@dataclass(frozen=True, slots=True)
class Weight:
    """A part of the prompt in some words of the answer, tokens [start, stop): the fall of their log-probability without
    it, masked and ``reread`` (nats; None where that was not done), whether it has them word for word, and what follows.
    """

    start: int
    stop: int
    fall: float
    reread: float | None
    has_words: bool
    standing: Standing


def factor(fall: float) -> str:
    """The change of a probability by a fall of its logarithm, as people read it.

    >>> factor(1.1), factor(-5.0), factor(21.8), factor(27.0)
    ('3.0', '148', '3·10⁹', '10¹²')
    """
    times = math.exp(min(abs(fall), 700.0))
    if times < 1e4:
        return f"{times:.1f}" if times < 9.95 else f"{times:,.0f}"
    powers = math.log10(times)  # from ten on a whole number, as in ``log_change``
    digit, power = f"{times:.0e}".split("e+")
    digit, power = (f"{digit}·", int(power)) if powers < 10 else ("", round(powers))
    return f"{digit}10{str(power).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def log_change(fall: float) -> str:
    """A fall of a log-probability (nats) in words, in powers of ten as the page's table has it.

    >>> log_change(5.0), log_change(-27.0)
    ('falls by 2.2', 'rises by 12')
    """
    powers = abs(fall) / DECISIVE
    return f"{'falls' if fall >= 0 else 'rises'} by {powers:.{0 if powers >= 10 else 1}f}"


def describe(weight: Weight, name: str, places: int = 1) -> str:
    """A weight in a sentence: the part of the source called ``name``, whose words stand at so many places."""
    whole = weight.fall * places
    has = f"has {'' if weight.has_words else 'fewer than half of '}these words"
    without = "without it" if places == 1 else f"without all {places} of them"
    fall = f"log₁₀ p {log_change(whole)}"
    if weight.reread is not None:
        reread = log_change(weight.reread * places)
        also = ", also" if reread == log_change(whole) else f"; it {reread}"
        fall += f"{also} where the prompt is read again {without}"
    direction = f"{factor(whole)} times {'less likely' if whole > 0 else 'likelier'}"
    change = f"{'about as likely' if abs(whole) < ALIKE else direction} ({fall})."
    text = {
        "contributed": f"{name} contributed: {without} these words are {change}",
        "against": f"{name} speaks against: {without} these words are {change}",
        "corroborates": f"{name} corroborates: it {has}, and {without} these are {change}",
        "none": f"{name} took no decisive part: it {has}, and {without} these are {change}",
    }[weight.standing]
    if weight.standing == "contributed" and not weight.has_words:
        text += f" It {has} word for word."
    if places > 1:
        text += f" They stand {places} times in the sources: each is the cause of 1/{places}."
    return text


def weights(
    trace: Trace, places: Sequence[Sequence[int]], without: Without, spans: Sequence[tuple[int, int]]
) -> list[Weight]:
    """The weight of a part that stands at ``places`` of the prompt (its ``copies``), all of which ``without`` left out,
    in each of some spans of output tokens. Of several places each is the cause of its share: the fall ÷ places.
    """
    words_mask = token_mask(trace, [at for place in places for at in place])
    share = 1 / len(places)

    def total(falls: Sequence[float], start: int, stop: int) -> float:
        return round(math.fsum(falls[start:stop]) * share, DIGITS)

    span_weights = []
    for start, stop in spans:
        fall = total(without.falls, start, stop)
        reread = None if without.reread is None else total(without.reread, start, stop)
        has_words = 2 * sum(words_mask[start:stop]) >= stop - start > 0
        span_weights.append(Weight(start, stop, fall, reread, has_words, standing(fall / share, has_words)))
    return span_weights


def cause(
    trace: Trace, answer: ReadAnswer, name: str, part: Sequence[int], spans: Sequence[tuple[int, int]] = (),
) -> dict[str, Any]:  # fmt: skip
    """The answer without a part of its prompt and all its ``copies``, as JSON: falls of log p by token (masked, and
    "reread"), the first choice in a token's place with its probability where it is another, and the part's weight in
    the whole answer and each sentence, or in ``spans``; "said" has it in words.
    """
    claims = sentences(trace)
    places = copies(trace, part)
    without = answer.without([at for place in places for at in place])
    pieces = answer.target.pieces
    instead = [
        None
        if choice == token or pieces is None
        else [pieces.of(choice)[0].decode("utf-8", "backslashreplace"), round(p, DIGITS)]
        for choice, token, p in zip(without.instead, answer.answer, without.instead_p, strict=True)
    ]
    span_weights = weights(trace, places, without, spans or [(0, claims[-1][1]), *claims])
    return {
        "name": name, "model": answer.target.name, "places": len(places), "mask_fault": answer.mask_fault,
        "fall": [round(fall, DIGITS) for fall in without.falls],
        "reread": [round(fall, DIGITS) for fall in without.reread or ()], "instead": instead,
        "weights": [{**asdict(weight), "said": describe(weight, name, len(places))} for weight in span_weights],
    }  # fmt: skip


def causes(trace: Trace, target: Target) -> Iterator[dict[str, Any]]:
    """The ``cause`` of each source of a run, in order, with the source's kind and passage. Raises UserError where there
    is no source, or no answer.
    """
    from .without import ReadAnswer  # loads torch

    sources = evidence_sources(trace)
    if not sources or not sentences(trace):
        raise UserError("there is nothing to leave out: give a prompt with passages or turns, and an answer with words")
    answer = ReadAnswer(target, trace.prompt_ids, trace.output_ids)
    for source in sources:
        home = {"kind": source.kind, "passage": source.passage}
        yield home | cause(trace, answer, capital(source.name), source.at)


def token_mask(trace: Trace, positions: Sequence[int]) -> list[bool]:
    """True for each output token that is quoted word for word from these positions of the prompt."""
    part, mask = {*positions}, [False] * len(trace.output_ids)
    homes = [source.home for source in evidence_sources(trace) if part & {*source.at}]
    for home in homes:  # each alone: a quotation is linked to one source, and may stand in several
        for link in quotations(trace, [home]):
            if part & {*range(link.source, link.source_stop)}:
                mask[link.start : link.stop] = [True] * len(link)
    return mask
