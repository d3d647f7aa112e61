"""Words of results: how the parts of a claim, its quantity and its numbers stand in a sentence.

``wording.toml`` has the words of whatever is not said as it is labelled. Everything else is said by its label, so that
a user's own sweep, or a recipe of a plug-in, has its sentences too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from decoders.errors import capital
from specviz.views.prompts import NAMES
from specviz.words import enumeration, numeric

from .comparison import COLUMN, PLACE, SEPARATOR, order
from .experiment import CATEGORY
from .quantities import Profile, part_name
from .results import Results

WORDS: Mapping[str, Mapping[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
UNITS = {"share": " %", "×": "×", "": "", "ρ": ""}
RELATIONS = {"<": "below", ">": "above", "=": "level with"}
TRENDS = {"<": "rises", ">": "falls", "=": "stays level"}
PLAIN = "Plain decoding"  # a line
TOLERANCE = 0.05  # of the larger number: what differs by less has no trend
COUNTS = {3: "the three", 4: "the four", 5: "the five"}  # compared lines
PREPOSITIONS = tuple(
    ["with", "without", "at", "on", "in", "of", "for", "from", "after", "counting", "by", "when", "won", "whose"]
)
UNCOUNTABLE = ("added memory",)


@dataclass(frozen=True, slots=True)
class Phrase:
    """``text``: a name ("PLD+") or a phrase ("with 2 branches"); ``repeat``: the same behind another of its axis."""

    text: str
    repeat: str = ""

    @property
    def is_name(self) -> bool:
        return self.text.partition(" ")[0] not in PREPOSITIONS

    @property
    def at(self) -> str:
        """The phrase inside a sentence.

        >>> Phrase("PLD+").at, Phrase("at depth 2").at
        ('with PLD+', 'at depth 2')
        """
        return f"with {self.text}" if self.is_name else self.text

    @property
    def name(self) -> str:
        """The phrase where it stands alone, as in a legend.

        >>> Phrase("with a draft length of 4 tokens").name, Phrase("without successors").name
        ('draft length of 4 tokens', 'without successors')
        """
        return re.sub(r"^((with|at|on|in|for|by|when) )?((a|an|the) )?", "", self.text)


def phrase(results: Results, parts: Sequence[str], metric: str) -> Phrase:
    """The parts of a claim's selector."""
    if together := WORDS["lines"].get(SEPARATOR.join(parts)):
        return Phrase(together)
    phrases = [_part(results, part, metric) for part in parts]
    if len(phrases) == 1:
        return phrases[0]
    return Phrase(" ".join(entry.text for entry in sorted(phrases, key=lambda entry: not entry.is_name)))


def _part(results: Results, part: str, metric: str) -> Phrase:
    if part.startswith(COLUMN):
        column = part.removeprefix(COLUMN)
        return Phrase(WORDS["parts"].get(column, f"for {part_name(column.partition(':')[2])}"))
    if part.startswith(PLACE):
        return _place(results, part.removeprefix(PLACE), metric.partition(":")[0])
    param, equals, value = part.partition("=")
    label = next((axis["label"] for axis in results.about["axes"] if axis["param"] == param), "")
    if equals and label:
        return axis_phrase(label, value)
    if any(row.get(CATEGORY) == part for row in results.rows):
        return Phrase(WORDS["tasks"].get(part, f"on {NAMES.get(part, part)}"))
    return Phrase(WORDS["lines"].get(part, str(NAMES.get(part, lower(part) if part == PLAIN else part))))


def _place(results: Results, place: str, key: str) -> Phrase:
    quantity = results.quantity(key)
    name = quantity.along.partition(":")[0] if isinstance(quantity, Profile) else "place"
    places = WORDS["places"]
    if text := places.get(f"{key}/{place}"):
        return Phrase(text)
    return _fill(places.get(key, f"at {name} {{}}"), place.replace("/", ", "))


def axis_phrase(label: str, value: str) -> Phrase:
    """A value along an axis.

    >>> axis_phrase("branches K", "2").text, axis_phrase("heads", "1").text, axis_phrase("hard labels", "no").text
    ('with 2 branches', 'with 1 head', 'without hard labels')
    >>> axis_phrase("branches K", "32").repeat, axis_phrase("my own parameter, in ms", "3").text
    ('with 32', 'with my own parameter 3')
    """
    label, words = label.partition(",")[0].partition(" (")[0], WORDS["axes"]
    if text := words.get(f"{label}={value}"):
        return Phrase(text)
    return _fill(words.get(label, f"with {label} {{}}"), value)


def _fill(template: str, value: str) -> Phrase:
    number = plain_number(value)
    plural = "" if number == "1" else r"\1"
    text = re.sub(r"\((e?s)\)", plural, template.replace("{}", number))
    preposition = text.partition(" ")[0]
    return Phrase(text, text if preposition == "in" else f"{preposition} {number}")


def plain_number(text: str) -> str:
    """
    >>> plain_number("1000000"), plain_number("1e-05"), plain_number("off")
    ('1,000,000', '0.00001', 'off')
    """
    if text.isdigit():
        return f"{int(text):,}"
    return f"{float(text):.10f}".rstrip("0") if "e" in text and numeric(text) else text


def legend_text(name: str) -> str:
    """A series, or a place along the axis, in a legend.

    >>> legend_text("@1 top-5 · chat"), legend_text("PLD+ (h) · counted = drafted tokens"), legend_text("my k = 4")
    ('first five, one ahead · chat', 'PLD+ (h) · counting drafted tokens', 'my k = 4')
    """
    return " · ".join(_legend_part(part) for part in name.split(" · "))


def _legend_part(part: str) -> str:
    label, equals, value = part.partition(" = ")
    if equals and (label in WORDS["axes"] or f"{label}={value}" in WORDS["axes"]):
        return axis_phrase(label, value).name
    return WORDS["series"].get(part, str(NAMES.get(part, part)))


def noun_of(results: Results, metric: str) -> str:
    """A quantity, or one part of it, as a noun."""
    key, _, part = metric.partition(":")
    nouns = WORDS["quantities"]
    if metric in nouns:
        return nouns[metric]
    noun = nouns.get(key, lower(results.quantity(key).label))
    return f"{noun} {WORDS['parts'].get(metric, f'({part_name(part)})')}" if part else noun


def heading(noun: str) -> str:
    """A noun above what is drawn of it.

    >>> heading("the acceptance rate"), heading("tokens per step")
    ('Acceptance rate', 'Tokens per step')
    """
    return capital(_bare(noun))


def number_with_unit(text: str, unit: str, noun: str) -> str:
    """A number with its unit, which is left out where the noun has it.

    >>> number_with_unit("35", "share", "quality"), number_with_unit("12", "ms", "the time of a lookup")
    ('35 %', '12 ms')
    >>> number_with_unit("3.9", "tokens/step", "tokens per step")
    '3.9'
    """
    has_unit = unit not in UNITS and unit.replace("/", " per ") in noun.lower()
    return text if has_unit else text + UNITS.get(unit, f" {unit}")


def trend(numbers: Sequence[float]) -> str:
    """The sign that all numbers follow, "=" where they differ by less than ``TOLERANCE``, nothing where they turn.

    >>> trend([2.0, 2.4, 3.0]), trend([3.48, 3.40]), trend([19, 15, 21])
    ('<', '=', '')
    """
    if max(numbers) - min(numbers) <= TOLERANCE * max(map(abs, numbers)):
        return "="
    signs = {*order(numbers)} - {"="}
    return signs.pop() if len(signs) == 1 else ""


def sentence(
    noun: str, phrases: Sequence[Phrase], values: Sequence[str], numbers: Sequence[float], unit: str, signs: str,
    sign: str,
) -> str:  # fmt: skip
    """Our numbers as a person says them, without a capital; ``values`` are the numbers as they are shown, ``signs``
    their order by the claim, ``sign`` the ``trend`` of all that was measured: its word stands where both agree.

    >>> sentence("speedup", [Phrase("PLD"), Phrase("PLD+")], ["2.1", "2.4"], [2.1, 2.4], "×", "<", "<")
    'PLD+ has a higher speedup (2.4×) than PLD (2.1×)'
    >>> lengths = [axis_phrase("draft length K", "2"), axis_phrase("draft length K", "8")]
    >>> sentence("tokens per step", lengths, ["2.7", "3.2"], [2.7, 3.2], "tokens/step", "<", "<")
    'tokens per step rise from 2.7 with a draft length of 2 tokens to 3.2 with 8'
    """
    values = [number_with_unit(value, unit, noun) for value in values]
    is_many, at = is_plural(noun), [entry.at for entry in phrases]
    verb = "are" if is_many else "is"
    if is_axis := all(entry.repeat for entry in phrases):
        at = [at[0], *(entry.repeat for entry in phrases[1:])]
    if len({*values}) == 1:
        if all(entry.is_name for entry in phrases):
            return f"{enumeration([entry.text for entry in phrases])} have the same {_bare(noun)}: {values[0]}"
        return f"{noun} {verb} {values[0]} {'both ' * (len(at) == 2)}{enumeration(at)}"
    is_level = {*signs} == {"="}
    if is_level and sign == "=" and (is_axis or all(entry.is_name for entry in phrases)):
        if all(entry.is_name for entry in phrases):
            names = enumeration([entry.text for entry in phrases])
            return f"{names} have about the same {_bare(noun)}: {enumeration(values)}"
        places = enumeration([f"{value} {place}" for value, place in zip(values, at, strict=True)])
        return f"{noun} {'stay' if is_many else 'stays'} about level: {places}"
    if is_axis and sign != "=" and {*signs} - {"="} == {sign}:
        verb = TRENDS[sign].removesuffix("s" if is_many else "")
        return f"{noun} {verb} from {values[0]} {at[0]} to {values[-1]} {at[-1]}"
    pairs = list(zip(values, phrases, at, numbers, strict=True))
    if not is_axis:
        pairs.sort(key=lambda pair: -pair[3])
    if is_level or not all(entry.is_name for entry in phrases):
        return f"{noun} {verb} {enumeration([f'{value} {place}' for value, _, place, _ in pairs])}"
    (value, first, *_), (rival_value, rival, *_) = pairs[:2]
    if len(pairs) == 2:
        relation = "more" if is_many or noun in UNCOUNTABLE else "a higher"
        return f"{first.text} has {relation} {_bare(noun)} ({value}) than {rival.text} ({rival_value})"
    others = enumeration([f"{value} {place}" for value, _, place, _ in pairs[1:]])
    most = f"the {'most' if is_many else 'highest'} {_bare(noun)} of {COUNTS.get(len(pairs), 'those compared')}"
    return f"{first.text} has {most}: {value}, against {others}"


def level_sentence(
    noun: str, place: Phrase, values: Sequence[str], numbers: Sequence[float], unit: str, key: str
) -> str:
    """A number beside a level: plain decoding's, half of all, or a bound that the comparison sets.

    >>> level_sentence("speedup", Phrase("PPD"), ["0.93", "1.00"], [0.93, 1.0], "×", "speedup")
    'with PPD, decoding is slower than plain decoding: 0.93×'
    >>> level_sentence("the share of steps", Phrase("AdaPLD"), ["22", "10"], [0.22, 0.1], "share", "outcomes")
    'the share of steps is 22 % with AdaPLD, above the bound of 10 % set here'
    """
    value, level = (number_with_unit(text, unit, noun) for text in values)
    if key == "speedup" and numbers[1] == 1:
        relation = "faster" if numbers[0] > 1 else "slower"
        return f"{place.at}, decoding is {relation} than plain decoding: {value}"
    fact = f"{noun} {'are' if is_plural(noun) else 'is'} {value} {place.at}"
    if not numbers[1]:
        return fact
    if unit == "×" and numbers[1] == 1:
        return f"{fact}, {RELATIONS[order(numbers)]} plain decoding (1×)"
    if unit == "share" and numbers[1] == 0.5 and numbers[0] != 0.5:
        return f"{fact}, {'more' if numbers[0] > 0.5 else 'less'} than half"
    return f"{fact}, {RELATIONS[order(numbers)]} the bound of {level} set here"


def lower(label: str) -> str:
    """A label inside a sentence.

    >>> lower("Tokens per step"), lower("LDS")
    ('tokens per step', 'LDS')
    """
    return label if label[1:2].isupper() or label[1:2].isdigit() else label[:1].lower() + label[1:]


def _bare(noun: str) -> str:
    return noun.removeprefix("the ")


def is_plural(noun: str) -> bool:
    """
    >>> is_plural("tokens per step"), is_plural("loss while learning"), is_plural("LDS")
    (True, False, False)
    """
    head = re.split(r" (?:per|by|in|of|that|while|relative|for|won|\()", noun)[0]
    return head.endswith("s") and not head.endswith("ss")
